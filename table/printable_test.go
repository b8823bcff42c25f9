package table_test

import (
	"strings"
	"testing"

	"github.com/shardquota/shardquota/internal/fixture"
	"github.com/shardquota/shardquota/table"
)

func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		"":                       "",
		"rpm of gpt-4, 10 µs 再":  "rpm of gpt-4, 10 µs 再",
		"\x1b[2J\a\r\n\t":        "\ufffd[2J\ufffd\ufffd\ufffd\ufffd",
		"\u202e\u009b\u2028\xff": "\ufffd\ufffd\ufffd\ufffd",
	} {
		if got := table.Printable(text); got != want {
			t.Errorf("%q is shown as %q, not %q", text, got, want)
		}
	}
}

// Nor does an error have a terminal do what a name on the table says.
func TestErrorsThatATerminalObeys(t *testing.T) {
	name := "calls\x1b[2J\n"
	for _, attr := range []string{"b_" + name + "_tk", "b_" + name + "_sched"} {
		item := fixture.Bucket(fixture.Acme.At(0), fixture.Daily(name, 1000, 1000, 1), fixture.Attrs{attr: "?"})
		b, err := table.DecodeBucket(item)
		if err == nil {
			err = b.Broken
		}
		if err == nil || !strings.Contains(err.Error(), "calls\ufffd[2J\ufffd") || strings.ContainsAny(err.Error(), "\x1b\n") {
			t.Errorf("%s: %q", attr, err)
		}
	}
}
