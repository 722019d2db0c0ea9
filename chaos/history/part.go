package history

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// CopyPart copies a part of a history, as [Read] reads it, which may be growing still.
func CopyPart(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return copyFile(from, to)
	}
	// A server's working folder holds more than the history.
	from, to = filepath.Join(from, appendOnlyDir), filepath.Join(to, appendOnlyDir)
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := copyFile(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = out.ReadFrom(in)
	return errors.Join(err, out.Close())
}

// Write writes a history as one part, as [Read] reads it.
func Write(path string, h History) error {
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("history: write history: %w", err)
	}
	return errors.Join(writeEvents(file, h), file.Close())
}
