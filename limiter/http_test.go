package limiter_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"
	"time"

	. "github.com/shardquota/shardquota/limiter"
	. "github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/quota"
)

func TestRejectionAsHTTP(t *testing.T) {
	rejection := &Rejection{Resource: "gpt-4", Shards: 2, Limits: []Status{
		{Limit: "calls", Requested: 1, Available: 700, Capacity: 1_000_000_000_000_000, Ceiling: 5000},
		{Limit: "rpm", Requested: 1, Available: 0, Capacity: 90, Ceiling: 45, Refill: 60, Period: time.Minute, Window: 90 * time.Second, RetryAfter: 1200 * time.Millisecond},
		{Limit: "tpm", Requested: 800, Available: -20, Capacity: 2000, Ceiling: 1000, Refill: 2000, Period: time.Minute, Window: time.Minute, RetryAfter: 24600 * time.Millisecond},
	}}
	response := httptest.NewRecorder()
	if err := rejection.WriteHTTP(response); err != nil {
		t.Fatal(err)
	}
	eq(t, "status", response.Code, 429)
	for name, want := range map[string]string{
		"Retry-After":      "25",
		"RateLimit-Policy": `"calls";q=999999999999999, "rpm";q=90;w=90, "tpm";q=2000;w=60`,
		"RateLimit":        `"calls";a=700;c=1;r=700, "rpm";a=0;w=2;c=1;r=0;t=2, "tpm";a=0;w=25;c=800;r=0;t=25`,
		"Content-Type":     "application/problem+json",
	} {
		eq(t, name, response.Header().Get(name), want)
	}
	var problem struct {
		Type     string
		Title    string
		Status   int
		Violated []string `json:"violated-policies"`
	}
	if err := json.Unmarshal(response.Body.Bytes(), &problem); err != nil {
		t.Fatal(err)
	}
	eq(t, "type", problem.Type, "https://iana.org/assignments/http-problem-types#quota-exceeded")
	eq(t, "status", problem.Status, 429)
	if want := []string{"rpm", "tpm"}; !reflect.DeepEqual(problem.Violated, want) {
		t.Errorf("violated %v, not %v", problem.Violated, want)
	}
}

// The window of a policy is exact, also where a schedule scales the refill to a
// fraction of a token, and rounded up to a second.
func TestWindowOfAPolicy(t *testing.T) {
	for _, test := range []struct {
		limit Limit
		want  string
	}{
		{Limit{Name: "rpm", Capacity: 10, Refill: 3, Period: time.Minute, Schedule: []quota.Entry{{Cron: "* * * * *", Scale: 500}}}, `"rpm";q=5;w=200`},
		{Limit{Name: "rpm", Capacity: 10, Refill: 3, Period: time.Minute}, `"rpm";q=10;w=200`},
		{Limit{Name: "rpm", Capacity: 10, Refill: 7, Period: time.Minute}, `"rpm";q=10;w=86`},
		{Limit{Name: "rpm", Capacity: 1, Refill: 1000, Period: time.Second}, `"rpm";q=1;w=1`},
		{Limit{Name: "rpm", Capacity: 999_999_999_999, Refill: 1, Period: 24 * time.Hour}, `"rpm";q=999999999999;w=9223372037`},
		{Quota("rpm", 10, "0 0 * * *"), `"rpm";q=10`},
	} {
		w := newWorld(t)
		l := w.limiter(Default("", test.limit))
		rejection := w.reject(l, acme, Amounts{"rpm": test.limit.Capacity + 1})
		header := http.Header{}
		rejection.SetHTTP(header)
		eq(t, "policy", header.Get("RateLimit-Policy"), test.want)
	}
}

func TestImpossibleAsHTTP(t *testing.T) {
	rejection := &Rejection{Limits: []Status{{Limit: "tpm", Requested: 100, Available: 31, Capacity: 1000, Ceiling: 31, Refill: 1000, Period: time.Minute, Never: true}}}
	response := httptest.NewRecorder()
	if err := rejection.WriteHTTP(response); err != nil {
		t.Fatal(err)
	}
	eq(t, "status", response.Code, 429)
	eq(t, "Retry-After", response.Header().Values("Retry-After") == nil, true)
	eq(t, "RateLimit", response.Header().Get("RateLimit"), `"tpm";a=31;c=100;r=31`)
}

func eq[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
