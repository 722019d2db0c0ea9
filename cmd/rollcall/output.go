package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/rollcall-redis/rollcall/internal/inspect"
	"github.com/rollcall-redis/rollcall/internal/service"
)

// writeJSON writes an answer for programs.
func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// columns writes rows in columns. No cell can break its line.
func columns(w io.Writer, rows ...[]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = service.Printable(cell)
		}
		fmt.Fprintln(t, strings.TrimRight(strings.Join(cells, "\t"), "\t"))
	}
	return t.Flush()
}

// line writes one line that nothing in it can break.
func line(w io.Writer, format string, args ...any) error {
	_, err := fmt.Fprintln(w, service.Printable(fmt.Sprintf(format, args...)))
	return err
}

// ago is when something was, as seen from now; "-": not known.
func ago(at, now time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return inspect.Ago(now.Sub(at))
}

// or returns text, or "-" where there is none.
func or(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// Colours of a terminal.
const (
	red    = "31"
	yellow = "33"
	green  = "32"
)

// paint colours a whole text, on a terminal whose user has not refused colours.
func paint(w io.Writer, colour, text string) string {
	if !service.IsTerminal(w) || os.Getenv("NO_COLOR") != "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}
