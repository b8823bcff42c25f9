package dynamo

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// Charge implements table.Client.
func (c *Client) Charge(ctx context.Context, key table.Key, take table.FastCharge) (table.WriteResult, error) {
	if err := take.Sound(); err != nil {
		return table.WriteResult{}, fmt.Errorf("take: %w", err)
	}
	limits := slices.Sorted(maps.Keys(take.Amounts))
	return c.charge(ctx, "take", key, c.shapes.of(limits, take).filled(limits, take))
}

// takeShapes keeps what the takes of a set of limits have in common: their
// text, which costs more than all else about a take if it is made anew.
type takeShapes struct {
	cache *lru.Cache[string, *expression]
}

// maxShapes is how many sets of limits are remembered: a program has a few, but
// what it is asked for may come from outside.
const maxShapes = 256

func newTakeShapes() takeShapes {
	cache, err := lru.New[string, *expression](maxShapes)
	if err != nil {
		panic("dynamo: " + err.Error()) // of a size below 1
	}
	return takeShapes{cache}
}

func (s takeShapes) of(limits []string, take table.FastCharge) *expression {
	key := shapeKey(limits, take)
	shape, ok := s.cache.Get(key)
	if !ok {
		shape = takeShape(limits, take)
		s.cache.Add(key, shape)
	}
	return shape
}

// shapeKey is another one for any other names, whatever is in them.
func shapeKey(limits []string, take table.FastCharge) string {
	var key strings.Builder
	key.WriteString(strconv.FormatBool(take.Hot))
	key.WriteString(strconv.FormatBool(take.Free))
	for _, limit := range limits {
		key.WriteString(strconv.Itoa(len(limit)))
		key.WriteByte(' ')
		key.WriteString(limit)
	}
	return key.String()
}

func takeExpression(take table.FastCharge) *expression {
	limits := slices.Sorted(maps.Keys(take.Amounts))
	return takeShape(limits, take).filled(limits, take)
}

// Aliases of a take's values, those of its limits' amounts after them.
const (
	aliasNow     = ":0"
	aliasSecond  = ":1"
	aliasFalse   = ":2"
	aliasWrite   = ":3" // what a write takes of the meter
	aliasWritten = ":4" // and what that leaves it short of
	fixedAliases = 5
)

func aliasAmount(i int) string { return ":" + strconv.Itoa(fixedAliases+3*i) }

func aliasDebit(i int) string { return ":" + strconv.Itoa(fixedAliases+3*i+1) }

func aliasFloor(i int) string { return ":" + strconv.Itoa(fixedAliases+3*i+2) }

// takeShape is a take of limits without its values.
func takeShape(limits []string, take table.FastCharge) *expression {
	e := newExpression()
	e.require(e.exists(table.AttrPK))
	e.require(either(e.absent(table.AttrDisabled), e.name(table.AttrDisabled)+" = "+aliasFalse))
	e.require(either(e.absent(table.AttrTTL), e.name(table.AttrTTL)+" > "+aliasSecond))
	e.require(e.exists(table.Attr(quota.WriteMeter, table.FieldBalance)))
	for _, limit := range limits {
		e.require(e.exists(table.Attr(limit, table.FieldCapacity)))
	}
	if take.Free {
		e.free(limits)
	} else {
		e.enforce(limits, take.Hot)
	}
	e.adds = append(e.adds,
		e.name(table.Attr(quota.WriteMeter, table.FieldConsumed))+" "+aliasWrite,
		e.name(table.Attr(quota.WriteMeter, table.FieldBalance))+" "+aliasWritten)
	e.render()
	return e
}

// free takes of a bucket that is bypassed: onto the totals alone.
func (e *expression) free(limits []string) {
	e.require(e.after(table.AttrBypass))
	for i, limit := range limits {
		// An addition to a limit without a balance would make part of a limit.
		e.require(e.exists(table.Attr(limit, table.FieldBalance)))
		e.adds = append(e.adds, e.name(table.Attr(limit, table.FieldConsumed))+" "+aliasAmount(i))
	}
}

// enforce takes of a bucket whose limits hold.
func (e *expression) enforce(limits []string, hot bool) {
	e.require(either(e.absent(table.AttrBypass), e.name(table.AttrBypass)+" <= "+aliasNow))
	e.require(either(e.absent(table.AttrValidUntil), e.after(table.AttrValidUntil)))
	if !hot {
		e.require(e.name(table.Attr(quota.WriteMeter, table.FieldBalance)) + " >= " + aliasWrite)
	}
	for i, limit := range limits {
		balance := table.Attr(limit, table.FieldBalance)
		// A soft limit admits whatever its balance, but not where it has none, or one
		// that could not be read any more.
		soft := both(e.after(table.Attr(limit, table.FieldSoft)), e.name(balance)+" >= "+aliasFloor(i))
		e.require(either(e.name(balance)+" >= "+aliasAmount(i), soft))
		e.adds = append(e.adds,
			e.name(table.Attr(limit, table.FieldConsumed))+" "+aliasAmount(i), e.name(balance)+" "+aliasDebit(i))
	}
}

// after requires a time that is to come.
func (e *expression) after(attribute string) string { return e.name(attribute) + " > " + aliasNow }

// filled is a shape with the values of a take.
func (e *expression) filled(limits []string, take table.FastCharge) *expression {
	full := *e
	full.values = make(table.Item, fixedAliases+3*len(limits))
	set := func(alias string, n int64) { full.values[alias] = table.N(strconv.FormatInt(n, 10)) }
	set(aliasNow, take.Now)
	set(aliasSecond, take.Now/1000)
	set(aliasWrite, quota.WriteCost)
	set(aliasWritten, -quota.WriteCost)
	full.values[aliasFalse] = &types.AttributeValueMemberBOOL{}
	for i, limit := range limits {
		set(aliasAmount(i), take.Amounts[limit])
		if !take.Free { // a value that no expression names is refused
			set(aliasDebit(i), -take.Amounts[limit])
			set(aliasFloor(i), take.Amounts[limit]-quota.MaxAmount)
		}
	}
	return &full
}
