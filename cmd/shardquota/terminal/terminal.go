// Package terminal draws a survey in a terminal, 80 columns wide. Colours only
// stress what is said in words too.
package terminal

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"

	"charm.land/lipgloss/v2"
	"charm.land/lipgloss/v2/table"
	"github.com/charmbracelet/colorprofile"

	"github.com/shardquota/shardquota/cmd/shardquota/survey"
	tokens "github.com/shardquota/shardquota/table"
)

// The styles are of the terminal's own sixteen colours, so that they suit a
// light one and a dark one.
var (
	strong = lipgloss.NewStyle().Bold(true)
	good   = lipgloss.NewStyle().Foreground(lipgloss.Green)
	warn   = lipgloss.NewStyle().Foreground(lipgloss.Yellow)
	bad    = lipgloss.NewStyle().Foreground(lipgloss.Red).Bold(true)
	shouts = bad.Reverse(true)
	cell   = lipgloss.NewStyle().PaddingRight(2)
)

// Draw draws a survey of what is named title. What w cannot show, such as
// colours where it is no terminal or NO_COLOR is set, is left out.
func Draw(w io.Writer, title string, s *survey.Survey) error {
	return draw(colorprofile.NewWriter(w, os.Environ()), title, s)
}

func draw(w io.Writer, title string, s *survey.Survey) error {
	p := &picture{now: s.Now}
	p.line("%s  %s at %s", strong.Render(clean(title)), plural(s.Count, "shard"), instant(s.Now))
	if s.Boundary != nil {
		p.line("next boundary %s, in %s", instant(*s.Boundary), ago(*s.Boundary-s.Now))
	}
	p.faults(s)
	p.shards(s)
	for _, terms := range s.Limits {
		p.limit(s, terms)
	}
	p.usage(s)
	_, err := io.WriteString(w, p.text.String())
	return err
}

// picture is what is drawn so far.
type picture struct {
	text strings.Builder
	now  int64
}

func (p *picture) line(format string, args ...any) {
	fmt.Fprintf(&p.text, format+"\n", args...)
}

func (p *picture) heading(title string) { p.line("\n%s", strong.Render(title)) }

// table draws rows below their headers, indented and without rules.
func (p *picture) table(headers []string, rows [][]string) {
	drawn := table.New().Headers(headers...).Rows(rows...).Wrap(false).
		BorderTop(false).BorderBottom(false).BorderLeft(false).BorderRight(false).
		BorderColumn(false).BorderHeader(false).BorderRow(false).
		StyleFunc(func(row, _ int) lipgloss.Style {
			if row == table.HeaderRow {
				return cell.Faint(true)
			}
			return cell
		})
	for line := range strings.SplitSeq(drawn.String(), "\n") {
		p.line("  %s", trailing.ReplaceAllStringFunc(line, func(end string) string { return strings.ReplaceAll(end, " ", "") }))
	}
}

// trailing is the end of a line of which only its styles matter.
var trailing = regexp.MustCompile(`(?: |\x1b\[[0-9;]*m)+$`)

func (p *picture) faults(s *survey.Survey) {
	if len(s.Faults) == 0 {
		return
	}
	p.heading("Cannot be read")
	for _, fault := range s.Faults {
		p.line("  %s: %s", bad.Render(fault.Item), clean(fault.Cause))
	}
}

func (p *picture) shards(s *survey.Survey) {
	p.heading("Shards")
	var rows [][]string
	for _, shard := range s.Shards {
		rows = append(rows, p.shard(s, shard))
	}
	p.table([]string{"shard", "count", "last pass", "fast path until", "write meter", ""}, rows)
}

func (p *picture) shard(s *survey.Survey, shard survey.Shard) []string {
	index := fmt.Sprint(shard.Index)
	switch shard.Presence {
	case survey.Missing:
		return []string{index, "-", warn.Render("missing"), "created on first use", "", ""}
	case survey.Undecodable:
		return []string{index, "?", bad.Render("unreadable"), "", "", ""}
	}
	count := fmt.Sprint(shard.Count)
	if shard.Count != s.Count {
		count = warn.Render(count)
	}
	return []string{index, count, p.relative(shard.Refilled), p.valid(shard.Valid), meter(shard.Meter), p.remarks(shard)}
}

func (p *picture) remarks(shard survey.Shard) string {
	var remarks []string
	if shard.Disabled {
		remarks = append(remarks, warn.Render("disabled"))
	}
	if shard.Bypass > 0 {
		remarks = append(remarks, warn.Render("bypassed"))
	}
	if shard.Broken != "" {
		remarks = append(remarks, bad.Render("bad schedule"))
	}
	return strings.Join(remarks, ", ")
}

func (p *picture) valid(until *int64) string {
	switch {
	case until == nil:
		return "any time"
	case *until == 0:
		return warn.Render("closed")
	default:
		return p.relative(*until)
	}
}

func meter(m *survey.Meter) string {
	if m == nil || m.Capacity <= 0 {
		return "none"
	}
	text := bar(m.Level, m.Capacity, 8) + fmt.Sprintf(" %3d%%", 100*max(0, m.Level)/m.Capacity)
	if m.Level < m.Capacity/5 {
		return bad.Render(text + " hot")
	}
	return text
}

// bar is a part of a whole, width characters wide, in eighths of one.
func bar(part, whole int64, width int) string {
	eighths := 0
	if whole > 0 && part > 0 {
		eighths = int(min(float64(part)/float64(whole), 1) * float64(8*width))
	}
	full := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		full += string([]rune("▏▎▍▌▋▊▉")[rest-1])
	}
	return full + strings.Repeat("·", width-len([]rune(full)))
}

func instant(ms int64) string {
	return time.UnixMilli(ms).UTC().Format("2006-01-02 15:04:05 UTC")
}

func (p *picture) relative(ms int64) string {
	if ms > p.now {
		return "in " + ago(ms-p.now)
	}
	return ago(p.now-ms) + " ago"
}

// ago renders a span of milliseconds in its two largest units.
func ago(ms int64) string {
	span := time.Duration(min(ms, int64(1e12))) * time.Millisecond
	days, hours, minutes := int(span.Hours())/24, int(span.Hours())%24, int(span.Minutes())%60
	switch {
	case days > 0:
		return fmt.Sprintf("%dd %dh", days, hours)
	case hours > 0:
		return fmt.Sprintf("%dh %dm", hours, minutes)
	case minutes > 0:
		return fmt.Sprintf("%dm %ds", minutes, int(span.Seconds())%60)
	default:
		return fmt.Sprintf("%.3gs", span.Seconds())
	}
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func amount(milli int64) string { return tokens.Tokens(milli) }

// clean takes out of text off a table what a terminal would obey.
func clean(text string) string { return tokens.Printable(text) }
