package events

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

func TestParseWindows(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want []Window
		err  string
	}{
		{"hourly,daily,monthly", []Window{Hourly, Daily, Monthly}, ""},
		{"monthly, hourly", []Window{Monthly, Hourly}, ""},
		{" daily ", []Window{Daily}, ""},
		{"", nil, "windows: none given, want some of hourly, daily, monthly"},
		{"  ", nil, "windows: none given, want some of hourly, daily, monthly"},
		{"hourly,", nil, `windows "hourly,": an entry is empty`},
		{",", nil, `windows ",": an entry is empty`},
		{"hourly,weekly", nil, `windows "hourly,weekly": "weekly" is none of hourly, daily, monthly`},
		{"Hourly", nil, `windows "Hourly": "Hourly" is none of hourly, daily, monthly`},
		{"daily,hourly,daily", nil, `windows "daily,hourly,daily": daily comes twice`},
	} {
		got, err := ParseWindows(tt.in)
		if !slices.Equal(got, tt.want) || (err == nil) != (tt.err == "") || err != nil && err.Error() != tt.err {
			t.Errorf("%q: got %v, %v", tt.in, got, err)
		}
	}
}

func TestWindows(t *testing.T) {
	for _, tt := range []struct {
		at, hour, day, month, nextHour, nextDay, nextMonth string
	}{
		{"2026-11-30T10:32:12.999Z", "2026-11-30T10:00:00Z", "2026-11-30T00:00:00Z", "2026-11-01T00:00:00Z",
			"2026-11-30T11:00:00Z", "2026-12-01T00:00:00Z", "2026-12-01T00:00:00Z"},
		{"2026-11-30T10:00:00Z", "2026-11-30T10:00:00Z", "2026-11-30T00:00:00Z", "2026-11-01T00:00:00Z",
			"2026-11-30T11:00:00Z", "2026-12-01T00:00:00Z", "2026-12-01T00:00:00Z"},
		{"2026-12-31T23:59:59.999Z", "2026-12-31T23:00:00Z", "2026-12-31T00:00:00Z", "2026-12-01T00:00:00Z",
			"2027-01-01T00:00:00Z", "2027-01-01T00:00:00Z", "2027-01-01T00:00:00Z"},
		{"2028-02-29T00:00:00Z", "2028-02-29T00:00:00Z", "2028-02-29T00:00:00Z", "2028-02-01T00:00:00Z",
			"2028-02-29T01:00:00Z", "2028-03-01T00:00:00Z", "2028-03-01T00:00:00Z"},
		{"1969-12-31T23:59:59.999Z", "1969-12-31T23:00:00Z", "1969-12-31T00:00:00Z", "1969-12-01T00:00:00Z",
			"1970-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "1970-01-01T00:00:00Z"},
	} {
		at, err := time.Parse(time.RFC3339, tt.at)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range []struct {
			window     Window
			start, end string
		}{{Hourly, tt.hour, tt.nextHour}, {Daily, tt.day, tt.nextDay}, {Monthly, tt.month, tt.nextMonth}} {
			start := w.window.Start(at.UnixMilli())
			if got := w.window.StartText(at.UnixMilli()); got != w.start || start.Location() != time.UTC {
				t.Errorf("%s %s: starts %s, want %s", w.window, tt.at, got, w.start)
			}
			// A start in another zone is the same instant.
			end := w.window.End(start.In(time.FixedZone("", 5*3600)))
			if got := w.window.Text(end); got != w.end {
				t.Errorf("%s %s: ends %s, want %s", w.window, tt.at, got, w.end)
			}
			if !w.window.Start(end.UnixMilli()).Equal(end) || !w.window.Start(end.UnixMilli()-1).Equal(start) {
				t.Errorf("%s %s: the end is not the next start", w.window, tt.at)
			}
		}
	}
}

func TestNoWindowPanics(t *testing.T) {
	for name, call := range map[string]func(){
		"Start": func() { Window("").Start(0) },
		"End":   func() { Window("weekly").End(time.Time{}) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s did not panic", name)
				}
			}()
			call()
		}()
	}
}

// Windows are in order of their length; one that is not known comes last.
func TestWindowsCompare(t *testing.T) {
	windows := []Window{"weekly", Monthly, Hourly, "fortnightly", Daily}
	slices.SortFunc(windows, Window.Compare)
	if got, want := fmt.Sprint(windows), "[hourly daily monthly fortnightly weekly]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
