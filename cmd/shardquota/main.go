// Command shardquota is the operator's tool.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/shardquota/shardquota/table/dynamo"
)

// Exit codes.
const (
	exitFine    = 0
	exitUnsound = 1 // a record was rejected or lost, or a ledger is not conserved
	exitUsage   = 2 // bad usage, or input or a table that cannot be read or written
)

// errUnsound ends a command that found something wrong.
var errUnsound = errors.New("records were rejected or a ledger is not conserved")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// located adds the table and the endpoint of a command's flags to the failure of a
// request, whose text has neither.
func located(cmd *cobra.Command, err error) error {
	var request *dynamo.Error
	if !errors.As(err, &request) {
		return err
	}
	flag := func(name string) string {
		if f := cmd.Flags().Lookup(name); f != nil {
			return f.Value.String()
		}
		return ""
	}
	name := flag("table")
	if name == "" {
		return err
	}
	if endpoint := flag("endpoint-url"); endpoint != "" {
		name += " at " + endpoint
	}
	if request.Code == "ResourceNotFoundException" {
		return fmt.Errorf("table %s: %w (are its name, region and account right?)", name, err)
	}
	return fmt.Errorf("table %s: %w", name, err)
}

// run is the program, without the process: it returns the exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := &cobra.Command{
		Use:           "shardquota",
		Short:         "Operate sharded rate limits and quotas on DynamoDB",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(replayCommand())
	root.AddCommand(inspectCommand())
	root.AddCommand(recordCommand(), runCommand(), demoCommand(), simulateCommand())
	root.AddCommand(limitsCommand())
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	var exit *exit
	cmd, err := root.ExecuteContextC(ctx)
	switch err = located(cmd, err); {
	case err == nil:
		return exitFine
	case errors.As(err, &exit):
		if exit.cause != nil {
			fmt.Fprintf(stderr, "shardquota: %v\n", err)
		}
		return exit.code
	case errors.Is(err, errUnsound), errors.Is(err, errLost):
		fmt.Fprintf(stderr, "shardquota: %v\n", err)
		return exitUnsound
	default:
		fmt.Fprintf(stderr, "shardquota: %v\n", err)
		return exitUsage
	}
}
