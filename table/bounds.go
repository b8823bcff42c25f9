package table

// What DynamoDB takes. Each bound names its section of "Constraints in Amazon
// DynamoDB" in the developer guide, or the page of the API reference.

// MaxBatchKeys is how many keys one batch read takes, none of them twice.
// (BatchGetItem)
const MaxBatchKeys = 100

const (
	// Partition keys and sort keys, those of indexes too. Neither may be empty.
	maxPK = 2048 // bytes
	maxSK = 1024 // bytes

	// Items, with the names of their attributes.
	maxItemSize = 400 << 10 // bytes

	// Attributes: names, and how deep lists and maps may nest.
	maxAttributeName = 64<<10 - 1 // bytes
	maxNesting       = 32

	// Data types: a number, and its decimal exponents.
	maxDigits   = 38
	maxExponent = 125
	minExponent = -130

	// Expression parameters. Operators are AND, OR, comparisons and functions, as
	// "Count expression operators in DynamoDB" counts them.
	maxExpression    = 4 << 10 // bytes of one expression
	maxOperators     = 300     // in one expression
	maxSubstitutions = 2 << 20 // bytes of a request's names and values together

	// DynamoDB transactions, and TransactWriteItems.
	maxTransaction     = 100     // items, none twice
	maxTransactionSize = 4 << 20 // bytes of all its items
)

// indexKeys are the keys of the table's indexes, and how long each may be.
var indexKeys = map[string]int{
	"GSI1PK": maxPK, "GSI1SK": maxSK, AttrGSI2PK: maxPK, AttrGSI2SK: maxSK,
	AttrGSI3PK: maxPK, AttrGSI3SK: maxSK, AttrGSI4PK: maxPK, AttrGSI4SK: maxSK,
}
