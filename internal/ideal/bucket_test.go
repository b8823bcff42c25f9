package ideal

// tank is one undivided bucket of a dripping limit, on the true clock. It pays
// for what is admitted elsewhere.
type tank struct {
	capacity, refill, period int64 // millitokens, millitokens per period, ms
	balance, at              int64
}

func (b *tank) advance(now int64) {
	b.balance = min(b.capacity, b.balance+now*b.refill/b.period-b.at*b.refill/b.period)
	b.at = now
}

// draw takes an amount, or gives a negative one back.
func (b *tank) draw(amount int64) { b.balance = min(b.capacity, b.balance-amount) }

// allowance is one undivided bucket of a quota, in one period. It pays for what
// is admitted elsewhere.
type allowance struct {
	capacity int64 // the largest that was in force in the period
	changed  bool  // it was not the same all along
	topUp    int64
	net      int64 // admitted less refunded
	owed     int64 // used beyond what was there, by leases that were settled: a shard in debt owes it until its period ends
	lost     int64 // what is gone of it, and why: see books
}

// left is what there is to be admitted or held.
func (a *allowance) left() int64 { return a.capacity + a.topUp - a.net }
