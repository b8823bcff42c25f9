package interop

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/limiter"
	"github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/table"
)

// TestUnpinnedCreation shows the one thing that theirs can grant twice: it plans
// a shard at the count that it read, and where shard 0 is doubled before the
// shard is put, it puts it all the same. In a period in which shard 0 was not
// restored yet it makes the second of two shards with one half. Meanwhile there
// are four, and ours has made the last, with a quarter of the same half. The
// books of TestLoad find a quarter too much, and allow for no more than the half.
func TestUnpinnedCreation(t *testing.T) {
	w := newWorld(t, true)
	const entity, capacity = "acme", 1_000
	one := limiter.Amounts{"calls": 1}
	w.set(entity, limits.Quota("calls", capacity, farEdge(t)))
	use(t, w.ours, entity, one)
	w.theyDouble(entity, 1)
	yesterday := time.Now().Add(-48 * time.Hour).UnixMilli()
	zero := table.ItemKey{PK: w.group(entity).At(0).PK(), SK: table.StateSK}
	w.change(zero, table.Item{table.AttrRefilledAt: table.N(fmt.Sprint(yesterday)), table.AttrValidUntil: table.N("0")})

	meeting := table.ItemKey{PK: "meeting", SK: "meeting"}
	w.change(meeting, table.Item{"called": table.S("by the test")})
	answer := make(chan error, 1)
	go func() { answer <- w.theyMeet(entity, one, 1, meeting) }()
	w.await(meeting, "planned", answer)
	_, err := w.store.Double(t.Context(), w.group(entity), 2)
	must(t, err)
	use(t, w.drawing(entity, 3), entity, one)
	w.change(meeting, table.Item{"met": &types.AttributeValueMemberBOOL{Value: true}})
	must(t, <-answer)
	for _, shard := range []int{0, 2} {
		use(t, w.drawing(entity, shard), entity, one)
	}

	w.settle()
	c := &customer{entity: entity, lasts: 1, period: func(i table.Item) int64 { return min(number(i, table.AttrRefilledAt), yesterday+1) }}
	writes := w.writes()
	outdated := slices.IndexFunc(writes, func(w write) bool { return number(w.new, table.AttrRefilledAt) == yesterday })
	p := periodsOf(c, writes[outdated+1:], 1000*capacity)[yesterday+1]
	eq(t, "given", p.given, 4_000)
	eq(t, "supplied", p.supplied, 1_250_000)
	eq(t, "allowed beyond what was sold", p.unpinned, 500_000)
}

// theyMeet has theirs use a shard, held up by a meeting.
func (w *world) theyMeet(entity string, amounts limiter.Amounts, shard int, meeting table.ItemKey) error {
	var took limiter.Amounts
	err := w.theirs.try("acquire", args{"entity": entity, "resource": resource, "amounts": amounts, "shard": shard, "meet": meeting.PK}, &took)
	if err == nil && took == nil {
		err = errors.New("theirs was refused")
	}
	return err
}

// change sets attributes of an item, whatever it is.
func (w *world) change(key table.ItemKey, set table.Item) {
	w.Helper()
	input := &dynamodb.UpdateItemInput{
		TableName: &w.table, Key: table.Item{table.AttrPK: table.S(key.PK), table.AttrSK: table.S(key.SK)},
		AttributeUpdates: map[string]types.AttributeValueUpdate{},
	}
	for name, value := range set {
		input.AttributeUpdates[name] = types.AttributeValueUpdate{Action: types.AttributeActionPut, Value: value}
	}
	_, err := w.client.UpdateItem(w.Context(), input)
	must(w, err)
}

// await polls until an item has an attribute; whoever sets it may fail before.
func (w *world) await(key table.ItemKey, attribute string, failed <-chan error) {
	w.Helper()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for {
		item, err := w.store.Get(w.Context(), key.PK, key.SK)
		must(w, err)
		if item[attribute] != nil {
			return
		}
		select {
		case err := <-failed:
			w.Fatalf("it ended before: %v", err)
		case <-w.Context().Done():
			w.Fatal("the test has ended")
		case <-poll.C:
		}
	}
}
