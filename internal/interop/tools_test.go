package interop

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/shardquota/shardquota/limiter"
	"github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/quota"
)

// provisioned is what theirs says about a manifest.
type provisioned struct {
	Status    string
	Changes   []struct{ Action, Level, Target string }
	Unchanged int
	Errors    []string
}

type object = map[string]any

// manifest declares limits on a level of each kind.
func manifest(calls int) object {
	day := []object{{"cron": "0 0 * * *", "tz": "America/New_York"}}
	night := []object{{"cron": "* 1-6 * * *", "tz": "America/New_York", "scale": 2.5}}
	return object{
		"namespace": namespace,
		"system":    object{"limits": object{"rpm": object{"capacity": 60, "refill_amount": 60, "refill_period": 60}}},
		"resources": object{resource: object{"limits": object{
			"calls": object{"capacity": calls, "refill_period": 1, "reset_schedule": day, "schedule": night},
			"spike": object{"capacity": 5, "refill_amount": 1, "refill_period": 2, "soft": true},
		}}},
		"entities": object{"acme": object{"resources": object{resource: object{"limits": object{
			"session": object{"capacity": 7, "refill_period": 1, "reset_after_seconds": 3600},
		}}}},
		},
	}
}

// declared is the same as limits of ours.
func declared(calls int64) map[limits.Level][]limits.Limit {
	quotaLimit := limits.Quota("calls", calls, "0 0 * * *")
	quotaLimit.Zone, quotaLimit.Schedule = "America/New_York", []quota.Entry{{Cron: "* 1-6 * * *", Scale: 2500}}
	return map[limits.Level][]limits.Limit{
		limits.ForAll():              {limits.PerMinute("rpm", 60)},
		limits.ForResource(resource): {quotaLimit, {Name: "spike", Capacity: 5, Refill: 1, Period: 2 * time.Second, Soft: true}},
		limits.For("acme", resource): {limits.Session("session", 7, time.Hour)},
	}
}

// TestProvisioner: their provisioner writes what ours has stored or changed over
// once, also with the same: ours counts versions on an item where it puts 1. Else it
// finds nothing to change, and ours reads what it changes.
func TestProvisioner(t *testing.T) {
	w := newWorld(t, false)
	store := func(calls int64) {
		t.Helper()
		for level, limits := range declared(calls) {
			must(t, w.ours.SetLimits(t.Context(), level, limits...))
		}
	}
	provision := func(action string, calls int, want string) {
		t.Helper()
		got := ask[provisioned](w.theirs, "provision", args{"action": action, "manifest": manifest(calls)})
		var changes []string
		for _, change := range got.Changes {
			changes = append(changes, change.Action+" "+change.Level)
		}
		eq(t, fmt.Sprintf("%s %d", action, calls), fmt.Sprint(strings.Join(changes, ", "), got.Errors), want+"[]")
	}
	store(100)
	use(t, w.ours, "globex", limiter.Amounts{"calls": 1})
	provision("apply", 100, "create system, create resource, create entity")
	provision("plan", 100, "")
	store(100)
	provision("plan", 100, "")
	provision("apply", 200, "update resource")
	provision("plan", 200, "")
	stored, err := w.ours.Limits(t.Context(), limits.ForResource(resource))
	must(t, err)
	eq(t, "ours reads what it applied", fmt.Sprint(wires(stored)), fmt.Sprint(wires(declared(200)[limits.ForResource(resource)])))
	use(t, w.another(), "initech", limiter.Amounts{"calls": 1})
	eq(t, "a new bucket has it", w.bucket("initech", 0).Limit("calls").Base.Capacity, 200_000)
	store(300)
	provision("plan", 200, "update resource")
	provision("apply", 300, "update resource")
	provision("plan", 300, "")
	eq(t, "the bucket that stood has ours", w.bucket("globex", 0).Limit("calls").Base.Capacity, 300_000)
}

// TestCommandLine: their tool shows what ours stored.
func TestCommandLine(t *testing.T) {
	w := newWorld(t, false)
	for level, limits := range declared(100) {
		must(t, w.ours.SetLimits(t.Context(), level, limits...))
	}
	must(t, w.ours.CreateEntity(t.Context(), limits.Entity{ID: "acme", Name: "Acme Inc."}))
	use(t, w.ours, "acme", limiter.Amounts{"session": 3})
	w.settle()
	for _, c := range []struct{ command, shows string }{
		{"namespace list", namespace},
		{"system get-defaults", "rpm"},
		{"resource get-defaults gpt-4", "calls"},
		{"resource list", resource},
		{"entity show acme", "Acme Inc."},
		{"entity get-limits acme --resource gpt-4", "session"},
		{"entity list --with-custom-limits gpt-4", "acme"},
		{"entity list-resources", resource},
		{"usage list --entity-id acme", "session"},
		{"usage summary --entity-id acme -w hourly", "3"},
		{"usage summary --resource gpt-4 -w daily", "3"},
		{"entity top-up acme -r gpt-4 -a session:11", "11"},
		{"entity disable acme --resource gpt-4", "acme"},
	} {
		if output := ask[string](w.theirs, "cli", args{"words": strings.Fields(c.command)}); !strings.Contains(output, c.shows) {
			t.Errorf("%s: %s", c.command, output)
		}
	}
	if _, err := w.ours.Acquire(t.Context(), "acme", resource, limiter.Amounts{"session": 1}); !errors.Is(err, limiter.ErrDisabled) {
		t.Errorf("ours, of what their tool disabled: %v", err)
	}
	eq(t, "what their tool topped up", w.bucket("acme", 0).Limit("session").Balance, 15_000)
}
