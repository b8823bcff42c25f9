package page

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/go-analyze/charts"

	"github.com/shardquota/shardquota/cmd/shardquota/history"
)

// lane is a row of marks below a chart: what of one kind happened when.
type lane struct {
	name  string
	marks []mark // by time
}

// mark is one or more events at an instant.
type mark struct {
	at    int64 // epoch ms
	shard int   // whose colour it has
	n     int64
	to    int // of a doubling, the shard count that it led to
}

// doublings is the name of the lane whose marks are ruled through the plot.
const doublings = "doubled"

var laneKinds = []struct {
	name  string
	kinds []history.Kind
}{
	{doublings, []history.Kind{history.Doubled}},
	{"created", []history.Kind{history.Created}},
	{"moved", []history.Kind{history.Moved}},
	{"restored", []history.Kind{history.Reset, history.Opened, history.Rolled}},
	{"trimmed", []history.Kind{history.Trimmed}},
	{"operator", []history.Kind{history.Operator}},
	{"removed", []history.Kind{history.Removed}},
}

// lanesOf sorts what happened to a limit, and to its shards, into lanes. A lane
// of nothing is left out.
func lanesOf(g *history.Group, limit *history.Limit) []lane {
	var lanes []lane
	for _, row := range laneKinds {
		l := lane{name: row.name}
		for _, e := range g.Events {
			if slices.Contains(row.kinds, e.Kind) && (e.Limit == "" || e.Limit == limit.Name) {
				l.marks = append(l.marks, mark{e.Time, e.Shard, 1, e.To})
			}
		}
		slices.SortStableFunc(l.marks, func(a, b mark) int { return cmp.Compare(a.at, b.at) })
		lanes = append(lanes, l)
	}
	lanes = append(lanes, passes(g))
	return slices.DeleteFunc(lanes, func(l lane) bool { return len(l.marks) == 0 })
}

func passes(g *history.Group) lane {
	l := lane{name: "passes"}
	for slot, n := range g.Passes {
		if n > 0 {
			l.marks = append(l.marks, mark{at: g.Grid.At(slot), n: n})
		}
	}
	return l
}

// apart is how many pixels lie between two marks of a lane; events closer than
// that share one, with their number.
const apart = 28

func (c *canvas) drawLanes() {
	for i, l := range c.lanes {
		y := c.frame.height + i*c.lane + c.lane/2 - 4
		c.write(l.name, c.area.Left-18, y+4, 1, c.muted)
		grid := charts.ColorFromHex(c.rule)
		c.painter.LineStroke([]charts.Point{{X: c.area.Left, Y: y}, {X: c.area.Right, Y: y}}, grid, 1)
		c.drawMarks(l, y)
	}
}

func (c *canvas) drawMarks(l lane, y int) {
	for i := 0; i < len(l.marks); {
		first, n := l.marks[i], int64(0)
		x := c.x(first.at)
		for ; i < len(l.marks) && c.x(l.marks[i].at)-x < apart; i++ {
			n += l.marks[i].n
		}
		color := chartColor(c.shard(first.shard))
		c.painter.FilledDiamond(x, y, 10, 10, color, color, 1)
		switch {
		case n == 1:
		case x+apart > c.area.Right:
			c.write(short(float64(n)), x-7, y+4, 1, c.ink)
		default:
			c.write(short(float64(n)), x+7, y+4, 0, c.ink)
		}
	}
}

// drawDoublings rules the instants at which the shard count rose through the
// plot, with the count that they led to.
func (c *canvas) drawDoublings() {
	for _, l := range c.lanes {
		if l.name != doublings {
			continue
		}
		for _, m := range l.marks {
			x := c.x(m.at)
			line := []charts.Point{{X: x, Y: c.area.Top}, {X: x, Y: c.area.Bottom}}
			c.painter.DashedLineStroke(line, charts.ColorFromHex(c.mark), 1, []float64{4, 3})
		}
		c.nameDoublings(l.marks)
	}
}

// nameDoublings writes over each doubling what it led to. Those that are too
// close for that share a name.
func (c *canvas) nameDoublings(marks []mark) {
	const room = 96
	for i := 0; i < len(marks); {
		first, last := marks[i], marks[i]
		for ; i < len(marks) && (marks[i] == first || c.x(marks[i].at)-c.x(last.at) < room*2/3); i++ {
			last = marks[i]
		}
		name := shards(last.to)
		if first != last {
			name = fmt.Sprintf("%d to %s", first.to, name)
		}
		x := (c.x(first.at) + c.x(last.at)) / 2
		c.write(name, max(c.area.Left, min(x, c.area.Right-room/4)), c.area.Top-8, 0.5, c.ink)
	}
}
