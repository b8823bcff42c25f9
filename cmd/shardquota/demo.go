package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/shardquota/shardquota/cmd/shardquota/demo"
	"github.com/shardquota/shardquota/cmd/shardquota/history"
	"github.com/shardquota/shardquota/cmd/shardquota/page"
	"github.com/shardquota/shardquota/cmd/shardquota/survey"
)

func demoCommand() *cobra.Command {
	config := demo.Config{}
	html := ""
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Watch a hot customer use up a quota, in memory",
		Long: `Watch a hot customer use up a quota, in memory.

Several clients take tokens for one customer, who asks more and more often. The
table and its stream are in this process; the clients and the aggregator are
those that run on DynamoDB. As shard 0 runs hot the shards double, new ones are
made ahead of use, and in the end exactly what was sold has been admitted.

Exit status: 0; 1 when the ledger does not close; 2 on bad usage.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkDemo(config); err != nil {
				return err
			}
			return runDemo(cmd.Context(), config, html, cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.Int64Var(&config.Quota, "quota", 40_000, "`tokens` that are sold")
	flags.IntVar(&config.Clients, "clients", 8, "programs that take them")
	flags.Float64Var(&config.Rate, "rate", 5_000, "`uses` a second that the customer works up to")
	flags.DurationVar(&config.Longest, "longest", time.Minute, "ends after this `time` though tokens are left")
	flags.StringVar(&html, "html", "", "draw what happened as a page in this `file`")
	return cmd
}

func checkDemo(config demo.Config) error {
	switch {
	case config.Quota < 1 || config.Quota > 100_000_000:
		return fmt.Errorf("--quota: %d is not within 1 and 100000000", config.Quota)
	case config.Clients < 1 || config.Clients > 1000:
		return fmt.Errorf("--clients: %d is not within 1 and 1000", config.Clients)
	case !(config.Rate >= 1 && config.Rate <= 1_000_000):
		return fmt.Errorf("--rate: %g is not within 1 and 1000000", config.Rate)
	case config.Longest < time.Second:
		return fmt.Errorf("--longest: %v is less than a second", config.Longest)
	}
	return nil
}

func runDemo(ctx context.Context, config demo.Config, html string, out io.Writer) error {
	past := &history.Builder{Step: 100}
	config.Observe = past.Observe
	d, err := demo.New(ctx, config)
	if err != nil {
		return err
	}
	columns, rows := size(out)
	screen := demo.NewScreen(out, columns, rows, config)
	var last demo.Frame
	err = d.Run(ctx, func(f demo.Frame) error {
		last = f
		return screen.Show(f)
	})
	if errors.Is(err, context.Canceled) {
		return nil // Ctrl-C: the ledger of an unfinished demo need not close
	}
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	if html != "" {
		if err := writePage(html, demoPage(config, last, past)); err != nil {
			return err
		}
	}
	if err := last.Unsound(); err != nil {
		return fmt.Errorf("%w: %w", errUnsound, err)
	}
	return nil
}

// size returns the size of a terminal, 0 where out is not one.
func size(out io.Writer) (columns, rows int) {
	file, isFile := out.(*os.File)
	if !isFile {
		return 0, 0
	}
	columns, rows, err := term.GetSize(int(file.Fd()))
	if err != nil {
		return 0, 0
	}
	return columns, rows
}

// demoPage returns a page about a demo.
func demoPage(config demo.Config, last demo.Frame, past *history.Builder) page.Page {
	p := page.Page{
		Title: "Demo of a hot customer",
		Facts: []page.Fact{
			{Label: "sold", Value: fmt.Sprint(config.Quota)},
			{Label: "admitted", Value: fmt.Sprint(last.Admitted), Bad: last.Unsound() != nil},
			{Label: "rejected", Value: fmt.Sprint(last.Rejected)},
			{Label: "seconds", Value: fmt.Sprintf("%.1f", last.Elapsed.Seconds())},
		},
	}
	for _, group := range past.Histories() {
		seen := survey.Take(survey.Found{Shards: last.Shards}, last.Now)
		p.Groups = append(p.Groups, page.Group{Name: "the customer", History: group, Survey: seen})
	}
	return p
}
