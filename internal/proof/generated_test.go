package proof_test

import (
	"strings"
	"unicode"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// kindOf is a write's operation without the number of a shard.
func kindOf(w *table.Write) string {
	kind, _, _ := strings.Cut(w.Operation, " shard ")
	return kind
}

// generic is an attribute's name without a limit's name and without the number of
// a shard.
func generic(name string) string {
	limit, field, ok := table.SplitAttr(name)
	switch {
	case ok && limit == quota.WriteMeter:
		return name
	case ok:
		return table.Attr("*", field)
	}
	for _, source := range []string{table.PositionAttr(0), table.RangesAttr(0)} {
		prefix := strings.TrimSuffix(source, "0")
		if rest, ok := strings.CutPrefix(name, prefix); ok && strings.TrimFunc(rest, unicode.IsDigit) == "" {
			return prefix + "*"
		}
	}
	return name
}
