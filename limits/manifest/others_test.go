package manifest_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/internal/fixture"
	"github.com/shardquota/shardquota/limits"
	. "github.com/shardquota/shardquota/limits/manifest"
	"github.com/shardquota/shardquota/table"
)

// stores puts the item of a level as other programs store it.
func (w *world) stores(pk, sk string, attributes table.Item) {
	w.Helper()
	item := table.Item{
		table.AttrPK: table.S(pk), table.AttrSK: table.S(sk), table.AttrGSI4PK: table.S("ns1"), table.AttrGSI4SK: table.S(pk),
		"config_version": table.N("1"),
	}
	for name, value := range attributes {
		item[name] = value
	}
	fixture.Replace(w.T, w.Client, item)
}

// A level from before there were divisions reads as divided, and declaring that
// writes nothing. So do other spellings of the same.
func TestOldItems(t *testing.T) {
	everywhere(t, func(w *world) {
		w.stores("ns1/SYSTEM#", "#CONFIG", table.Item{
			"l_calls_cp": table.N("500"), "l_calls_ra": table.N("0"), "l_calls_rp": table.N("60"), "l_calls_rsched": table.S("1m0h0D1;m0h0w0"),
			"l_rpm_cp": table.N("6E1"), "l_rpm_ra": table.N("60"), "l_rpm_rp": table.N("60"),
			"on_unavailable": table.S("allow"),
		})
		for _, text := range []string{
			`system: {limits: {rpm: 60 per minute, calls: {capacity: 500, resets: ["0 0 1 * *", "0 0 * * SUN"]}}}`,
			`system: {limits: {rpm: {capacity: 60, period: 60s, division: divided, soft: false}, calls: {capacity: 500, resets: ["0 0 1 * *", "0 0 * * 7"], zone: UTC}}}`,
		} {
			plan := w.compare(w.read(text))
			w.shows(plan, "0 to add, 0 to change, 0 to remove, 1 unchanged\n")
			if writes := w.apply(w.read(text)); writes != 0 {
				w.Errorf("%s wrote %d items", text, writes)
			}
		}
	})
}

// What others store on a level beside its rules stays.
func TestOthersAttributesStay(t *testing.T) {
	everywhere(t, func(w *world) {
		w.stores("ns1/SYSTEM#", "#CONFIG", table.Item{
			"l_rpm_cp": table.N("60"), "l_rpm_ra": table.N("60"), "l_rpm_rp": table.N("60"), "on_unavailable": table.S("allow"),
		})
		stored := func() table.Item {
			items, err := w.Client.Items(w.Context(), []table.ItemKey{{PK: "ns1/SYSTEM#", SK: "#CONFIG"}})
			w.noError(err)
			return items[0]
		}
		w.apply(w.read("system: {limits: {tpm: 5 per day}}"))
		item := stored()
		if item.Text("on_unavailable") != "allow" || item["l_rpm_cp"] != nil || item["l_tpm_cp"] == nil || item["spread_pending"] != nil {
			w.Errorf("stored %v", item)
		}
		w.apply(w.read("{}"), Prune())
		if item := stored(); item.Text("on_unavailable") != "allow" || item["l_tpm_cp"] != nil {
			w.Errorf("stored %v", item)
		}
		if levels := w.export().Levels; len(levels) != 0 {
			w.Errorf("exported %+v", levels)
		}
	})
}

// Limits that cannot be read, or that others alone could store, are no export's,
// and a manifest can put others in their place.
func TestLimitsThatAreNone(t *testing.T) {
	w := worldOf(t, newMemory())
	w.stores("ns1/RESOURCE#gpt-4", "#CONFIG", table.Item{"l_calls_cp": table.N("500"), "l_calls_rsched": table.S("7nonsense")})
	w.stores("ns1/ENTITY#sk-live-acme", "#CONFIG#gpt-4", table.Item{
		"l_ttl_cp": table.N("5"), "l_ttl_ra": table.N("5"), "l_ttl_rp": table.N("5"),
		"GSI3PK": table.S("ns1/ENTITY_CONFIG#gpt-4"), "GSI3SK": table.S("ENTITY#sk-live-acme"),
	})
	w.stores("ns1/SYSTEM#", "#RESOURCES", table.Item{"resources": &types.AttributeValueMemberSS{Value: []string{"gpt-4"}}})
	w.stores("ns1/SYSTEM#", "#ENTITY_CONFIG_RESOURCES", table.Item{"gpt-4": table.N("1")})
	_, err := Export(t.Context(), w.store, "")
	if !errors.Is(err, limits.ErrLimit) || strings.Contains(err.Error(), acme) {
		t.Fatalf("got %v", err)
	}
	for _, says := range []string{`export: resource gpt-4: malformed limit "calls"`, `export: an entity, resource gpt-4: malformed limit "ttl"`} {
		if !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, which does not say %s", err, says)
		}
	}
	m := w.read("resources: {gpt-4: {limits: {calls: 5 per day}}}\nentities: {sk-live-acme: {resources: {gpt-4: {limits: {ttx: 5 per day}}}}}")
	plan := w.compare(m)
	w.shows(plan, `~ resource gpt-4
    + calls: 5 per day
    - limits: cannot be read: malformed limit "calls" as stored: parse resets: unknown schedule version "7" of "7nonsense"
~ entity sk-live-acme, resource gpt-4
    - ttl: {capacity: 5, refill: 5, period: 5s}
    + ttx: 5 per day

0 to add, 2 to change, 0 to remove, 0 unchanged
`)
	w.noError(plan.Apply(t.Context()))
	if got := w.export(); !got.Equal(m) {
		t.Errorf("exported %+v", got)
	}
}

// What a terminal would obey is not printed: YAML escapes it.
func TestPlanIsPrintable(t *testing.T) {
	w := worldOf(t, newMemory())
	w.stores("ns1/SYSTEM#", "#CONFIG", table.Item{
		"l_rpm_cp": table.N("60"), "l_rpm_ra": table.N("60"), "l_rpm_rp": table.N("60"), "l_rpm_div": table.S("a\x1b[2Jb"),
	})
	var b strings.Builder
	w.noError(w.compare(w.read("system: {limits: {rpm: 60 per minute}}")).Print(&b, func(entity string) string { return entity }))
	if text := b.String(); strings.Contains(text, "\x1b") || !strings.Contains(text, "division") {
		t.Errorf("got %q", text)
	}
}
