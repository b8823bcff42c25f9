package proof_test

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/memory"
)

// text returns what tells a write when it is done: the write, and the item after
// it, or why it was refused.
func (w *world) text(write *table.Write) func() string {
	before := w.mem.Get(write.Key.PK, write.Key.SK)
	broken := unmet(write, before)
	return func() string {
		after := w.mem.Get(write.Key.PK, write.Key.SK)
		text := writeText(write) + "\n      "
		switch {
		case broken != "":
			return text + "refused: not so is " + readable(broken) + "; there is" + readable(differences(nil, telling(before)))
		case !write.Changes():
			return text + "holds"
		case write.Put != nil:
			return text + "done"
		}
		return text + "done:" + readable(differences(before, after))
	}
}

// writeText prints a write: of an item that it puts only what tells most, and of
// the configuration that it requires to be as read only how much that is.
func writeText(write *table.Write) string {
	short := *write
	short.Put = nil
	short.Require = slices.DeleteFunc(slices.Clone(write.Require), func(c table.Condition) bool { return mentions(c, configNames) })
	text := short.String()
	if n := len(write.Require) - len(short.Require); n > 2 {
		text += fmt.Sprintf("; if %d attributes of its configuration are as read", n)
	} else {
		short.Require = write.Require
		text = short.String()
	}
	if write.Put != nil {
		text += "; put" + differences(nil, telling(write.Put))
	}
	return readable(text)
}

// configNames are attributes, and fields of limits, that an operator changes.
var configNames = []string{
	table.AttrDisabled, table.AttrSchedule, table.AttrResets, table.AttrZone,
	string(table.FieldCapacity), string(table.FieldRefill), string(table.FieldPeriod), string(table.FieldLength), string(table.FieldDivision),
}

// unmet is the first condition of a write that does not hold.
func unmet(write *table.Write, item table.Item) string {
	probe := memory.New()
	if item != nil {
		probe.Put(item)
	}
	for _, c := range write.Require {
		result, err := probe.Do(context.Background(), &table.Write{Key: write.Key, Require: []table.Condition{c}})
		if err != nil || !result.Applied {
			return c.String()
		}
	}
	return ""
}

// telling is the part of an item that says what it has: count, times, balances
// and grants.
func telling(item table.Item) table.Item {
	part := table.Item{}
	for name, value := range item {
		limit, field, ofLimit := table.SplitAttr(name)
		switch {
		case name == table.AttrShardCount, name == table.AttrRefilledAt, name == table.AttrValidUntil:
			part[name] = value
		case ofLimit && limit != quota.WriteMeter && slices.Contains(tellingFields, field):
			part[name] = value
		}
	}
	return part
}

var tellingFields = []table.Field{
	table.FieldBalance, table.FieldGrant, table.FieldStart, table.FieldApplied, table.FieldConsumedAtOpen,
}

// differences lists the attributes that a write changed.
func differences(before, after table.Item) string {
	names := map[string]bool{}
	for name := range before {
		names[name] = true
	}
	for name := range after {
		names[name] = true
	}
	text := ""
	for _, name := range slices.Sorted(maps.Keys(names)) {
		is, was := valueText(after[name]), valueText(before[name])
		switch {
		case strings.HasPrefix(name, "GSI") || name == table.AttrPK || name == table.AttrSK || is == was:
		case before == nil:
			text += " " + name + " " + is
		default:
			text += " " + name + " " + was + " -> " + is
		}
	}
	if text == "" {
		return " nothing"
	}
	return text
}

func valueText(value types.AttributeValue) string {
	switch v := value.(type) {
	case nil:
		return "none"
	case *types.AttributeValueMemberN:
		return v.Value
	case *types.AttributeValueMemberS:
		return v.Value
	case *types.AttributeValueMemberBOOL:
		return strconv.FormatBool(v.Value)
	}
	return fmt.Sprint(value)
}

var (
	keyTexts = strings.NewReplacer(
		acme.Namespace+"/BUCKET#"+acme.Entity+"#"+acme.Resource+"#", "shard ",
		acme.Namespace+"/BUCKET#"+parent.Entity+"#"+parent.Resource+"#", "the parent's shard ",
		acme.Namespace+"/", "", " "+table.StateSK, "",
	)
	epochTexts = regexp.MustCompile(`\b1[78]\d{11}\b`)
)

// readable shortens keys to the names of shards, and epoch milliseconds to times
// of day.
func readable(text string) string {
	return epochTexts.ReplaceAllStringFunc(keyTexts.Replace(text), func(ms string) string {
		n, _ := strconv.ParseInt(ms, 10, 64)
		return clock(n)
	})
}

// briefs say what items were read.
func briefs(keys []table.ItemKey, items []table.Item) (text string) {
	for i, item := range items {
		text += ", " + readable(keys[i].PK+" "+keys[i].SK)
		b, err := table.DecodeBucket(item)
		switch {
		case item == nil:
			text += " (none)"
		case err == nil:
			text += brief(b)
		}
	}
	return strings.TrimPrefix(text, ",")
}

func shardBrief(key table.Key, b *table.Bucket) string {
	if b == nil {
		return readable(key.PK()) + " (none)"
	}
	return readable(key.PK()) + brief(b)
}

// brief says what a bucket holds.
func brief(b *table.Bucket) string {
	return fmt.Sprintf(" (count %d, rf %s, q %s)", b.ShardCount, clock(b.RefilledAt), tokens(b.Limit("q").Balance))
}

func outcome(applied bool) string {
	if applied {
		return "done"
	}
	return "refused"
}
