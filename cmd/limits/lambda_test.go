package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/cfn"

	"github.com/shardquota/shardquota/internal/dynoxide"
	"github.com/shardquota/shardquota/internal/lambdatest"
	"github.com/shardquota/shardquota/table/dynamo"
)

// binary builds the function as it is deployed, for this machine.
func binary(t *testing.T) string {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the function runs on Linux alone")
	}
	path := filepath.Join(t.TempDir(), "bootstrap")
	command := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-tags", "lambda.norpc", "-ldflags", "-s -w", "-o", path, ".")
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	return path
}

// TestBinary has the built function called by the interface of Lambda: it answers
// CloudFormation, and logs lines of JSON that name no entity.
func TestBinary(t *testing.T) {
	name := dynoxide.NewTable(t, dynoxide.Client(t))
	w := worldOn(t, dynamo.New(dynoxide.Client(t), name))
	f := lambdatest.Start(t, binary(t), map[string]string{"AWS_ENDPOINT_URL_DYNAMODB": dynoxide.Start(t)})
	call := func(kind cfn.RequestType, id, text string) cfn.Response {
		event, err := json.Marshal(w.answers.request(kind, id, with(properties(text), "Table", name), nil))
		if err != nil {
			t.Fatal(err)
		}
		if a := f.Invoke(event, time.Minute); a.Failed {
			t.Fatalf("%s\n%s", a.Body, f.Stderr())
		}
		return w.answers.answer(t)
	}
	w.succeeds(call(cfn.RequestCreate, "", declared(t)), name+"/default")
	w.stores("default", declared(t))
	w.fails(call(cfn.RequestUpdate, name+"/default", "entities:\n  sk-live-acme:\n    limit: {}\n"), name+"/default", "limits.yaml:3:5: ")
	w.succeeds(call(cfn.RequestDelete, name+"/default", declared(t)), name+"/default")
	w.stores("default", "")

	logged := string(f.Stderr())
	if strings.Contains(logged, secretMark) || !strings.Contains(logged, `"msg":"limits stored","request":"Create"`) {
		t.Errorf("logged: %s", logged)
	}
	for line := range strings.Lines(logged) {
		if !json.Valid([]byte(line)) {
			t.Errorf("logged: %s", line)
		}
	}
}
