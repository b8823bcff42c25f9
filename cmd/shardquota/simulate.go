package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shardquota/shardquota/cmd/shardquota/simulate"
)

type simulateFlags struct {
	seed      uint64
	options   []string
	workloads []string
	format    string
	svg       string
}

func simulateCommand() *cobra.Command {
	f := simulateFlags{}
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Measure the ways to divide a limit among shards, in memory",
		Long: `Measure the ways to divide a limit among shards, in memory.

Each way meets the same workloads in virtual time: what it admits beside one
undivided bucket, what the shards hold at once, and what it costs. The clients
and the aggregator are those that run on DynamoDB, the table is in memory and
keeps account of units as DynamoDB charges them. The same seed gives the same
figures; those of docs/adr/0016 are of seed 1.

Exit status: 0; 2 on bad usage.

Options, of which those with a * are offered, as a limit's division:
` + listed(optionNames(), optionSays()) + `
Workloads:
` + listed(workloadNames(), workloadSays()),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), cmd.OutOrStdout()) },
	}
	flags := cmd.Flags()
	flags.Uint64Var(&f.seed, "seed", 1, "another `number` has other random arrivals and draws of shards")
	flags.StringSliceVar(&f.options, "option", nil, "these `names` alone")
	flags.StringSliceVar(&f.workloads, "workload", nil, "these `names` alone")
	flags.StringVar(&f.format, "format", "text", "how it is written: `text|markdown|json`")
	flags.StringVar(&f.svg, "svg", "", "draw a chart of each workload into this `directory`, which is made in one that is there")
	return cmd
}

func (f simulateFlags) run(ctx context.Context, out io.Writer) error {
	write := map[string]func(*simulate.Report, io.Writer) error{
		"text": (*simulate.Report).WriteText, "markdown": (*simulate.Report).WriteMarkdown, "json": (*simulate.Report).WriteJSON,
	}[f.format]
	if write == nil {
		return fmt.Errorf("--format: %q is none of text, markdown and json", f.format)
	}
	options, err := chosen("--option", simulate.Options(), optionNames(), f.options)
	if err != nil {
		return err
	}
	workloads, err := chosen("--workload", simulate.Workloads(), workloadNames(), f.workloads)
	if err != nil {
		return err
	}
	if f.svg != "" {
		if err := makeDir(f.svg); err != nil {
			return fmt.Errorf("--svg: %w", err)
		}
	}
	results, err := simulate.Run(ctx, options, workloads, f.seed)
	if err != nil {
		return fmt.Errorf("simulate: %w", err)
	}
	report := simulate.NewReport(f.seed, results)
	if f.svg != "" {
		if err := drawCharts(f.svg, report, workloads); err != nil {
			return fmt.Errorf("--svg: %w", err)
		}
	}
	return write(report, out)
}

// makeDir makes a directory in one that is there, where it is not there yet.
func makeDir(dir string) error {
	if info, err := os.Stat(dir); err == nil {
		if !info.IsDir() {
			return fmt.Errorf("%s is no directory", dir)
		}
		return nil
	}
	return os.Mkdir(dir, 0o755)
}

func drawCharts(dir string, report *simulate.Report, workloads []simulate.Workload) error {
	for i := range workloads {
		svg, err := report.Chart(&workloads[i])
		if err != nil {
			return err
		}
		name := strings.ReplaceAll(workloads[i].Name, " ", "-") + ".svg"
		if svg == nil {
			continue
		}
		if err := replaceFile(filepath.Join(dir, name), svg); err != nil {
			return err
		}
	}
	return nil
}

// chosen are those of all whose names are asked for, in the order of all; all of
// them where none is.
func chosen[T any](flag string, all []T, names, asked []string) ([]T, error) {
	if len(asked) == 0 {
		return all, nil
	}
	for _, name := range asked {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("%s: %q is none of %s", flag, name, strings.Join(names, ", "))
		}
	}
	var some []T
	for i, name := range names {
		if slices.Contains(asked, name) {
			some = append(some, all[i])
		}
	}
	return some, nil
}

func optionNames() []string {
	return each(simulate.Options(), func(o simulate.Option) string { return o.Name })
}

func optionSays() []string {
	return each(simulate.Options(), func(o simulate.Option) string {
		if o.Offered {
			return "* " + o.Says
		}
		return "  " + o.Says
	})
}

func workloadNames() []string {
	return each(simulate.Workloads(), func(w simulate.Workload) string { return w.Name })
}

func workloadSays() []string {
	return each(simulate.Workloads(), func(w simulate.Workload) string { return w.Says })
}

func each[T any](all []T, of func(T) string) []string {
	texts := make([]string, len(all))
	for i, one := range all {
		texts[i] = of(one)
	}
	return texts
}

// listed is a line for each name and what it says.
func listed(names, says []string) string {
	var b strings.Builder
	for i, name := range names {
		fmt.Fprintf(&b, "  %-16s  %s\n", name, says[i])
	}
	return b.String()
}
