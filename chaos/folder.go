package chaos

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// A run's folder: what the judge was told besides, and the parts of the history in their order.
const (
	factsFile  = "facts.json"
	partPrefix = "part-"
)

// Save keeps a run in a folder, so that it can be judged again: its facts, and copies of the parts of its history as
// [ReadHistory] reads them. Parts may be growing still.
func Save(dir string, f Facts, parts ...string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("chaos: save: %w", err)
	}
	text, err := json.MarshalIndent(f, "", "\t")
	if err != nil {
		return fmt.Errorf("chaos: save: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, factsFile), append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("chaos: save: %w", err)
	}
	for i, part := range parts {
		to := filepath.Join(dir, fmt.Sprintf("%s%03d", partPrefix, i+1))
		if err := savePart(part, to); err != nil {
			return fmt.Errorf("chaos: save: %w", err)
		}
	}
	return nil
}

func savePart(from, to string) error {
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

// Load reads what Save has kept.
func Load(dir string) (History, Facts, error) {
	var f Facts
	text, err := os.ReadFile(filepath.Join(dir, factsFile))
	if err != nil {
		return nil, f, fmt.Errorf("chaos: load: %w", err)
	}
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, f, fmt.Errorf("chaos: load %s: %w", factsFile, err)
	}
	entries, err := os.ReadDir(dir) // by name
	if err != nil {
		return nil, f, fmt.Errorf("chaos: load: %w", err)
	}
	var parts []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), partPrefix) {
			parts = append(parts, filepath.Join(dir, e.Name()))
		}
	}
	if len(parts) == 0 {
		return nil, f, fmt.Errorf("chaos: load %s: no part of a history: %w", dir, fs.ErrNotExist)
	}
	h, err := ReadHistory(parts...)
	return h, f, err
}

// WriteHistory writes a history as one part, as [ReadHistory] reads it.
func WriteHistory(path string, h History) error {
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("chaos: write history: %w", err)
	}
	return errors.Join(writeEvents(file, h), file.Close())
}
