package events

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Window is a span of the calendar, in UTC, over which usage is summed. The methods of the zero value panic.
type Window string

// All windows.
const (
	Hourly  Window = "hourly"
	Daily   Window = "daily"
	Monthly Window = "monthly"
)

// ParseWindows reads a list such as "hourly,daily", with or without spaces, and keeps its order. The list and its entries
// must not be empty, each name must be known, and none may come twice.
func ParseWindows(list string) ([]Window, error) {
	if strings.TrimSpace(list) == "" {
		return nil, fmt.Errorf("windows: none given, want some of %s, %s, %s", Hourly, Daily, Monthly)
	}
	var windows []Window
	for name := range strings.SplitSeq(list, ",") {
		w := Window(strings.TrimSpace(name))
		if err := w.check(); err != nil {
			return nil, fmt.Errorf("windows %q: %w", list, err)
		}
		if slices.Contains(windows, w) {
			return nil, fmt.Errorf("windows %q: %s comes twice", list, w)
		}
		windows = append(windows, w)
	}
	return windows, nil
}

func (w Window) check() error {
	switch w {
	case Hourly, Daily, Monthly:
		return nil
	case "":
		return fmt.Errorf("an entry is empty")
	}
	return fmt.Errorf("%q is none of %s, %s, %s", string(w), Hourly, Daily, Monthly)
}

// Start returns the first instant of the window that holds ms (epoch ms), in UTC.
func (w Window) Start(ms int64) time.Time {
	t := time.UnixMilli(ms).UTC()
	switch w {
	case Hourly:
		return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), 0, 0, 0, time.UTC)
	case Daily:
		return time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, time.UTC)
	case Monthly:
		return time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, time.UTC)
	}
	panic(fmt.Sprintf("events: no window %q", string(w)))
}

// StartText returns the start of the window that holds ms (epoch ms), as Text writes it.
func (w Window) StartText(ms int64) string {
	return w.Text(w.Start(ms))
}

// Text writes a start as the table stores it: "2026-11-30T10:00:00Z".
func (w Window) Text(start time.Time) string {
	return start.UTC().Format(time.RFC3339)
}

// End returns the first instant after the window that begins at start, which must be a result of Start.
func (w Window) End(start time.Time) time.Time {
	start = start.UTC()
	switch w {
	case Hourly:
		return start.Add(time.Hour)
	case Daily:
		return start.AddDate(0, 0, 1)
	case Monthly:
		return start.AddDate(0, 1, 0)
	}
	panic(fmt.Sprintf("events: no window %q", string(w)))
}
