package manifest

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/quota"
)

// Write writes the manifest so that Read returns an equal one. It holds entities'
// ids by its nature. The error wraps ErrManifest where the manifest is one that
// Read would refuse.
func (m *Manifest) Write(w io.Writer) error {
	if err := m.check(); err != nil {
		return fmt.Errorf("%w: %w", ErrManifest, err)
	}
	return dump(w, m.node())
}

// check returns what Read would refuse.
func (m *Manifest) check() error {
	for i, level := range m.Levels {
		if err := level.At.Check(); err != nil {
			return err
		}
		if i > 0 && limits.CompareLevels(m.Levels[i-1].At, level.At) >= 0 {
			return fmt.Errorf("%s: it is there twice, or out of order", discreet(level.At))
		}
		if level.Empty() || level.At == limits.ForAll() && (level.Access != limits.Inherit || level.Cascade != nil) {
			return fmt.Errorf("%s: it says nothing, or what such a level cannot say", discreet(level.At))
		}
		if len(level.Limits) == 0 {
			continue
		}
		if _, err := limits.Normal(level.Limits...); err != nil {
			return fmt.Errorf("%s: %w", discreet(level.At), err)
		}
	}
	return nil
}

func dump(w io.Writer, n *yaml.Node) error {
	dumper, err := yaml.NewDumper(w, yaml.WithIndent(2), yaml.WithLineWidth(-1))
	if err == nil {
		err = dumper.Dump(n)
	}
	if err == nil {
		err = dumper.Close()
	}
	if err != nil {
		return fmt.Errorf("write manifest: %w", err)
	}
	return nil
}

func (m *Manifest) node() *yaml.Node {
	root, resources, entities := block(), block(), block()
	if m.Namespace != "" {
		put(root, "namespace", text(m.Namespace))
	}
	entity := ""
	for i, level := range m.Levels {
		switch at := level.At; {
		case at == limits.ForAll():
			put(root, "system", levelNode(level.Rules))
		case at.Entity() == "":
			put(resources, at.Resource(), levelNode(level.Rules))
		default:
			if at.Entity() != entity {
				entity = at.Entity()
				put(entities, entity, entityNode(m.Levels[i:]))
			}
		}
	}
	if len(resources.Content) > 0 {
		put(root, "resources", resources)
	}
	if len(entities.Content) > 0 {
		put(root, "entities", entities)
	}
	return root
}

// entityNode is what the levels of an entity say, those that the levels begin with.
func entityNode(levels []Level) *yaml.Node {
	own, resources := block(), block()
	for _, level := range levels {
		if level.At.Entity() != levels[0].At.Entity() {
			break
		}
		if level.At.Resource() == "" {
			own = levelNode(level.Rules)
			continue
		}
		put(resources, level.At.Resource(), levelNode(level.Rules))
	}
	if len(resources.Content) > 0 {
		put(own, "resources", resources)
	}
	return own
}

func levelNode(rules limits.Rules) *yaml.Node {
	n := block()
	if rules.Access != limits.Inherit {
		put(n, "access", text(accessText(rules.Access)))
	}
	if rules.Cascade != nil {
		put(n, "cascade", flag(*rules.Cascade))
	}
	if len(rules.Limits) == 0 {
		return n
	}
	node := block()
	for _, l := range rules.Limits {
		put(node, l.Name, limitNode(l))
	}
	put(n, "limits", node)
	return n
}

func accessText(access limits.Access) string { return nameOf(accesses, access) }

func nameOf[T comparable](names map[string]T, of T) string {
	for name, value := range names {
		if value == of {
			return name
		}
	}
	return ""
}

// limitNode is a limit in one line, or in several where it has a schedule.
func limitNode(l limits.Limit) *yaml.Node {
	if short, ok := shorthand(l); ok {
		return text(short)
	}
	n := block()
	if len(l.Schedule) == 0 {
		n.Style = yaml.FlowStyle
	}
	for _, field := range limitFields(l) {
		put(n, field.name, field.node)
	}
	return n
}

// shorthand is a limit in words, where it has nothing but a capacity by which it
// is refilled in a period that has a name.
func shorthand(l limits.Limit) (string, bool) {
	unit := nameOf(units, l.Period)
	plain := limits.Limit{Name: l.Name, Capacity: l.Capacity, Refill: l.Capacity, Period: l.Period}
	return fmt.Sprintf("%d per %s", l.Capacity, unit), unit != "" && (limits.Rules{Limits: []limits.Limit{l}}).Equal(limits.Rules{Limits: []limits.Limit{plain}})
}

// limitField is one thing that a limit says.
type limitField struct {
	name string
	node *yaml.Node
}

// limitFields are what a limit says, in the order in which it is written.
func limitFields(l limits.Limit) []limitField {
	fields := []limitField{{"capacity", number(l.Capacity)}}
	add := func(name string, said bool, node func() *yaml.Node) {
		if said {
			fields = append(fields, limitField{name, node()})
		}
	}
	quotaLike := len(l.Resets) > 0 || l.Window != 0
	add("refill", !quotaLike, func() *yaml.Node { return number(l.Refill) })
	add("period", !quotaLike, func() *yaml.Node { return text(durationOf(l.Period)) })
	add("resets", len(l.Resets) > 0, func() *yaml.Node { return crons(l.Resets) })
	add("window", l.Window != 0, func() *yaml.Node { return text(durationOf(l.Window)) })
	add("schedule", len(l.Schedule) > 0, func() *yaml.Node { return schedule(l.Schedule) })
	add("zone", l.Zone != "" && l.Zone != "UTC", func() *yaml.Node { return text(l.Zone) })
	add("soft", l.Soft, func() *yaml.Node { return flag(true) })
	add("division", l.Division != quota.Divided, func() *yaml.Node { return text(l.Division.String()) })
	return fields
}

func crons(expressions []string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
	for _, cron := range expressions {
		n.Content = append(n.Content, quoted(cron))
	}
	return n
}

func schedule(entries []quota.Entry) *yaml.Node {
	n := &yaml.Node{Kind: yaml.SequenceNode}
	for _, entry := range entries {
		e := &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle}
		put(e, "cron", quoted(entry.Cron))
		if entry.Scale != 0 {
			put(e, "scale", &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!float", Value: thousandthsOf(entry.Scale)})
		}
		if entry.Capacity != 0 {
			put(e, "capacity", number(entry.Capacity))
		}
		if entry.Refill != 0 {
			put(e, "refill", number(entry.Refill))
		}
		if entry.Period != 0 {
			put(e, "period", text(durationOf(time.Duration(entry.Period)*time.Second)))
		}
		n.Content = append(n.Content, e)
	}
	return n
}

// thousandthsOf writes 500 as 0.5.
func thousandthsOf(n int64) string {
	places := strings.TrimRight(fmt.Sprintf("%03d", n%1000), "0")
	if places == "" {
		places = "0"
	}
	return fmt.Sprintf("%d.%s", n/1000, places)
}

// durationOf writes whole seconds as days, hours, minutes and seconds.
func durationOf(d time.Duration) string {
	var b strings.Builder
	rest := int64(d / time.Second)
	for _, unit := range []struct {
		seconds int64
		letter  byte
	}{{24 * 3600, 'd'}, {3600, 'h'}, {60, 'm'}, {1, 's'}} {
		if n := rest / unit.seconds; n > 0 {
			b.WriteString(strconv.FormatInt(n, 10))
			b.WriteByte(unit.letter)
			rest -= n * unit.seconds
		}
	}
	return b.String()
}

func block() *yaml.Node { return &yaml.Node{Kind: yaml.MappingNode} }

func put(n *yaml.Node, key string, value *yaml.Node) {
	n.Content = append(n.Content, text(key), value)
}

func text(value string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: value}
}

func quoted(value string) *yaml.Node {
	n := text(value)
	n.Style = yaml.DoubleQuotedStyle
	return n
}

func number(value int64) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: strconv.FormatInt(value, 10)}
}

func flag(value bool) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: strconv.FormatBool(value)}
}

// line is a node in one line.
func line(n *yaml.Node) string {
	var b strings.Builder
	if err := dump(&b, flowed(n)); err != nil {
		return "?" // of nodes as these are there is none
	}
	return strings.TrimSpace(b.String())
}

// flowed is a node in the style of one line.
func flowed(n *yaml.Node) *yaml.Node {
	flat := *n
	if n.Kind != yaml.ScalarNode {
		flat.Style = yaml.FlowStyle
	}
	flat.Content = slices.Clone(n.Content)
	for i, inner := range n.Content {
		flat.Content[i] = flowed(inner)
	}
	return &flat
}
