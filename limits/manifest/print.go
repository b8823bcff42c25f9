package manifest

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/shardquota/shardquota/limits"
)

// Names says what stands for an entity's id where it is printed.
type Names func(entity string) string

// levelName names a level, with what stands for the entity's id; where that is
// nothing, as some entity's.
func levelName(level limits.Level, names Names) string {
	var parts []string
	if level.Entity() != "" {
		entity := "an entity"
		if name := names(level.Entity()); name != "" {
			entity = "entity " + name
		}
		parts = append(parts, entity)
	}
	if level.Resource() != "" {
		parts = append(parts, "resource "+level.Resource())
	}
	if parts == nil {
		return "system"
	}
	return strings.Join(parts, ", ")
}

// marks stand before what comes, goes and changes.
var marks = map[Kind]string{Added: "+", Removed: "-", Changed: "~"}

// Print writes the plan to be read: a line for each level and thing that changes,
// marked + - or ~, and how many levels there are of each kind. Those that are
// unchanged are only counted.
func (p *Plan) Print(w io.Writer, names Names) error {
	out := bufio.NewWriter(w)
	for _, change := range p.Changes {
		if change.Kind == Unchanged {
			continue
		}
		fmt.Fprintln(out, change.Title(names))
		for _, field := range change.Fields {
			fmt.Fprintf(out, "    %s\n", field)
		}
		if change.Pending {
			fmt.Fprintln(out, "    ~ to be brought to all buckets: the last change was cut short")
		}
	}
	if !p.Empty() {
		fmt.Fprintln(out)
	}
	fmt.Fprintf(out, "%d to add, %d to change, %d to remove, %d unchanged\n", p.Count(Added), p.Count(Changed), p.Count(Removed), p.Count(Unchanged))
	return out.Flush()
}

// Title is the change's first line in a plan: its mark, the level, and the line of
// the manifest that names it, where one does.
func (c Change) Title(names Names) string {
	title := marks[c.Kind] + " " + levelName(c.At, names)
	if c.Line > 0 {
		title += fmt.Sprintf(" (line %d)", c.Line)
	}
	return title
}

// String is the field as a plan prints it, with its mark.
func (f Field) String() string {
	name := strings.TrimSpace(f.Limit + " " + f.Name)
	switch {
	case f.From == "":
		return fmt.Sprintf("+ %s: %s", name, f.To)
	case f.To == "":
		return fmt.Sprintf("- %s: %s", name, f.From)
	}
	return fmt.Sprintf("~ %s: %s → %s", name, f.From, f.To)
}

// Report is a plan for programs.
type Report struct {
	Added     int           `json:"added"`
	Changed   int           `json:"changed"`
	Removed   int           `json:"removed"`
	Unchanged int           `json:"unchanged"`
	Levels    []LevelReport `json:"levels"` // those that change
}

// LevelReport is what becomes of one level.
type LevelReport struct {
	Change   Kind          `json:"change"`
	Entity   string        `json:"entity,omitempty"`   // as the names say; none for all
	Resource string        `json:"resource,omitempty"` // none for all
	Line     int           `json:"line,omitempty"`     // of the manifest
	Pending  bool          `json:"pending,omitempty"`
	Fields   []FieldReport `json:"fields"`
}

// FieldReport is one thing that changes; see Field.
type FieldReport struct {
	Limit string  `json:"limit,omitempty"`
	Field string  `json:"field,omitempty"`
	From  *string `json:"from"` // null where there was none
	To    *string `json:"to"`   // null where there is none any more
}

// Report returns the plan for programs.
func (p *Plan) Report(names Names) Report {
	report := Report{
		Added: p.Count(Added), Changed: p.Count(Changed), Removed: p.Count(Removed), Unchanged: p.Count(Unchanged),
		Levels: []LevelReport{},
	}
	for _, change := range p.Changes {
		if change.Kind == Unchanged {
			continue
		}
		level := LevelReport{
			Change: change.Kind, Resource: change.At.Resource(), Line: change.Line, Pending: change.Pending, Fields: []FieldReport{},
		}
		if change.At.Entity() != "" {
			level.Entity = names(change.At.Entity())
		}
		for _, f := range change.Fields {
			level.Fields = append(level.Fields, FieldReport{f.Limit, f.Name, orNull(f.From), orNull(f.To)})
		}
		report.Levels = append(report.Levels, level)
	}
	return report
}

func orNull(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
