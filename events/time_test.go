package events

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func TestParseTime(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want int64
	}{
		{`0`, 0},
		{`1764498732`, 1764498732000},
		{`1764498732.0`, 1764498732000},
		{`1764498732.1`, 1764498732100},
		{`1764498732.123`, 1764498732123},
		{`1764498732.1239999999999999999`, 1764498732123},
		{`1764499199.9999`, 1764499199999},
		{`1.764498732E9`, 1764498732000},
		{`1.764498732123e+9`, 1764498732123},
		{`1764498732123e-3`, 1764498732123},
		{`0.0000001764498732123E16`, 1764498732123},
		{`0.0009`, 0},
		{`0.001`, 1},
		{`1e-5`, 0},
		{`0e999`, 0},
		{`253402300799.999`, 253402300799999},
		{`"2025-11-30T10:32:12Z"`, 1764498732000},
		{`"2025-11-30T10:32:12+00:00"`, 1764498732000},
		{`"2025-11-30T11:32:12.123000+01:00"`, 1764498732123},
		{`"2025-11-30T03:32:12.1239-0700"`, 1764498732123},
		{`"1970-01-01T00:00:00Z"`, 0},
		{`"9999-12-31T23:59:59.999Z"`, 253402300799999},
	} {
		got, err := parseTime(json.RawMessage(tt.in))
		if err != nil || got != tt.want {
			t.Errorf("%s: got %d, %v, want %d", tt.in, got, err, tt.want)
		}
	}
}

func TestParseTimeErrors(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want error
	}{
		{``, errTimeForm}, {`true`, errTimeForm}, {`{}`, errTimeForm}, {`[1]`, errTimeForm}, {`-`, errTimeForm},
		{`1.`, errTimeForm}, {`.5`, errTimeForm}, {`1e`, errTimeForm}, {`1e+`, errTimeForm}, {`1e2e3`, errTimeForm},
		{`1.2.3`, errTimeForm}, {`0x10`, errTimeForm}, {`1_000`, errTimeForm}, {`NaN`, errTimeForm},
		{`-1`, errTimeRange}, {`-0`, errTimeRange}, {`-0.1e-2`, errTimeRange},
		{`253402300800`, errTimeRange}, {`1764498732123`, errTimeRange}, {`1e30`, errTimeRange},
		{`1e99999999999999999999`, errTimeRange}, {`1e-99999`, errTimeRange},
		{`"1764498732"`, errTimeForm}, {`""`, errTimeForm}, {`"user-7"`, errTimeForm},
		{`"2025-11-30T10:32:12"`, errTimeForm}, {`"2025-11-30"`, errTimeForm}, {`"2025-02-30T10:32:12Z"`, errTimeForm},
		{`"1969-12-31T23:59:59.999Z"`, errTimeRange}, {`"0000-01-01T00:00:00Z"`, errTimeRange},
		{`"9999-12-31T23:59:59-23:00"`, errTimeRange},
	} {
		if got, err := parseTime(json.RawMessage(tt.in)); !errors.Is(err, tt.want) || got != 0 {
			t.Errorf("%s: got %d, %v, want %v", tt.in, got, err, tt.want)
		}
	}
}

// The digits are what they say: against the same instant written plainly.
func TestParseTimeEveryMillisecond(t *testing.T) {
	for ms := int64(1764498732000); ms < 1764498733000; ms++ {
		text := string(appendSeconds(nil, ms))
		shifted := strings.Replace(text, "1764498732", "1.764498732", 1)
		if whole, fraction, ok := strings.Cut(text, "."); ok {
			shifted = "1." + whole[1:] + fraction
		}
		for _, in := range []string{text, shifted + "e9", shifted + "E+09"} {
			if got, err := parseTime(json.RawMessage(in)); err != nil || got != ms {
				t.Errorf("%s: got %d, %v", in, got, err)
			}
		}
	}
}
