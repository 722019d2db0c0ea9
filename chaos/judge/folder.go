package judge

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/rollcall-redis/rollcall/chaos/history"
)

// Files of a run's folder.
const (
	factsFile  = "facts.json"
	partPrefix = "part-"
)

// Save stores a run's facts and history, which may still be growing.
func Save(dir string, f Facts, parts ...string) error {
	text, err := json.MarshalIndent(f, "", "\t")
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, factsFile), append(text, '\n'), 0o644)
	}
	for i := 0; err == nil && i < len(parts); i++ {
		err = history.CopyPart(parts[i], filepath.Join(dir, fmt.Sprintf("%s%03d", partPrefix, i+1)))
	}
	if err != nil {
		return fmt.Errorf("judge: save: %w", err)
	}
	return nil
}

// Load reads what Save stored.
func Load(dir string) (history.History, Facts, error) {
	var f Facts
	text, err := os.ReadFile(filepath.Join(dir, factsFile))
	if err != nil {
		return nil, f, fmt.Errorf("judge: load: %w", err)
	}
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, f, fmt.Errorf("judge: load %s: %w", factsFile, err)
	}
	entries, err := os.ReadDir(dir) // sorted by name
	if err != nil {
		return nil, f, fmt.Errorf("judge: load: %w", err)
	}
	var parts []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), partPrefix) {
			parts = append(parts, filepath.Join(dir, e.Name()))
		}
	}
	if len(parts) == 0 {
		return nil, f, fmt.Errorf("judge: load %s: no part of a history: %w", dir, fs.ErrNotExist)
	}
	h, err := history.Read(parts...)
	return h, f, err
}
