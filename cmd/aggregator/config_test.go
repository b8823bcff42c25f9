package main

import (
	"log/slog"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/shardquota/shardquota/events"
)

func TestConfigDefaults(t *testing.T) {
	got, err := loadConfig(map[string]string{"SHARDQUOTA_TABLE": "limits"})
	if err != nil {
		t.Fatal(err)
	}
	want := config{
		Table: "limits", WindowList: "hourly,daily", UsageDays: 90, Concurrency: 16, Reserve: 2 * time.Second,
		LogLevel: slog.LevelInfo, windows: []events.Window{events.Hourly, events.Daily},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestConfigOfAll(t *testing.T) {
	got, err := loadConfig(map[string]string{
		"SHARDQUOTA_TABLE":       "limits",
		"SHARDQUOTA_WINDOWS":     " monthly, hourly",
		"SHARDQUOTA_USAGE_DAYS":  "0",
		"SHARDQUOTA_CONCURRENCY": "256",
		"SHARDQUOTA_RESERVE":     "750ms",
		"SHARDQUOTA_HASH_KEY":    "pepper",
		"SHARDQUOTA_LOG_LEVEL":   "warn",
		"UNRELATED":              "x",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := config{
		Table: "limits", WindowList: " monthly, hourly", UsageDays: 0, Concurrency: 256, Reserve: 750 * time.Millisecond,
		HashKey: "pepper", LogLevel: slog.LevelWarn, windows: []events.Window{events.Monthly, events.Hourly},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// TestConfigBounds names every variable that has bounds, just inside and just
// outside of them. "" means that the value is good.
func TestConfigBounds(t *testing.T) {
	for _, test := range []struct{ name, value, want string }{
		{"SHARDQUOTA_TABLE", "", "SHARDQUOTA_TABLE"},
		{"SHARDQUOTA_WINDOWS", "hourly,hourly", `SHARDQUOTA_WINDOWS: windows "hourly,hourly": hourly comes twice`},
		{"SHARDQUOTA_WINDOWS", "hourly,", `SHARDQUOTA_WINDOWS: windows "hourly,": an entry is empty`},
		{"SHARDQUOTA_WINDOWS", "Hourly", `SHARDQUOTA_WINDOWS: windows "Hourly": "Hourly" is none of hourly, daily, monthly`},
		{"SHARDQUOTA_USAGE_DAYS", "0", ""},
		{"SHARDQUOTA_USAGE_DAYS", "-1", "SHARDQUOTA_USAGE_DAYS: -1 is not within 0 and 36500"},
		{"SHARDQUOTA_USAGE_DAYS", "36500", ""},
		{"SHARDQUOTA_USAGE_DAYS", "36501", "SHARDQUOTA_USAGE_DAYS: 36501 is not within 0 and 36500"},
		{"SHARDQUOTA_CONCURRENCY", "0", "SHARDQUOTA_CONCURRENCY: 0 is not within 1 and 256"},
		{"SHARDQUOTA_CONCURRENCY", "1", ""},
		{"SHARDQUOTA_CONCURRENCY", "257", "SHARDQUOTA_CONCURRENCY: 257 is not within 1 and 256"},
		{"SHARDQUOTA_RESERVE", "0s", ""},
		{"SHARDQUOTA_RESERVE", "-1ms", "SHARDQUOTA_RESERVE: -1ms is not within 0s and 5m"},
		{"SHARDQUOTA_RESERVE", "5m", ""},
		{"SHARDQUOTA_RESERVE", "301s", "SHARDQUOTA_RESERVE: 5m1s is not within 0s and 5m"},
		{"SHARDQUOTA_LOG_LEVEL", "debug", ""},
		{"SHARDQUOTA_LOG_LEVEL", "loud", "SHARDQUOTA_LOG_LEVEL: "},
		{"SHARDQUOTA_USAGE_DAYS", "ninety", "SHARDQUOTA_USAGE_DAYS: "},
	} {
		environment := map[string]string{"SHARDQUOTA_TABLE": "limits"}
		maps.Copy(environment, map[string]string{test.name: test.value})
		_, err := loadConfig(environment)
		switch {
		case test.want == "" && err != nil:
			t.Errorf("%s=%q: %v", test.name, test.value, err)
		case test.want != "" && (err == nil || !strings.HasPrefix(err.Error(), "configuration: ") || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s=%q: error %v, want one with %q", test.name, test.value, err, test.want)
		}
	}
}
