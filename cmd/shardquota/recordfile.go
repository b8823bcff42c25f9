package main

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/shardquota/shardquota/aggregator"
	"github.com/shardquota/shardquota/table"
)

// positionOf returns the name of the position file beside a recording.
func positionOf(file string) string { return file + ".position" }

// recorded is a position file. It says how much of the recording counts, and where
// the stream goes on. The text beyond Bytes was not committed before a crash: it is
// cut off, and its records are read again.
type recorded struct {
	place
	Bytes   int64     `json:"bytes"`
	Records int64     `json:"records"`
	Buckets bool      `json:"buckets,omitempty"`
	Redact  *redacted `json:"redact,omitempty"`
}

// redacted says under which key a recording's ids were replaced.
type redacted struct {
	Key   string `json:"key,omitempty"` // a random one; empty for the environment's
	Check string `json:"check"`         // differs under another key
}

// newRedacted uses the environment's key, or a random one if that is empty.
func newRedacted(key string) *redacted {
	r := &redacted{}
	if key == "" {
		key = rand.Text()
		r.Key = key
	}
	r.Check = checkOf(key)
	return r
}

func checkOf(key string) string { return aggregator.NewPseudonyms(key).Of(table.Group{}) }

// names returns the pseudonyms of a recording.
func (r *redacted) names(key string) (aggregator.Pseudonyms, error) {
	if r.Key != "" {
		key = r.Key
	}
	if key == "" || checkOf(key) != r.Check {
		return aggregator.Pseudonyms{}, errors.New("--redact: the recording was begun under another SHARDQUOTA_HASH_KEY")
	}
	return aggregator.NewPseudonyms(key), nil
}

// recordFile writes a recording in parts. A part is on the disk before the position
// file includes it.
type recordFile struct {
	name string
	file *os.File
	at   recorded
	part bytes.Buffer // lines that are not in the file yet
	n    int64        // lines in part
}

// loadRecorded reads the position file of a recording. It returns nil for a new one.
func loadRecorded(name string) (*recorded, error) {
	saved, err := loadJSON[recorded](positionOf(name))
	if saved != nil || err != nil {
		return saved, err
	}
	if info, err := os.Stat(name); err == nil && info.Size() > 0 {
		return nil, fmt.Errorf("%s exists, and without %s nothing tells where it ends: remove it, or give another name",
			name, positionOf(name))
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return nil, nil
}

// openRecordFile opens a recording and cuts off the text that at does not include.
func openRecordFile(name string, at recorded) (*recordFile, error) {
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	switch {
	case err != nil:
	case info.Size() < at.Bytes:
		err = fmt.Errorf("%s has %d bytes of the %d that %s tells of: what is missing cannot be read again",
			name, info.Size(), at.Bytes, positionOf(name))
	default:
		err = errors.Join(file.Truncate(at.Bytes), syncDir(filepath.Dir(name)))
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &recordFile{name: name, file: file, at: at}, nil
}

// add adds a line, given without its end.
func (f *recordFile) add(line []byte) {
	f.part.Write(line)
	f.part.WriteByte('\n')
	f.n++
}

// commit writes the part to the disk, and then the position file.
func (f *recordFile) commit(at place) error {
	if err := f.write(); err != nil {
		return fmt.Errorf("write %s: %w", f.name, err)
	}
	f.at.place = at
	if err := saveJSON(positionOf(f.name), f.at); err != nil {
		return fmt.Errorf("write %s: %w", positionOf(f.name), err)
	}
	return nil
}

func (f *recordFile) write() error {
	if f.n == 0 {
		return nil
	}
	part, err := f.packed()
	if err != nil {
		return err
	}
	info, err := f.file.Stat()
	if err != nil {
		return err
	}
	if named, err := os.Stat(f.name); err != nil || !os.SameFile(info, named) {
		return errors.New("it was removed or replaced while it was written to")
	}
	if info.Size() != f.at.Bytes {
		return errors.New("another process writes to it too")
	}
	if _, err := f.file.WriteAt(part, f.at.Bytes); err != nil {
		return err
	}
	if err := f.file.Sync(); err != nil {
		return err
	}
	f.at.Bytes += int64(len(part))
	f.at.Records += f.n
	f.part.Reset()
	f.n = 0
	return nil
}

// packed returns the part as text, or as a member of a gzip file.
func (f *recordFile) packed() ([]byte, error) {
	if !isGzip(f.name) {
		return f.part.Bytes(), nil
	}
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	_, err := zip.Write(f.part.Bytes())
	if err := errors.Join(err, zip.Close()); err != nil {
		return nil, err
	}
	return packed.Bytes(), nil
}

func isGzip(name string) bool { return strings.HasSuffix(name, ".gz") }

// Close closes the file. It drops lines that were not committed.
func (f *recordFile) Close() error { return f.file.Close() }
