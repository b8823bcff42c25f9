package main_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	streamtypes "github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"

	"github.com/shardquota/shardquota/internal/dynoxide"
)

// item is an item as the SDK has it.
type item = map[string]types.AttributeValue

// record is one record of the table's stream.
type record struct {
	name     string // INSERT, MODIFY or REMOVE
	sequence string
	written  time.Time
	keys     item
	old, new item
	arn      string
}

// stream reads a table's stream from its beginning, as an event source mapping
// does.
type stream struct {
	client   *dynamodbstreams.Client
	arn      string
	iterator *string
}

func openStream(t testing.TB, client *dynamodb.Client, tableName string) *stream {
	t.Helper()
	description, err := client.DescribeTable(t.Context(), &dynamodb.DescribeTableInput{TableName: &tableName})
	if err != nil {
		t.Fatalf("describe table: %v", err)
	}
	s := &stream{
		client: dynamodbstreams.New(dynamodbstreams.Options{
			BaseEndpoint: new(dynoxide.Start(t)),
			Region:       dynoxide.Region,
			Credentials:  dynoxide.Credentials(),
		}),
		arn: *description.Table.LatestStreamArn,
	}
	shards, err := s.client.DescribeStream(t.Context(), &dynamodbstreams.DescribeStreamInput{StreamArn: &s.arn})
	if err != nil {
		t.Fatalf("describe stream: %v", err)
	}
	if n := len(shards.StreamDescription.Shards); n != 1 {
		t.Fatalf("the stream has %d shards, want 1", n)
	}
	start, err := s.client.GetShardIterator(t.Context(), &dynamodbstreams.GetShardIteratorInput{
		StreamArn:         &s.arn,
		ShardId:           shards.StreamDescription.Shards[0].ShardId,
		ShardIteratorType: streamtypes.ShardIteratorTypeTrimHorizon,
	})
	if err != nil {
		t.Fatalf("get shard iterator: %v", err)
	}
	s.iterator = start.ShardIterator
	return s
}

// next returns what was written since the last call.
func (s *stream) next(t testing.TB) []record {
	t.Helper()
	var records []record
	for {
		page, err := s.client.GetRecords(t.Context(), &dynamodbstreams.GetRecordsInput{ShardIterator: s.iterator})
		if err != nil {
			t.Fatalf("get records: %v", err)
		}
		if page.NextShardIterator == nil {
			t.Fatal("the stream has ended")
		}
		s.iterator = page.NextShardIterator
		if len(page.Records) == 0 {
			return records
		}
		for _, r := range page.Records {
			records = append(records, record{
				name:     string(r.EventName),
				sequence: *r.Dynamodb.SequenceNumber,
				written:  *r.Dynamodb.ApproximateCreationDateTime,
				keys:     converted(t, r.Dynamodb.Keys),
				old:      converted(t, r.Dynamodb.OldImage),
				new:      converted(t, r.Dynamodb.NewImage),
				arn:      s.arn,
			})
		}
	}
}

func converted(t testing.TB, from map[string]streamtypes.AttributeValue) item {
	t.Helper()
	to, err := attributevalue.FromDynamoDBStreamsMap(from)
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// event is what Lambda delivers for records.
func event(t testing.TB, records []record) []byte {
	t.Helper()
	texts := make([]string, len(records))
	for i, r := range records {
		texts[i] = r.json(t)
	}
	return eventOf(texts...)
}

// eventOf is an event of records as they are written.
func eventOf(records ...string) []byte {
	return []byte(`{"Records":[` + strings.Join(records, ",") + `]}`)
}

// json writes a record as Lambda does.
func (r record) json(t testing.TB) string {
	t.Helper()
	change := map[string]any{
		"ApproximateCreationDateTime": json.Number(strconv.FormatFloat(float64(r.written.UnixMilli())/1000, 'f', -1, 64)),
		"SequenceNumber":              r.sequence,
		"SizeBytes":                   1000,
		"StreamViewType":              "NEW_AND_OLD_IMAGES",
	}
	for name, image := range map[string]item{"Keys": r.keys, "OldImage": r.old, "NewImage": r.new} {
		if len(image) == 0 {
			continue
		}
		encoded, err := attributevalue.MarshalMapJSON(image)
		if err != nil {
			t.Fatal(err)
		}
		change[name] = json.RawMessage(encoded)
	}
	text, err := json.Marshal(map[string]any{
		"eventID": r.sequence, "eventName": r.name, "eventVersion": "1.1", "eventSource": "aws:dynamodb",
		"awsRegion": dynoxide.Region, "eventSourceARN": r.arn, "dynamodb": change,
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// isBucket tells a write to a bucket from all else on the stream.
func (r record) isBucket() bool { return text(r.keys, "SK") == "#STATE" && r.name != "REMOVE" }

// consumed is what a record says was consumed of each limit, millitokens, found
// without the product's help.
func (r record) consumed() map[string]int64 {
	amounts := map[string]int64{}
	if !r.isBucket() {
		return amounts
	}
	for attribute := range r.new {
		limit, ok := strings.CutSuffix(attribute, "_tc")
		if !ok || attribute == "b_wcu_tc" {
			continue
		}
		if amount := number(r.new, attribute) - number(r.old, attribute); amount != 0 {
			amounts[strings.TrimPrefix(limit, "b_")] = amount
		}
	}
	return amounts
}

// text and number read an attribute of an item, empty or 0 where it has none.
func text(i item, name string) string {
	if value, ok := i[name].(*types.AttributeValueMemberS); ok {
		return value.Value
	}
	return ""
}

func number(i item, name string) int64 {
	value, ok := i[name].(*types.AttributeValueMemberN)
	if !ok {
		return 0
	}
	n, err := strconv.ParseInt(value.Value, 10, 64)
	if err != nil {
		panic(fmt.Sprintf("%s is not a whole number", name))
	}
	return n
}

// tally is what one usage item is to hold.
type tally struct {
	counters map[string]int64 // millitokens
	events   int64
	marks    map[string]string // attribute to value
	ttl      int64
}

// tallies sums records by usage item ("PK SK"), in all three windows.
func tallies(records []record) map[string]tally {
	sums := map[string]tally{}
	for _, r := range records {
		amounts := r.consumed()
		if len(amounts) == 0 {
			continue
		}
		namespace, rest, _ := strings.Cut(text(r.keys, "PK"), "/BUCKET#")
		parts := strings.Split(rest, "#")
		entity, resource, shard := parts[0], parts[1], parts[2]
		for window, span := range windowsOf(r.written) {
			key := fmt.Sprintf("%s/ENTITY#%s #USAGE#%s#%s#%s", namespace, entity, resource, span[0].Format(time.RFC3339), window)
			sum, ok := sums[key]
			if !ok {
				sum = tally{counters: map[string]int64{}, marks: map[string]string{}}
			}
			for limit, amount := range amounts {
				sum.counters[limit] += amount
			}
			sum.events++
			_, label, _ := strings.Cut(r.arn, "/stream/")
			sum.marks["mark#"+shard] = label + "/" + strings.Repeat("0", 40-len(r.sequence)) + r.sequence
			sum.ttl = span[1].Add(90 * 24 * time.Hour).Unix()
			sums[key] = sum
		}
	}
	return sums
}

// windowsOf gives the start and the end of each window that an instant is in.
func windowsOf(t time.Time) map[string][2]time.Time {
	t = t.UTC()
	hour := t.Truncate(time.Hour)
	day := time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, time.UTC)
	month := time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, time.UTC)
	return map[string][2]time.Time{
		"hourly":  {hour, hour.Add(time.Hour)},
		"daily":   {day, day.AddDate(0, 0, 1)},
		"monthly": {month, month.AddDate(0, 1, 0)},
	}
}

// snapshot is a whole table by "PK SK".
type snapshot map[string]item

func scan(t testing.TB, client *dynamodb.Client, tableName string) snapshot {
	t.Helper()
	all := snapshot{}
	pages := dynamodb.NewScanPaginator(client, &dynamodb.ScanInput{TableName: &tableName, ConsistentRead: new(true)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		if err != nil {
			t.Fatalf("scan: %v", err)
		}
		for _, i := range page.Items {
			all[text(i, "PK")+" "+text(i, "SK")] = i
		}
	}
	return all
}

// lines writes a table out, one attribute a line, sorted.
func (s snapshot) lines(t testing.TB) []string {
	t.Helper()
	var lines []string
	for key, i := range s {
		for name, value := range i {
			lines = append(lines, fmt.Sprintf("%s %s=%s", key, name, canonical(t, value)))
		}
	}
	slices.Sort(lines)
	return lines
}

// canonical is a value's JSON with the keys of its maps sorted.
func canonical(t testing.TB, value types.AttributeValue) []byte {
	t.Helper()
	encoded, err := attributevalue.MarshalJSON(value)
	if err != nil {
		t.Fatal(err)
	}
	var decoded any
	if err := json.Unmarshal(encoded, &decoded); err != nil {
		t.Fatal(err)
	}
	encoded, err = json.Marshal(decoded)
	if err != nil {
		t.Fatal(err)
	}
	return encoded
}

// sameTable fails the test where the table is not as it was.
func sameTable(t testing.TB, what string, before, after snapshot) {
	t.Helper()
	was, is := before.lines(t), after.lines(t)
	if slices.Equal(was, is) {
		return
	}
	for _, line := range was {
		if _, found := slices.BinarySearch(is, line); !found {
			t.Errorf("%s: gone: %s", what, line)
		}
	}
	for _, line := range is {
		if _, found := slices.BinarySearch(was, line); !found {
			t.Errorf("%s: new:  %s", what, line)
		}
	}
}

// usageOf are the usage items of a table.
func usageOf(s snapshot) snapshot {
	usage := maps.Clone(s)
	maps.DeleteFunc(usage, func(_ string, i item) bool { return !strings.HasPrefix(text(i, "SK"), "#USAGE#") })
	return usage
}

// checkUsage compares a table's usage items with what the stream says was
// consumed: each of them, every counter to the last decimal, the events, the
// delivery marks, the expiry, and nothing besides.
func checkUsage(t testing.TB, s snapshot, records []record) {
	t.Helper()
	want, got := tallies(records), usageOf(s)
	for key := range got {
		if _, ok := want[key]; !ok {
			t.Errorf("a usage item that nothing was consumed for: %s", key)
		}
	}
	for key, sum := range want {
		i, ok := got[key]
		if !ok {
			t.Errorf("no usage item %s", key)
			continue
		}
		expected := map[string]string{
			"total_events": strconv.FormatInt(sum.events, 10),
			"ttl":          strconv.FormatInt(sum.ttl, 10),
		}
		for limit, amount := range sum.counters {
			expected[limit] = tokens(amount)
		}
		if numbers := numbersOf(i); !maps.Equal(numbers, expected) {
			t.Errorf("usage item %s:\n got %v\nwant %v", key, numbers, expected)
		}
		for mark, value := range sum.marks {
			if got, _, _ := strings.Cut(text(i, mark), " "); got != value {
				t.Errorf("usage item %s: %s is %q, want %q", key, mark, got, value)
			}
			if runs := "runs#" + strings.TrimPrefix(mark, "mark#"); text(i, runs) == "" || strings.Contains(text(i, runs), ",") {
				t.Errorf("usage item %s: %s is %q, which is not one run", key, runs, text(i, runs))
			}
		}
	}
}

func numbersOf(i item) map[string]string {
	numbers := map[string]string{}
	for name, value := range i {
		if n, ok := value.(*types.AttributeValueMemberN); ok {
			numbers[name] = n.Value
		}
	}
	return numbers
}

// tokens writes millitokens as tokens in the shortest form, as DynamoDB does.
func tokens(milli int64) string {
	return strconv.FormatFloat(float64(milli)/1000, 'f', -1, 64)
}
