package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/shardquota/shardquota/table"
)

// maxItemLine bounds one line of a file of items, in bytes. An item has at most
// 400 KB, and its JSON several times that.
const maxItemLine = 8 << 20

// loadItems calls put with each item of a file of DynamoDB JSON, one item a line.
// The file may be gzipped.
func loadItems(name string, put func(table.Item)) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	text, err := plain(file)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	lines := bufio.NewScanner(text)
	lines.Buffer(nil, maxItemLine)
	number := 0
	for lines.Scan() {
		number++
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		item, err := parseItem(lines.Bytes())
		if err != nil {
			return fmt.Errorf("%s:%d: %w", name, number, err)
		}
		put(item)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%s:%d: %w", name, number+1, err)
	}
	return nil
}

// plain unpacks gzipped text.
func plain(r io.Reader) (io.Reader, error) {
	buffered := bufio.NewReader(r)
	if head, _ := buffered.Peek(2); !bytes.Equal(head, []byte{0x1f, 0x8b}) {
		return buffered, nil
	}
	return gzip.NewReader(buffered)
}

var errNoKey = errors.New("item without PK and SK")

func parseItem(line []byte) (table.Item, error) {
	item, err := table.ParseItem(line)
	if err != nil {
		return nil, err
	}
	switch pk, sk := item.Key(); {
	case pk == "" || sk == "":
		return nil, errNoKey
	case sk == table.StateSK:
		_, err = table.DecodeBucket(item)
	}
	return item, err
}

// dumpTable writes items to a file, wholly or not at all.
func dumpTable(name string, items []table.Item) (err error) {
	file, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(file.Name())
		}
	}()
	out := bufio.NewWriter(file)
	for _, item := range items {
		line, err := table.FormatItem(item)
		if err != nil {
			return errors.Join(err, file.Close())
		}
		_, _ = out.Write(append(line, '\n')) // Flush returns its error
	}
	if err := errors.Join(out.Flush(), file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), name)
}
