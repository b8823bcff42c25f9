package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/term"

	"github.com/shardquota/shardquota/limits/manifest"
)

// An exit ends a command with a code of its own.
type exit struct {
	code  int
	cause error // what is said, nil for nothing
}

func (e *exit) Error() string {
	if e.cause == nil {
		return ""
	}
	return e.cause.Error()
}

func (e *exit) Unwrap() error { return e.cause }

// Exit codes of limits plan --detailed-exitcode.
const (
	exitFailed  = 1
	exitChanges = 2
)

// exit is what a plan ends with.
func (f *limitsFlags) exit(changes bool, err error) error {
	switch {
	case !f.detailed:
		return err
	case err != nil:
		return &exit{exitFailed, err}
	case changes:
		return &exit{exitChanges, nil}
	}
	return nil
}

// plan prints what would change, and reports whether anything would.
func (f *limitsFlags) plan(ctx context.Context, stdin io.Reader, stdout io.Writer) (changes bool, err error) {
	c, err := f.compare(ctx, stdin)
	if err != nil {
		return false, err
	}
	if f.format == "json" {
		err = printJSON(stdout, c.plan.Report(c.names))
	} else {
		err = c.print(stdout)
	}
	return !c.plan.Empty(), err
}

func (c *compared) print(w io.Writer) error {
	if c.id == "" {
		fmt.Fprintf(w, "The namespace %q is not there yet.\n\n", c.namespace)
	}
	if err := c.plan.Print(w, c.names); err != nil {
		return err
	}
	if !c.ids && slices.ContainsFunc(c.plan.Changes, func(change manifest.Change) bool {
		return change.Kind != manifest.Unchanged && change.At.Entity() != ""
	}) {
		fmt.Fprintln(w, "ids are hidden; --ids shows them")
	}
	return nil
}

// apply prints the plan and makes it.
func (f *limitsFlags) apply(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) error {
	if err := f.check(); err != nil {
		return err
	}
	if err := f.askable(stdin); err != nil {
		return err
	}
	c, err := f.compare(ctx, stdin)
	if err != nil {
		return err
	}
	asked, prompts := stdout, f.format == "text"
	if !prompts {
		asked = stderr // standard output is for the report alone
	}
	if prompts || !f.yes {
		if err := c.print(asked); err != nil {
			return err
		}
	}
	if !c.plan.Empty() && !f.yes {
		if agreed, err := confirm(stdin, asked); err != nil || !agreed {
			return err
		}
	}
	return f.made(stdout, c, c.make(ctx, f.options()))
}

// askable reports what keeps a person from being asked.
func (f *limitsFlags) askable(stdin io.Reader) error {
	if f.yes {
		return nil
	}
	file, ok := stdin.(*os.File)
	if f.file == "-" || !ok || !term.IsTerminal(int(file.Fd())) {
		return errors.New("limits apply: there is no terminal to ask on: say --yes")
	}
	return nil
}

// confirm asks whether a plan is to be made.
func confirm(answers io.Reader, w io.Writer) (bool, error) {
	fmt.Fprint(w, "\nType yes to apply: ")
	answer, err := bufio.NewReader(answers).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	if strings.TrimSpace(answer) != "yes" {
		fmt.Fprintln(w, "Nothing was changed.")
		return false, nil
	}
	return true, nil
}

// make makes the plan. A namespace that is not there yet is registered, and what
// was compared with nothing is compared with it.
func (c *compared) make(ctx context.Context, options []manifest.Option) error {
	if c.plan.Empty() {
		return nil
	}
	if c.id == "" {
		if err := c.register(ctx); err != nil {
			return err
		}
		plan, err := manifest.Compare(ctx, c.store, c.manifest, options...)
		if err != nil {
			return err
		}
		c.plan = plan
	}
	return c.plan.Apply(ctx)
}

// application is what became of a plan, as JSON.
type application struct {
	manifest.Report
	Applied int `json:"applied"` // levels
}

// made says what was made of a plan before err.
func (f *limitsFlags) made(w io.Writer, c *compared, err error) error {
	total := len(c.plan.Changes) - c.plan.Count(manifest.Unchanged)
	applied := total
	var failed *manifest.ApplyError
	switch {
	case errors.As(err, &failed):
		applied = len(failed.Done)
	case err != nil:
		applied = 0
	}
	if f.format == "json" {
		return errors.Join(err, printJSON(w, application{c.plan.Report(c.names), applied}))
	}
	if failed != nil {
		c.list(w, "Applied", failed.Done)
		c.list(w, "Not applied", append([]manifest.Change{failed.Failed}, failed.Left...))
	} else if err == nil && total > 0 {
		fmt.Fprintf(w, "Levels changed: %d\n", applied)
	}
	return err
}

// list names the levels of changes.
func (c *compared) list(w io.Writer, title string, changes []manifest.Change) {
	if len(changes) == 0 {
		fmt.Fprintf(w, "%s: nothing\n", title)
		return
	}
	fmt.Fprintf(w, "%s:\n", title)
	for _, change := range changes {
		fmt.Fprintf(w, "  %s\n", change.Title(c.names))
	}
}

func printJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}
