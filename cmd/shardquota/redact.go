package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/aggregator"
	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/table"
)

// redactor replaces entity ids in records by pseudonyms, the same id always by
// the same one and everything by one that is not known to be harmless. What is
// kept are names of namespaces' ids, resources and limits, numbers, and the
// texts that the aggregator goes by: a redacted recording replays to the same
// report, but for the names.
type redactor struct{ names aggregator.Pseudonyms }

// record redacts a record's keys and images. An error names the part that
// cannot be read, and nothing of it.
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
		text, isText := value.(*types.AttributeValueMemberS)
		_, isList := value.(*types.AttributeValueMemberSS)
		switch {
		case isText && shapes[name] != nil:
			redacted[name] = table.S(r.key(namespace, shapes[name], text.Value))
		case (isText || isList) && harmless.MatchString(name):
			redacted[name] = value
		default:
			redacted[name] = r.value(namespace, value)
		}
	}
	return redacted
}

// hide is the pseudonym of a text: of an entity's id, that of the logs.
func (r redactor) hide(namespace, text string) string {
	return r.names.Of(table.Group{Namespace: namespace, Entity: text})
}

// harmless are the attributes whose texts programs go by and that hold no id: a
// bucket's and a limit's, b_ on a bucket and l_ or w_ on a level, those of usage
// and those of a namespace. TestRedactorKeepsWhatIsRead knows all others.
var harmless = regexp.MustCompile(`^(resource|resources|window|window_start|(mark|runs)#\d+|GSI4PK` +
	`|r?sched|sched_tz|[blw]_.+_(r?sched|div)|disabled|on_unavailable|namespace_id|status)$`)

// shapes are the forms that a key's text can have, by attribute: in capitals
// what is hidden. Of a text of another form all is.
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

// inNamespace is the form of a partition key.
var inNamespace = regexp.MustCompile(`^[^/#]+/(?:` +
	`BUCKET#([^#]*)#[^#]*#\d+|(?:ENTITY|PARENT|AUDIT)#([^#]*)|(?:RESOURCE|ENTITY_CONFIG)#[^#]*|SYSTEM#)$`)

// key hides the groups of the first form that a text has.
func (r redactor) key(namespace string, forms []*regexp.Regexp, text string) string {
	for _, form := range forms {
		groups := form.FindStringSubmatchIndex(text)
		if groups == nil {
			continue
		}
		for i := len(groups) - 2; i > 0; i -= 2 { // from the end, so that places before stay
			if from, to := groups[i], groups[i+1]; from >= 0 {
				text = text[:from] + r.hide(namespace, text[from:to]) + text[to:]
			}
		}
		return text
	}
	return r.hide(namespace, text)
}

// value hides all texts in a value, and the names in a map.
func (r redactor) value(namespace string, value types.AttributeValue) types.AttributeValue {
	switch v := value.(type) {
	case *types.AttributeValueMemberS:
		return table.S(r.hide(namespace, v.Value))
	case *types.AttributeValueMemberB:
		return &types.AttributeValueMemberB{Value: []byte(r.hide(namespace, string(v.Value)))}
	case *types.AttributeValueMemberSS:
		return &types.AttributeValueMemberSS{Value: r.texts(namespace, v.Value)}
	case *types.AttributeValueMemberBS:
		hidden := &types.AttributeValueMemberBS{}
		for _, bytes := range v.Value {
			hidden.Value = append(hidden.Value, []byte(r.hide(namespace, string(bytes))))
		}
		return hidden
	case *types.AttributeValueMemberL:
		hidden := &types.AttributeValueMemberL{}
		for _, element := range v.Value {
			hidden.Value = append(hidden.Value, r.value(namespace, element))
		}
		return hidden
	case *types.AttributeValueMemberM:
		hidden := &types.AttributeValueMemberM{Value: map[string]types.AttributeValue{}}
		for name, element := range v.Value {
			hidden.Value[r.hide(namespace, name)] = r.value(namespace, element)
		}
		return hidden
	}
	return value // a number, a truth value, nothing
}

func (r redactor) texts(namespace string, texts []string) []string {
	hidden := make([]string, len(texts))
	for i, text := range texts {
		hidden[i] = r.hide(namespace, text)
	}
	return hidden
}
