package page

import (
	"fmt"
	"html/template"

	"github.com/go-analyze/charts"

	"github.com/shardquota/shardquota/cmd/shardquota/history"
)

// plot is one chart over the time of a history.
type plot struct {
	grid   history.Grid
	series [][]float64 // by shard or whatever is drawn, then by edge of a slot, so one more than there are slots
	shards []int       // whose colours the series have; nil for the ink's
	stack  bool
	most   float64
	lanes  []lane // what happened on the way, below the plot
}

// frame is the measures of a chart in pixels.
type frame struct {
	class                     string
	width, height             int
	left, right, above, below int
	lane                      int // height of an event lane
	font                      float64
	xTicks, yTicks            int
}

var (
	wide   = frame{"wide", 960, 300, 84, 42, 26, 30, 18, 11, 10, 5}
	narrow = frame{"narrow", 340, 260, 72, 34, 26, 28, 18, 10, 3, 4}
	tiny   = frame{"tiny", 200, 56, 0, 0, 2, 2, 0, 0, 0, 0}
)

// render draws the plot in both schemes and in each frame; the style sheet shows
// the one that suits.
func (p plot) render(frames ...frame) (template.HTML, error) {
	var all []byte
	for _, f := range frames {
		for _, s := range schemes {
			svg, err := p.draw(f, s)
			if err != nil {
				return "", fmt.Errorf("draw chart: %w", err)
			}
			all = append(all, fmt.Sprintf(`<div class="v %s %s" aria-hidden="true">`, s.name, f.class)...)
			all = append(all, svg...)
			all = append(all, "</div>"...)
		}
	}
	return template.HTML(all), nil // drawn by us, of numbers and our own words only
}

// canvas is a plot being drawn.
type canvas struct {
	plot
	frame
	scheme
	axis
	painter *charts.Painter
	area    charts.Box // of the plot itself
}

func (p plot) draw(f frame, s scheme) ([]byte, error) {
	c := &canvas{plot: p, frame: f, scheme: s, axis: newAxis(p.most, max(2, f.yTicks))}
	if f.font == 0 {
		c.axis.top = max(p.most, 1e-9)
	}
	height := f.height + len(c.lanes)*f.lane
	c.painter = charts.NewPainter(charts.PainterOptions{OutputFormat: "svg", Width: f.width, Height: height})
	c.area = charts.NewBox(f.left, f.above, f.width-f.right, f.height-f.below)
	if f.font > 0 {
		c.ruleValues()
		c.ruleTimes()
	}
	if err := c.drawSeries(); err != nil {
		return nil, err
	}
	c.drawDoublings()
	c.drawLanes()
	return c.painter.Bytes()
}

func (c *canvas) drawSeries() error {
	inner := c.painter.Child(charts.PainterBoxOption(c.area))
	opt := charts.NewLineChartOptionWithData(c.series)
	opt.Theme, opt.Padding = c.theme(c.colors()), charts.NewBoxEqual(0)
	opt.XAxis.Show, opt.XAxis.BoundaryGap = new(false), new(false)
	opt.YAxis[0] = charts.YAxisOption{Show: new(false), Min: new(0.0), Max: &c.top, RangeValuePaddingScale: new(0.0)}
	opt.Legend.Show = new(false)
	opt.Symbol.Shape = charts.SymbolNone
	opt.LineStrokeWidth = 1.5
	if c.stack {
		opt.StackSeries, opt.LineStrokeWidth = new(true), 1
	} else {
		opt.FillArea, opt.FillOpacity = new(true), 60
	}
	return inner.LineChart(opt)
}

func (c *canvas) colors() []charts.Color {
	if c.shards == nil {
		return []charts.Color{chartColor(c.shard(0))}
	}
	colors := make([]charts.Color, len(c.shards))
	for i, shard := range c.shards {
		colors[i] = chartColor(c.shard(shard))
	}
	return colors
}

// x is where an instant lies, y where a value does.
func (c *canvas) x(at int64) int {
	span := int64(c.grid.Slots) * c.grid.Step
	part := float64(min(max(0, at-c.grid.Start), span)) / float64(span)
	return c.area.Left + int(part*float64(c.area.Right-c.area.Left))
}

func (c *canvas) y(value float64) int {
	return c.area.Bottom - int(value/c.top*float64(c.area.Bottom-c.area.Top))
}

func (c *canvas) style(color string) charts.FontStyle {
	return charts.FontStyle{FontSize: c.font, FontColor: charts.ColorFromHex(color)}
}

func (c *canvas) write(text string, x, y int, align float64, color string) {
	style := c.style(color)
	box := c.painter.MeasureText(text, 0, style)
	c.painter.Text(text, x-int(align*float64(box.Width())), y, 0, style)
}

func (c *canvas) ruleValues() {
	grid := charts.ColorFromHex(c.rule)
	for _, tick := range c.ticks {
		y := c.y(tick)
		c.painter.LineStroke([]charts.Point{{X: c.area.Left, Y: y}, {X: c.area.Right, Y: y}}, grid, 1)
		c.write(short(tick), c.area.Left-10, y+4, 1, c.muted)
	}
}

func (c *canvas) ruleTimes() {
	at, labels := timeTicks(c.grid.Start, c.grid.End(), c.xTicks)
	for i, t := range at {
		x := c.x(t)
		c.painter.LineStroke([]charts.Point{{X: x, Y: c.area.Bottom}, {X: x, Y: c.area.Bottom + 4}}, charts.ColorFromHex(c.mark), 1)
		c.write(labels[i], x, c.area.Bottom+18, 0.5, c.muted)
	}
}
