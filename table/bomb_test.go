package table_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

const mega = 1 << 20

// allocated is how many bytes a call allocates, all told. It holds no more than that at any time.
func allocated(call func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	call()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Items of a stream have at most 400 KB, but files may hold any text. What the values take is bounded by what the text may
// be long: the most for each byte is asked for by lists, sets and maps of nearly nothing.
func TestParseItemBombs(t *testing.T) {
	of := func(value string) string { return `{"a":` + value + `}` }
	list := func(kind, element string) string {
		return of(`{"` + kind + `":[` + strings.Repeat(element+",", mega/4/len(element)) + element + "]}")
	}
	for _, c := range []struct {
		name, text string
		want       string // the error's end; "" where there is nothing wrong with it
		most       uint64 // MB
	}{
		{"1,000,000 attributes", "{" + strings.Repeat(`"a":{"S":""},`, mega) + "}", "more than 4194304 bytes", 1},
		{"a string of 5 MB", of(`{"S":"` + strings.Repeat("x", 5*mega) + `"}`), "more than 4194304 bytes", 1},
		{"a string of 3 MB", of(`{"S":"` + strings.Repeat("x", 3*mega) + `"}`), "", 4},
		{"lists nested 200,000 levels", of(strings.Repeat(`{"L":[`, 200_000) + strings.Repeat("]}", 200_000)), "values nested too deep at byte 203", 1},
		{"maps nested 200,000 levels", of(strings.Repeat(`{"M":{"m":`, 200_000) + strings.Repeat("}}", 200_000)), "values nested too deep at byte 335", 1},
		{"a number of 1,000,000 digits", of(`{"N":"` + strings.Repeat("7", mega) + `"}`), "", 2},
		{"256 KB of nulls", list("L", `{"NULL":true}`), "", 3},
		{"256 KB of lists", list("L", `{"L":[]}`), "", 5},
		{"256 KB of maps", list("L", `{"M":{}}`), "", 6},
		{"256 KB of texts", list("SS", `""`), "", 12},
		{"256 KB of binaries", list("BS", `""`), "", 18},
		{"1 MB of escapes", of(`{"S":"` + strings.Repeat(`\u00e9`, mega/6) + `"}`), "", 8},
		{"a name of 1 MB", `{"` + strings.Repeat("n", mega) + `":{"S":1}}`, `expected "`, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			var err error
			used := allocated(func() { _, err = table.ParseItem([]byte(c.text)) }) - uint64(len(c.text)) // which the conversion copies
			if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, table.ErrJSON) || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 100) {
				t.Errorf("got %.200v, want %s", err, c.want)
			}
			if t.Logf("%.1f MB", float64(used)/mega); used > c.most*mega {
				t.Errorf("allocated %d MB, want at most %d", used/mega, c.most)
			}
		})
	}
}

// limits puts n limits on a bucket item, each of the least that makes one.
func limits(n int) table.Item {
	more := table.Item{}
	for i := range n {
		name := fmt.Sprintf("l%06d", i)
		more[table.Attr(name, table.FieldBalance)], more[table.Attr(name, table.FieldCapacity)] = table.N("1"), table.N("1")
	}
	return more
}

func TestDecodeBucketBombs(t *testing.T) {
	long := strings.Repeat("l", mega)
	calendar := "1" + strings.Repeat("m0;", 999) + "m0"
	defaults := limits(5000)
	defaults["rsched"] = table.S(calendar)
	broken := limits(5000)
	broken["rsched"] = table.S("1" + strings.Repeat(";", mega))
	for _, c := range []struct {
		name   string
		more   table.Item
		want   string // a part of the error; "" where there is nothing wrong with it
		broken bool
		most   uint64 // MB
	}{
		{"100,000 limits", limits(100_000), "limits: more than 10000", false, 12},
		{"5,000 limits", limits(5000), "", false, 12},
		{"5,000 limits with a default of 1,000 entries", defaults, "", false, 12},
		{"5,000 limits with a default of 1,000,000 entries", broken, "", true, 16},
		{"a limit's name of 1 MB", table.Item{"b_" + long + "_tk": table.S("x"), "b_" + long + "_cp": table.N("1")}, "b_" + long[:78] + "…: not a number", false, 24},
		{"a limit's name of 1 MB and a schedule that is none", table.Item{"b_" + long + "_tk": table.N("1"), "b_" + long + "_cp": table.N("1"), "b_" + long + "_sched": table.S(long)}, "", true, 24},
		{"a number of 1,000,000 digits", table.Item{"rf": table.N(strings.Repeat("7", mega))}, "rf: not a whole number of 64 bits", false, 4},
		{"a number with an exponent", table.Item{"rf": table.N("1e999999999")}, "rf: not a whole number of 64 bits", false, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			bucket := item(c.more)
			var b *table.Bucket
			var err error
			used := allocated(func() { b, err = table.DecodeBucket(bucket) })
			if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, table.ErrItem) || !strings.HasSuffix(err.Error(), c.want)) {
				t.Fatalf("got %.200v, want %s", err, c.want)
			}
			if b != nil && ((b.Broken != nil) != c.broken || c.broken && (!errors.Is(b.Broken, quota.ErrSchedule) || len(b.Broken.Error()) > 600)) {
				t.Errorf("broken: %.200v", b.Broken)
			}
			if t.Logf("%.1f MB", float64(used)/mega); used > c.most*mega {
				t.Errorf("allocated %d MB, want at most %d", used/mega, c.most)
			}
		})
	}
}

func TestParseKeyBombs(t *testing.T) {
	for _, pk := range []string{"n/BUCKET#" + strings.Repeat("#", mega), "n/BUCKET#" + strings.Repeat("e", mega) + "#r#0", strings.Repeat("n", mega)} {
		var err error
		used := allocated(func() { _, err = table.ParseKey(pk) })
		if !errors.Is(err, table.ErrKey) || len(err.Error()) > 100 || used > 4096 {
			t.Errorf("%.20s: %d bytes, %.200v", pk, used, err)
		}
	}
}

// What a usage item says of its shards may be as long as the item.
func TestSeenBombs(t *testing.T) {
	for name, runs := range map[string]string{
		"1,000,000 commas": strings.Repeat(",", mega),
		"1 MB of edges":    strings.Repeat("s/1,s/2,", mega/8) + "s/3",
		"an edge of 1 MB":  strings.Repeat("s", mega),
	} {
		usage := table.Item{table.PositionAttr(0): table.S("s/9"), table.RangesAttr(0): table.S(runs)}
		var err error
		used := allocated(func() { _, err = usage.SeenRecords() })
		if !errors.Is(err, table.ErrItem) || len(err.Error()) > 100 || used > 4*mega {
			t.Errorf("%s: %d bytes, %.200v", name, used, err)
		}
	}
}
