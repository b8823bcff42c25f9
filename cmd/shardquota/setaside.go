package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"

	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/events/delivery"
)

// notice is a batch that was given up, as Lambda stores it in an on-failure bucket,
// but without the fields about the function.
type notice struct {
	RequestContext struct {
		Condition string `json:"condition"`
		Count     int    `json:"approximateInvokeCount"`
	} `json:"requestContext"`
	Version   string    `json:"version"`
	Timestamp string    `json:"timestamp"`
	Batch     batchInfo `json:"DDBStreamBatchInfo"`
	Payload   string    `json:"payload"` // the event
}

type batchInfo struct {
	Shard  string `json:"shardId"`
	Start  string `json:"startSequenceNumber"`
	End    string `json:"endSequenceNumber"`
	First  string `json:"approximateArrivalOfFirstRecord"`
	Last   string `json:"approximateArrivalOfLastRecord"`
	Size   int    `json:"batchSize"`
	Stream string `json:"streamArn"`
}

// setAside writes a batch of a stream to a file in a directory, and returns the
// file's name. The same batch always has the same file.
func setAside(dir, arn string, batch *delivery.Batch, now time.Time) (string, error) {
	event := struct{ Records []json.RawMessage }{}
	for _, record := range batch.Records {
		line, err := events.EncodeRecord(record)
		if err != nil {
			return "", err
		}
		event.Records = append(event.Records, line)
	}
	payload, err := json.Marshal(event)
	if err != nil {
		return "", err
	}
	first, last := batch.Records[0], batch.Records[len(batch.Records)-1]
	n := notice{Version: "1.0", Timestamp: wireTime(now.UnixMilli()), Payload: string(payload)}
	n.RequestContext.Condition, n.RequestContext.Count = string(batch.GivenUp), batch.Attempt-1
	n.Batch = batchInfo{
		Shard: batch.Shard, Start: first.Sequence, End: last.Sequence, First: wireTime(first.Time), Last: wireTime(last.Time),
		Size: len(batch.Records), Stream: arn,
	}
	text, err := json.Marshal(n)
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, fmt.Sprintf("%s-%s-%s.json", batch.Shard, first.Sequence, last.Sequence))
	return name, replaceFile(name, text)
}

func wireTime(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }
