package limiter_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	. "github.com/shardquota/shardquota/limiter"
	"github.com/shardquota/shardquota/table/memory"
)

func TestSmoke(t *testing.T) {
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	store := memory.New()
	l, err := New(t.Context(), store.Client(), Clock(func() time.Time { return now }), Limits("gpt-4", PerMinute("rpm", 10), Quota("calls", 25, "0 0 * * *")))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 12 {
		lease, err := l.Acquire(t.Context(), "acme", "gpt-4", Amounts{"rpm": 1, "calls": 2})
		t.Log(i, lease != nil, err)
		if i == 3 {
			t.Log(lease.Adjust(t.Context(), Amounts{"calls": -1}), lease.Taken())
		}
		if i == 4 {
			t.Log(lease.Release(t.Context()))
		}
	}
	for _, item := range store.Items() {
		t.Log(item.Key())
	}
}

func TestHot(t *testing.T) {
	store := memory.New()
	l, err := New(t.Context(), store.Client(), Draws(32), Limits("", Quota("calls", 10_000, "0 0 1 1 *")))
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	admitted := 0
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			for {
				_, err := l.Acquire(t.Context(), "acme", "gpt-4", Amounts{"calls": 1})
				var r *Rejection
				if errors.As(err, &r) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				admitted++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	t.Log(admitted, len(store.Items()))
}
