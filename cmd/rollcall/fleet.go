package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/connect"
	"github.com/rollcall-redis/rollcall/cmd/internal/inspect"
	"github.com/rollcall-redis/rollcall/cmd/internal/program"
	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/printable"
)

// controlDeadline is for a client that is required but unused here.
const controlDeadline = time.Second

type fleet struct {
	base   program.Base
	prefix string
	http   []string // of replicas, without a slash at the end
	json   bool

	stderr io.Writer // for complaints beside an answer
}

// table is for every verb but wait, which has a --timeout of its own.
func (f *fleet) table() []cli.Setting {
	return append(f.common(), cli.Setting{
		Name: "timeout", Default: "2s", Value: cli.Duration(&f.base.Redis.Within, 100*time.Millisecond, time.Hour),
		Meaning: "How long an answer of Redis is waited for, unless REDIS_URL has read_timeout.",
	})
}

func (f *fleet) common() []cli.Setting {
	return append(f.base.Redis.Table(), []cli.Setting{
		{Name: "prefix", Value: cli.Prefix(&f.prefix),
			Meaning: "What the names of the fleet's keys begin with: of cleanup it is CLEANUP_PREFIX, " +
				"`{cleanup}:` by default. Not set: ingest's, which is `{rollcall}:` on a Redis Cluster."},
		{Name: "json", Default: "false", Switch: true, Value: cli.Bool(&f.json),
			Meaning: "Answer in JSON, for programs."},
	}...)
}

func (f *fleet) layout() guard.Layout {
	if f.prefix == "" && f.base.Redis.Cluster != nil { // like ingest's
		return guard.Layout{Prefix: "{rollcall}:"}
	}
	return guard.Layout{Prefix: f.prefix}
}

func (f *fleet) urls() cli.Setting {
	return cli.Setting{
		Name: "http",
		Value: func(v string) error {
			f.http = nil
			for u := range strings.SplitSeq(v, ",") {
				u = strings.TrimRight(strings.TrimSpace(u), "/")
				if !strings.HasPrefix(u, "http://") && !strings.HasPrefix(u, "https://") {
					return fmt.Errorf("URLs of replicas with commas between them, such as http://10.0.0.7:8080")
				}
				f.http = append(f.http, u)
			}
			return nil
		},
		Meaning: "URLs of replicas' HTTP, with commas between them.",
	}
}

func (f *fleet) check(in *cli.Input) {
	if f.base.Redis.Embedded() {
		in.Fault("REDIS_URL: expected the fleet's Redis; an embedded one is inside a replica, whose " +
			"status page shows its address: redis://ADDRESS")
	}
}

// one returns a check that stores the only argument.
func one(to *string, expected string) func(in *cli.Input) {
	return func(in *cli.Input) {
		if n := len(in.Args); n != 1 || in.Args[0] == "" {
			in.Fault("expected %s, got %d arguments, or an empty one", expected, n)
			return
		}
		*to = in.Args[0]
	}
}

// asked completes a verb that asks Redis.
func (f *fleet) asked(c cli.Command, do asking) *cli.Command {
	c.Settings = append(c.Settings, f.table()...)
	c.Check = f.checks(c.Check)
	c.Run = f.ask(do)
	return &c
}

// checks returns a check of the fleet's settings, and more.
func (f *fleet) checks(more func(in *cli.Input)) func(in *cli.Input) {
	return func(in *cli.Input) {
		f.check(in)
		if more != nil {
			more(in)
		}
	}
}

// missing warns of another prefix than the fleet's.
func (f *fleet) missing(ctx context.Context, r *inspect.Reader, stderr io.Writer) {
	if others := r.Elsewhere(ctx); len(others) > 0 {
		fmt.Fprintf(stderr, "no fleet is under the prefix %q; there is one under %s: look at --prefix\n", f.layout().Prefix,
			strings.Join(others, ", "))
	}
}

type asking = func(ctx context.Context, r *inspect.Reader, w io.Writer) error

func (f *fleet) ask(do asking) cli.Run {
	return func(ctx context.Context, stdout, stderr io.Writer) error {
		f.stderr = stderr
		clients, err := connect.Once(ctx, &f.base.Redis, controlDeadline)
		if err != nil {
			return f.advised(err)
		}
		defer func() { _ = clients.Close() }()
		reader := inspect.New(clients.Data, f.layout())
		f.missing(ctx, reader, stderr)
		return f.advised(memberByMember(ctx, reader, do(ctx, reader, stdout)))
	}
}

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
