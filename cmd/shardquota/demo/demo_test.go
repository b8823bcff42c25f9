package demo

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardquota/shardquota/limiter"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// A customer who asks for everything gets exactly that, and each use is counted.
func TestDemo(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds, which -short leaves out")
	}
	config := Config{Quota: 6_400, Clients: 4, Rate: 4_000, Longest: time.Minute}
	d, err := New(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	screen, frames, last := NewScreen(&out, 0, 0, config), 0, Frame{}
	err = d.Run(t.Context(), func(f Frame) error {
		frames++
		last = f
		if f.Consumed+f.Ledger.Held != 1000*config.Quota && f.Shards[0].Bucket != nil {
			t.Errorf("frame %d: used %d and held %d", frames, f.Consumed, f.Ledger.Held)
		}
		return screen.Show(f)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := last.Unsound(); err != nil || !last.Done || last.Admitted != config.Quota || last.Counted != 1000*config.Quota || frames < 3 {
		t.Errorf("%d frames, the last %+v: %v", frames, last, err)
	}
	if text := out.String(); !strings.Contains(text, "the ledger closes") || strings.Contains(text, "\x1b") {
		t.Errorf("printed %q", text)
	}
}

// seen is a frame of so many shards.
func seen(at time.Duration, count int, asked, admitted int64, news ...string) Frame {
	f := Frame{Elapsed: at, Count: count, Asked: asked, Admitted: admitted, Consumed: 1000 * admitted, News: news, Shards: make([]table.Sibling, quota.MaxShards)}
	f.Shards[0].Bucket = &table.Bucket{}
	f.Ledger.Held = 1000 * (100 - admitted)
	return f
}

// Lines do not contradict themselves: what was asked for and what was got are of
// the same time, and what is missing is under way.
func TestLines(t *testing.T) {
	var out bytes.Buffer
	screen := NewScreen(&out, 0, 0, Config{Quota: 100})
	for _, f := range []Frame{
		seen(1000*time.Millisecond, 1, 40, 37),
		seen(1500*time.Millisecond, 2, 50, 45, "shard 0 ran hot: from 1 to 2 shards"),
		seen(2000*time.Millisecond, 2, 80, 57),
	} {
		if err := screen.Show(f); err != nil {
			t.Fatal(err)
		}
	}
	const want = "  1.0 s   1 shard, asks    40/s, gets    37/s: sold 100 = used 37 + held 63    rejected 0, under way 3    counted 0, 0 writes to go\n" +
		"        shard 0 ran hot: from 1 to 2 shards\n" +
		"  2.0 s  2 shards, asks    40/s, gets    20/s: sold 100 = used 57 + held 43    rejected 0, under way 23    counted 0, 0 writes to go\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

// The news of a doubling come with the first frame that has the shards, and the
// count of a frame is what the news say.
func TestNews(t *testing.T) {
	d, err := New(t.Context(), Config{Quota: 100, Clients: 1, Rate: 1})
	if err != nil {
		t.Fatal(err)
	}
	take := func() {
		if _, err := d.limiter.Acquire(t.Context(), entity, resource, limiter.Amounts{limit: 1}); err != nil {
			t.Fatal(err)
		}
	}
	for i, test := range []struct {
		do    func()
		count int
		news  []string
	}{
		{func() {}, 0, nil},
		{take, 1, nil},
		{take, 1, nil},
		{func() {
			if _, err := d.store.Double(t.Context(), d.group, 1); err != nil {
				t.Fatal(err)
			}
		}, 2, []string{"shard 0 ran hot: from 1 to 2 shards"}},
		{take, 2, nil},
	} {
		test.do()
		if f, err := d.frame(); err != nil || f.Count != test.count || !slices.Equal(f.News, test.news) {
			t.Errorf("step %d: %d shards, news %q, %v; want %d, %q", i, f.Count, f.News, err, test.count, test.news)
		}
	}
	records, err := d.stream.next()
	if err != nil || len(records) < 4 {
		t.Fatalf("%d records, %v", len(records), err)
	}
	if f, err := d.frame(); err != nil || f.Pending != len(records) {
		t.Errorf("%d to go while %d are in hand, %v", f.Pending, len(records), err)
	}
	d.apply(t.Context(), records)
	if f, err := d.frame(); err != nil || f.Pending >= len(records) || f.Counted != 3000 {
		t.Errorf("%d to go, counted %d, %v", f.Pending, f.Counted, err)
	}
}

func TestUnsound(t *testing.T) {
	closed := Frame{Admitted: 7, Counted: 7000, Ledger: quota.Row{Capacity: 10_000, Granted: 10_000, Held: 3000, Conserved: true}}
	for name, c := range map[string]struct {
		change func(*Frame)
		want   string
	}{
		"closed":            {func(*Frame) {}, ""},
		"admitted too much": {func(f *Frame) { f.Admitted, f.Counted = 8, 8000 }, "admitted 8 and held 3"},
		"lost":              {func(f *Frame) { f.Ledger.Held = 2000 }, "admitted 7 and held 2"},
		"counted twice":     {func(f *Frame) { f.Counted = 8000 }, "counted 8 of 7"},
		"granted twice":     {func(f *Frame) { f.Ledger.Conserved = false }, "granted 10"},
	} {
		f := closed
		c.change(&f)
		err := f.Unsound()
		if (err == nil) != (c.want == "") || err != nil && !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v, not %q", name, err, c.want)
		}
	}
}
