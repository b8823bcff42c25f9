package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/internal/dynoxide"
	"github.com/shardquota/shardquota/internal/fixture"
	"github.com/shardquota/shardquota/table"
)

// secretID begins every entity id of these tests, so that one look at what was
// written tells whether an id got out.
const secretID = "sk-live-"

// patient is how long these tests wait for what must come.
const patient = time.Minute

// await polls until something holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline, poll := time.After(patient), time.NewTicker(10*time.Millisecond)
	defer poll.Stop()
	for !holds() {
		select {
		case <-deadline:
			t.Fatalf("in vain waited until %s", what)
		case <-poll.C:
		}
	}
}

// clients use buckets of a table and keep account of it.
type clients struct {
	*testing.T
	client *dynamodb.Client
	table  string

	mu    sync.Mutex
	spent map[string]int64 // tokens, by entity
	wrote int              // records on the stream
}

func newClients(t *testing.T) *clients {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", "any")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "any")
	t.Setenv("AWS_REGION", dynoxide.Region)
	client := dynoxide.Client(t)
	return &clients{T: t, client: client, table: dynoxide.NewTable(t, client), spent: map[string]int64{}}
}

func groupOf(nth int) table.Group {
	return table.Group{Namespace: "ns1", Entity: secretID + strconv.Itoa(nth), Resource: "gpt-4"}
}

// use makes n writes to the bucket of an entity, each of 1 token, and the bucket
// first if it is not there.
func (c *clients) use(nth, n int) {
	key := groupOf(nth).At(0)
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.spent[key.Entity]; !ok {
		item := fixture.Bucket(key, fixture.Drips("rpm", 1_000_000_000, 1_000_000_000), fixture.Refilled(time.Now().UnixMilli()))
		if _, err := c.client.PutItem(c.Context(), &dynamodb.PutItemInput{TableName: &c.table, Item: item}); err != nil {
			c.Error(err)
			return
		}
		c.spent[key.Entity] = 0
		c.wrote++
	}
	for range n {
		_, err := c.client.UpdateItem(c.Context(), &dynamodb.UpdateItemInput{
			TableName: &c.table, Key: table.Item{table.AttrPK: table.S(key.PK()), table.AttrSK: table.S(table.StateSK)},
			UpdateExpression:          new("ADD b_rpm_tk :less, b_rpm_tc :more"),
			ExpressionAttributeValues: table.Item{":less": table.N("-1000"), ":more": table.N("1000")},
		})
		if err != nil {
			c.Error(err)
			return
		}
		c.spent[key.Entity]++
		c.wrote++
	}
}

// usage is what the table's usage items have for an entity in all windows of a
// kind, tokens.
func (c *clients) usage(nth int, window string) int64 {
	c.Helper()
	sum := int64(0)
	found, err := c.client.Query(c.Context(), &dynamodb.QueryInput{
		TableName: &c.table, KeyConditionExpression: new("PK = :pk"), ConsistentRead: new(true),
		ExpressionAttributeValues: table.Item{":pk": table.S("ns1/ENTITY#" + groupOf(nth).Entity)},
	})
	if err != nil {
		c.Fatal(err)
	}
	for _, item := range found.Items {
		name, _ := item[table.AttrWindow].(*types.AttributeValueMemberS)
		amount, _ := item["rpm"].(*types.AttributeValueMemberN)
		if name != nil && name.Value == window && amount != nil {
			n, err := strconv.ParseInt(amount.Value, 10, 64)
			if err != nil {
				c.Fatal(err)
			}
			sum += n
		}
	}
	return sum
}

// account is what clients spent of an entity.
func (c *clients) account(nth int) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.spent[groupOf(nth).Entity]
}

// tool is the command as a process of its own.
type tool struct {
	*exec.Cmd
	t      *testing.T
	stderr *lockedBuffer
	ended  chan error
}

func startTool(t *testing.T, args ...string) *tool {
	t.Helper()
	p := &tool{exec.Command("shardquota", append(args, "--endpoint-url", dynoxide.Start(t))...), t, &lockedBuffer{}, make(chan error, 1)}
	p.Stderr = p.stderr
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.ended <- p.Wait() }()
	t.Cleanup(func() { _ = p.Process.Kill() })
	return p
}

// kill ends the process as a crash of the machine would.
func (p *tool) kill() {
	p.t.Helper()
	if err := p.Process.Kill(); err != nil {
		p.t.Fatal(err)
	}
	<-p.ended
	p.checkOutput()
}

// interrupt ends it as Ctrl-C does, which is no failure.
func (p *tool) interrupt() string {
	p.t.Helper()
	if err := p.Process.Signal(syscall.SIGINT); err != nil {
		p.t.Fatal(err)
	}
	select {
	case err := <-p.ended:
		if err != nil {
			p.t.Errorf("interrupted: %v: %s", err, p.stderr.String())
		}
	case <-time.After(patient):
		p.t.Fatal("an interrupt does not end it")
	}
	p.checkOutput()
	return p.stderr.String()
}

func (p *tool) checkOutput() {
	p.t.Helper()
	if said := p.stderr.String(); strings.Contains(said, secretID) || strings.Contains(said, "DATA RACE") {
		p.t.Errorf("an id got out, or a race was found: %s", said)
	}
}

// lockedBuffer is written to by one goroutine and read by another.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// fastClock is a clock that runs so many times as fast as the wall's.
func fastClock(times time.Duration) clock {
	began := time.Now()
	return clock{
		now:   func() time.Time { return began.Add(times * time.Since(began)) },
		after: func(d time.Duration) <-chan time.Time { return time.After(d / times) },
	}
}

func (c *clients) service() connection {
	c.Helper()
	service, err := connect(c.Context(), dynoxide.Start(c))
	if err != nil {
		c.Fatal(err)
	}
	return service
}

// record runs the record command in this process, at forty times its speed.
func (c *clients) record(f recordFlags) (string, error) {
	c.Helper()
	f.table = c.table
	if f.from == "" {
		f.from = fromBeginning
	}
	if err := f.check(); err != nil {
		c.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	err := f.run(c.Context(), f.recorder(c.service(), fastClock(40), &stdout, &stderr), &stderr)
	if strings.Contains(stderr.String(), secretID) {
		c.Errorf("an id got out: %s", stderr.String())
	}
	return stdout.String() + stderr.String(), err
}

func readAll(t *testing.T, name string) []byte {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	text, err := plain(file)
	if err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return all
}

// command runs the tool in this process and returns its exit code and what it
// said.
func command(t *testing.T, args ...string) (int, string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := run(context.Background(), args, strings.NewReader(""), &stdout, &stderr)
	return code, fmt.Sprint(stdout.String(), stderr.String())
}
