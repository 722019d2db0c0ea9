package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/inspect"
	"github.com/rollcall-redis/rollcall/internal/printable"
)

// showInstances puts remarks before what is only to be looked up. width is as of [fitting].
func showInstances(w io.Writer, s inspect.Status, width int) error {
	rows := [][]string{{"INSTANCE", "DEVICES", "ALIVE", "REMARKS", "LAST BEAT", "TIME LEFT", "RUNNING", "VERSION",
		"TTL", "INTERVAL"}}
	for _, in := range s.Instances {
		devices, running := strconv.FormatInt(in.Devices, 10), "-"
		if in.Devices < 0 {
			devices = "?"
		}
		if !in.Started.IsZero() {
			running = inspect.Short(s.Now.Sub(in.Started))
		}
		rows = append(rows, []string{or(in.ID), devices, alive(s, in), or(strings.Join(s.Remarks(in), ", ")), ago(in.LastBeat, s.Now),
			or(in.ExpiresIn), running, or(inspect.Version(in.Version)), or(in.TTL), or(in.Interval)})
	}
	fmt.Fprintln(w)
	return cli.Columns(w, fitting(rows, width, 4)...)
}

func alive(s inspect.Status, in inspect.Instance) string {
	switch {
	case !in.Alive:
		return "no"
	case s.Late(in):
		return "late"
	}
	return "yes"
}

// fitting drops columns on the right, down to least, until the table fits; 0: any width.
func fitting(rows [][]string, width, least int) [][]string {
	if width <= 0 {
		return rows
	}
	total, fit := 0, 0
	for i := range rows[0] {
		longest := 0
		for _, row := range rows {
			longest = max(longest, utf8.RuneCountInString(printable.Text(row[i])))
		}
		if total += longest; total > width && i >= least {
			break
		}
		total, fit = total+len("  "), i+1
	}
	fitted := make([][]string, len(rows))
	for i, row := range rows {
		fitted[i] = row[:fit]
	}
	return fitted
}

// widthOf returns 0 without a terminal.
func widthOf(w io.Writer) int {
	if file, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(int(file.Fd())); err == nil {
			return width
		}
	}
	return 0
}
