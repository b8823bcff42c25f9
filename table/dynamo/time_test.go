package dynamo_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/dynamo"
)

// Every answer carries the service's time, that of a refusal too.
func TestAnswersCarryTheTime(t *testing.T) {
	served := time.Date(2031, 2, 3, 4, 5, 6, 0, time.UTC)
	key := table.ItemKey{PK: "n5/BUCKET#e#r#0", SK: table.StateSK}
	write := &table.Write{Operation: "w", Key: key, Add: []table.Addition{{Name: "n", Value: table.Int(1)}}}
	var answer int64
	for name, c := range map[string]struct {
		status int
		body   string
		do     func(table.DB) error
	}{
		"an update": {http.StatusOK, `{}`, func(db table.DB) error {
			result, err := db.Do(t.Context(), write)
			answer = result.Time
			return err
		}},
		"a refusal": {http.StatusBadRequest, service("ConditionalCheckFailedException", "no"), func(db table.DB) error {
			result, err := db.Do(t.Context(), write)
			answer = result.Time
			return err
		}},
		"a transaction": {http.StatusOK, `{}`, func(db table.DB) error {
			result, err := db.Transact(t.Context(), &table.Transaction{Writes: []*table.Write{write}})
			answer = result.Time
			return err
		}},
		"a read": {http.StatusOK, `{}`, func(db table.DB) error {
			result, err := db.Load(t.Context(), &table.Lookup{Keys: []table.ItemKey{key}})
			answer = result.Time
			return err
		}},
		"a batch": {http.StatusOK, `{}`, func(db table.DB) error {
			result, err := db.Load(t.Context(), &table.Lookup{Keys: []table.ItemKey{key}, Batch: true})
			answer = result.Time
			return err
		}},
		"a query": {http.StatusOK, `{}`, func(db table.DB) error {
			result, err := db.Query(t.Context(), &table.Query{Index: "GSI3", PK: "n5/ENTITY#e"})
			answer = result.Time
			return err
		}},
	} {
		client := over("http://dynamodb.test", 1, roundTrip(func(request *http.Request) (*http.Response, error) {
			return &http.Response{
				StatusCode: c.status, Request: request, Body: io.NopCloser(strings.NewReader(c.body)),
				Header: http.Header{"Content-Type": {"application/x-amz-json-1.0"}, "Date": {served.Format(http.TimeFormat)}},
			}, nil
		}))
		if answer = 0; c.do(dynamo.New(client, "t")) != nil || answer != served.UnixMilli() {
			t.Errorf("%s: answered at %d, not %d", name, answer, served.UnixMilli())
		}
	}
}
