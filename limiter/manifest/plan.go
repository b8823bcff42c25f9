package manifest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/shardquota/shardquota/limiter"
)

// Kind is what becomes of a level.
type Kind string

// The kinds of change of a level.
const (
	Unchanged Kind = "unchanged"
	Added     Kind = "added"
	Changed   Kind = "changed"
	Removed   Kind = "removed"
)

// Change is what becomes of one level.
type Change struct {
	At      limiter.Level
	Kind    Kind
	Line    int     // of the manifest, 0 for a level that it does not name
	Fields  []Field // what changes
	Pending bool    // it was stored before, and perhaps not brought to all buckets

	from limiter.Stored
	to   limiter.Rules
}

// Field is one thing that a level says, before and after: its access or cascade,
// a limit that comes or goes as a whole, or one value of a limit that stays.
type Field struct {
	Limit string // "" for access and cascade
	Name  string // as in a manifest; "" for the limit as a whole
	From  string // as in a manifest, "" where there was none
	To    string // as in a manifest, "" where there is none any more
}

// Plan is what makes the table say what a manifest declares.
type Plan struct {
	Changes []Change // in the order of limiter.CompareLevels, those that are unchanged among them

	limiter *limiter.Limiter
	file    string
}

// An Option changes what a comparison covers.
type Option func(*scope)

type scope struct {
	prune bool
	was   *Manifest
	owner string
	adopt bool
}

// Prune removes the levels that are stored and that the manifest does not name.
func Prune() Option { return func(s *scope) { s.prune = true } }

// Was removes the levels that an earlier manifest named and this one does not; nil
// is no manifest.
func Was(earlier *Manifest) Option { return func(s *scope) { s.was = earlier } }

// Owner marks the levels that are stored with who declares them. Of an earlier
// manifest's levels only those go then that bear his mark. One that is stored as
// declared without any is left without. It is somebody else's.
func Owner(owner string) Option { return func(s *scope) { s.owner = owner } }

// Adopt takes the levels without a mark that are stored as they are, or were,
// declared for the Owner's.
func Adopt() Option { return func(s *scope) { s.adopt = true } }

// Compare returns what has to change so that the levels of the manifest are stored
// as it declares them. It writes nothing. That the limiter works in the namespace
// of the manifest is up to the caller.
func Compare(ctx context.Context, l *limiter.Limiter, m *Manifest, options ...Option) (*Plan, error) {
	var s scope
	for _, option := range options {
		option(&s)
	}
	declared := slices.Clone(m.Levels)
	undeclared, err := s.undeclared(ctx, l, m)
	if err != nil {
		return nil, fmt.Errorf("compare: %w", err)
	}
	for _, at := range undeclared {
		declared = append(declared, Level{At: at})
	}
	slices.SortFunc(declared, func(a, b Level) int { return limiter.CompareLevels(a.At, b.At) })
	at := make([]limiter.Level, len(declared))
	for i, level := range declared {
		at[i] = level.At
	}
	stored, err := l.Stored(ctx, at...)
	if err != nil {
		return nil, fmt.Errorf("compare: %w", err)
	}
	plan := &Plan{limiter: l, file: m.Name}
	for i, level := range declared {
		if level.Empty() && !s.prune && !s.owns(stored[i]) {
			continue
		}
		change := s.marked(compare(stored[i], level.Rules))
		if change.Line = level.Line; level.Empty() && change.Kind == Unchanged {
			continue // neither stored nor declared
		}
		plan.Changes = append(plan.Changes, change)
	}
	return plan, nil
}

// undeclared are the levels that go, in any order: none of the manifest's.
func (s *scope) undeclared(ctx context.Context, l *limiter.Limiter, m *Manifest) ([]limiter.Level, error) {
	named := map[limiter.Level]bool{}
	for _, level := range m.Levels {
		named[level.At] = true
	}
	var gone []limiter.Level
	add := func(at limiter.Level) {
		if !named[at] {
			named[at] = true
			gone = append(gone, at)
		}
	}
	if s.was != nil {
		for _, level := range s.was.Levels {
			add(level.At)
		}
	}
	if !s.prune {
		return gone, nil
	}
	stored, err := l.Levels(ctx)
	for _, level := range stored {
		add(level.At)
	}
	return gone, err
}

// owns reports whether a level that only the earlier manifest names is the Owner's
// to take away.
func (s *scope) owns(stored limiter.Stored) bool {
	switch {
	case s.owner == "" || stored.Owner == s.owner:
		return true
	case stored.Owner != "" || !s.adopt:
		return false
	}
	rules, err := normal(stored)
	return err == nil && slices.ContainsFunc(s.was.Levels, func(l Level) bool { return l.At == stored.At && l.Equal(rules) })
}

// marked is a change that leaves the Owner's mark. One that changes nothing else is
// made to take over the level of another, or what he adopts.
func (s *scope) marked(c Change) Change {
	nobodys := len(c.Fields) == 0 && c.from.Owner == "" && !s.adopt
	if s.owner == "" || c.from.Owner == s.owner || c.to.Empty() || nobodys {
		return c
	}
	if c.from.Owner = s.owner; c.Kind == Unchanged {
		c.Kind = Changed
	}
	return c
}

// compare is what makes a level say something else.
func compare(from limiter.Stored, to limiter.Rules) Change {
	change := Change{At: from.At, Kind: Changed, Pending: from.Pending, from: from, to: to}
	was, invalid := normal(from)
	if from.Invalid == nil && invalid != nil {
		was.Limits = from.Limits // that another program stored, and this one would not
	}
	change.Fields = rulesDiff(was, to)
	if from.Invalid != nil {
		change.Fields = append(change.Fields, Field{Name: "limits", From: "cannot be read: " + from.Invalid.Error()})
	}
	switch {
	case len(change.Fields) == 0 && !from.Pending:
		change.Kind = Unchanged
	case to.Empty():
		change.Kind = Removed
	case was.Empty() && from.Invalid == nil:
		change.Kind = Added
	}
	return change
}

// rulesDiff is what differs between what a level says and is to say.
func rulesDiff(from, to limiter.Rules) []Field {
	var fields []Field
	add := func(name, from, to string) {
		if from != to {
			fields = append(fields, Field{Name: name, From: from, To: to})
		}
	}
	add("access", accessText(from.Access), accessText(to.Access))
	add("cascade", cascadeText(from.Cascade), cascadeText(to.Cascade))
	limits := map[string][2]*limiter.Limit{}
	for i, l := range from.Limits {
		limits[l.Name] = [2]*limiter.Limit{&from.Limits[i], nil}
	}
	for i, l := range to.Limits {
		limits[l.Name] = [2]*limiter.Limit{limits[l.Name][0], &to.Limits[i]}
	}
	for _, name := range sortedKeys(limits) {
		fields = append(fields, limitDiff(name, limits[name][0], limits[name][1])...)
	}
	return fields
}

func cascadeText(cascade *bool) string {
	if cascade == nil {
		return ""
	}
	return strconv.FormatBool(*cascade)
}

// limitDiff is what differs between two limits of a name, nil for none.
func limitDiff(name string, from, to *limiter.Limit) []Field {
	switch {
	case from == nil:
		return []Field{{Limit: name, To: line(limitNode(*to))}}
	case to == nil:
		return []Field{{Limit: name, From: line(limitNode(*from))}}
	}
	values := map[string][2]string{}
	var names []string
	for side, l := range []*limiter.Limit{from, to} {
		for _, field := range limitFields(*l) {
			value, seen := values[field.name]
			if !seen {
				names = append(names, field.name)
			}
			value[side] = line(field.node)
			values[field.name] = value
		}
	}
	var fields []Field
	for _, field := range names {
		if value := values[field]; value[0] != value[1] {
			fields = append(fields, Field{name, field, value[0], value[1]})
		}
	}
	return fields
}

// Empty reports whether nothing changes.
func (p *Plan) Empty() bool { return p.Count(Unchanged) == len(p.Changes) }

// Count is how many levels a kind of change is for.
func (p *Plan) Count(kind Kind) int {
	n := 0
	for _, c := range p.Changes {
		if c.Kind == kind {
			n++
		}
	}
	return n
}

// Apply makes the changes, level by level, each in one write that is brought to
// live buckets before the next. Their order takes each bucket from what decided
// about it straight to what is to decide: a quota that moves from one level to
// another is never hidden in between, which would grant it anew. Apply ends at the
// first that fails, with an *ApplyError. A level that is no longer stored as it was
// compared is left alone: that error wraps limiter.ErrStale, and comparing again
// shows what is there. One that was stored and not brought to all buckets is
// Pending in the next plan. Buckets that cannot be read keep nothing from the
// others: where nothing else fails the error is of the first level that was not
// brought to them, wraps limiter.ErrUnreadable, and has the further ones as left.
// An empty plan writes nothing.
func (p *Plan) Apply(ctx context.Context) error {
	changes := inOrder(p.Changes)
	var done, unread []Change
	var first error
	for i, change := range changes {
		err := p.limiter.Replace(ctx, change.from, change.to)
		switch {
		case err == nil:
			done = append(done, change)
		case errors.Is(err, limiter.ErrUnreadable):
			unread, first = append(unread, change), cmp.Or(first, err)
		default:
			return p.failed(done, change, append(unread, changes[i+1:]...), err)
		}
	}
	if first != nil {
		return p.failed(done, unread[0], unread[1:], first)
	}
	return nil
}

func (p *Plan) failed(done []Change, at Change, left []Change, err error) error {
	return &ApplyError{Done: done, Failed: at, Left: left, Err: err, where: p.where(at)}
}

// inOrder are the changes as they are to be made. First those that take nothing
// away, the most specific level first, so that a general one decides about nobody
// whose own is still to come. Then the others, the most general first, so that who
// loses his own level does not fall to one that goes as well.
func inOrder(changes []Change) []Change {
	made := slices.DeleteFunc(slices.Clone(changes), func(c Change) bool { return c.Kind == Unchanged })
	slices.SortStableFunc(made, func(a, b Change) int { return cmp.Compare(a.turn(), b.turn()) })
	return made
}

// turn is when a change is made, those of the lowest first.
func (c Change) turn() int {
	specific := 0
	if c.At.Resource() != "" {
		specific++
	}
	if c.At.Entity() != "" {
		specific += 2
	}
	if c.takesAway() {
		return specific
	}
	return -specific - 1
}

// takesAway reports whether a level goes on to leave something to others: its
// limits, or where there are none on either side its access or cascade.
func (c Change) takesAway() bool {
	switch {
	case len(c.to.Limits) > 0:
		return false
	case len(c.from.Limits) > 0 || c.from.Invalid != nil:
		return true
	}
	return c.from.Access != limiter.Inherit && c.to.Access == limiter.Inherit || c.from.Cascade != nil && c.to.Cascade == nil
}

// where says which level is meant, without an entity's id.
func (p *Plan) where(change Change) string {
	name := discreet(change.At)
	switch {
	case change.Line == 0:
		return name + ", which the manifest does not name"
	case p.file == "":
		return fmt.Sprintf("%s, on line %d", name, change.Line)
	}
	return fmt.Sprintf("%s:%d: %s", p.file, change.Line, name)
}

// ApplyError says how far a plan was applied. Its text holds no entity's id.
type ApplyError struct {
	Done   []Change // what was made
	Failed Change
	Left   []Change // what was to be made beside it
	Err    error

	where string
}

func (e *ApplyError) Error() string {
	made := "made before it"
	if errors.Is(e.Err, limiter.ErrUnreadable) {
		made = "made"
	}
	return fmt.Sprintf("%s: %v (%d %s, %d left)", e.where, e.Err, len(e.Done), made, len(e.Left))
}

// Unwrap returns why it failed.
func (e *ApplyError) Unwrap() error { return e.Err }
