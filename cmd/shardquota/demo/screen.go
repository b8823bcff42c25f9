package demo

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/colorprofile"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// Screen shows frames: over one another in a terminal, else a line a second.
type Screen struct {
	out     io.Writer
	columns int // of the terminal, 0 where there is none
	rows    int
	config  Config
	news    []string
	drawn   int // lines of the last frame
	told    time.Duration
	before  Frame // that rates were shown of last
}

// NewScreen shows on out, a terminal of so many columns and rows, or none where
// that is 0.
func NewScreen(out io.Writer, columns, rows int, config Config) *Screen {
	return &Screen{out: colorprofile.NewWriter(out, os.Environ()), columns: columns, rows: rows, config: config}
}

// The terminal's own colours, so that they suit a light one and a dark one.
var (
	strong = lipgloss.NewStyle().Bold(true)
	spent  = lipgloss.NewStyle().Foreground(lipgloss.Blue)
	good   = lipgloss.NewStyle().Foreground(lipgloss.Green).Bold(true)
	bad    = lipgloss.NewStyle().Foreground(lipgloss.Red).Bold(true)
	faint  = lipgloss.NewStyle().Faint(true)
)

// Show shows a frame.
func (s *Screen) Show(f Frame) error {
	s.news = append(s.news, f.News...)
	var text string
	switch {
	case f.Done:
		text = s.erase() + s.summary(f)
	case s.columns > 0:
		text = s.erase() + s.frame(f)
	default:
		text = s.line(f)
	}
	_, err := io.WriteString(s.out, text)
	return err
}

// erase takes the last frame off the terminal.
func (s *Screen) erase() string {
	if s.drawn == 0 {
		return ""
	}
	n := s.drawn
	s.drawn = 0
	return fmt.Sprintf("\x1b[%dA\x1b[J", n)
}

// latest is how many of the aggregator's doings a frame shows.
const latest = 6

func (s *Screen) frame(f Frame) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %4.1f s   %s\n\n", strong.Render("One hot customer, one quota"), f.Elapsed.Seconds(), s.rates(f))
	shards := shown(f)
	fit := min(shards, max(1, s.rows-latest-7)) // what is above the screen cannot be erased
	for shard, sibling := range f.Shards[:fit] {
		b.WriteString(s.shard(shard, sibling.Bucket))
	}
	if fit < shards {
		fmt.Fprintf(&b, "and %d more\n", shards-fit)
	}
	fmt.Fprintf(&b, "\n%s\n", s.ledger(f))
	for i := range latest {
		line := ""
		if at := len(s.news) - latest + i; at >= 0 {
			line = s.news[at]
		}
		fmt.Fprintf(&b, "%s\n", faint.Render(line))
	}
	// A line that were broken would not be erased.
	text := lipgloss.NewStyle().MaxWidth(s.columns).Render(strings.TrimSuffix(b.String(), "\n")) + "\n"
	s.drawn = strings.Count(text, "\n")
	return text
}

// rates are how many uses a second were asked for and how many admitted since the
// frame that they were shown of before.
func (s *Screen) rates(f Frame) string {
	span := (f.Elapsed - s.before.Elapsed).Seconds()
	asked, admitted := float64(f.Asked-s.before.Asked), float64(f.Admitted-s.before.Admitted)
	s.before = f
	return fmt.Sprintf("asks %5.0f/s, gets %5.0f/s", asked/span, admitted/span)
}

// shown is how many shards there are, created or not.
func shown(f Frame) int {
	if f.Shards[0].Bucket == nil {
		return 0
	}
	return min(f.Count, len(f.Shards))
}

// width is that of a bar, characters.
const width = 32

// shard is a line of one shard: what it holds of all that was sold, and how much
// of its write meter is left.
func (s *Screen) shard(index int, b *table.Bucket) string {
	if b == nil {
		return fmt.Sprintf("shard %2d  %s\n", index, faint.Render("not used yet"))
	}
	l, meter := b.Limit(limit), b.Limit(quota.WriteMeter)
	held := float64(l.Balance) / float64(s.config.Quota*1000)
	bar := strings.Repeat("█", int(held*width+0.999))
	return fmt.Sprintf("shard %2d  %8s  %s%s  grant 1/%-2d  %s writes\n", index, table.Tokens(l.Balance), spent.Render(bar),
		faint.Render(strings.Repeat("·", max(0, width-len([]rune(bar))))), *l.Grant, table.Tokens(meter.Consumed))
}

// ledger is what became of all that was sold, and of what was asked for: what is
// neither admitted nor rejected is under way or was not come to yet.
func (s *Screen) ledger(f Frame) string {
	return fmt.Sprintf("sold %d = used %s + held %s    rejected %d, under way %d    counted %s, %d writes to go",
		s.config.Quota, table.Tokens(f.Consumed), table.Tokens(f.Ledger.Held), f.Rejected, f.Asked-f.Admitted-f.Rejected, table.Tokens(f.Counted), f.Pending)
}

// line is a frame where nothing can be drawn over.
func (s *Screen) line(f Frame) string {
	text := ""
	for _, news := range s.news {
		text += "        " + news + "\n"
	}
	s.news = nil
	if f.Elapsed-s.told >= time.Second {
		s.told = f.Elapsed
		text += fmt.Sprintf("%5.1f s %9s, %s: %s\n", f.Elapsed.Seconds(), sharded(shown(f)), s.rates(f), s.ledger(f))
	}
	return text
}

func (s *Screen) summary(f Frame) string {
	var b strings.Builder
	for shard, sibling := range f.Shards[:shown(f)] {
		b.WriteString(s.shard(shard, sibling.Bucket))
	}
	verdict := good.Render("the ledger closes")
	if f.Unsound() != nil {
		verdict = bad.Render(f.Unsound().Error())
	}
	fmt.Fprintf(&b, "\nsold      %9d\nadmitted  %9d\nheld      %9s\ncounted   %9s  by the aggregator, each use once\nrejected  %9d\n\n%s in %.1f s: %s, conserved: %v\n",
		s.config.Quota, f.Admitted, table.Tokens(f.Ledger.Held), table.Tokens(f.Counted), f.Rejected, verdict, f.Elapsed.Seconds(), sharded(shown(f)), f.Ledger.Conserved)
	return b.String()
}

// Unsound says what of the last frame is wrong, nil for nothing.
func (f Frame) Unsound() error {
	switch sold := f.Ledger.Capacity; {
	case !f.Ledger.Conserved:
		return fmt.Errorf("granted %s and grantable %s are not the %s that were sold", table.Tokens(f.Ledger.Granted), table.Tokens(f.Ledger.Grantable), table.Tokens(sold))
	case f.Ledger.Grantable == 0 && 1000*f.Admitted+f.Ledger.Held != sold:
		return fmt.Errorf("admitted %d and held %s are not the %s that were sold", f.Admitted, table.Tokens(f.Ledger.Held), table.Tokens(sold))
	case f.Counted != 1000*f.Admitted:
		return fmt.Errorf("counted %s of %d that were admitted", table.Tokens(f.Counted), f.Admitted)
	}
	return nil
}
