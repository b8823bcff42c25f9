package simulate

// Tank is one undivided bucket of a limit. It pays for what is admitted
// elsewhere, into debt if it must. Amounts in millitokens, times in ms. It
// begins full.
type Tank struct {
	capacity int64
	rate     int64 // tokens a second, which is millitokens a ms
	level    int64
	at       int64
	debt     int64 // the most that it ever owed
}

// NewTank is full at an instant. Amounts in tokens.
func NewTank(capacity, rate, at int64) *Tank {
	return &Tank{capacity: 1000 * capacity, rate: rate, level: 1000 * capacity, at: at}
}

// advance has it drip up to an instant.
func (t *Tank) advance(now int64) {
	t.level = min(t.capacity, t.level+t.rate*(now-t.at))
	t.at = now
}

// Has reports whether it has so many tokens at an instant.
func (t *Tank) Has(tokens, now int64) bool {
	t.advance(now)
	return t.level >= 1000*tokens
}

// Pay takes tokens.
func (t *Tank) Pay(tokens, now int64) {
	t.advance(now)
	t.level -= 1000 * tokens
	t.debt = max(t.debt, -t.level)
}

// Over is the most that was admitted beyond it, in tokens, rounded up.
func (t *Tank) Over() int64 { return (t.debt + 999) / 1000 }
