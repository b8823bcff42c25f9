package table

import (
	"strings"
	"unicode"
)

// Printable returns a text that a terminal can show: each character that is not
// printed, such as an escape or a line end, becomes the replacement character. The
// plain space is the only one that stays.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}
