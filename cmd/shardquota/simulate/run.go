package simulate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/shardquota/shardquota/limiter"
	"github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// Run has each option meet each workload.
func Run(ctx context.Context, options []Option, workloads []Workload, seed uint64) ([]Result, error) {
	var results []Result
	for _, workload := range workloads {
		for _, option := range options {
			if option.Drips && workload.Refill == 0 {
				continue
			}
			result, err := run(ctx, option, workload, seed)
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", workload.Name, option.Name, err)
			}
			results = append(results, *result)
		}
	}
	return results, nil
}

func run(ctx context.Context, option Option, workload Workload, seed uint64) (*Result, error) {
	w, err := newWorld(ctx, option, workload, seed)
	if err != nil {
		return nil, err
	}
	asks := workload.Asks(seed)
	for at := int64(0); at <= workload.Length; at += tick {
		w.now = begin + at
		if err := w.tick(ctx); err != nil {
			return nil, err
		}
		for len(asks) > 0 && asks[0].At < at+tick {
			w.now = begin + asks[0].At
			if err := w.measure(ctx, asks[0].Amount); err != nil {
				return nil, err
			}
			asks = asks[1:]
		}
	}
	w.conclude(seed)
	return w.result, nil
}

// tick is what happens at regular times: a look at the shards, the aggregator,
// and the evening out of balances.
func (w *world) tick(ctx context.Context) error {
	since := w.now - begin
	if since%Step == 0 {
		w.result.Series = append(w.result.Series, w.result.Tokens)
	}
	held := w.held()
	w.result.held = max(w.result.held, held)
	if from := w.workload.Steady; from > 0 && since == from {
		w.result.stock += held
	} else if from > 0 && since == w.workload.Length {
		w.result.stock -= held
	}
	if err := w.deliver(ctx, w.now-lag); err != nil {
		return err
	}
	if every := w.option.evens; every > 0 && since%every == 0 {
		w.metered.Reset()
		if err := w.even(ctx); err != nil {
			return err
		}
		w.result.Evening.add(w.metered.Units())
	}
	return nil
}

// measure asks for an amount and keeps what came of it.
func (w *world) measure(ctx context.Context, amount int64) error {
	w.metered.Reset()
	w.stream.grew = false
	before := w.result.Admitted
	if err := w.ask(ctx, amount); err != nil {
		return err
	}
	units, admitted := w.metered.Units(), w.result.Admitted > before
	class := Refused
	switch {
	case w.stream.grew:
		class = Growth
	case w.workload.Large(amount):
		class = Large
	case admitted && units.Sum() == 1:
		class = Hit
	case admitted:
		class = Miss
	}
	w.result.Classes[class].add(units)
	w.result.Asked++
	if w.workload.Large(amount) {
		w.result.LargeAsked++
		if admitted {
			w.result.LargeAdmitted++
		}
	}
	if admitted && w.steady(w.now) {
		w.result.steady += amount
	}
	return nil
}

// ask asks for an amount, as the option does, and counts the answer.
func (w *world) ask(ctx context.Context, amount int64) error {
	err := w.route(ctx, amount)
	var rejection *limiter.Rejection
	switch isRejection := errors.As(err, &rejection); {
	case err == nil:
		w.tank.Pay(amount, w.now)
		w.result.Admitted++
		w.result.Tokens += amount
		return nil
	case !isRejection && !errors.Is(err, limits.ErrContended):
		return err
	case isRejection && rejection.Impossible():
		w.result.Never++
	default:
		w.result.Wait++
	}
	if w.tank.Has(amount, w.now) {
		w.result.Needless++
	}
	return nil
}

// route asks the bucket that the option has for an amount.
func (w *world) route(ctx context.Context, amount int64) error {
	l := w.limiters[w.random.IntN(programs)]
	shards, _ := w.limits()
	part := shards.Capacity / int64(w.shards())
	large := amount > part
	switch {
	case large && w.option.aside != none:
		_, err := l.Acquire(ctx, entity, beside, limiter.Amounts{limitName: amount})
		return err
	case large && w.option.debt:
		lease, err := l.Acquire(ctx, entity, resource, limiter.Amounts{limitName: part})
		if err != nil {
			return err
		}
		return lease.Adjust(ctx, limiter.Amounts{limitName: amount - part})
	}
	_, err := l.Acquire(ctx, entity, resource, limiter.Amounts{limitName: amount})
	var rejection *limiter.Rejection
	if w.option.aside == half && errors.As(err, &rejection) {
		_, err = l.Acquire(ctx, entity, beside, limiter.Amounts{limitName: amount})
	}
	return err
}

// even moves tokens from the shards that have most to those that have least,
// two shards at a time, until none is further from the mean than a tenth of it.
func (w *world) even(ctx context.Context) error {
	shards, err := w.table.RaiseAndRead(ctx, group, w.shards(), w.now)
	if err != nil {
		return err
	}
	buckets := make([]*table.Bucket, 0, len(shards))
	for _, shard := range shards {
		if shard.Bucket != nil {
			buckets = append(buckets, shard.Bucket)
		}
	}
	for range buckets {
		moved, err := w.move(ctx, buckets)
		if err != nil || !moved {
			return err
		}
	}
	return nil
}

// move moves tokens from the shard that has most to the one that has least.
func (w *world) move(ctx context.Context, buckets []*table.Bucket) (bool, error) {
	uses, balances := make([]*quota.Use, len(buckets)), make([]int64, len(buckets))
	sum := int64(0)
	for i, b := range buckets {
		after, use, err := current(b, w.now)
		if err != nil {
			return false, err
		}
		uses[i], balances[i] = use, after.Limit(limitName).Balance
		sum += balances[i]
	}
	mean := sum / int64(len(buckets))
	rich, poor := slices.Index(balances, slices.Max(balances)), slices.Index(balances, slices.Min(balances))
	amount := min(balances[rich]-mean, mean-balances[poor]) / 1000 * 1000
	if amount < max(1000, mean/10) {
		return false, nil
	}
	uses[rich].Charges = append(uses[rich].Charges, quota.Charge{Limit: limitName, Debit: amount})
	uses[poor].Charges = append(uses[poor].Charges, quota.Charge{Limit: limitName, Debit: -amount})
	applied, err := w.table.UseAll(ctx, []table.PlannedUse{{Bucket: buckets[rich], Use: uses[rich]}, {Bucket: buckets[poor], Use: uses[poor]}})
	if err != nil || !applied {
		return false, cmp.Or(err, errors.New("nobody else writes, and yet a move was refused"))
	}
	for _, i := range []int{rich, poor} {
		if buckets[i], err = w.stream.seen[buckets[i].Key].DecodeFull(); err != nil {
			return false, err
		}
	}
	return true, nil
}

// conclude makes figures of what was summed up.
func (w *world) conclude(seed uint64) {
	r, capacity := w.result, float64(w.workload.Capacity)
	r.Held = float64(r.held) / 1000 / capacity
	r.Over = w.tank.Over()
	r.Shards = w.shards()
	r.Ideal = w.workload.ideal(seed)
	if span := float64(w.workload.Length-w.workload.Steady) / second; w.workload.Steady > 0 {
		r.Rate = (float64(r.steady) - float64(r.stock)/1000) / (span * float64(w.workload.Refill))
		busiest := 0
		for _, n := range w.asked {
			busiest = max(busiest, n)
		}
		r.Busiest = float64(busiest) / span / float64(w.workload.Meter)
	}
}

// ideal is what one undivided bucket admits, as Result.Series, and in the end.
func (w *Workload) ideal(seed uint64) []int64 {
	t := NewTank(w.Capacity, w.Refill, 0)
	t.Pay(w.Used, 0)
	asks, sum := w.Asks(seed), int64(0)
	var series []int64
	for at := int64(0); at <= w.Length; at += Step {
		for len(asks) > 0 && asks[0].At < at {
			if ask := asks[0]; t.Has(ask.Amount, ask.At) {
				t.Pay(ask.Amount, ask.At)
				sum += ask.Amount
			}
			asks = asks[1:]
		}
		series = append(series, sum)
	}
	return series
}
