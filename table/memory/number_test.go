package memory

import (
	"errors"
	"math/big"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
)

func TestAddIsExact(t *testing.T) {
	nines := strings.Repeat("9", 37)
	for _, c := range []struct{ a, b, sum string }{
		{"0", "0", "0"},
		{"0", "-0.5", "-0.5"},
		{"0.1", "0.2", "0.3"},
		{"1.5", "-1.5", "0"},
		{"1.25", "0.75", "2"},
		{"99.999", "0.001", "100"},
		{"9223372036854775807", "1", "9223372036854775808"},
		{"-9223372036854775808", "-1", "-9223372036854775809"},
		{"123456789012345678901234567890.125", "0.001", "123456789012345678901234567890.126"},
		{nines, "1", "1" + strings.Repeat("0", 37)},
		{"1e3", "1", "1001"},
		{"1.50", "0", "1.5"},
		{"007", "-0", "7"},
		{"-0.5", "-0.75", "-1.25"},
		{"-1.001", "0.002", "-0.999"},
		{"5.", ".5", "5.5"},
	} {
		got, err := add(c.a, c.b)
		if err != nil || got != c.sum {
			t.Errorf("%s + %s is %q, %v, not %s", c.a, c.b, got, err, c.sum)
		}
	}
}

func TestAddRefuses(t *testing.T) {
	wide := "1" + strings.Repeat("0", 36) + "1"
	for _, c := range []struct {
		a, b string
		err  error
	}{
		{"x", "1", errNotNumber},
		{"1", "", errNotNumber},
		{"1/2", "1", errNotNumber},
		{"0x10", "1", errNotNumber},
		{"1_000", "1", errNotNumber},
		{"Inf", "1", errNotNumber},
		{"1e9999", "1", errNotNumber},
		{wide, "0.1", errTooLong},
	} {
		if got, err := add(c.a, c.b); !errors.Is(err, c.err) {
			t.Errorf("%s + %s is %q, %v", c.a, c.b, got, err)
		}
	}
}

// Sums of random millitokens agree with integers of millitokens.
func TestAddAgreesWithIntegers(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	sum, total := "0", new(big.Int)
	for range 10_000 {
		milli := random.Int64N(1<<61) - 1<<60
		var err error
		if sum, err = add(sum, decimalOf(big.NewInt(milli))); err != nil {
			t.Fatal(err)
		}
		if total.Add(total, big.NewInt(milli)); sum != decimalOf(total) {
			t.Fatalf("the sum is %s, not %s", sum, decimalOf(total))
		}
	}
}

// decimalOf renders millitokens as tokens.
func decimalOf(milli *big.Int) string {
	digits := new(big.Int).Abs(milli).String()
	if pad := 4 - len(digits); pad > 0 {
		digits = strings.Repeat("0", pad) + digits
	}
	text := digits[:len(digits)-3]
	if part := strings.TrimRight(digits[len(digits)-3:], "0"); part != "" {
		text += "." + part
	}
	if milli.Sign() < 0 {
		text = "-" + text
	}
	return text
}

func TestCompare(t *testing.T) {
	for _, c := range []struct {
		a     string
		b     int64
		order int
		ok    bool
	}{
		{"5", 5, 0, true}, {"5.0", 5, 0, true}, {"5.001", 5, 1, true}, {"-5.001", -5, -1, true},
		{"1e2", 100, 0, true}, {"99999999999999999999", 1 << 62, 1, true}, {"", 0, 0, false}, {"five", 5, 0, false},
	} {
		if order, ok := compareNumbers(c.a, strconv.FormatInt(c.b, 10)); order != c.order || ok != c.ok {
			t.Errorf("%s against %d: %d, %t", c.a, c.b, order, ok)
		}
	}
}
