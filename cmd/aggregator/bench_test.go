package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/shardquota/shardquota/internal/dynoxide"
	"github.com/shardquota/shardquota/internal/fixture"
	"github.com/shardquota/shardquota/internal/lambdatest"
)

// withoutRecords is an event that calls for nothing.
var withoutRecords = []byte(`{"Records":[]}`)

// emptyFunction is a function that does nothing, with the same SDK.
func emptyFunction(tb testing.TB) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "empty")
	if err := buildPackage(runtime.GOARCH, path, "./testdata/empty"); err != nil {
		tb.Fatal(err)
	}
	return path
}

// BenchmarkStart takes the function from its start to its first answer, in turn
// with a function that does nothing, so that what else the machine does meets
// both. Its own time is of both.
func BenchmarkStart(b *testing.B) {
	binaries := []string{binary(b), emptyFunction(b)}
	var took [2][]time.Duration
	for b.Loop() {
		for i, path := range binaries {
			f := lambdatest.Start(b, path, map[string]string{"SHARDQUOTA_TABLE": "limits"})
			if answer := f.Invoke(withoutRecords, enough); answer.Failed {
				b.Fatalf("%+v", answer)
			}
			took[i] = append(took[i], time.Since(f.Started))
			f.Stop()
		}
	}
	var median [2]float64
	for i := range binaries {
		slices.Sort(took[i])
		median[i] = float64(took[i][len(took[i])/2].Microseconds()) / 1000
	}
	b.ReportMetric(median[0], "ms")
	b.ReportMetric(median[1], "empty-ms")
	b.ReportMetric(median[0]/median[1], "times-empty")
	b.ReportMetric(megabytes(b, binaries[0]), "MB")
	b.ReportMetric(megabytes(b, binaries[1]), "empty-MB")
}

func megabytes(b *testing.B, path string) float64 {
	info, err := os.Stat(path)
	if err != nil {
		b.Fatal(err)
	}
	return float64(info.Size()) / 1e6
}

// BenchmarkMemory is the most memory that the function has had after batches of so
// many records, each on a function of its own.
func BenchmarkMemory(b *testing.B) {
	client := dynoxide.Client(b)
	for _, records := range []int{0, 1_000, 3_000, 10_000} {
		b.Run(fmt.Sprintf("records=%d", records), func(b *testing.B) {
			event, peak := withoutRecords, int64(0)
			if records > 0 {
				event = fixture.Event(fixture.Uses(records, 100))
			}
			for b.Loop() {
				f := lambdatest.Start(b, binary(b), map[string]string{
					"AWS_ENDPOINT_URL_DYNAMODB": dynoxide.Start(b), "SHARDQUOTA_TABLE": dynoxide.NewTable(b, client),
				})
				for range 3 { // the second and third time, the records are counted before
					if answer := f.Invoke(event, enough); answer.Failed || answer.Body != fine {
						b.Fatalf("%+v\n%s", answer, f.Stderr())
					}
				}
				peak = max(peak, f.PeakMemory())
				f.Stop()
			}
			b.ReportMetric(float64(peak)/1e6, "peak-MB")
			b.ReportMetric(float64(len(event))/1e6, "event-MB")
		})
	}
}
