package dynamo

// Client is a Store.
type Client = Store

// NewClient is New.
func NewClient(client API, tableName string, options ...Option) *Store {
	return New(client, tableName, options...)
}
