package table

import (
	"strings"
	"unicode"
)

// Printable is text off a table without what a terminal would obey: each
// character that is not printed, such as an escape or a line end, becomes the
// replacement character. Of spaces only the plain one is kept.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}
