package main_test

import (
	"strings"
	"testing"
	"time"
	"fmt"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

func TestAttackDuplicateInBatch(t *testing.T) {
	w := newWorld(t, "", nil)
	w.writer.create(secretMark+"a", []limit{rpm}, map[string]int64{"rpm": 1000})
	w.writer.consume(secretMark+"a", 0, map[string]int64{"rpm": 1000})
	r := w.stream.next(t)
	a := w.function.invoke(event(t, append(r, r...)), enough)
	t.Log(a, w.function.metrics())
	checkUsage(t, w.scan(), r)
}

func TestAttackShard(t *testing.T) {
	w := newWorld(t, "", nil)
	w.writer.create(secretMark+"a", []limit{rpm}, map[string]int64{"rpm": 1000})
	r := w.stream.next(t)
	for _, shard := range []string{"33", "1000000", "100000000", "2000000000"} {
		text := strings.ReplaceAll(r[0].json(t), "#gpt-4#0", "#gpt-4#"+shard)
		began := time.Now()
		a := w.function.invoke(eventOf(text), 10*time.Second)
		t.Log(shard, a, time.Since(began), w.function.metrics())
	}
}

func TestAttackCount(t *testing.T) {
	w := newWorld(t, "", nil)
	w.writer.create(secretMark+"a", []limit{rpm}, map[string]int64{"rpm": 1000})
	w.writer.double(secretMark+"a", 1)
	w.settle()
	w.writer.double(secretMark+"a", 2)
	r := w.stream.next(t)
	for _, c := range []string{"3", "-4", "0", "64", "2147483647", "9223372036854775807", "99999999999999999999"} {
		text := strings.Replace(r[0].json(t), `"shard_count":{"N":"4"}`, `"shard_count":{"N":"`+c+`"}`, 1)
		began := time.Now()
		a := w.function.invoke(eventOf(text), 10*time.Second)
		t.Log(c, a, time.Since(began), w.function.metrics())
		for _, s := range shards(w.scan(), secretMark+"a") {
			t.Log(numbersOf(s)["shard_count"])
		}
	}
}

func TestAttackPoison(t *testing.T) {
	w := newWorld(t, "", nil)
	w.writer.create(secretMark+"a", []limit{rpm}, map[string]int64{"rpm": 1000})
	w.deliver()
	for key, i := range usageOf(w.scan()) {
		i["rpm"] = i["entity_id"]
		t.Log(key)
		w.writer.put(i)
	}
	w.writer.consume(secretMark+"a", 0, map[string]int64{"rpm": 1000})
	r := w.stream.next(t)
	a := w.function.invoke(event(t, r), 10*time.Second)
	t.Log(a, w.function.metrics(), w.function.logged("to be delivered again"))
}

func TestAttackLimitNames(t *testing.T) {
	w := newWorld(t, "", nil)
	for i, name := range []string{"total_events", "ttl", "entity_id", "a_tk", "x_y_z", "é", strings.Repeat("l", 250), "wcu2", "mark", "b_b_b"} {
		w.writer.create(fmt.Sprint(secretMark, "a", i), []limit{{name, 1000000, 1000, 1000}}, map[string]int64{name: 1000})
	}
	r := w.stream.next(t)
	a := w.function.invoke(event(t, r), 10*time.Second)
	t.Log(a, w.function.metrics(), w.function.logged("to be delivered again"), w.function.logged("record rejected"))
}

func TestAttackBig(t *testing.T) {
	w := newWorld(t, "", nil)
	for i := range 100 {
		w.writer.create(fmt.Sprint(secretMark, "a", i), []limit{rpm,calls}, map[string]int64{"rpm": 1000})
	}
	for i := range 900 {
		w.writer.consume(fmt.Sprint(secretMark, "a", i%100), 0, map[string]int64{"rpm": 1000})
	}
	r := w.stream.next(t)
	for range 3 {
	began := time.Now()
	a := w.function.invoke(event(t, r), 60*time.Second)
	t.Log(a, len(event(t,r)), time.Since(began), w.function.metrics())
	}
}

func (w *writer) put(i item) {
	if _, err := w.client.PutItem(w.t.Context(), &dynamodb.PutItemInput{TableName: &w.table, Item: i}); err != nil {
		w.t.Fatal(err)
	}
}
