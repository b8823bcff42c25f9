package main_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
)

// fault is what a proxy does to a request.
type fault int

const (
	none      fault = iota
	throttle        // the table's capacity is used up
	serverErr       // the service has failed
	invalid         // the service refuses the request, and quotes all of it
	swallow         // the request is carried out, and its answer never arrives
	hang            // the request never arrives
)

// proxy stands between the function and the table and spoils what it is told
// to.
type proxy struct {
	url    string
	judge  atomic.Pointer[func(request string) fault]
	spoilt atomic.Int64
}

// startProxy starts a proxy that spoils nothing yet.
func startProxy(t testing.TB, endpoint string) *proxy {
	t.Helper()
	target, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{}
	p.spoil(func(string) fault { return none })
	transport := &http.Transport{}
	forward := httputil.NewSingleHostReverseProxy(target)
	forward.Transport = transport
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		_, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
		wrong := (*p.judge.Load())(operation + " " + string(body))
		if wrong != none {
			p.spoilt.Add(1)
		}
		switch wrong {
		case none:
			forward.ServeHTTP(w, r)
		case throttle:
			refuse(w, http.StatusBadRequest, "ProvisionedThroughputExceededException", "The level of configured provisioned throughput was exceeded.")
		case serverErr:
			refuse(w, http.StatusInternalServerError, "InternalServerError", "Internal server error")
		case invalid:
			refuse(w, http.StatusBadRequest, "ValidationException", "The request is invalid: "+string(body))
		case swallow:
			forward.ServeHTTP(httptest.NewRecorder(), r)
			<-r.Context().Done()
		case hang:
			<-r.Context().Done()
		}
	}))
	t.Cleanup(transport.CloseIdleConnections)
	t.Cleanup(server.Close)
	p.url = server.URL
	return p
}

// spoil sets what happens to a request from now on: judge sees its operation
// and its body.
func (p *proxy) spoil(judge func(request string) fault) { p.judge.Store(&judge) }

func refuse(w http.ResponseWriter, status int, code, message string) {
	body, err := json.Marshal(map[string]string{
		"__type": "com.amazonaws.dynamodb.v20120810#" + code, "message": message,
	})
	if err != nil {
		panic(fmt.Sprintf("no JSON: %v", err))
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	w.Header().Set("X-Amz-Crc32", strconv.FormatUint(uint64(crc32.ChecksumIEEE(body)), 10))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
