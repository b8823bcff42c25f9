package faultproxy

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/shardquota/shardquota/internal/dynoxide"
)

// Client is the service's own client over the proxy. It makes so many attempts
// without waiting between them, and its patience with an answer ends when the
// proxy has decided to stay silent: no clock has a part in these tests.
func (p *Proxy) Client(attempts int) *dynamodb.Client {
	return dynamodb.New(dynamodb.Options{
		BaseEndpoint: &p.URL,
		Region:       dynoxide.Region,
		Credentials:  dynoxide.Credentials(),
		HTTPClient:   &impatient{proxy: p, client: &http.Client{Transport: p.transport}},
		Retryer: retry.NewStandard(func(o *retry.StandardOptions) {
			o.MaxAttempts = attempts
			o.RateLimiter = ratelimit.None
			o.Backoff = retry.BackoffDelayerFunc(func(int, error) (time.Duration, error) { return 0, nil })
		}),
	})
}

// numberHeader tells the proxy which request of which client this is.
const numberHeader = "X-Test-Request"

// numbers are given to requests of all clients.
var numbers atomic.Int64

// impatient is an HTTP client with a timeout that passes as soon as the proxy
// stays silent.
type impatient struct {
	proxy  *Proxy
	client *http.Client
}

func (c *impatient) Do(request *http.Request) (*http.Response, error) {
	number := strconv.FormatInt(numbers.Add(1), 10)
	timeout := NewDeadline(request.Context())
	c.proxy.await(number, timeout.Pass)
	defer c.proxy.await(number, nil)
	timed := request.Clone(timeout)
	timed.Header.Set(numberHeader, number)
	return c.client.Do(timed)
}

func (p *Proxy) await(number string, end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if end == nil {
		delete(p.waiting, number)
		return
	}
	p.waiting[number] = end
}

func (p *Proxy) endPatience(number string) {
	p.mu.Lock()
	end := p.waiting[number]
	p.mu.Unlock()
	if end != nil {
		end()
	}
}

// Deadline is a context whose deadline passes when a test says so.
type Deadline struct {
	context.Context
	done chan struct{}
	once sync.Once
	err  error // set before done is closed
}

// NewDeadline returns one that also ends with its parent.
func NewDeadline(parent context.Context) *Deadline {
	d := &Deadline{Context: parent, done: make(chan struct{})}
	context.AfterFunc(parent, func() { d.end(parent.Err()) })
	return d
}

// Pass lets the deadline pass.
func (d *Deadline) Pass() { d.end(context.DeadlineExceeded) }

func (d *Deadline) end(err error) {
	d.once.Do(func() {
		d.err = err
		close(d.done)
	})
}

// Done implements context.Context.
func (d *Deadline) Done() <-chan struct{} { return d.done }

// Err implements context.Context.
func (d *Deadline) Err() error {
	select {
	case <-d.done:
		return d.err
	default:
		return nil
	}
}
