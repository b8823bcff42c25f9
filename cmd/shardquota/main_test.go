package main

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

var update = flag.Bool("update", false, "write the golden reports anew; review every figure that changes")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"shardquota": main,
	})
}

// Each script is a story of the command line, told at its top.
func TestScripts(t *testing.T) {
	recordings, err := filepath.Abs("../../testdata")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Setenv("RECORDINGS", recordings)
			return nil
		},
	})
}

// golden are the reports beside the recordings: delivered in batches of 100 as
// Lambda might, with the ids, which are made up. Each was reviewed by hand;
// what the review was about is said with it.
var golden = []struct {
	recording string
	reviewed  []string // texts that the report must hold, whatever else changes
}{
	// 890 requests on acme's gpt-4, 28 of them before 11:00:00, which is where the
	// hour turns; tokens in sum 1,755,238. Stored write meters fall by one a write
	// and nothing refills them, and yet nothing doubles.
	{"steady", []string{`"rpm": "862"`, `"rpm": "28"`, `"tpm": "1755238"`, `"doublings": []`, `"declined": []`}},
	// 40,000 calls; 4,887 consumed and 35,113 held at 8 shards. Each new shard gets
	// exactly its share off the parent that covers its slot: 20,000 at 2, 10,000 at
	// 4, 5,000 at 8, since no donor had less.
	{"quota-walk", []string{`"calls": "4887"`, `"held": 35113000`, `"millitokens": 20000000`, `"conserved": true`}},
	// Three windows of 4,000; in the last one 365 were consumed, so 3,635 are held.
	// The aggregator opens none.
	{"session", []string{`"sess": "1362"`, `"held": 3635000`, `"conserved": true`}},
	// 56,000 tpm although the limit's counters are removed in mid-stream, which is
	// no refund; rpm 661 through every change of its capacity. In the end 11,281
	// calls are held of 9,000: the operator lowered the quota after a doubling,
	// and each shard is trimmed to its own grant only (docs/adr/0001).
	{"limit-change", []string{`"tpm": "56000"`, `"rpm": "661"`, `"calls": "1316"`}},
	// Net of refunds, to the millitoken: 178,798.125 tpm.
	{"refunds", []string{`"tpm": "178798.125"`, `"calls": "207"`, `"rpm": "243"`}},
	// A child's use counts on the child and on its parent: acme 615 rpm net, of
	// which acme-web 379 and acme-batch 372 less what was used after the move.
	{"cascade", []string{`"rpm": "615"`, `"rpm": "379"`, `"rpm": "372"`, `"rpm": "91"`}},
	// Two reset edges: at the end 6,000 less what was consumed since the last one,
	// 133 of umbrella's and 54 of hooli's.
	{"schedule", []string{`"held": 5867000`, `"held": 5946000`}},
	// An operator's top-up lifts what may be held above the capacity, and its
	// resets begin a period anew; 481 rpm are consumed all the same.
	{"operator", []string{`"rpm": "481"`, `"held": 5196000`}},
	// A bucket that is deleted and used again starts to count from 0, and both
	// lives are counted; entities of two namespaces with one id stay apart.
	{"mixed", []string{`"calls-day": "653"`, `"tokens.in"`}},
}

func TestGoldenReports(t *testing.T) {
	for _, test := range golden {
		t.Run(test.recording, func(t *testing.T) {
			var got, stderr bytes.Buffer
			t.Chdir("../../testdata")
			args := []string{"replay", "--format", "json", "--ids", "--batch-size", "100", test.recording + ".jsonl.gz"}
			if code := run(context.Background(), args, strings.NewReader(""), &got, &stderr); code != exitFine {
				t.Fatalf("exit %d: %s", code, stderr.String())
			}
			path := filepath.Join("golden", test.recording+".json")
			if *update {
				if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if got.String() != string(want) {
				t.Errorf("the report differs from %s; got\n%s", path, got.String())
			}
			for _, text := range test.reviewed {
				if !strings.Contains(string(want), text) {
					t.Errorf("%s does not hold the reviewed figure %s", path, text)
				}
			}
		})
	}
}

// The exit code alone tells a script what happened.
func TestExitCodes(t *testing.T) {
	rejected := `{"eventName":"MODIFY","dynamodb":{"SequenceNumber":"1"}}`
	tests := []struct {
		name  string
		args  []string
		stdin string
		want  int
	}{
		{"a sound recording", []string{"replay", "../../testdata/session.jsonl.gz"}, "", exitFine},
		{"a rejected record", []string{"replay", "-"}, rejected, exitUnsound},
		{"a cut recording", []string{"replay", "-"}, rejected[:20], exitUsage},
		{"no recording", []string{"replay", "-"}, "", exitUsage},
		{"a missing file", []string{"replay", "testdata/nowhere"}, "", exitUsage},
		{"an unknown flag", []string{"replay", "--loud", "-"}, "", exitUsage},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			code := run(context.Background(), test.args, strings.NewReader(test.stdin), &stdout, &stderr)
			if code != test.want {
				t.Errorf("exit %d, want %d; stderr %s", code, test.want, stderr.String())
			}
			if code == exitUsage && stdout.Len() > 0 {
				t.Errorf("a failed replay printed a report: %s", stdout.String())
			}
		})
	}
}
