package stream

import (
	"encoding/json"

	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"

	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/table"
)

// convert makes a record of one that the streams API returned. It sets Err where
// a Reader would.
func (t *Tail) convert(from types.Record) events.Record {
	r := events.Record{Table: t.table, Stream: t.label, EventName: string(from.EventName), EventID: deref(from.EventID)}
	if who := from.UserIdentity; who != nil {
		r.PrincipalID, r.PrincipalType = deref(who.PrincipalId), deref(who.Type)
	}
	change := from.Dynamodb
	if change == nil || change.SequenceNumber == nil || change.ApproximateCreationDateTime == nil {
		r.Err = &events.RecordError{Reason: "no dynamodb, SequenceNumber or ApproximateCreationDateTime"}
		return r
	}
	r.Sequence, r.Time = *change.SequenceNumber, change.ApproximateCreationDateTime.UnixMilli()
	for _, image := range []struct {
		to   *json.RawMessage
		from map[string]types.AttributeValue
	}{{&r.Keys, change.Keys}, {&r.Old, change.OldImage}, {&r.New, change.NewImage}} {
		text, err := imageText(image.from)
		if err != nil {
			r.Err = &events.RecordError{Reason: "an attribute is of no kind that is known"}
		}
		*image.to = text
	}
	return r
}

// imageText returns an image as DynamoDB JSON, nil for none.
func imageText(image map[string]types.AttributeValue) (json.RawMessage, error) {
	if len(image) == 0 {
		return nil, nil
	}
	item, err := attributevalue.FromDynamoDBStreamsMap(image)
	if err != nil {
		return nil, err
	}
	return table.FormatItem(item)
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
