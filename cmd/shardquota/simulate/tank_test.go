package simulate

import "testing"

// TestTank follows an undivided bucket of 100 tokens that drips 10 a second.
func TestTank(t *testing.T) {
	tank := NewTank(100, 10, 1000)
	for i, step := range []struct {
		at, pay  int64 // of what is taken, tokens
		has, not int64 // what it has before that, and what it has not
		over     int64
	}{
		{at: 1000, pay: 60, has: 100, not: 101, over: 0},     // 40 left
		{at: 3000, pay: 50, has: 60, not: 61, over: 0},       // 60 after two seconds, 10 left
		{at: 3500, pay: 40, has: 15, not: 16, over: 25},      // 15, and 25 in debt
		{at: 3550, pay: 1, has: -25, not: -24, over: 26},     // half a token has dripped: 25.5 in debt, rounded up
		{at: 8050, pay: 0, has: 19, not: 20, over: 26},       // 45 later 19.5
		{at: 60_000, pay: 130, has: 100, not: 101, over: 30}, // full, and the worst
		{at: 61_000, pay: 0, has: -20, not: -19, over: 30},
	} {
		if !tank.Has(step.has, step.at) || tank.Has(step.not, step.at) {
			t.Errorf("step %d: it holds %d millitokens", i, tank.level)
		}
		if tank.Pay(step.pay, step.at); tank.Over() != step.over {
			t.Errorf("step %d: %d over, not %d", i, tank.Over(), step.over)
		}
	}
}

// TestTankOfAQuota never drips.
func TestTankOfAQuota(t *testing.T) {
	tank := NewTank(10, 0, 0)
	tank.Pay(9, 0)
	if !tank.Has(1, minute) || tank.Has(2, minute) {
		t.Errorf("it holds %d millitokens", tank.level)
	}
	if tank.Pay(3, minute); tank.Over() != 2 {
		t.Errorf("%d over", tank.Over())
	}
}
