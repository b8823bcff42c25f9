package faultproxy

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
)

// Fault is something that goes wrong with one request.
type Fault struct {
	Name    string
	Lands   bool // the request is carried out
	Silent  bool // no answer comes: the client's patience ends it
	Retried bool // the service's own client tries the request again by itself

	only   string // the operation that it can befall; empty for all
	change func(body []byte) []byte
	spoil  func(exchange)
}

// Is reports whether it is the other fault.
func (f Fault) Is(other Fault) bool { return f.Name == other.Name }

// String is the fault's name.
func (f Fault) String() string { return f.Name }

// Befalls reports whether the fault can befall an operation.
func (f Fault) Befalls(operation string) bool {
	return f.only == operation || f.only == "" || f.only == "writes" && (operation == "UpdateItem" || operation == "PutItem")
}

// Meanwhile is the fault with something that happens when it has befallen a
// request, and the request has been carried out if it is.
func (f Fault) Meanwhile(happens func()) Fault {
	spoil := f.spoil
	f.spoil = func(x exchange) {
		happens()
		spoil(x)
	}
	return f
}

func (f Fault) changed(body []byte) []byte {
	if f.change == nil {
		return body
	}
	return f.change(body)
}

// exchange is one request under way. landed is nil where it is not carried out.
type exchange struct {
	*Proxy
	w       http.ResponseWriter
	r       *http.Request
	request Request
	landed  *answer
}

// None is no fault.
var None = Fault{Name: "none", Lands: true, spoil: func(x exchange) { x.send(x.landed.status, x.landed.header, x.landed.body) }}

// The service is busy, has failed, or says so of a transaction.
var (
	Throughput   = refusal("throughput exceeded", 400, "ProvisionedThroughputExceededException").retried()
	Throttled    = refusal("throttled", 400, "ThrottlingException").retried()
	RequestLimit = refusal("request limit", 400, "RequestLimitExceeded").retried()
	ServerError  = refusal("500", 500, "InternalServerError").retried()
	Unavailable  = refusal("503", 503, "ServiceUnavailableException").retried()
	Conflict     = refusal("conflict with a transaction", 400, "TransactionConflictException").on("writes")
	InProgress   = refusal("transaction in progress", 400, "TransactionInProgressException").retried().on("TransactWriteItems")

	CancelledConflict   = cancellation("cancelled by a conflict", "TransactionConflict")
	CancelledThrottling = cancellation("cancelled by throttling", "ThrottlingError")
	CancelledThroughput = cancellation("cancelled by throughput", "ProvisionedThroughputExceeded")
)

// Invalid is a refusal that quotes all of the request, and no trouble that
// passes.
var Invalid = Fault{Name: "invalid", spoil: func(x exchange) {
	x.refuse(http.StatusBadRequest, "ValidationException", "The request is invalid: "+x.request.Body, nil)
}}

// The connection breaks, or what comes over it is not what was sent.
var (
	Reset     = Fault{Name: "reset before", Retried: true, spoil: func(x exchange) { x.reset("") }}
	Lost      = Fault{Name: "answer lost", Lands: true, Retried: true, spoil: func(x exchange) { x.close("") }}
	Torn      = Fault{Name: "reset in mid-answer", Lands: true, Retried: true, spoil: func(x exchange) { x.reset(x.half()) }}
	Cut       = Fault{Name: "answer cut short", Lands: true, Retried: true, spoil: func(x exchange) { x.close(x.half()) }}
	Truncated = Fault{Name: "truncated body", Lands: true, Retried: true, spoil: func(x exchange) {
		x.send(http.StatusOK, x.checked(), x.landed.body[:len(x.landed.body)/2])
	}}
	Garbled = Fault{Name: "malformed body", Lands: true, Retried: true, spoil: func(x exchange) {
		x.send(http.StatusOK, x.checked(), []byte("<html>not what you asked for</html>"))
	}}
	Foreign = Fault{Name: "another's answer, nothing done", spoil: func(x exchange) {
		x.send(http.StatusOK, http.Header{checksumHeader: nil, "Content-Type": {"text/html"}}, []byte("<html>welcome</html>"))
	}}
	Empty  = Fault{Name: "empty body", Lands: true, Retried: true, spoil: func(x exchange) { x.send(http.StatusOK, x.checked(), nil) }}
	Hollow = Fault{Name: "empty body, nothing done", Retried: true, spoil: func(x exchange) {
		x.send(http.StatusOK, http.Header{checksumHeader: nil}, nil)
	}}
	Gateway = Fault{Name: "502 of a gateway", Retried: true, spoil: func(x exchange) {
		x.send(http.StatusBadGateway, http.Header{"Content-Type": {"text/html"}}, []byte("<html>bad gateway</html>"))
	}}
)

// Nothing comes within the client's patience, whether or not the request was
// carried out.
var (
	Hang    = Fault{Name: "no answer", Silent: true, Retried: true, spoil: exchange.wait}
	TooLate = Fault{Name: "answer too late", Lands: true, Silent: true, Retried: true, spoil: exchange.wait}
)

// The service answers a batch read in part, or not at all.
var (
	Unprocessed = Fault{Name: "nothing processed", only: "BatchGetItem", spoil: func(x exchange) {
		x.leave(`{"Responses":{},"ConsumedCapacity":[]}`, x.keys(0))
	}}
	Partly = Fault{Name: "processed in part", Lands: true, only: "BatchGetItem", change: firstHalf, spoil: func(x exchange) {
		x.leave(string(x.landed.body), x.keys(half(len(x.request.Keys))))
	}}
)

// Faults are all that may pass: the request is good, and so may be its next try.
var Faults = []Fault{
	Throughput, Throttled, RequestLimit, ServerError, Unavailable, Gateway,
	Conflict, InProgress, CancelledConflict, CancelledThrottling, CancelledThroughput,
	Reset, Lost, Torn, Cut, Truncated, Garbled, Foreign, Empty, Hollow, Hang, TooLate, Unprocessed, Partly,
}

// Befalling are the faults that can befall an operation.
func Befalling(operation string) []Fault {
	return slices.DeleteFunc(slices.Clone(Faults), func(f Fault) bool { return !f.Befalls(operation) })
}

func refusal(name string, status int, code string) Fault {
	return Fault{Name: name, spoil: func(x exchange) { x.refuse(status, code, "try again", nil) }}
}

func (f Fault) retried() Fault {
	f.Retried = true
	return f
}

func (f Fault) on(operation string) Fault {
	f.only = operation
	return f
}

// cancellation cancels a transaction for its last item's sake.
func cancellation(name, code string) Fault {
	return Fault{Name: name, only: "TransactWriteItems", spoil: func(x exchange) {
		reasons := make([]map[string]string, len(x.request.Keys))
		for i := range reasons {
			reasons[i] = map[string]string{"Code": "None"}
		}
		reasons[len(reasons)-1] = map[string]string{"Code": code, "Message": "try again"}
		x.refuse(http.StatusBadRequest, "TransactionCanceledException", "Transaction cancelled", map[string]any{"CancellationReasons": reasons})
	}}
}

func (x exchange) refuse(status int, code, message string, more map[string]any) {
	text := map[string]any{"__type": "com.amazonaws.dynamodb.v20120810#" + code, "message": message, "Message": message}
	maps.Copy(text, more)
	x.send(status, http.Header{}, encode(text))
}

// send sends an answer, with its checksum unless the header has one, or none.
func (x exchange) send(status int, header http.Header, body []byte) {
	maps.Copy(x.w.Header(), header)
	if x.w.Header().Get("Content-Type") == "" {
		x.w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	}
	if _, given := x.w.Header()[checksumHeader]; !given {
		x.w.Header().Set(checksumHeader, checksum(body))
	}
	x.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	x.w.WriteHeader(status)
	_, _ = x.w.Write(body)
}

// checked is the header with the checksum of the whole answer.
func (x exchange) checked() http.Header {
	return http.Header{checksumHeader: {checksum(x.landed.body)}}
}

// half is the first half of the answer, as it goes over the wire.
func (x exchange) half() string {
	body := x.landed.body
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/x-amz-json-1.0\r\nContent-Length: %d\r\nX-Amz-Crc32: %s\r\n\r\n%s",
		len(body), checksum(body), body[:len(body)/2])
}

// reset breaks the connection after some bytes, close ends it in good order.
func (x exchange) reset(after string) {
	x.hangUp(after, func(connection *net.TCPConn) { _ = connection.SetLinger(0) })
}
func (x exchange) close(after string) { x.hangUp(after, func(*net.TCPConn) {}) }

func (x exchange) hangUp(after string, prepare func(*net.TCPConn)) {
	connection, _, err := http.NewResponseController(x.w).Hijack()
	if err != nil {
		panic(err)
	}
	_, _ = connection.Write([]byte(after))
	prepare(connection.(*net.TCPConn))
	_ = connection.Close()
}

// wait stays silent until the client gives up. One of Client's gives up at once.
func (x exchange) wait() {
	x.endPatience(x.request.Header.Get(numberHeader))
	<-x.r.Context().Done()
}

// half is how many of a batch read's keys are read in part.
func half(keys int) int { return (keys + 1) / 2 }

func firstHalf(body []byte) []byte {
	return withKeys(body, func(keys []any) []any { return keys[:half(len(keys))] })
}

// keys is what a batch read asked for, from a key on.
func (x exchange) keys(from int) json.RawMessage {
	rest := withKeys([]byte(x.request.Body), func(keys []any) []any { return keys[from:] })
	return object(rest)["RequestItems"]
}

// leave answers a batch read with some of its keys unprocessed.
func (x exchange) leave(body string, keys json.RawMessage) {
	answer := object([]byte(body))
	answer["UnprocessedKeys"] = keys
	x.send(http.StatusOK, http.Header{}, encode(answer))
}

// withKeys changes the keys of a batch read.
func withKeys(body []byte, change func([]any) []any) []byte {
	var request map[string]any
	if err := json.Unmarshal(body, &request); err != nil {
		panic(err)
	}
	for _, items := range request["RequestItems"].(map[string]any) {
		of := items.(map[string]any)
		of["Keys"] = change(of["Keys"].([]any))
	}
	return encode(request)
}

func object(body []byte) map[string]json.RawMessage {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil {
		panic(err)
	}
	return members
}

func encode(value any) []byte {
	body, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("no JSON: %v", err))
	}
	return body
}
