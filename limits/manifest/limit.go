package manifest

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// limits reads the limits of a level.
func (r *reader) limits(n *yaml.Node) ([]limits.Limit, error) {
	pairs, err := r.mapping(n)
	if err != nil {
		return nil, err
	}
	if len(pairs) == 0 {
		return nil, r.at(n, "it names no limit: leave it out")
	}
	var declared []limits.Limit
	for _, p := range pairs {
		if err := r.limitName(p.key); err != nil {
			return nil, err
		}
		limit, err := r.limit(p.key.Value, p.value)
		if err != nil {
			return nil, err
		}
		if _, err := limits.Normal(limit); err != nil {
			return nil, r.at(p.value, "%w", err)
		}
		declared = append(declared, limit)
	}
	normal, err := limits.Normal(declared...)
	if err != nil {
		return nil, r.at(n, "%w", err)
	}
	return normal, nil
}

// limitName checks the name of a limit. Only one that is reserved is repeated.
func (r *reader) limitName(key *yaml.Node) error {
	if reserved := table.ReservedNames(); key.Value == quota.WriteMeter || slices.Contains(reserved, key.Value) {
		return r.at(key, "%w: the name %q is reserved, as are %s and those of usage items' attributes: %s",
			limits.ErrLimit, key.Value, quota.WriteMeter, strings.Join(reserved, ", "))
	}
	if _, err := limits.Normal(limits.PerSecond(key.Value, 1)); err != nil {
		return r.at(key, "%w: no limit has this name: a letter and up to 63 letters, digits and _ . -", limits.ErrLimit)
	}
	return nil
}

// shortLimit is a limit in one line: what it holds is what it refills by.
var shortLimit = regexp.MustCompile(`^([1-9][0-9_]*) per (second|minute|hour|day)$`)

// units are the periods that have names.
var units = map[string]time.Duration{"second": time.Second, "minute": time.Minute, "hour": time.Hour, "day": 24 * time.Hour}

func (r *reader) limit(name string, n *yaml.Node) (limits.Limit, error) {
	limit := limits.Limit{Name: name}
	if n = resolved(n); n.Kind == yaml.ScalarNode {
		return limit, r.short(&limit, n)
	}
	pairs, err := r.words(n, "capacity", "refill", "period", "resets", "window", "schedule", "zone", "soft", "division")
	if err != nil {
		return limit, err
	}
	for _, p := range pairs {
		if err := r.limitField(&limit, p); err != nil {
			return limit, err
		}
	}
	return limit, r.complete(&limit, n, pairs)
}

// short reads a limit in one line.
func (r *reader) short(limit *limits.Limit, n *yaml.Node) error {
	said := shortLimit.FindStringSubmatch(n.Value)
	if said == nil || n.ShortTag() != "!!str" {
		return r.at(n, "a limit is a mapping, or a text such as 60 per minute (or second, hour, day)%s", hint(n))
	}
	tokens, err := decimal(said[1])
	if err != nil {
		return r.at(n, "the number is too large")
	}
	limit.Capacity, limit.Refill, limit.Period = tokens, tokens, units[said[2]]
	return nil
}

// longLimit is what may be meant for a quota: a number alone, or one for a period
// that is no duration.
var longLimit = regexp.MustCompile(`^([1-9][0-9_]{0,20})(?: per (week|month|year))?$`)

// hint is the quota that a text which is no limit may mean, "" where it means none.
func hint(n *yaml.Node) string {
	said, nick := longLimit.FindStringSubmatch(n.Value), nicknames[n.Value]
	switch {
	case said != nil:
		period := cmp.Or(said[2], "month")
		return quotaHint(period, said[1], quotas[period])
	case nick.cron != "":
		return quotaHint(nick.period, "1000000", nick.cron)
	}
	return ""
}

func quotaHint(period, capacity, cron string) string {
	article := "a"
	if period == "hour" {
		article = "an"
	}
	return fmt.Sprintf("; for %s %s: {capacity: %s, resets: [%q]}", article, period, capacity, cron)
}

// quotas are the resets of periods that differ in length.
var quotas = map[string]string{"week": "0 0 * * 1", "month": "0 0 1 * *", "year": "0 0 1 1 *"}

// nickname is a cron expression that others have a name for.
type nickname struct{ period, cron string }

var nicknames = map[string]nickname{
	"@yearly": {"year", "0 0 1 1 *"}, "@annually": {"year", "0 0 1 1 *"}, "@monthly": {"month", "0 0 1 * *"}, "@weekly": {"week", "0 0 * * 0"},
	"@daily": {"day", "0 0 * * *"}, "@midnight": {"day", "0 0 * * *"}, "@hourly": {"hour", "0 * * * *"},
}

var divisions = map[string]quota.Division{"divided": quota.Divided, "replicated": quota.Replicated, "gathered": quota.Pooled}

func (r *reader) limitField(limit *limits.Limit, p pair) (err error) {
	switch p.key.Value {
	case "capacity":
		limit.Capacity, err = r.number(p.value)
	case "refill":
		limit.Refill, err = r.number(p.value)
	case "period":
		limit.Period, err = r.duration(p.value)
	case "resets":
		limit.Resets, err = r.resets(p.value)
	case "window":
		limit.Window, err = r.duration(p.value)
	case "schedule":
		limit.Schedule, err = r.schedule(p.value)
	case "zone":
		limit.Zone, err = r.text(p.value)
	case "soft":
		limit.Soft, err = r.flag(p.value)
	case "division":
		limit.Division, err = choice(r, p.value, divisions)
	}
	return err
}

// complete checks what package limits would pass over, and fills in a refill that is
// as large as the capacity.
func (r *reader) complete(limit *limits.Limit, n *yaml.Node, pairs []pair) error {
	given := func(name string) bool {
		return slices.ContainsFunc(pairs, func(p pair) bool { return p.key.Value == name })
	}
	quotaLike := given("resets") || given("window")
	switch {
	case !given("capacity"):
		return r.at(n, "a capacity is missing")
	case quotaLike && (given("refill") || given("period")):
		return r.at(n, "a quota, which has resets or a window, has no refill and no period")
	case !quotaLike && !given("period"):
		return r.at(n, "a period is missing, or resets or a window for a quota")
	case given("zone") && !given("resets") && !given("schedule"):
		return r.at(n, "a zone is for resets or a schedule, and there is neither")
	}
	if !quotaLike && !given("refill") {
		limit.Refill = limit.Capacity
	}
	return nil
}

// list returns what a list holds, which is not nothing.
func (r *reader) list(n *yaml.Node) ([]*yaml.Node, error) {
	if n = resolved(n); n.Kind != yaml.SequenceNode {
		return nil, r.at(n, "a list belongs here, not %s", kindOf(n))
	}
	if len(n.Content) == 0 {
		return nil, r.at(n, "the list is empty: leave it out")
	}
	return n.Content, r.open(n)
}

func (r *reader) resets(n *yaml.Node) ([]string, error) {
	nodes, err := r.list(n)
	if err != nil {
		return nil, err
	}
	crons := make([]string, len(nodes))
	for i, node := range nodes {
		if crons[i], err = r.text(node); err != nil {
			return nil, err
		}
		if nick := nicknames[crons[i]]; nick.cron != "" {
			return nil, r.at(node, "%w: %s is no cron expression here: write %q", limits.ErrLimit, crons[i], nick.cron)
		}
		if _, err := quota.NewResets("", crons[i]); err != nil && strings.Trim(crons[i], "* \t") != "" {
			return nil, r.at(node, "%w: %w", limits.ErrLimit, err)
		}
	}
	return crons, nil
}

func (r *reader) schedule(n *yaml.Node) ([]quota.Entry, error) {
	nodes, err := r.list(n)
	if err != nil {
		return nil, err
	}
	entries := make([]quota.Entry, len(nodes))
	for i, node := range nodes {
		pairs, err := r.words(node, "cron", "scale", "capacity", "refill", "period")
		if err != nil {
			return nil, err
		}
		for _, p := range pairs {
			if err := r.entryField(&entries[i], p); err != nil {
				return nil, err
			}
		}
		if entries[i].Cron == "" {
			return nil, r.at(node, "a cron expression is missing: when the entry holds")
		}
		if _, err := quota.NewSchedule("", entries[i]); err != nil {
			return nil, r.at(node, "%w: %w", limits.ErrLimit, err)
		}
	}
	return entries, nil
}

func (r *reader) entryField(entry *quota.Entry, p pair) (err error) {
	switch p.key.Value {
	case "cron":
		entry.Cron, err = r.text(p.value)
	case "scale":
		entry.Scale, err = r.thousandths(p.value)
	case "capacity":
		entry.Capacity, err = r.positive(p.value)
	case "refill":
		entry.Refill, err = r.positive(p.value)
	case "period":
		var period time.Duration
		period, err = r.duration(p.value)
		entry.Period = int64(period / time.Second)
	}
	return err
}

func (r *reader) text(n *yaml.Node) (string, error) {
	if n = resolved(n); n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" || n.Value == "" {
		return "", r.at(n, "a text belongs here, not %s", kindOrEmpty(n))
	}
	return n.Value, nil
}

func kindOrEmpty(n *yaml.Node) string {
	if n.Kind == yaml.ScalarNode && n.Value == "" {
		return "nothing"
	}
	return kindOf(n)
}

func (r *reader) flag(n *yaml.Node) (bool, error) {
	if n = resolved(n); n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool" {
		return false, r.at(n, "true or false belongs here, not %s", kindOf(n))
	}
	return strings.EqualFold(n.Value, "true"), nil
}

// choice reads a text that is one of several.
func choice[T any](r *reader, n *yaml.Node, of map[string]T) (T, error) {
	n = resolved(n)
	value, ok := of[n.Value]
	if !ok || n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
		return value, r.at(n, "one of %s belongs here", strings.Join(slices.Sorted(maps.Keys(of)), ", "))
	}
	return value, nil
}

var wholeNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*(_[0-9]+)*)$`)

// decimal reads a number whose digits may be grouped by underscores.
func decimal(text string) (int64, error) {
	return strconv.ParseInt(strings.ReplaceAll(text, "_", ""), 10, 64)
}

func (r *reader) number(n *yaml.Node) (int64, error) {
	if n = resolved(n); !isNumber(n) || !wholeNumber.MatchString(n.Value) {
		return 0, r.at(n, "a whole number belongs here")
	}
	value, err := decimal(n.Value)
	if err != nil {
		return 0, r.at(n, "the number is too large")
	}
	return value, nil
}

// isNumber reports whether a node is a number: one of more than 64 bits is a float.
func isNumber(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && (n.ShortTag() == "!!int" || n.ShortTag() == "!!float")
}

// positive reads a number of a schedule's entry, in which 0 would leave it as it is.
func (r *reader) positive(n *yaml.Node) (int64, error) {
	value, err := r.number(n)
	if err == nil && value < 1 {
		err = r.at(n, "a whole number above 0 belongs here")
	}
	return value, err
}

var scaleNumber = regexp.MustCompile(`^([0-9]{1,12})(?:\.([0-9]{1,3}))?$`)

// thousandths reads a decimal number with three places.
func (r *reader) thousandths(n *yaml.Node) (int64, error) {
	n = resolved(n)
	said := scaleNumber.FindStringSubmatch(n.Value)
	if !isNumber(n) || said == nil {
		return 0, r.at(n, "a number such as 0.5 belongs here, with up to three places")
	}
	value, err := decimal(strings.TrimLeft(said[1], "0") + (said[2] + "000")[:3])
	if err != nil || value < 1 {
		return 0, r.at(n, "the scale is above 0")
	}
	return value, nil
}

var durationText = regexp.MustCompile(`^(?:([0-9]{1,10})d)?(?:([0-9]{1,10})h)?(?:([0-9]{1,10})m)?(?:([0-9]{1,10})s)?$`)

// duration reads days, hours, minutes and seconds.
func (r *reader) duration(n *yaml.Node) (time.Duration, error) {
	n = resolved(n)
	said := durationText.FindStringSubmatch(n.Value)
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" || n.Value == "" || said == nil {
		return 0, r.at(n, "a duration such as 1d, 5h, 1m or 1m30s belongs here")
	}
	var seconds int64
	for i, unit := range []int64{24 * 3600, 3600, 60, 1} {
		count, _ := decimal("0" + said[i+1]) // of ten digits at most
		seconds += count * unit
	}
	if seconds < 1 || seconds > maxSeconds {
		return 0, r.at(n, "a duration is within 1 and %d seconds", maxSeconds)
	}
	return time.Duration(seconds) * time.Second, nil
}

// maxSeconds is the longest duration of a limit.
const maxSeconds = 1_000_000_000
