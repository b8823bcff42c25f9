package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/shardquota/shardquota/events"
)

// progressAfter is how long a replay runs before it shows its progress.
const progressAfter = time.Second

// input reads the records of files one after another. It counts the bytes that it
// reads, to show progress on a terminal.
type input struct {
	files  []string
	stream string // label of the stream of records that name none
	stdin  io.Reader
	open   io.Closer
	reader *events.Reader

	read    atomic.Int64
	total   int64 // bytes of all files, -1 where unknown
	started time.Time
	screen  io.Writer // nil unless it is a terminal
	bar     *progressbar.ProgressBar
}

func newInput(files []string, stdin io.Reader, screen io.Writer) *input {
	in := &input{files: files, stdin: stdin, started: time.Now()}
	if file, ok := screen.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		in.screen = screen
	}
	for _, name := range files {
		info, err := os.Stat(name)
		if err != nil || !info.Mode().IsRegular() {
			in.total = -1
			break
		}
		in.total += info.Size()
	}
	return in
}

// Next returns the next record of all files.
func (in *input) Next() (events.Record, error) {
	for {
		if in.reader == nil {
			if len(in.files) == 0 {
				return events.Record{}, io.EOF
			}
			if err := in.advance(); err != nil {
				return events.Record{}, err
			}
		}
		record, err := in.reader.Next()
		if !errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			if record.Stream == "" {
				record.Stream = in.stream
			}
			return record, err
		}
		in.Close()
	}
}

func (in *input) advance() error {
	name := in.files[0]
	in.files = in.files[1:]
	if name == "-" {
		in.reader = events.NewReader(&counting{in.stdin, &in.read}, "standard input")
		return nil
	}
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	if info, err := file.Stat(); err == nil && info.IsDir() {
		return errors.Join(fmt.Errorf("%s is a directory: name its files", name), file.Close())
	}
	in.open = file
	in.reader = events.NewReader(&counting{file, &in.read}, name)
	return nil
}

// Close closes the file being read.
func (in *input) Close() {
	if in.open != nil {
		_ = in.open.Close()
	}
	in.open, in.reader = nil, nil
}

// show updates the progress bar, once the replay has run for progressAfter.
func (in *input) show(records int) {
	if in.screen == nil || time.Since(in.started) < progressAfter {
		return
	}
	if in.bar == nil {
		in.bar = progressbar.NewOptions64(in.total,
			progressbar.OptionSetWriter(in.screen),
			progressbar.OptionShowBytes(true),
			progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionClearOnFinish())
	}
	in.bar.Describe(fmt.Sprintf("%d records", records))
	_ = in.bar.Set64(in.read.Load())
}

func (in *input) hide() {
	if in.bar != nil {
		_ = in.bar.Clear()
	}
}

// counting counts the bytes read through it.
type counting struct {
	io.Reader
	read *atomic.Int64
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.read.Add(int64(n))
	return n, err
}
