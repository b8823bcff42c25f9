package stream

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"

	"github.com/shardquota/shardquota/events"
)

// A record of the streams API is the same as the one that Lambda delivers.
func TestConvert(t *testing.T) {
	tail, err := Open(nil, "arn:aws:dynamodb:eu-west-1:1:table/limits/stream/s1", Start{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := tail.convert(types.Record{
		EventID: new("e1"), EventName: types.OperationTypeRemove,
		UserIdentity: &types.Identity{PrincipalId: new("dynamodb.amazonaws.com"), Type: new("Service")},
		Dynamodb: &types.StreamRecord{
			SequenceNumber: new("17"), ApproximateCreationDateTime: new(time.Unix(1796032800, 0)),
			Keys: map[string]types.AttributeValue{"PK": &types.AttributeValueMemberS{Value: "a"}},
			OldImage: map[string]types.AttributeValue{
				"n": &types.AttributeValueMemberN{Value: "1.50"}, "b": &types.AttributeValueMemberB{Value: []byte("x")},
				"m": &types.AttributeValueMemberM{Value: map[string]types.AttributeValue{"l": &types.AttributeValueMemberL{}}},
			},
		},
	})
	lambda, err := events.DecodeEvent([]byte(`{"Records":[{"eventID":"e1","eventName":"REMOVE",
		"eventSourceARN":"arn:aws:dynamodb:eu-west-1:1:table/limits/stream/s1",
		"userIdentity":{"principalId":"dynamodb.amazonaws.com","type":"Service"},
		"dynamodb":{"ApproximateCreationDateTime":1796032800,"SequenceNumber":"17","Keys":{"PK":{"S":"a"}},
		"OldImage":{"b":{"B":"eA=="},"m":{"M":{"l":{"L":[]}}},"n":{"N":"1.50"}}}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	a, err := events.EncodeRecord(got)
	if err != nil {
		t.Fatal(err)
	}
	b, err := events.EncodeRecord(lambda[0])
	if err != nil {
		t.Fatal(err)
	}
	if string(a) != string(b) || got.Table != "limits" || got.New != nil {
		t.Errorf("got  %s\nwant %s", a, b)
	}
}

func TestConvertRejects(t *testing.T) {
	tail := &Tail{}
	sound := types.StreamRecord{SequenceNumber: new("17"), ApproximateCreationDateTime: new(time.Unix(1, 0))}
	unknown := sound
	unknown.NewImage = map[string]types.AttributeValue{"x": &types.UnknownUnionMember{Tag: "Z"}}
	for name, record := range map[string]types.Record{
		"nothing":              {},
		"no sequence number":   {Dynamodb: &types.StreamRecord{ApproximateCreationDateTime: new(time.Unix(1, 0))}},
		"an unknown attribute": {Dynamodb: &unknown},
	} {
		if got := tail.convert(record); got.Err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if got := tail.convert(types.Record{Dynamodb: &sound}); got.Err != nil {
		t.Errorf("a sound one: %v", got.Err)
	}
}
