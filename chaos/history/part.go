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
	if err := os.RemoveAll(to); err != nil { // of an earlier run
		return err
	}
	if info.IsDir() { // a server's working folder holds more than the history
		return os.CopyFS(filepath.Join(to, appendOnlyDir), os.DirFS(filepath.Join(from, appendOnlyDir)))
	}
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
