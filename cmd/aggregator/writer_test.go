package main_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/table"
)

const (
	namespace = "Ns-1"
	resource  = "gpt-4"
)

// limit is a limit as a client writes it onto a bucket. One without refill is a
// quota, restored at some hour of the day that is far from now.
type limit struct {
	name             string
	capacity, refill int64 // millitokens
	period           int64 // ms
}

// writer writes bucket items as a client of the table does, and keeps its own
// account of what it consumed.
type writer struct {
	t        testing.TB
	client   *dynamodb.Client
	table    string
	consumed map[string]map[string]int64 // millitokens by entity and limit
}

func newWriter(t testing.TB, client *dynamodb.Client, tableName string) *writer {
	return &writer{t, client, tableName, map[string]map[string]int64{}}
}

func (w *writer) account(entity string, amounts map[string]int64) {
	if w.consumed[entity] == nil {
		w.consumed[entity] = map[string]int64{}
	}
	for name, amount := range amounts {
		w.consumed[entity][name] += amount
	}
}

func bucketPK(entity string, shard int) string {
	return fmt.Sprintf("%s/BUCKET#%s#%s#%d", namespace, entity, resource, shard)
}

// farHour is the hour twelve hours from a time: a daily reset then is as far
// from it on either side as can be.
func farHour(now time.Time) int { return (now.UTC().Hour() + 12) % 24 }

// newBucket is shard 0 of an entity as a client makes it at a time, with the
// first consumption taken off.
func newBucket(now time.Time, entity string, limits []limit, amounts map[string]int64) item {
	now = now.UTC()
	edge := time.Date(now.Year(), now.Month(), now.Day(), farHour(now), 0, 0, 0, time.UTC)
	for !edge.After(now) {
		edge = edge.AddDate(0, 0, 1)
	}
	i := item{
		"PK": table.S(bucketPK(entity, 0)), "SK": table.S("#STATE"),
		"GSI2PK": table.S(namespace + "/RESOURCE#" + resource), "GSI2SK": table.S("BUCKET#" + entity + "#0"),
		"GSI3PK": table.S(namespace + "/ENTITY#" + entity), "GSI3SK": table.S("BUCKET#" + resource + "#0"),
		"GSI4PK": table.S(namespace), "GSI4SK": table.S("BUCKET#" + entity + "#" + resource + "#0"),
		"entity_id": table.S(entity), "resource": table.S(resource), "cascade": &types.AttributeValueMemberBOOL{},
		"pinc": table.S("f29cc26c3a706da1"), // a client's own business; new shards must have it too
		"rf":   num(now.UnixMilli()), "vu": num(edge.UnixMilli()), "shard_count": num(1),
		"rsched": table.S(fmt.Sprintf("1m0h%d", farHour(now))), "sched_tz": table.S("UTC"),
	}
	for _, l := range slices.Concat(limits, []limit{{"wcu", 1_000_000, 1_000_000, 1000}}) {
		prefix := "b_" + l.name
		i[prefix+"_cp"], i[prefix+"_ra"], i[prefix+"_rp"] = num(l.capacity), num(l.refill), num(l.period)
		i[prefix+"_tk"], i[prefix+"_tc"] = num(l.capacity-amounts[l.name]), num(amounts[l.name])
		if l.refill == 0 {
			i[prefix+"_gc"] = num(1)
		} else if l.name != "wcu" {
			i[prefix+"_rsched"] = table.S("-") // the item's reset schedule is the quotas'
		}
	}
	return i
}

// create puts shard 0 of an entity with the first consumption taken off. Each
// change is made to the item before it is put.
func (w *writer) create(entity string, limits []limit, amounts map[string]int64, changes ...func(item)) {
	w.t.Helper()
	i := newBucket(time.Now(), entity, limits, amounts)
	for _, change := range changes {
		change(i)
	}
	_, err := w.client.PutItem(w.t.Context(), &dynamodb.PutItemInput{
		TableName: &w.table, Item: i, ConditionExpression: new("attribute_not_exists(PK)"),
	})
	if err != nil {
		w.t.Fatalf("create: %v", err)
	}
	w.account(entity, amounts)
}

// consume spends from a shard on the fast path: one update that takes the
// amounts and one write off the balances while they last.
func (w *writer) consume(entity string, shard int, amounts map[string]int64) {
	w.t.Helper()
	names, values := map[string]string{"#vu": "vu"}, item{":now": num(time.Now().UnixMilli())}
	condition := []string{"attribute_exists(PK)", "#vu > :now"}
	var adds []string
	spend := func(name string, amount int64) {
		at := strconv.Itoa(len(adds))
		names["#t"+at], names["#c"+at] = "b_"+name+"_tk", "b_"+name+"_tc"
		values[":n"+at], values[":p"+at] = num(-amount), num(amount)
		adds = append(adds, fmt.Sprintf("#t%s :n%s, #c%s :p%s", at, at, at, at))
		condition = append(condition, fmt.Sprintf("#t%s >= :p%s", at, at))
	}
	for _, name := range slices.Sorted(maps.Keys(amounts)) {
		spend(name, amounts[name])
	}
	spend("wcu", 1000)
	_, err := w.client.UpdateItem(w.t.Context(), &dynamodb.UpdateItemInput{
		TableName: &w.table, Key: bucketKey(entity, shard),
		UpdateExpression:         new("ADD " + strings.Join(adds, ", ")),
		ConditionExpression:      new(strings.Join(condition, " AND ")),
		ExpressionAttributeNames: names, ExpressionAttributeValues: values,
	})
	if err != nil {
		w.t.Fatalf("consume from shard %d: %v", shard, err)
	}
	w.account(entity, amounts)
}

// configure writes an item of the layout that is no bucket.
func (w *writer) configure() {
	w.t.Helper()
	_, err := w.client.PutItem(w.t.Context(), &dynamodb.PutItemInput{TableName: &w.table, Item: item{
		"PK": table.S(namespace + "/SYSTEM#"), "SK": table.S("#CONFIG"), "l_rpm_cp": num(600),
	}})
	if err != nil {
		w.t.Fatalf("configure: %v", err)
	}
}

// double sets shard 0's count and, as a client may die here, nothing else.
func (w *writer) double(entity string, from int64) {
	w.t.Helper()
	_, err := w.client.UpdateItem(w.t.Context(), &dynamodb.UpdateItemInput{
		TableName: &w.table, Key: bucketKey(entity, 0),
		UpdateExpression:          new("SET shard_count = :new"),
		ConditionExpression:       new("shard_count = :old"),
		ExpressionAttributeValues: item{":old": num(from), ":new": num(2 * from)},
	})
	if err != nil {
		w.t.Fatalf("double from %d: %v", from, err)
	}
}

func bucketKey(entity string, shard int) item {
	return item{"PK": table.S(bucketPK(entity, shard)), "SK": table.S("#STATE")}
}

func num(value int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(value, 10)}
}

// shards are the buckets of an entity in a table, by index.
func shards(s snapshot, entity string) []item {
	var found []item
	for shard := 0; ; shard++ {
		i, ok := s[bucketPK(entity, shard)+" #STATE"]
		if !ok {
			return found
		}
		found = append(found, i)
	}
}

// checkAccount compares what the stream shows with what the writer knows it
// consumed.
func (w *writer) checkAccount(records []record) {
	w.t.Helper()
	seen := map[string]map[string]int64{}
	for _, r := range records {
		entity := text(r.new, "entity_id")
		for name, amount := range r.consumed() {
			if seen[entity] == nil {
				seen[entity] = map[string]int64{}
			}
			seen[entity][name] += amount
		}
	}
	if !maps.EqualFunc(seen, w.consumed, maps.Equal[map[string]int64, map[string]int64]) {
		w.t.Errorf("the stream shows %v consumed, the writer consumed %v", seen, w.consumed)
	}
}
