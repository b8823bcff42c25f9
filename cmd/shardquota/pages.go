package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/shardquota/shardquota/aggregator/replay"
	"github.com/shardquota/shardquota/cmd/shardquota/page"
	"github.com/shardquota/shardquota/cmd/shardquota/survey"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/dynamo"
	"github.com/shardquota/shardquota/table/memory"
)

// writePage writes a page to a file, wholly or not at all.
func writePage(name string, p page.Page) error {
	var text bytes.Buffer
	if err := page.Write(&text, p); err != nil {
		return fmt.Errorf("--html: %w", err)
	}
	if err := replaceFile(name, text.Bytes()); err != nil {
		return fmt.Errorf("--html: %w", err)
	}
	return nil
}

// inspectPage returns the page of one group of a table, without its history.
func inspectPage(tableName, name string, seen *survey.Survey) page.Page {
	return page.Page{
		Title: "Table " + tableName,
		Facts: []page.Fact{
			{Label: "at", Value: time.UnixMilli(seen.Now).UTC().Format("2006-01-02 15:04:05 UTC")},
			{Label: "shards", Value: fmt.Sprint(seen.Count)},
			{Label: "unreadable", Value: fmt.Sprint(len(seen.Faults)), Bad: len(seen.Faults) > 0},
		},
		Groups: []page.Group{{Name: name, Survey: seen}},
	}
}

// shardsOf reads all shards of a group, by index.
type shardsOf func(context.Context, table.Group) ([]table.Sibling, error)

func shardsInMemory(store *memory.Store) shardsOf {
	return func(_ context.Context, group table.Group) ([]table.Sibling, error) {
		siblings := make([]table.Sibling, quota.MaxShards)
		for _, b := range table.ReadableShards(group, store.Get) {
			siblings[b.Shard].Bucket = b
		}
		return siblings, nil
	}
}

func shardsOnTable(store *dynamo.Store) shardsOf {
	return func(ctx context.Context, group table.Group) ([]table.Sibling, error) {
		return store.Shards(ctx, group, quota.MaxShards)
	}
}

// draw writes a page about a replay to a file.
func (run *replayRun) draw(ctx context.Context, to string, files []string, report *replay.Report, name replay.Naming) error {
	p := page.Page{Title: "Replay of " + strings.Join(files, ", "), Facts: replayFacts(report)}
	if report.Dry {
		p.Notes = append(p.Notes, "A dry run: the aggregator wrote nothing, and usage is what it would have counted.")
	}
	for _, h := range run.past.Histories() {
		siblings, err := run.shards(ctx, h.Group)
		if err != nil {
			return fmt.Errorf("--html: %w", err)
		}
		seen := survey.Take(survey.Found{Shards: siblings}, run.Now())
		seen.Usage = counted(report, h.Group)
		p.Groups = append(p.Groups, page.Group{Name: name(h.Group) + " " + h.Group.Resource, History: h, Survey: seen})
	}
	if run.past.Skipped > 0 {
		p.Notes = append(p.Notes, fmt.Sprintf("Only the first %d buckets are drawn: %d writes of others are not.", len(p.Groups), run.past.Skipped))
	}
	return writePage(to, p)
}

func replayFacts(r *replay.Report) []page.Fact {
	broken := r.NotConserved()
	return []page.Fact{
		{Label: "records", Value: fmt.Sprint(r.Records)},
		{Label: "rejected", Value: fmt.Sprint(len(r.Rejected)), Bad: len(r.Rejected) > 0},
		{Label: "passes by the aggregator", Value: fmt.Sprint(r.Written)},
		{Label: "doubled by the aggregator", Value: fmt.Sprint(len(r.Doublings))},
		{Label: "created by the aggregator", Value: fmt.Sprint(len(r.Created))},
		{Label: "ledgers", Value: fmt.Sprintf("%d of %d conserved", len(r.Ledger)-broken, len(r.Ledger)), Bad: broken > 0},
	}
}

// counted returns the usage of a group that a replay counted, newest first.
func counted(r *replay.Report, group table.Group) []survey.Usage {
	usage := []survey.Usage{}
	for key, total := range r.Usage {
		if key.Group != group {
			continue
		}
		counters := map[string]string{}
		for limit, milli := range total.Counters {
			counters[limit] = table.Tokens(milli)
		}
		usage = append(usage, survey.Usage{Window: key.Window, Start: key.Start, Counters: counters, Events: fmt.Sprint(total.Events)})
	}
	survey.NewestFirst(usage)
	return usage
}
