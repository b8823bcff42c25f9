package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// replaceFile replaces a file's contents, wholly or not at all, even if the machine
// stops. Only the owner can read the file.
func replaceFile(name string, text []byte) error {
	draft := name + ".new" // always the same name, so that crashes leave at most one
	file, err := os.OpenFile(draft, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return errors.Join(err, os.Remove(draft))
	}
	if err := os.Rename(draft, name); err != nil {
		return err
	}
	return syncDir(filepath.Dir(name))
}

// syncDir makes the names in a directory survive a stop of the machine, where the
// system can do that.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	_ = d.Sync() // not every system lets a directory be synced
	return d.Close()
}

// saveJSON writes a value to a file, wholly or not at all.
func saveJSON(name string, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	return replaceFile(name, append(text, '\n'))
}

// loadJSON reads a file of saveJSON. It returns nil if the file does not exist.
func loadJSON[T any](name string) (*T, error) {
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	value := new(T)
	if err := json.Unmarshal(text, value); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return value, nil
}
