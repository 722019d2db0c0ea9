package cli

import (
	_ "embed"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/rollcall-redis/rollcall/internal/printable"
)

// Columns escapes line breaks inside a cell.
func Columns(w io.Writer, rows ...[]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = printable.Text(cell)
		}
		fmt.Fprintln(t, strings.TrimRight(strings.Join(cells, "\t"), "\t"))
	}
	return t.Flush()
}

// IsTerminal reports whether a line of w can be overwritten.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// archive is filled in by git archive: describe, commit, its time.
//
//go:embed archive.txt
var archive string

// Version returns the module's version, in a checkout with the revision, or what git archive wrote
// into the sources, or "unknown".
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return versionOf(info.Main.Version, archive)
}

func versionOf(built, archive string) string {
	if built != "" && built != "(devel)" {
		return built
	}
	fields := strings.Split(strings.TrimSpace(archive), "|")
	if len(fields) != 3 || strings.HasPrefix(fields[0], "$Format") {
		return built
	}
	describe, commit := fields[0], fields[1]
	seconds, err := strconv.ParseInt(fields[2], 10, 64)
	switch {
	case describe != "":
		return describe
	case err != nil || len(commit) < 12:
		return built
	}
	// As the go command names a version without an earlier tag.
	return "v0.0.0-" + time.Unix(seconds, 0).UTC().Format("20060102150405") + "-" + commit[:12]
}
