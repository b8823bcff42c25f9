package page

import (
	"strings"
	"testing"
	"time"

	"github.com/shardquota/shardquota/internal/fixture"
)

func TestAxisEndsAtARoundNumber(t *testing.T) {
	for _, test := range []struct {
		most  float64
		ticks string
	}{
		{39_956, "0 10k 20k 30k 40k"},
		{167, "0 50 100 150 200"},
		{3_199_200, "0 1M 2M 3M 4M"},
		{0.4, "0 0.1 0.2 0.3 0.4"},
		{0, "0 0.2 0.4 0.6 0.8 1"},
		{1, "0 0.2 0.4 0.6 0.8 1"},
		{9e15, "0 2P 4P 6P 8P 10P"},
	} {
		var labels []string
		for _, tick := range newAxis(test.most, 5).ticks {
			labels = append(labels, short(tick))
		}
		fixture.Eq(t, "ticks", strings.Join(labels, " "), test.ticks)
	}
}

func TestTimeTicksAreRoundTimesOfDay(t *testing.T) {
	from := fixture.Noon + 91_500
	for _, test := range []struct {
		span   time.Duration
		labels string
	}{
		{time.Second, "12:01:32"},
		{55 * time.Second, "12:01:40 12:01:50 12:02:00 12:02:10 12:02:20"},
		{time.Hour, "12:15 12:30 12:45 13:00"},
		{24 * time.Hour, "18:00 00:00 06:00 12:00"},
		{30 * 24 * time.Hour, "Dec 5 Dec 13 Dec 21 Dec 29"},
	} {
		_, labels := timeTicks(from, from+test.span.Milliseconds(), 6)
		fixture.Eq(t, test.span.String(), strings.Join(labels, " "), test.labels)
	}
}

// Each of 32 shards has a colour of its own, on light and on dark paper.
func TestColoursDiffer(t *testing.T) {
	for _, s := range schemes {
		for a := range 32 {
			for b := range a {
				if d := s.shard(a).DistanceCIEDE2000(s.shard(b)); d < 0.03 {
					t.Errorf("%s: shards %d and %d are alike: %s %s, %.3f", s.name, a, b, s.shard(a).Hex(), s.shard(b).Hex(), d)
				}
			}
		}
	}
}
