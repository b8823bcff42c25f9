package aggregator

import (
	"errors"
	"testing"
	"time"

	"github.com/shardquota/shardquota/events"
)

func TestAge(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	for _, test := range []struct {
		name    string
		records []events.Record
		want    int64
	}{
		{"no records", nil, 0},
		{"the oldest counts", []events.Record{{Time: 999_000}, {Time: 400_500}, {Time: 999_999}}, 599_500},
		{"one from the future", []events.Record{{Time: 1_000_001}}, 0},
		{"one that has no time", []events.Record{{Err: errors.New("no record")}, {Time: 999_999}}, 1},
	} {
		if got := age(test.records, now); got != test.want {
			t.Errorf("%s: %d ms, want %d", test.name, got, test.want)
		}
	}
}
