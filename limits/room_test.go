package limits

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// kinds are what a limit can be.
var kinds = map[string]func(name string) Limit{
	"drip":      func(name string) Limit { return PerMinute(name, 1000) },
	"scheduled": func(name string) Limit { return scheduled(PerMinute(name, 1000)) },
	"replicated": func(name string) Limit {
		l := PerMinute(name, 1000)
		l.Division = quota.Replicated
		return l
	},
	"calendar": func(name string) Limit { return Quota(name, 1000, "0 0 * * *") },
	"session":  func(name string) Limit { return Session(name, 1000, time.Hour) },
	"pooled": func(name string) Limit {
		l := scheduled(Quota(name, 1000, "0 0 * * *"))
		l.Division = quota.Pooled
		return l
	},
}

func scheduled(l Limit) Limit {
	l.Schedule = []quota.Entry{{Cron: "* 9-17 * * 1-5", Scale: 500}}
	return l
}

// many are limits of a kind, their names of at least so many bytes.
func many(n, bytes int, kind func(name string) Limit) (limits []Limit) {
	for i := range n {
		name := fmt.Sprintf("limit-%02d", i)
		limits = append(limits, kind(name+strings.Repeat("x", max(0, bytes-len(name)))))
	}
	return limits
}

// roomOf is how many limits of a kind fit each write, at most 60.
func roomOf(t *testing.T, kind func(name string) Limit, bytes int) map[string]int {
	room := map[string]int{}
	for n := 1; n <= 60; n++ {
		b, err := bucketOf(many(n, bytes, kind))
		if err != nil {
			t.Fatal(err)
		}
		for name, write := range largest(b) {
			if err := write(); err == nil && room[name] == n-1 {
				room[name] = n
			}
		}
	}
	return room
}

// One bucket has room for as many limits as the write that has least. One more is
// refused, and named. The length of names does not matter: expressions hold aliases.
func TestRoomForLimits(t *testing.T) {
	for kind, want := range map[string]int{
		"drip": 34, "scheduled": 24, "replicated": 17, "calendar": 17, "session": 17, "pooled": 17,
	} {
		for _, bytes := range []int{1, maxNameBytes} {
			room := roomOf(t, kinds[kind], bytes)
			var columns []string
			for _, operation := range slices.Sorted(maps.Keys(room)) {
				columns = append(columns, fmt.Sprintf("%s %d", operation, room[operation]))
			}
			t.Logf("%s, names of %d bytes: %s", kind, bytes, strings.Join(columns, ", "))
			if least := slices.Min(slices.Collect(maps.Values(room))); least != want || least < fewLimits {
				t.Errorf("%s: room for %d, not %d", kind, least, want)
			}
			if err := checkAll(many(want, bytes, kinds[kind])); err != nil {
				t.Errorf("%d limits that are %s: %v", want, kind, err)
			}
		}
		err := checkAll(many(want+3, 0, kinds[kind]))
		if want := fmt.Sprintf(`malformed limit "limit-%02d": one too many for one bucket: `, want); !errors.Is(err, ErrLimit) || !errors.Is(err, table.ErrRequest) || !strings.HasPrefix(fmt.Sprint(err), want) {
			t.Errorf("%s: not %q: %v", kind, want, err)
		}
	}
}

// Schedules take room on the item: all shards of a group may be written at once.
func TestRoomForSchedules(t *testing.T) {
	long := func(name string) Limit {
		l := Quota(name, 1000, "0 0 * * *")
		minutes := make([]string, 58)
		for i := range minutes {
			minutes[i] = fmt.Sprint(i)
		}
		for i := range maxScheduled - 1 {
			l.Schedule = append(l.Schedule, quota.Entry{Cron: strings.Join(minutes, ",") + " " + fmt.Sprint(i%24) + " 1 * *", Scale: 500})
		}
		return l
	}
	for n, fits := range map[int]bool{2: true, 17: false} {
		if err := checkAll(many(n, 64, long)); (err == nil) != fits || err != nil && !strings.Contains(err.Error(), "bytes of all shards of a group: ") {
			t.Errorf("%d: %v", n, err)
		}
	}
}

func BenchmarkCheckRoom(b *testing.B) {
	for _, n := range []int{3, 17} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			limits := many(n, 0, kinds["calendar"])
			for b.Loop() {
				if err := checkRoom(limits); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
