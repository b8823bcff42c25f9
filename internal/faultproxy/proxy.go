// Package faultproxy stands between a program under test and DynamoDB, and
// spoils the requests that a test tells it to: on the wire, where the program
// cannot tell it from the real thing.
package faultproxy

import (
	"bytes"
	"context"
	"encoding/json"
	"hash/crc32"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Proxy passes requests on to an endpoint and keeps a log of them.
type Proxy struct {
	URL string

	endpoint  string
	transport *http.Transport

	mu      sync.Mutex
	judge   Judge
	log     []Passed
	waiting map[string]func() // by a request's number: how its client's patience ends
}

// Judge says what becomes of a request. One request is judged at a time.
type Judge func(Request) Fault

// Passed is a request that the proxy has seen, and what it did to it.
type Passed struct {
	Request
	Fault Fault
}

// Start starts a proxy that spoils nothing yet. It ends with the test.
func Start(t testing.TB, endpoint string) *Proxy {
	t.Helper()
	p := &Proxy{endpoint: endpoint, transport: &http.Transport{MaxIdleConnsPerHost: 16}, waiting: map[string]func(){}}
	p.Spoil(Nothing)
	server := httptest.NewServer(http.HandlerFunc(p.serve))
	t.Cleanup(p.transport.CloseIdleConnections)
	t.Cleanup(server.Close)
	p.URL = server.URL
	return p
}

// Nothing is the judge that lets all requests through.
func Nothing(Request) Fault { return None }

// Spoil sets what happens to requests from now on, and begins a new log.
func (p *Proxy) Spoil(judge Judge) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.judge, p.log = judge, nil
}

// Seen is what the proxy has seen since Spoil, in order.
func (p *Proxy) Seen() []Passed {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.log)
}

// Spoilt counts the requests since Spoil that were not let through whole.
func (p *Proxy) Spoilt() int {
	count := 0
	for _, passed := range p.Seen() {
		if !passed.Fault.Is(None) {
			count++
		}
	}
	return count
}

func (p *Proxy) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	request := parse(r.Header, body)
	p.mu.Lock()
	fault := p.judge(request)
	p.log = append(p.log, Passed{request, fault})
	p.mu.Unlock()

	var landed *answer
	if fault.Lands {
		if landed, err = p.forward(r, fault.changed(body)); err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
	}
	fault.spoil(exchange{p, w, r, request, landed})
}

// answer is what the endpoint said, whole.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// forward carries a request out, whether or not its client still waits.
func (p *Proxy) forward(r *http.Request, body []byte) (*answer, error) {
	onward, err := http.NewRequestWithContext(context.WithoutCancel(r.Context()), r.Method, p.endpoint+r.URL.Path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	onward.Header = r.Header.Clone()
	response, err := p.transport.RoundTrip(onward)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	return &answer{response.StatusCode, response.Header, text}, nil
}

// Request is what a judge sees.
type Request struct {
	Operation string // as in UpdateItem
	Keys      []Key  // of the items that it reads or writes, in its order
	Names     []string
	Body      string
	Header    http.Header
}

// Key is an item's primary key.
type Key struct{ PK, SK string }

// Key is the first item that the request is about.
func (r Request) Key() Key {
	if len(r.Keys) == 0 {
		return Key{}
	}
	return r.Keys[0]
}

// Uses reports whether the request's expressions use an attribute.
func (r Request) Uses(attribute string) bool { return slices.Contains(r.Names, attribute) }

// wireKey and part are a request as JSON has it, as far as it matters here.
type (
	wireKey struct{ PK, SK struct{ S string } }
	part    struct {
		Key, Item                *wireKey
		ExpressionAttributeNames map[string]string
	}
)

func (k wireKey) key() Key { return Key{k.PK.S, k.SK.S} }

func parse(header http.Header, body []byte) Request {
	_, operation, _ := strings.Cut(header.Get("X-Amz-Target"), ".")
	r := Request{Operation: operation, Body: string(body), Header: header}
	var wire struct {
		part
		RequestItems  map[string]json.RawMessage
		TransactItems []struct{ Put, Update, ConditionCheck *part }
	}
	if json.Unmarshal(body, &wire) != nil {
		return r
	}
	r.add(&wire.part)
	for _, item := range wire.TransactItems {
		r.add(item.Put)
		r.add(item.Update)
		r.add(item.ConditionCheck)
	}
	for _, items := range wire.RequestItems {
		var reads struct{ Keys []wireKey }
		if json.Unmarshal(items, &reads) == nil {
			for _, key := range reads.Keys {
				r.Keys = append(r.Keys, key.key())
			}
		}
	}
	return r
}

func (r *Request) add(p *part) {
	if p == nil {
		return
	}
	for _, key := range []*wireKey{p.Key, p.Item} {
		if key != nil {
			r.Keys = append(r.Keys, key.key())
		}
	}
	for _, name := range p.ExpressionAttributeNames {
		r.Names = append(r.Names, name)
	}
}

// checksumHeader holds what the service sends along with a body.
const checksumHeader = "X-Amz-Crc32"

func checksum(body []byte) string { return strconv.FormatUint(uint64(crc32.ChecksumIEEE(body)), 10) }
