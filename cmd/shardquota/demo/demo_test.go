package demo

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/shardquota/shardquota/quota"
)

// A customer who asks for everything gets exactly that, and each use is counted.
func TestDemo(t *testing.T) {
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
