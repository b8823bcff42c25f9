package page_test

import (
	"compress/gzip"
	"context"
	"os"
	"strings"
	"testing"

	"github.com/shardquota/shardquota/aggregator/replay"
	"github.com/shardquota/shardquota/cmd/shardquota/history"
	"github.com/shardquota/shardquota/cmd/shardquota/page"
	"github.com/shardquota/shardquota/cmd/shardquota/survey"
	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/internal/fixture"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/memory"
)

// recorded is the page of a recording, which is replayed once.
func recorded(t testing.TB, name string) page.Page {
	t.Helper()
	p, ok := pages[name]
	if !ok {
		p = replayed(t, name)
		pages[name] = p
	}
	return p
}

var pages = map[string]page.Page{}

func replayed(t testing.TB, name string) page.Page {
	t.Helper()
	file, err := os.Open("../../../testdata/" + name + ".jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	plain, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	var builder history.Builder
	store := memory.New()
	run := replay.InMemory(store)
	run.Aggregator.Windows = []events.Window{events.Hourly}
	run.Observe = builder.Observe
	if _, err := run.Run(context.Background(), events.NewReader(plain, name)); err != nil {
		t.Fatal(err)
	}
	p := page.Page{Title: "Replay of " + name}
	for _, h := range builder.Histories() {
		p.Groups = append(p.Groups, page.Group{Name: "entity-1 " + h.Group.Resource, History: h, Survey: surveyed(store, h)})
	}
	return p
}

func surveyed(store *memory.Store, h *history.Group) *survey.Survey {
	siblings := make([]table.Sibling, quota.MaxShards)
	for _, b := range table.ReadableShards(h.Group, store.Get) {
		siblings[b.Shard].Bucket = b
	}
	return survey.Take(survey.Found{Shards: siblings}, h.Grid.End())
}

// decoded is a bucket of an item.
func decoded(t testing.TB, item table.Item) *table.Bucket {
	t.Helper()
	b, err := table.DecodeBucket(item)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// doublings is a quota of 3,200,000 that goes from 1 shard to 32 within five
// minutes, each shard a little slower than the one before.
func doublings(t testing.TB) page.Page {
	t.Helper()
	w := &walk{t: t, buckets: []*table.Bucket{w0(t)}}
	w.builder.Observe(fixture.Noon, nil, w.buckets[0].Image())
	for second := range int64(300) {
		at := fixture.Noon + second*fixture.Second
		if second > 0 && second%50 == 0 {
			w.double(at)
		}
		for shard := range w.buckets {
			w.write(at, shard, func(b *table.Bucket) {
				n := int64(400-6*shard) * 1000 / int64(len(w.buckets))
				b.Limit("calls").Balance -= n
				b.Limit("calls").Consumed += n
			})
		}
	}
	h := w.builder.Histories()[0]
	return page.Page{Title: "To 32 shards", Groups: []page.Group{{Name: "entity-1 gpt-4", History: h, Survey: w.survey(h)}}}
}

func w0(t testing.TB) *table.Bucket {
	return decoded(t, fixture.Bucket(fixture.Acme.At(0), fixture.Daily("calls", 3_200_000_000, 3_200_000_000, 1)))
}

type walk struct {
	t       testing.TB
	builder history.Builder
	buckets []*table.Bucket
}

func (w *walk) write(at int64, shard int, change func(*table.Bucket)) {
	before, item := w.buckets[shard], w.buckets[shard].Item.Clone()
	after := decoded(w.t, item)
	change(after)
	after.Fill()
	w.builder.Observe(at, before.Image(), after.Image())
	w.buckets[shard] = after
}

// double doubles by the rules: raises every shard, and moves each new one's
// share off its donor.
func (w *walk) double(at int64) {
	from := len(w.buckets)
	for shard := range from {
		w.write(at, shard, func(b *table.Bucket) { b.ShardCount = 2 * from })
	}
	share := int64(3_200_000_000 / (2 * from))
	for donor := range from {
		w.write(at, donor, func(b *table.Bucket) { b.Limit("calls").Balance -= share })
	}
	for shard := from; shard < 2*from; shard++ {
		item := fixture.Bucket(fixture.Acme.At(shard), fixture.Count(2*from), fixture.Refilled(at), fixture.Daily("calls", share, 3_200_000_000, 2*from))
		b := decoded(w.t, item)
		w.builder.Observe(at, nil, b.Image())
		w.buckets = append(w.buckets, b)
	}
}

func (w *walk) survey(h *history.Group) *survey.Survey {
	siblings := make([]table.Sibling, quota.MaxShards)
	for _, b := range w.buckets {
		siblings[b.Shard].Bucket = b
	}
	return survey.Take(survey.Found{Shards: siblings}, h.Grid.End())
}

// Names that mean something to a browser, and ones that are hard to set.
const (
	hostileLimit  = `<script>alert(1)</script>`
	hostileEntity = `</style><img src=x onerror=alert(1)>"'&{{.}}`
)

var endless = strings.Repeat("endless", 40)

// hostile is a page on which everything off the table is as bad as it gets.
func hostile(t testing.TB) page.Page {
	t.Helper()
	var builder history.Builder
	at := fixture.Noon
	zero := decoded(t, fixture.Bucket(fixture.Acme.At(0),
		fixture.Daily(hostileLimit, 1_000_000, 2_000_000, 1), fixture.Daily(endless, -5_000, 2_000_000, 1),
		fixture.Attrs{"b_" + hostileLimit + "_sched": `1s500"><b onclick=x>`}))
	overlap := decoded(t, fixture.Bucket(fixture.Acme.At(1), fixture.Daily(endless, 2_000_000, 2_000_000, 1)))
	builder.Observe(at, nil, zero.Image())
	builder.Observe(at+1000, nil, overlap.Image())
	siblings := make([]table.Sibling, 4)
	siblings[0].Bucket, siblings[1].Bucket, siblings[3].Broken = zero, overlap, table.ErrItem
	seen := survey.Take(survey.Found{Shards: siblings}, at+2000)
	seen.Usage = append(seen.Usage, survey.Usage{
		Window: "hourly", Start: `"><svg onload=alert(1)>`, Counters: map[string]string{hostileLimit: "1"}, Events: "<i>1</i>",
	})
	return page.Page{
		Title:  `javascript:alert(1) <title>`,
		Facts:  []page.Fact{{Label: "<u>", Value: hostileEntity, Bad: true}},
		Notes:  []string{hostileEntity},
		Groups: []page.Group{{Name: hostileEntity + " " + endless, History: builder.Histories()[0], Survey: seen}},
	}
}
