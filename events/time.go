package events

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"
)

// maxTime is the last time that a record may have, epoch ms: the end of the year 9999. Milliseconds in the place of
// seconds are beyond it.
const maxTime = 253402300799999

var (
	errTimeForm  = errors.New("is neither epoch seconds nor an ISO 8601 time with a zone")
	errTimeRange = errors.New("is out of range")
)

// parseTime reads a time in JSON: a number of epoch seconds, or ISO 8601 text, which the aws CLI prints. It returns epoch
// ms. It computes in decimal, so that 1764498732.123 is exact. It cuts off fractions of a millisecond, since rounding up
// could move a write into the next window.
func parseTime(raw json.RawMessage) (int64, error) {
	if len(raw) > 0 && raw[0] == '"' {
		return parseISO(raw)
	}
	return parseSeconds(string(raw))
}

func parseISO(raw json.RawMessage) (int64, error) {
	var text string
	if json.Unmarshal(raw, &text) != nil {
		return 0, errTimeForm
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05Z0700"} {
		if t, err := time.Parse(layout, text); err == nil {
			return inRange(t.UnixMilli())
		}
	}
	return 0, errTimeForm
}

func inRange(ms int64) (int64, error) {
	if ms < 0 || ms > maxTime {
		return 0, errTimeRange
	}
	return ms, nil
}

// parseSeconds reads a JSON number of seconds, without a float.
func parseSeconds(text string) (int64, error) {
	mantissa, exponent, err := splitExponent(text)
	if err != nil {
		return 0, err
	}
	whole, fraction, dotted := strings.Cut(mantissa, ".")
	if whole == "-" || whole == "" || dotted && fraction == "" || !isDigits(strings.TrimPrefix(whole, "-")+fraction) {
		return 0, errTimeForm
	}
	if whole[0] == '-' {
		return 0, errTimeRange
	}
	return shiftDecimal(whole+fraction, len(whole)+exponent+3)
}

// splitExponent splits "1.7E9". An exponent that no time needs is out of range.
func splitExponent(text string) (mantissa string, exponent int, err error) {
	i := strings.IndexAny(text, "eE")
	if i < 0 {
		return text, 0, nil
	}
	exponent, err = strconv.Atoi(text[i+1:])
	if errors.Is(err, strconv.ErrSyntax) {
		return "", 0, errTimeForm
	}
	if err != nil || exponent < -1000 || exponent > 1000 {
		return "", 0, errTimeRange
	}
	return text[:i], exponent, nil
}

// shiftDecimal returns the whole part of 0.DIGITS times ten to the power of point.
func shiftDecimal(digits string, point int) (int64, error) {
	trimmed := strings.TrimLeft(digits, "0")
	point -= len(digits) - len(trimmed)
	if trimmed == "" || point <= 0 {
		return 0, nil
	}
	if point > len("253402300799999") {
		return 0, errTimeRange
	}
	if point < len(trimmed) {
		trimmed = trimmed[:point]
	}
	ms, err := strconv.ParseInt(trimmed+strings.Repeat("0", point-len(trimmed)), 10, 64)
	if err != nil {
		return 0, errTimeForm
	}
	return inRange(ms)
}

// appendSeconds writes epoch ms as epoch seconds, with three decimals unless they are zero.
func appendSeconds(b []byte, ms int64) []byte {
	b = strconv.AppendInt(b, ms/1000, 10)
	if rest := ms % 1000; rest != 0 {
		b = append(b, '.', byte('0'+rest/100), byte('0'+rest/10%10), byte('0'+rest%10))
	}
	return b
}
