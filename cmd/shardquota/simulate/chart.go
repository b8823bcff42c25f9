package simulate

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/go-analyze/charts"
	"github.com/lucasb-eyer/go-colorful"
)

// Measures of a chart in pixels.
const (
	chartWidth, chartHeight           = 1000, 460
	plotLeft, plotRight               = 90, 240 // from the chart's edges
	plotTop, plotBottom               = 56, 56
	titleFont, textFont               = 14.0, 11.0
	paper, ink, muted, rule, zeroLine = "#ffffff", "#1b1f24", "#57606a", "#e3e6ea", "#6e7781"
)

// curve is a line of the options whose results are the same.
type curve struct {
	options []string
	color   charts.Color
	values  []float64 // tokens admitted beyond what one bucket admits, by step
}

// Chart draws how much more or less than one undivided bucket the options admit
// as a workload goes on, as an SVG. It is nil where none met the workload.
func (r *Report) Chart(w *Workload) ([]byte, error) {
	curves := r.curves(w.Name)
	if len(curves) == 0 {
		return nil, nil
	}
	c := &canvas{
		painter: charts.NewPainter(charts.PainterOptions{OutputFormat: "svg", Width: chartWidth, Height: chartHeight}),
		points:  len(curves[0].values), low: -1, high: 1,
	}
	for _, line := range curves {
		c.low, c.high = min(c.low, slices.Min(line.values)), max(c.high, slices.Max(line.values))
	}
	c.painter.FilledRect(0, 0, chartWidth, chartHeight, charts.ColorFromHex(paper), charts.ColorFromHex(paper), 0)
	c.text(strings.ToUpper(w.Name[:1])+w.Name[1:]+": tokens admitted, more or less than by one undivided bucket", plotLeft, 26, titleFont, ink)
	c.text("The scale is that of square roots, so that small and large differences show alike.", plotLeft, 44, textFont, muted)
	c.axes()
	for _, line := range curves {
		points := make([]charts.Point, len(line.values))
		for i, value := range line.values {
			points[i] = charts.Point{X: c.x(i), Y: c.y(value)}
		}
		c.painter.LineStroke(points, line.color, 2)
	}
	c.legend(curves)
	return c.painter.Bytes()
}

// curves are the lines of a workload, the highest at the end first.
func (r *Report) curves(workload string) []curve {
	var curves []curve
	for i, option := range Options() {
		result := find(r.Results, workload, option.Name)
		if result == nil {
			continue
		}
		values := make([]float64, len(result.Series))
		for step := range values {
			values[step] = float64(result.Series[step] - result.Ideal[step])
		}
		same := slices.IndexFunc(curves, func(c curve) bool { return slices.Equal(c.values, values) })
		if same >= 0 {
			curves[same].options = append(curves[same].options, option.Name)
			continue
		}
		curves = append(curves, curve{[]string{option.Name}, color(i), values})
	}
	slices.SortStableFunc(curves, func(a, b curve) int { return cmp.Compare(last(b.values), last(a.values)) })
	return curves
}

func last(values []float64) float64 { return values[len(values)-1] }

// color is that of an option: five hues, each in three lightnesses.
func color(i int) charts.Color {
	r, g, b := colorful.OkLch([]float64{0.62, 0.42, 0.78}[i/5%3], 0.15, []float64{255, 30, 145, 90, 320}[i%5]).Clamped().RGB255()
	return charts.ColorRGB(r, g, b)
}

// canvas is a chart being drawn.
type canvas struct {
	painter   *charts.Painter
	points    int
	low, high float64
}

// root is the square root, of a negative number that of the positive one.
func root(x float64) float64 { return math.Copysign(math.Sqrt(math.Abs(x)), x) }

func (c *canvas) y(value float64) int {
	part := (root(value) - root(c.low)) / (root(c.high) - root(c.low))
	return chartHeight - plotBottom - int(part*(chartHeight-plotTop-plotBottom))
}

func (c *canvas) x(step int) int {
	return plotLeft + step*(chartWidth-plotLeft-plotRight)/max(1, c.points-1)
}

func (c *canvas) text(text string, x, y int, size float64, color string) {
	c.painter.Text(text, x, y, 0, charts.FontStyle{FontSize: size, FontColor: charts.ColorFromHex(color)})
}

func (c *canvas) width(text string) int {
	return c.painter.MeasureText(text, 0, charts.FontStyle{FontSize: textFont, FontColor: charts.ColorFromHex(muted)}).Width()
}

// axes rules round amounts, as many as there is room for, and the seconds.
func (c *canvas) axes() {
	right := chartWidth - plotRight
	amounts := []float64{0}
	for ten := 100_000.0; ten >= 10; ten /= 10 {
		amounts = append(amounts, ten, 5*ten, 2.5*ten)
	}
	var taken []int // heights that have a label
	for _, amount := range amounts {
		for _, value := range []float64{amount, -amount} {
			y := c.y(value)
			if value < c.low || value > c.high || slices.ContainsFunc(taken, func(other int) bool { return max(y-other, other-y) < 14 }) {
				continue
			}
			taken = append(taken, y)
			c.ruled(value, right)
		}
	}
	bottom := chartHeight - plotBottom
	every := 1
	for _, every = range []int{1, 2, 5, 10, 20, 50} {
		if (c.points-1)*Step/second/every <= 12 {
			break
		}
	}
	for at := 0; at*second/Step < c.points; at += every {
		x := c.x(at * second / Step)
		c.painter.LineStroke([]charts.Point{{X: x, Y: bottom}, {X: x, Y: bottom + 4}}, charts.ColorFromHex(zeroLine), 1)
		label := fmt.Sprint(at)
		c.text(label, x-c.width(label)/2, bottom+18, textFont, muted)
	}
	label := "seconds"
	c.text(label, (plotLeft+right-c.width(label))/2, bottom+38, textFont, muted)
	c.painter.Text("tokens", 20, (plotTop+bottom)/2+c.width("tokens")/2, -math.Pi/2, charts.FontStyle{FontSize: textFont, FontColor: charts.ColorFromHex(muted)})
}

func (c *canvas) ruled(value float64, right int) {
	y, color := c.y(value), rule
	if value == 0 {
		color = zeroLine
	}
	c.painter.LineStroke([]charts.Point{{X: plotLeft, Y: y}, {X: right, Y: y}}, charts.ColorFromHex(color), 1)
	label := fmt.Sprintf("%+g", value)
	if value == 0 {
		label = "0"
	}
	c.text(label, plotLeft-8-c.width(label), y+4, textFont, muted)
}

// legend names the options of each line, in the order in which they end.
func (c *canvas) legend(curves []curve) {
	x, y := chartWidth-plotRight+16, plotTop+4
	for _, line := range curves {
		c.painter.LineStroke([]charts.Point{{X: x, Y: y - 4}, {X: x + 16, Y: y - 4}}, line.color, 3)
		for i, option := range line.options {
			if i == 0 {
				option = fmt.Sprintf("%s: %+g", option, last(line.values))
			}
			c.text(option, x+24, y, textFont, ink)
			y += 16
		}
		y += 6
	}
}
