package quota

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

var (
	// ErrVersion reports a compact schedule without a version, or in one that
	// isn't known here.
	ErrVersion = errors.New("unknown schedule version")

	// ErrEntry reports an entry of a compact schedule that breaks its grammar or
	// carries values that it may not.
	ErrEntry = errors.New("invalid schedule entry")
)

// compactVersion opens every compact schedule. No entry starts with a digit, so
// the leading digits are the version.
const compactVersion = "1"

const (
	// compactTags are the letters of an entry in the order in which they are
	// written: cron fields, then modifiers. They are read in any order.
	compactTags = "mhDMwscap"

	digits       = "0123456789"
	compactValue = digits + "*,-/"
)

// Places of the modifiers in compactTags.
const (
	tagScale = 5 + iota
	tagCapacity
	tagRefill
	tagPeriod
)

// maxEntries bounds a schedule. An entry of two characters takes a hundred times
// as much memory, and any number of milliseconds to search. A reset on every day
// of a year, each by its date, has 366 entries.
const maxEntries = 1000

// maxQuoted bounds what an error quotes of a schedule, in bytes.
const maxQuoted = 80

// quoted renders text of the table in an error: in quotes, its end left out
// where it is long.
func quoted(text string) string {
	if len(text) <= maxQuoted {
		return strconv.Quote(text)
	}
	return strconv.Quote(text[:maxQuoted]) + "…"
}

// Bounds of a modifier, those of the clients.
const (
	maxScale   = 1_000_000_000 // per mille
	maxTokens  = 1_000_000_000_000_000
	maxSeconds = 1_000_000_000
)

// compactEntry holds the text behind each tag, in the order of compactTags. Empty
// means that the tag is absent.
type compactEntry [len(compactTags)]string

// splitCompact takes a compact schedule apart.
func splitCompact(compact string) ([]compactEntry, error) {
	body := strings.TrimLeft(compact, digits)
	if version := strings.TrimSuffix(compact, body); version != compactVersion {
		return nil, fmt.Errorf("%w %s of %s", ErrVersion, quoted(version), quoted(compact))
	}
	if body == "" {
		return nil, fmt.Errorf("%w: %s has none", ErrEntry, quoted(compact))
	}
	if n := 1 + strings.Count(body, ";"); n > maxEntries {
		return nil, fmt.Errorf("%w: %d of them, which is more than %d", ErrEntry, n, maxEntries)
	}
	// Between semicolons there may be nothing: an entry of wildcards alone, as
	// a reset schedule may have one beside others.
	texts := strings.Split(body, ";")
	entries := make([]compactEntry, len(texts))
	for i, text := range texts {
		var err error
		if entries[i], err = splitEntry(text); err != nil {
			return nil, fmt.Errorf("%w %d of %s: %w", ErrEntry, i, quoted(compact), err)
		}
	}
	return entries, nil
}

func splitEntry(text string) (compactEntry, error) {
	var e compactEntry
	for rest := text; rest != ""; {
		value := rest[1:]
		if tail := strings.TrimLeft(value, compactValue); tail != "" {
			value = value[:len(value)-len(tail)]
		}
		tag := tagIndex(rest[0])
		switch {
		case tag < 0:
			return e, fmt.Errorf("unknown tag %q", rest[:1])
		case value == "":
			return e, fmt.Errorf("tag %q has no value", rest[:1])
		case e[tag] != "":
			return e, fmt.Errorf("tag %q is given twice", rest[:1])
		}
		e[tag] = value
		rest = rest[1+len(value):]
	}
	return e, nil
}

func tagIndex(tag byte) int {
	if tag == 'r' { // what some descriptions of the format call the refill amount; the clients write a
		tag = 'a'
	}
	return strings.IndexByte(compactTags, tag)
}

// cron returns the entry's cron fields, wildcards filled in.
func (e compactEntry) cron() [5]string {
	fields := [5]string(e[:5])
	for i, text := range fields {
		if text == "" {
			fields[i] = "*"
		}
	}
	return fields
}

func (e compactEntry) modified() bool {
	return e[tagScale] != "" || e.absolute()
}

func (e compactEntry) absolute() bool {
	return e[tagCapacity]+e[tagRefill]+e[tagPeriod] != ""
}

// modifiers returns the entry's values as an Entry without its cron text.
func (e compactEntry) modifiers() (Entry, error) {
	if (e[tagScale] != "") == e.absolute() {
		return Entry{}, fmt.Errorf("%w: it takes either a scale or a capacity, refill or period", ErrEntry)
	}
	var out Entry
	for _, m := range []struct {
		tag  int
		most int64
		to   *int64
	}{
		{tagScale, maxScale, &out.Scale},
		{tagCapacity, maxTokens, &out.Capacity},
		{tagRefill, maxTokens, &out.Refill},
		{tagPeriod, maxSeconds, &out.Period},
	} {
		if e[m.tag] == "" {
			continue
		}
		v, err := strconv.ParseInt(e[m.tag], 10, 64)
		if err != nil || v < 1 || v > m.most {
			return Entry{}, fmt.Errorf("%w: %s of tag %q is not from 1 to %d", ErrEntry, quoted(e[m.tag]), compactTags[m.tag], m.most)
		}
		*m.to = v
	}
	return out, nil
}

// String writes the entry, wildcards left out.
func (e compactEntry) String() string {
	var b strings.Builder
	for i, value := range e {
		if value != "" && value != "*" {
			b.WriteByte(compactTags[i])
			b.WriteString(value)
		}
	}
	return b.String()
}

// joinCompact writes a compact schedule. None has no text.
func joinCompact(entries []compactEntry) string {
	if len(entries) == 0 {
		return ""
	}
	texts := make([]string, len(entries))
	for i, e := range entries {
		texts[i] = e.String()
	}
	return compactVersion + strings.Join(texts, ";")
}

// compactCron reads the five fields of a cron expression in the spelling that is
// stored: names as numbers.
func compactCron(cron string) (compactEntry, error) {
	var e compactEntry
	fields := strings.Fields(strings.ToUpper(cron))
	if len(fields) != len(cronFields) {
		return e, fmt.Errorf("%w: %s has %d fields, not minute, hour, day, month and weekday", ErrCron, quoted(cron), len(fields))
	}
	for i, text := range fields {
		if _, err := cronFields[i].set(text); err != nil {
			return e, err
		}
		e[i] = text
	}
	e[3] = monthNumbers.Replace(e[3])
	e[4] = compactWeekdays(e[4])
	return e, nil
}

// compactWeekdays numbers the names of a weekday field. Sunday by itself becomes
// 7, so that its three spellings are stored as one; in a range or step it is 0,
// where 7 would mean something else.
func compactWeekdays(text string) string {
	items := strings.Split(weekdayNumbers.Replace(text), ",")
	for i, item := range items {
		if item == "0" {
			items[i] = "7"
		}
	}
	return strings.Join(items, ",")
}

var (
	monthNumbers   = numbersOf(cronFields[3])
	weekdayNumbers = numbersOf(cronFields[4])
)

func numbersOf(f cronField) *strings.Replacer {
	var pairs []string
	for i, name := range f.names {
		pairs = append(pairs, name, strconv.FormatUint(f.min+uint64(i), 10))
	}
	return strings.NewReplacer(pairs...)
}
