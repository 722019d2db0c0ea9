package history

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o644)
}

// Write writes a history as one part, as [Read] reads it.
func Write(path string, h History) error {
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("history: %w", err)
	}
	w, second := bufio.NewWriter(file), int64(0)
	for _, e := range h {
		if e.Second != second {
			second = e.Second
			fmt.Fprintf(w, "#TS:%d\r\n", second)
		}
		commands := e.Commands
		if len(commands) > 1 {
			commands = slices.Concat([]Command{{"MULTI"}}, commands, []Command{{"EXEC"}})
		}
		for _, c := range commands {
			fmt.Fprintf(w, "*%d\r\n", len(c))
			for _, word := range c {
				fmt.Fprintf(w, "$%d\r\n%s\r\n", len(word), word)
			}
		}
	}
	return errors.Join(w.Flush(), file.Close())
}
