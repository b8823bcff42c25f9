package limiter_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/shardquota/shardquota/limiter"
	. "github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// wideName is a name of 64 bytes.
func wideName(prefix string, i int) string {
	name := fmt.Sprintf("%s-%02d-", prefix, i)
	return name + strings.Repeat("x", 64-len(name))
}

// As many limits as one bucket has room for, all of the longest names. Each is used,
// restored, spread over shards, renamed and given another time zone. The tables
// refuse what DynamoDB refuses.
func TestTheMostLimitsOfABucket(t *testing.T) {
	of := func(make func(name string) Limit) func(prefix string, n int) []Limit {
		return func(prefix string, n int) (limits []Limit) {
			for i := range n {
				limits = append(limits, make(wideName(prefix, i)))
			}
			return limits
		}
	}
	calendar := of(func(name string) Limit { return Quota(name, 1000, "0 0 * * *") })
	pooled := of(func(name string) Limit {
		l := Quota(name, 1000, "0 1 * * *")
		l.Division, l.Zone = quota.Pooled, "Europe/Berlin"
		return l
	})
	session := of(func(name string) Limit { return Session(name, 1000, time.Hour) })
	drip := of(func(name string) Limit { return PerMinute(name, 1000) })
	scheduled := of(func(name string) Limit {
		l := PerMinute(name, 1000)
		l.Zone, l.Schedule = "Asia/Tokyo", []quota.Entry{{Cron: "* 9-17 * * *", Scale: 500}}
		return l
	})
	for name, c := range map[string]struct {
		limits, other func(prefix string, n int) []Limit
		most          int
	}{
		"calendar": {calendar, pooled, 17}, "session": {session, calendar, 17}, "pooled": {pooled, session, 17},
		"drip": {drip, session, 34}, "scheduled": {scheduled, drip, 24},
	} {
		t.Run(name, func(t *testing.T) {
			everywhere(t, func(w *world) {
				l := w.limiter()
				set := func(limits []Limit) {
					w.Helper()
					w.noError(l.SetLimits(w.Context(), ForResource(model), limits...))
				}
				use := func(limits []Limit) {
					w.Helper()
					amounts := Amounts{}
					for _, limit := range limits {
						amounts[limit.Name] = 1
					}
					for range 4 {
						w.admit(l, acme, amounts)
						w.now = w.now.Add(time.Second)
					}
				}
				err := l.SetLimits(w.Context(), ForResource(model), c.limits("a", c.most+1)...)
				if !errors.Is(err, ErrLimit) || !errors.Is(err, table.ErrRequest) || !strings.Contains(fmt.Sprint(err), wideName("a", c.most)+`": one too many`) {
					w.Errorf("one more: %v", err)
				}
				first := c.limits("a", c.most)
				set(first)
				use(first)
				for w.bucket(acme, 0).ShardCount < 32 {
					w.double(acme)
					use(first)
				}
				w.now = w.now.Add(24 * time.Hour)
				use(first)

				others := min(c.most, 17)
				renamed := c.limits("b", others)
				set(renamed)
				use(renamed)
				changed := c.other("b", others)
				set(changed)
				use(changed)
				for shard := range w.bucket(acme, 0).ShardCount {
					b := w.bucketOrNil(acme, shard)
					if b == nil {
						continue
					}
					eq(w, fmt.Sprintf("limits of shard %d", shard), len(b.Limits), others+1)
					for _, limit := range changed {
						if b.Limit(limit.Name) == nil {
							w.Errorf("shard %d lacks a limit", shard)
						}
					}
				}
			})
		})
	}
}
