package page

import (
	"fmt"
	"strings"

	"github.com/go-analyze/charts"
	"github.com/lucasb-eyer/go-colorful"

	"github.com/shardquota/shardquota/quota"
)

// scheme is the colours of a light or a dark page. The style sheet has the same
// ones for text.
type scheme struct {
	name              string
	paper, ink, muted string
	rule, mark        string
	lightness         [4]float64 // of shards 0 to 7, 8 to 15, and so on
	chroma            float64
}

var schemes = []scheme{
	{"light", "#ffffff", "#1b1f24", "#57606a", "#e3e6ea", "#6e7781", [4]float64{0.60, 0.73, 0.45, 0.67}, 0.145},
	{"dark", "#14171c", "#e6e9ee", "#a3adb9", "#2b313a", "#8b96a3", [4]float64{0.70, 0.57, 0.82, 0.64}, 0.13},
}

// hues are those of shards 0 to 7, in degrees, so that neighbours differ. A shard
// 8, 16 or 24 further on, whose slots come off the same grants, has the same
// hue in another lightness.
var hues = [8]float64{255, 65, 150, 340, 200, 100, 22, 300}

func (s scheme) shard(index int) colorful.Color {
	generation := index / len(hues) % len(s.lightness)
	return colorful.OkLch(s.lightness[generation], s.chroma, hues[index%len(hues)]).Clamped()
}

func (s scheme) theme(colors []charts.Color) charts.ColorPalette {
	return charts.MakeTheme(charts.ThemeOption{
		IsDarkMode:         s.name == "dark",
		AxisStrokeColor:    charts.ColorFromHex(s.rule),
		AxisSplitLineColor: charts.ColorFromHex(s.rule),
		BackgroundColor:    charts.ColorFromHex(s.paper).WithAlpha(0),
		TextColor:          charts.ColorFromHex(s.muted),
		SeriesColors:       colors,
	})
}

func chartColor(c colorful.Color) charts.Color {
	r, g, b := c.RGB255()
	return charts.ColorRGB(r, g, b)
}

// palette is the style sheet's variables for the shards' colours.
func palette() string {
	var css strings.Builder
	for i, s := range schemes {
		if i > 0 {
			css.WriteString("@media screen and (prefers-color-scheme: dark){")
		}
		css.WriteString(":root{")
		for shard := range quota.MaxShards {
			fmt.Fprintf(&css, "--s%d:%s;", shard, s.shard(shard).Hex())
		}
		css.WriteString("}")
		if i > 0 {
			css.WriteString("}")
		}
	}
	for shard := range quota.MaxShards {
		fmt.Fprintf(&css, ".s%d{background:var(--s%d)}", shard, shard)
	}
	return css.String()
}
