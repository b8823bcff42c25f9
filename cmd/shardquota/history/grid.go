package history

// clock is a grid that grows with what is put on it. When it is full, slots
// are joined two by two.
type clock struct {
	start, step int64
	slots, most int
	tracks      []*track
}

// track holds one number for each slot of a clock's grid.
type track struct {
	values []int64
	sums   bool // slots add up when they are joined; else the later one counts
}

func newClock(at, step int64, most int) *clock {
	return &clock{start: floor(at, step), step: step, most: most}
}

// floor is the last multiple of step that is not after at.
func floor(at, step int64) int64 {
	rest := at % step
	if rest < 0 {
		rest += step
	}
	return at - rest
}

func (c *clock) track(sums bool) *track {
	t := &track{sums: sums}
	c.tracks = append(c.tracks, t)
	return t
}

// slot returns the slot that a time falls in, and makes it if there is none.
func (c *clock) slot(at int64) int {
	for !c.fits(at) {
		c.widen()
	}
	if at < c.start {
		earlier := floor(at, c.step)
		c.shift(int((c.start - earlier) / c.step))
		c.start = earlier
	}
	slot := int((at - c.start) / c.step)
	c.slots = max(c.slots, slot+1)
	return slot
}

// fits reports whether the grid can reach a time without wider slots.
func (c *clock) fits(at int64) bool {
	most := int64(c.most)
	if at < c.start {
		return (c.start-floor(at, c.step))/c.step+int64(c.slots) <= most
	}
	return (at-c.start)/c.step < most
}

// widen joins slots two by two. Wide slots begin at multiples of their length,
// so that a grid does not depend on where it began.
func (c *clock) widen() {
	if floor(c.start, 2*c.step) != c.start {
		c.shift(1)
		c.start -= c.step
	}
	for _, t := range c.tracks {
		t.join()
	}
	c.slots = (c.slots + 1) / 2
	c.step *= 2
}

func (c *clock) shift(slots int) {
	for _, t := range c.tracks {
		if len(t.values) > 0 {
			t.values = append(t.blank(slots), t.values...)
		}
	}
	c.slots += slots
}

func (t *track) empty() int64 {
	if t.sums {
		return 0
	}
	return None
}

func (t *track) blank(n int) []int64 {
	values := make([]int64, n)
	for i := range values {
		values[i] = t.empty()
	}
	return values
}

func (t *track) join() {
	joined := t.values[:0]
	for i := 0; i < len(t.values); i += 2 {
		value := t.values[i]
		if i+1 < len(t.values) {
			value = t.both(value, t.values[i+1])
		}
		joined = append(joined, value)
	}
	t.values = joined
}

func (t *track) both(earlier, later int64) int64 {
	switch {
	case t.sums:
		return earlier + later
	case later == None:
		return earlier
	default:
		return later
	}
}

func (t *track) put(slot int, value int64) {
	t.values = append(t.values, t.blank(max(0, slot+1-len(t.values)))...)
	t.values[slot] = t.both(t.values[slot], value)
}

// filled are the values of all slots. One that nothing was put into has what
// the one before it had, unless values add up.
func (t *track) filled(slots int) []int64 {
	values := append(append([]int64(nil), t.values...), t.blank(slots-len(t.values))...)
	for i := 1; i < len(values) && !t.sums; i++ {
		if values[i] == None {
			values[i] = values[i-1]
		}
	}
	for i := range values {
		if values[i] == gone {
			values[i] = None
		}
	}
	return values
}

// gone marks the slot in which a shard was removed, so that its last balance
// does not go on.
const gone = None + 1
