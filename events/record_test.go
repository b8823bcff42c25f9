package events

import (
	"errors"
	"strings"
	"testing"
)

func TestDecodeEvent(t *testing.T) {
	got, err := DecodeEvent(testFile(t, "lambda.json"))
	if err != nil {
		t.Fatal(err)
	}
	want := wantRecords(t)
	sameRecords(t, got, want)
	for i, rec := range got {
		if rec.Position.Index != i+1 || rec.Position.File != "" || rec.Position.Line != 1 {
			t.Errorf("record %d: position %+v", i, rec.Position)
		}
	}
	if got[0].Position.Offset != int64(len(`{"Records":[`)) {
		t.Errorf("first record: offset %d", got[0].Position.Offset)
	}
}

func TestDecodeEventRejectsAlone(t *testing.T) {
	good := string(mustEncode(t, wantRecords(t)[0]))
	for _, tt := range []struct{ name, record, reason string }{
		{"number", `5`, "not an object"},
		{"null", `null`, "not an object"},
		{"text", `"user-7"`, "not an object"},
		{"array", `[{}]`, "not an object"},
		{"empty", `{}`, "no eventName"},
		{"event name of a wrong type", `{"eventName":77}`, "eventName is not text"},
		{"unknown event name", strings.Replace(good, "MODIFY", "user-7", 1), "eventName is none of INSERT, MODIFY, REMOVE"},
		{"no change", `{"eventName":"INSERT"}`, "no dynamodb"},
		{"null change", `{"eventName":"INSERT","dynamodb":null}`, "dynamodb is not an object"},
		{"change of a wrong type", `{"eventName":"INSERT","dynamodb":"user-7"}`, "dynamodb is not an object"},
		{"no sequence", `{"eventName":"INSERT","dynamodb":{"ApproximateCreationDateTime":1}}`, "no SequenceNumber"},
		{"sequence of a wrong type", strings.Replace(good, `"000000000000000000001"`, `17`, 1), "SequenceNumber is not text"},
		{"sequence of letters", strings.Replace(good, `"000000000000000000001"`, `"user-7"`, 1), "SequenceNumber is not a decimal number"},
		{"long sequence", strings.Replace(good, `"000000000000000000001"`, `"`+strings.Repeat("7", 41)+`"`, 1), "SequenceNumber has more than 40 digits"},
		{"no time", `{"eventName":"INSERT","dynamodb":{"SequenceNumber":"1"}}`, "no ApproximateCreationDateTime"},
		{"time of a wrong type", strings.Replace(good, `1796032801`, `{"user-7":1}`, 1), "ApproximateCreationDateTime is neither epoch seconds nor an ISO 8601 time with a zone"},
		{"time in ms", strings.Replace(good, `1796032801`, `1796032801000`, 1), "ApproximateCreationDateTime is out of range"},
		{"image of a wrong type", strings.Replace(good, `"NewImage":{`, `"NewImage":"user-7","x":{`, 1), "NewImage is not an object"},
		{"identity of a wrong type", strings.Replace(good, `{"event`, `{"userIdentity":"user-7","event`, 1), "userIdentity is not an object"},
		{"null sequence", strings.Replace(good, `"000000000000000000001"`, `null`, 1), "no SequenceNumber"},
		{"null time", strings.Replace(good, `1796032801`, `null`, 1), "no ApproximateCreationDateTime"},
		{"null event name", strings.Replace(good, `"MODIFY"`, `null`, 1), "no eventName"},
		{"principal of a wrong type", strings.Replace(good, `{"event`, `{"userIdentity":{"principalId":["user-7"]},"event`, 1), "userIdentity.principalId is not text"},
		{"deep", strings.Replace(good, `"NewImage":{`, `"NewImage":{"L":`+strings.Repeat("[", 130)+strings.Repeat("]", 130)+`,`, 1), "nested deeper than 128 levels"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := DecodeEvent([]byte(`{"Records":[` + good + `, ` + tt.record + ` ,` + good + `]}`))
			if err != nil || len(got) != 3 {
				t.Fatalf("%d records, %v", len(got), err)
			}
			if got[0].Err != nil || got[2].Err != nil {
				t.Errorf("neighbours rejected: %v, %v", got[0].Err, got[2].Err)
			}
			var rejected *RecordError
			if !errors.As(got[1].Err, &rejected) || rejected.Reason != tt.reason {
				t.Errorf("got %v, want %s", got[1].Err, tt.reason)
			}
			if got[1].Position.Index != 2 || got[1].Position.Offset != int64(len(`{"Records":[`+good+`, `)) {
				t.Errorf("position %v", got[1].Position)
			}
			if got[1].Sequence != "" && checkSequence(got[1].Sequence) != nil {
				t.Errorf("an unsound sequence was kept")
			}
		})
	}
}

func TestDecodeEventErrors(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{``, "byte 0: holds no records"},
		{`user-7`, "byte 0: invalid character 'u' looking for beginning of value"},
		{`{}`, "byte 2: not a Lambda event: it has no Records"},
		{`5`, "byte 1: not a Lambda event: it has no Records"},
		{`{"key1":"user-7"}`, "byte 17: not a Lambda event: it has no Records"},
		{`{"payload":{"Records":[]}}`, "byte 26: not a Lambda event: it has no Records"},
		{`{"Records":[]}{"Records":[]}`, "byte 28: not a Lambda event: it has no Records"},
		{`{"Records":{"user-7":1}}`, "byte 11: its Records are not an array"},
		{`{"Records":[{"a":1]}`, "record 1, byte 18: invalid character ']' after object key:value pair"},
		{`{"Records":[{}`, "byte 14: cut short: unexpected EOF"},
	} {
		got, err := DecodeEvent([]byte(tt.in))
		if err == nil || !strings.HasSuffix(err.Error(), tt.want) || got != nil {
			t.Errorf("%s: got %v, %v, want %s", tt.in, got, err, tt.want)
		}
	}
}

func TestDecodeEventWithoutRecords(t *testing.T) {
	for _, in := range []string{`{"Records":[]}`, `{"Records":null}`, ` {"a":[{"b":1}],"Records":[] , "c":"d"} `} {
		if got, err := DecodeEvent([]byte(in)); err != nil || len(got) != 0 {
			t.Errorf("%s: got %v, %v", in, got, err)
		}
	}
}

func TestSplitARN(t *testing.T) {
	for _, tt := range []struct{ arn, table, stream string }{
		{"arn:aws:dynamodb:us-east-2:123456789012:table/limits/stream/2026-11-30T09:00:00.123", "limits", "2026-11-30T09:00:00.123"},
		{"arn:aws:dynamodb:us-east-2:123456789012:table/limits", "limits", ""},
		{"arn:aws:dynamodb:ddblocal:000000000000:table/a.b-c_d/stream/1", "a.b-c_d", "1"},
		{"eventsourcearn", "", ""},
		{"", "", ""},
	} {
		table, stream := splitARN(tt.arn)
		if table != tt.table || stream != tt.stream {
			t.Errorf("%s: %q, %q", tt.arn, table, stream)
		}
		if table, stream = splitARN(joinARN(table, stream)); table != tt.table || stream != tt.stream {
			t.Errorf("%s: joined and split: %q, %q", tt.arn, table, stream)
		}
	}
}

func TestSequenceNumbers(t *testing.T) {
	long := strings.Repeat("9", 40)
	for _, tt := range []struct{ in, want, err string }{
		{"0", "s/" + strings.Repeat("0", 40), ""},
		{"800000000003126276362", "s/" + strings.Repeat("0", 19) + "800000000003126276362", ""},
		{long, "s/" + long, ""},
		{long + "9", "", "sequence number has more than 40 digits"},
		{"", "", "sequence number is not a decimal number"},
		{"-1", "", "sequence number is not a decimal number"},
		{"1e3", "", "sequence number is not a decimal number"},
		{"١", "", "sequence number is not a decimal number"},
	} {
		got, err := StreamPosition("s", tt.in)
		if got != tt.want || (err == nil) != (tt.err == "") || err != nil && err.Error() != tt.err {
			t.Errorf("%q: got %q, %v", tt.in, got, err)
		}
	}
}

func TestStreamPositionsCompare(t *testing.T) {
	ascending := []struct{ stream, sequence string }{
		{"", "1"}, {"", "99"}, {"", "100"},
		{"2025-01-01T00:00:00.000", "7"},
		{"2026-11-30T09:00:00.123", "0"}, {"2026-11-30T09:00:00.123", "9"}, {"2026-11-30T09:00:00.123", "10"},
		{"2026-11-30T09:00:00.124", "1"},
	}
	last := ""
	for _, x := range ascending {
		position, err := StreamPosition(x.stream, x.sequence)
		if err != nil || position <= last {
			t.Errorf("%v: %q does not come after %q (%v)", x, position, last, err)
		}
		last = position
	}
	if position, err := StreamPosition("s", "12"); err != nil || position != "s/"+strings.Repeat("0", 38)+"12" {
		t.Errorf("got %q, %v", position, err)
	}
	if position, err := StreamPosition("s", "x"); err == nil || position != "" {
		t.Errorf("got %q, %v", position, err)
	}
}

func TestEncodeRecord(t *testing.T) {
	for _, want := range wantRecords(t) {
		got, err := DecodeEvent([]byte(`{"Records":[` + string(mustEncode(t, want)) + `]}`))
		if err != nil {
			t.Fatal(err)
		}
		sameRecords(t, got, []Record{want})
	}
	if _, err := EncodeRecord(Record{Err: reject("no dynamodb")}); err == nil {
		t.Error("a rejected record was written")
	}
}

func TestPositionString(t *testing.T) {
	for _, tt := range []struct {
		at   Position
		want string
	}{
		{Position{File: "a.jsonl", Line: 12, Offset: 3456}, "a.jsonl:12, byte 3456"},
		{Position{File: "a.json", Line: 1, Offset: 3456, Index: 7}, "a.json:1, record 7, byte 3456"},
		{Position{Line: 1, Offset: 3456, Index: 7}, "record 7, byte 3456"},
		{Position{}, "byte 0"},
	} {
		if got := tt.at.String(); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

func TestStreamLabel(t *testing.T) {
	const label = "2026-11-30T10:00:00.000"
	for arn, want := range map[string]string{
		"arn:aws:dynamodb:eu-west-1:111122223333:table/limits/stream/" + label: label,
		"arn:aws:dynamodb:eu-west-1:111122223333:table/limits":                 "",
		"arn:aws:dynamodb:eu-west-1:111122223333:table/limits/stream/":         "",
		"arn:aws:dynamodb:eu-west-1:111122223333:table/limits/stream/a b":      "",
		"/stream/" + label: "",
		"":                 "",
	} {
		if got, err := StreamLabel(arn); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", arn, got, err)
		}
	}
}
