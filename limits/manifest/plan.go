package manifest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/shardquota/shardquota/limits"
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
	At      limits.Level
	Kind    Kind
	Line    int     // of the manifest, 0 for a level that it does not name
	Fields  []Field // what changes; none where only its owners do
	Pending bool    // it was stored before, and perhaps not brought to all buckets

	from       limits.Stored // with the owners that it is to have
	to         limits.Rules
	ownersOnly bool // the rules stay as they are
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
	Changes []Change // in the order of limits.CompareLevels, those that are unchanged among them

	store *limits.Store
	file  string
}

// An Option changes what a comparison covers.
type Option func(*scope)

type scope struct {
	prune bool
	was   *Manifest
	owner string
}

// Prune removes the levels that are stored and that the manifest does not name.
func Prune() Option { return func(s *scope) { s.prune = true } }

// Was removes the levels that an earlier manifest named and this one does not; nil
// is no manifest.
func Was(earlier *Manifest) Option { return func(s *scope) { s.was = earlier } }

// Owner adds somebody to the owners of the levels that the manifest declares, which
// are stored with them. Of an earlier manifest's levels he is taken off, and those
// go of which he was the last owner. A level that is stored as declared, without
// any owner, is left without: an operator stored it.
func Owner(owner string) Option { return func(s *scope) { s.owner = owner } }

// Compare returns what has to change so that the levels of the manifest are stored
// as it declares them. It writes nothing. That the store is of the namespace
// of the manifest is up to the caller.
func Compare(ctx context.Context, store *limits.Store, m *Manifest, options ...Option) (*Plan, error) {
	var s scope
	for _, option := range options {
		option(&s)
	}
	declared := slices.Clone(m.Levels)
	undeclared, err := s.undeclared(ctx, store, m)
	if err != nil {
		return nil, fmt.Errorf("compare: %w", err)
	}
	for _, at := range undeclared {
		declared = append(declared, Level{At: at})
	}
	slices.SortFunc(declared, func(a, b Level) int { return limits.CompareLevels(a.At, b.At) })
	at := make([]limits.Level, len(declared))
	for i, level := range declared {
		at[i] = level.At
	}
	stored, err := store.Stored(ctx, at...)
	if err != nil {
		return nil, fmt.Errorf("compare: %w", err)
	}
	plan := &Plan{store: store, file: m.Name}
	for i, level := range declared {
		change := s.change(stored[i], level.Rules)
		if change.Line = level.Line; level.Empty() && change.Kind == Unchanged {
			continue // not declared, and not stored or not the Owner's
		}
		plan.Changes = append(plan.Changes, change)
	}
	return plan, nil
}

// undeclared are the levels that go, in any order: none of the manifest's.
func (s *scope) undeclared(ctx context.Context, store *limits.Store, m *Manifest) ([]limits.Level, error) {
	named := map[limits.Level]bool{}
	for _, level := range m.Levels {
		named[level.At] = true
	}
	var gone []limits.Level
	add := func(at limits.Level) {
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
	stored, err := store.Levels(ctx)
	for _, level := range stored {
		add(level.At)
	}
	return gone, err
}

// change is what becomes of a level and its owners.
func (s *scope) change(from limits.Stored, to limits.Rules) Change {
	switch {
	case s.owner == "" || to.Empty() && s.prune:
		return compare(from, to)
	case to.Empty():
		return s.left(from)
	}
	return s.declared(compare(from, to))
}

// declared adds the Owner to those of a level, but for an operator's that says the
// same already.
func (s *scope) declared(c Change) Change {
	operators := len(c.from.Owners) == 0 && len(c.Fields) == 0
	if operators || slices.Contains(c.from.Owners, s.owner) {
		return c
	}
	if c.Kind == Unchanged {
		c.Kind, c.ownersOnly = Changed, true
	}
	c.from.Owners = append(slices.Clone(c.from.Owners), s.owner)
	slices.Sort(c.from.Owners)
	return c
}

// left is what becomes of a level that the Owner declares no more.
func (s *scope) left(from limits.Stored) Change {
	others := slices.DeleteFunc(slices.Clone(from.Owners), func(o string) bool { return o == s.owner })
	switch {
	case len(others) == len(from.Owners):
		return Change{At: from.At, Kind: Unchanged} // not his
	case len(others) == 0 || from.Empty() && from.Invalid == nil:
		return compare(from, limits.Rules{})
	}
	from.Owners = others
	return Change{At: from.At, Kind: Changed, from: from, to: from.Rules, ownersOnly: true}
}

// compare is what makes a level say something else.
func compare(from limits.Stored, to limits.Rules) Change {
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
func rulesDiff(from, to limits.Rules) []Field {
	var fields []Field
	add := func(name, from, to string) {
		if from != to {
			fields = append(fields, Field{Name: name, From: from, To: to})
		}
	}
	add("access", accessText(from.Access), accessText(to.Access))
	add("cascade", cascadeText(from.Cascade), cascadeText(to.Cascade))
	byName := map[string][2]*limits.Limit{}
	for i, l := range from.Limits {
		byName[l.Name] = [2]*limits.Limit{&from.Limits[i], nil}
	}
	for i, l := range to.Limits {
		byName[l.Name] = [2]*limits.Limit{byName[l.Name][0], &to.Limits[i]}
	}
	for _, name := range sortedKeys(byName) {
		fields = append(fields, limitDiff(name, byName[name][0], byName[name][1])...)
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
func limitDiff(name string, from, to *limits.Limit) []Field {
	switch {
	case from == nil:
		return []Field{{Limit: name, To: line(limitNode(*to))}}
	case to == nil:
		return []Field{{Limit: name, From: line(limitNode(*from))}}
	}
	values := map[string][2]string{}
	var names []string
	for side, l := range []*limits.Limit{from, to} {
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
// compared is left alone: that error wraps limits.ErrStale, and comparing again
// shows what is there. One that was stored and not brought to all buckets is
// Pending in the next plan. Buckets that cannot be read keep nothing from the
// others: where nothing else fails the error is of the first level that was not
// brought to them, wraps limits.ErrUnreadable, and has the further ones as left.
// An empty plan writes nothing.
func (p *Plan) Apply(ctx context.Context) error {
	changes := inOrder(p.Changes)
	var done, unread []Change
	var first error
	for i, change := range changes {
		err := p.write(ctx, change)
		switch {
		case err == nil:
			done = append(done, change)
		case errors.Is(err, limits.ErrUnreadable):
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

func (p *Plan) write(ctx context.Context, c Change) error {
	if c.ownersOnly {
		return p.store.SetOwners(ctx, c.from)
	}
	return p.store.Replace(ctx, c.from, c.to)
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
	return c.from.Access != limits.Inherit && c.to.Access == limits.Inherit || c.from.Cascade != nil && c.to.Cascade == nil
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
	if errors.Is(e.Err, limits.ErrUnreadable) {
		made = "made"
	}
	return fmt.Sprintf("%s: %v (%d %s, %d left)", e.where, e.Err, len(e.Done), made, len(e.Left))
}

// Unwrap returns why it failed.
func (e *ApplyError) Unwrap() error { return e.Err }
