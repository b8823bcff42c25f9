package table

// MaxBatchKeys is how many keys one batch read takes, none of them twice.
const MaxBatchKeys = 100
