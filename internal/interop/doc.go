// Package interop lets zae-limiter's own client and this project's share one
// table: each reads what the other has written, uses the other's buckets, and
// under minutes of mixed load both together admit what was sold and no more.
//
// It has tests only. They need zae-limiter 0.17.0 (testdata/requirements.txt)
// in the interpreter that SHARDQUOTA_PYTHON names.
package interop
