package quota

import (
	"errors"
	"runtime"
	"strings"
	"testing"
)

// Schedules come off the table, where an item has room for 400 KB of them; a file has more. However long one is, it is
// refused or read in bounded memory, and the error is short.
func TestScheduleBombs(t *testing.T) {
	const mega = 1 << 20
	for _, c := range []struct {
		name, compact, zone string
		want                error // nil where there is nothing wrong with it
		most                uint64
	}{
		{"16,777,216 entries of nothing", "1m0" + strings.Repeat(";", 16*mega), "", ErrEntry, mega},
		{"1,001 entries", "1" + strings.Repeat("m0;", 1000) + "m0", "", ErrEntry, mega},
		{"1,000 entries", "1" + strings.Repeat("m0;", 999) + "m0", "", nil, mega},
		{"a value in a million items", "1m" + strings.Repeat("0,", mega) + "1", "", nil, 4096},
		{"a value that is none behind a million items", "1m" + strings.Repeat("0,", mega) + "60", "", ErrCron, 64 << 10},
		{"a value of 1 MB", "1m" + strings.Repeat("7", mega), "", ErrCron, 2 * mega},
		{"a step of 1 MB", "1m*/" + strings.Repeat("7", mega), "", ErrCron, 2 * mega},
		{"a range of 1 MB", "1m9-0" + strings.Repeat("0", mega), "", ErrCron, 64 << 10},
		{"steps beyond all values", "1m*/4294967295", "", nil, 64 << 10},
		{"a version of 1 MB", strings.Repeat("1", mega), "", ErrVersion, 64 << 10},
		{"a tag of no kind, 1,000,000 times", "1" + strings.Repeat("x", mega), "", ErrEntry, 64 << 10},
		{"a zone of 1 MB", "1m0", strings.Repeat("z", mega), ErrZone, 64 << 10},
		{"zone directories, 1 MB of them", "1m0", strings.Repeat("Europe/", mega/7) + "Berlin", ErrZone, 64 << 10},
	} {
		var err error
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err = ParseResets(c.compact, c.zone)
		runtime.ReadMemStats(&after)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %.200v, want %v", c.name, err, c.want)
		}
		if err != nil && len(err.Error()) > maxError {
			t.Errorf("%s: an error of %d bytes", c.name, len(err.Error()))
		}
		used := after.TotalAlloc - before.TotalAlloc
		if t.Logf("%s: %d KB", c.name, used>>10); used > c.most {
			t.Errorf("%s: allocated %d KB, want at most %d", c.name, used>>10, c.most>>10)
		}
	}
	_, err := ParseSchedule("1m0c"+strings.Repeat("9", mega), "")
	if !errors.Is(err, ErrEntry) || len(err.Error()) > maxError {
		t.Errorf("a capacity of 1 MB: %.200v", err)
	}
	if _, err := NewResets("", strings.Repeat("* ", mega)); !errors.Is(err, ErrCron) || len(err.Error()) > maxError {
		t.Errorf("1,000,000 fields: %.200v", err)
	}
}
