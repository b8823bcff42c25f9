package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/shardquota/shardquota/aggregator"
	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/table"
)

// redactor replaces entity ids in records by pseudonyms, an id always by the same
// one. It replaces every text that is not known to be harmless. It keeps ids of
// namespaces, names of resources and limits, numbers, and the texts that the
// aggregator reads. A redacted recording replays to the same report, but for the
// names.
type redactor struct{ names aggregator.Pseudonyms }

// record redacts a record's keys and images. An error names the part that cannot
// be read, and none of its contents.
func (r redactor) record(record events.Record) (events.Record, error) {
	keys, err := table.ParseItem(record.Keys)
	if err != nil {
		return record, fmt.Errorf("redact a record: its keys are not attributes")
	}
	pk, _ := keys.Key()
	namespace, _, _ := strings.Cut(pk, "/")
	for _, part := range []*json.RawMessage{&record.Keys, &record.Old, &record.New} {
		if *part == nil {
			continue
		}
		item, err := table.ParseItem(*part)
		if err != nil {
			return record, fmt.Errorf("redact a record: an image is not attributes")
		}
		if *part, err = table.FormatItem(r.item(namespace, item)); err != nil {
			return record, err
		}
	}
	return record, nil
}

func (r redactor) item(namespace string, item table.Item) table.Item {
	redacted := make(table.Item, len(item))
	for name, value := range item {
		switch text := item.Text(name); {
		case text != "" && shapes[name] != nil:
			redacted[name] = table.S(r.key(namespace, shapes[name], text))
		case item.IsText(name) && harmless.MatchString(name):
			redacted[name] = value
		default:
			redacted[name] = table.MapText(value, func(text string) string { return r.hide(namespace, text) })
		}
	}
	return redacted
}

// hide returns the pseudonym of a text. An entity's id has the one that logs show.
func (r redactor) hide(namespace, text string) string {
	return r.names.Of(table.Group{Namespace: namespace, Entity: text})
}

// harmless matches the attributes whose texts programs read and that hold no id:
// those of a bucket and its limits (b_), of a level (l_, w_), of usage, and of a
// namespace. TestRedactorKeepsWhatIsRead knows all others.
var harmless = regexp.MustCompile(`^(resource|resources|window|window_start|(mark|runs)#\d+|GSI4PK` +
	`|r?sched|sched_tz|[blw]_.+_(r?sched|div)|disabled|on_unavailable|namespace_id|status)$`)

// shapes are the forms of a key's text, by attribute. Their groups are what to
// hide. A text of no known form is hidden whole.
var shapes = map[string][]*regexp.Regexp{
	table.AttrPK:     {inNamespace},
	"GSI1PK":         {inNamespace},
	table.AttrGSI2PK: {inNamespace},
	table.AttrGSI3PK: {inNamespace},
	table.AttrSK: {
		regexp.MustCompile(`^#(?:STATE|META|VERSION|RESOURCES|ENTITY_CONFIG_RESOURCES)$|^#(?:CONFIG|USAGE|NSID)(?:#.*)?$`),
		regexp.MustCompile(`^#(?:NAMESPACE|AUDIT|OP)#(.*)$`),
	},
	"GSI1SK":         {regexp.MustCompile(`^CHILD#(.*)$`)},
	table.AttrGSI2SK: {regexp.MustCompile(`^BUCKET#([^#]*)#\d+$`), regexp.MustCompile(`^USAGE#[^#]*#(.*)$`)},
	table.AttrGSI3SK: {regexp.MustCompile(`^BUCKET#[^#]*#\d+$`), regexp.MustCompile(`^ENTITY#(.*)$`)},
	table.AttrGSI4SK: {inNamespace, regexp.MustCompile(`^BUCKET#([^#]*)#[^#]*#\d+$`), regexp.MustCompile(`^OP#([^#]*)#[^#]*#(.*)$`)},
}

// inNamespace matches a partition key.
var inNamespace = regexp.MustCompile(`^[^/#]+/(?:` +
	`BUCKET#([^#]*)#[^#]*#\d+|(?:ENTITY|PARENT|AUDIT)#([^#]*)|(?:RESOURCE|ENTITY_CONFIG)#[^#]*|SYSTEM#)$`)

// key hides the groups of the first form that matches a text.
func (r redactor) key(namespace string, forms []*regexp.Regexp, text string) string {
	for _, form := range forms {
		groups := form.FindStringSubmatchIndex(text)
		if groups == nil {
			continue
		}
		for i := len(groups) - 2; i > 0; i -= 2 { // from the end, so that earlier indexes stay valid
			if from, to := groups[i], groups[i+1]; from >= 0 {
				text = text[:from] + r.hide(namespace, text[from:to]) + text[to:]
			}
		}
		return text
	}
	return r.hide(namespace, text)
}
