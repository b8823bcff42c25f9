package page

import (
	"fmt"
	"slices"

	"github.com/go-analyze/charts"

	"github.com/shardquota/shardquota/cmd/shardquota/history"
	"github.com/shardquota/shardquota/quota"
	tokens "github.com/shardquota/shardquota/table"
)

// held draws what all shards hold of a limit together, one on top of the other:
// a move changes who holds, consumption how much.
func held(id string, g *history.Group, limit *history.Limit) (figure, error) {
	totals := totals(limit, g.Grid.Slots)
	p := plot{grid: g.Grid, stack: true, most: tokensOf(slices.Max(totals)), lanes: lanesOf(g, limit)}
	f := figure{ID: id, Title: "Held by all shards", Data: heldTable(g.Grid, limit, totals)}
	for _, shard := range limit.Shards {
		p.series = append(p.series, values(shard.Balance, 0))
		p.shards = append(p.shards, shard.Shard)
	}
	if len(limit.Shards) > 1 {
		f.Legend = p.shards
	}
	last := len(totals) - 1
	f.Text = fmt.Sprintf("%s at %s, %s at %s, on %s at the end. Times are UTC.", tokens.Tokens(totals[0]), instant(g.Grid, g.Grid.Start),
		tokens.Tokens(totals[last]), instant(g.Grid, g.Grid.At(last)), shards(holders(limit, last)))
	var err error
	f.Chart, err = p.render(wide, narrow)
	return f, err
}

func shards(n int) string {
	if n == 1 {
		return "1 shard"
	}
	return fmt.Sprintf("%d shards", n)
}

// totals are what all shards hold together, by slot. A debt takes off nothing:
// one shard's is not covered by another.
func totals(limit *history.Limit, slots int) []int64 {
	sums := make([]int64, slots)
	for _, shard := range limit.Shards {
		for slot, balance := range shard.Balance {
			sums[slot] += max(0, balance)
		}
	}
	return sums
}

func holders(limit *history.Limit, slot int) int {
	n := 0
	for _, shard := range limit.Shards {
		if shard.Balance[slot] != history.None {
			n++
		}
	}
	return n
}

func tokensOf(milli int64) float64 { return float64(milli) / 1000 }

// values are a series in tokens, at the edges of its slots: a slot's value is
// that of its end, so that what happened in it is drawn after its beginning.
// Where nothing is known, nothing is drawn; what appears in a slot rises from
// its beginning, from the part of its value that lead is.
func values(series []int64, lead float64) []float64 {
	drawn := make([]float64, len(series)+1)
	for edge := range drawn {
		is, was := int64(history.None), int64(history.None)
		if edge > 0 {
			was = series[edge-1]
		}
		if edge < len(series) {
			is = series[edge]
		}
		switch {
		case was != history.None:
			drawn[edge] = max(0, tokensOf(was))
		case is == history.None:
			drawn[edge] = charts.GetNullValue()
		case edge == 0:
			drawn[edge] = max(0, tokensOf(is))
		default:
			drawn[edge] = lead * max(0, tokensOf(is))
		}
	}
	return drawn
}

// tableRows is how many instants a chart's table shows.
const tableRows = 24

// instants picks slots evenly, the last one among them.
func instants(slots int) []int {
	every := (slots + tableRows - 1) / tableRows
	var picked []int
	for slot := 0; slot < slots-1; slot += every {
		picked = append(picked, slot)
	}
	return append(picked, slots-1)
}

func heldTable(grid history.Grid, limit *history.Limit, totals []int64) *tableView {
	t := &tableView{Title: limit.Name + " held, in tokens", Head: []string{"time", "all"}}
	for _, shard := range limit.Shards {
		t.Head = append(t.Head, fmt.Sprintf("shard %d", shard.Shard))
	}
	for _, slot := range instants(grid.Slots) {
		row := []cell{text(instant(grid, grid.At(slot))), amount(totals[slot])}
		for _, shard := range limit.Shards {
			row = append(row, balanceCell(shard.Balance[slot]))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func balanceCell(milli int64) cell {
	if milli == history.None {
		return number("–")
	}
	return amount(milli)
}

// eachShard draws every shard by itself. Of the write meter those alone that
// were ever short of it.
func eachShard(id string, g *history.Group, limit *history.Limit) (figure, error) {
	f := figure{ID: id, Title: "Each shard", Text: "Each on a scale of its own, from 0 to the most it held."}
	if limit.Kind == quota.Meter {
		f.Text = "From 0 to full. Shards that stayed above 90 % are left out."
	}
	for _, shard := range limit.Shards {
		most, least := extremes(shard.Balance)
		if limit.Kind == quota.Meter && least >= most/10*9 {
			continue
		}
		p := plot{grid: g.Grid, most: tokensOf(most), series: [][]float64{values(shard.Balance, 1)}, shards: []int{shard.Shard}}
		chart, err := p.render(tiny)
		if err != nil {
			return f, err
		}
		f.Small = append(f.Small, small{shard.Shard, summary(limit, shard, least), chart})
	}
	if limit.Kind == quota.Meter && len(f.Small) == 0 {
		f.Text = "No shard was ever below 90 % of it."
	}
	return f, nil
}

// extremes are the most and the least that is known of a series.
func extremes(series []int64) (most, least int64) {
	first := true
	for _, value := range series {
		switch {
		case value == history.None:
		case first:
			most, least, first = value, value, false
		default:
			most, least = max(most, value), min(least, value)
		}
	}
	return most, least
}

// summary says where a shard's balance ended, and out of what.
func summary(limit *history.Limit, shard history.Series, least int64) string {
	last := len(shard.Balance) - 1
	switch {
	case shard.Balance[last] == history.None:
		return "removed"
	case limit.Kind == quota.Meter:
		return fmt.Sprintf("%s, lowest %s", tokens.Tokens(shard.Balance[last]), tokens.Tokens(least))
	default:
		return fmt.Sprintf("%s of at most %s", tokens.Tokens(shard.Balance[last]), tokens.Tokens(max(0, shard.Ceiling[last])))
	}
}

// consumption draws how fast a limit was consumed.
func consumption(id string, g *history.Group, limit *history.Limit) (figure, error) {
	seconds := float64(g.Grid.Step) / 1000
	rates := make([]float64, g.Grid.Slots+1)
	for slot, milli := range limit.Consumed {
		rates[slot+1] = max(0, tokensOf(milli)/seconds)
	}
	rates[0] = rates[1]
	f := figure{
		ID: id, Title: "Consumption, tokens a second",
		Text: fmt.Sprintf("%s in all, at most %s a second over %s s.", tokens.Tokens(sum(limit.Consumed)), short(slices.Max(rates)), short(seconds)),
		Data: &tableView{Title: limit.Name + " consumed, in tokens", Head: []string{"from", "consumed"}},
	}
	picked := instants(g.Grid.Slots)
	for i, slot := range picked {
		end := g.Grid.Slots
		if i+1 < len(picked) {
			end = picked[i+1]
		}
		f.Data.Rows = append(f.Data.Rows, []cell{text(instant(g.Grid, g.Grid.At(slot))), amount(sum(limit.Consumed[slot:end]))})
	}
	p := plot{grid: g.Grid, series: [][]float64{rates}, most: slices.Max(rates)}
	var err error
	f.Chart, err = p.render(low(wide), low(narrow))
	return f, err
}

// low is a frame of less height.
func low(f frame) frame {
	f.height, f.above, f.yTicks = f.height*6/10, 10, 3
	return f
}
