package workforce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/internal/wait"
)

// View runs a workforce and shows it.
type View struct {
	Force *Force
	Out   io.Writer
	// Terminal overwrites one line every second; else a line comes every ten.
	Terminal bool
	// Truth adds who is online in the stores; may be nil.
	Truth *Truth
}

// Run shows the workforce's progress until ctx ends, then a summary. It fails if nobody could go
// online.
func (v *View) Run(ctx context.Context) error {
	began := time.Now()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = v.Force.Run(ctx) // returns nil
	}()
	v.progress(ctx)
	<-ended
	c := v.Force.Counts()
	if err := summary(v.Out, &c, time.Since(began)); err != nil {
		return err
	}
	if c.WentOnline == 0 {
		return fmt.Errorf("nobody could go online: %w", cmp.Or(c.LastFailure, errors.New("there was no time to")))
	}
	return nil
}

func (v *View) progress(ctx context.Context) {
	every := 10 * time.Second
	if v.Terminal {
		every = time.Second
	}
	began, before := time.Now(), v.Force.Counts()
	for at := began; wait.For(ctx, every); {
		stores := v.stores(ctx)
		now, c := time.Now(), v.Force.Counts()
		line := fmt.Sprintf("%5.0fs  %s", now.Sub(began).Seconds(), Line(&c, &before, now.Sub(at), stores))
		if ctx.Err() == nil {
			v.show(line)
		}
		at, before = now, c
	}
	if v.Terminal {
		fmt.Fprintln(v.Out)
	}
}

// over starts a line that replaces the last, cut at the right edge; whole ends it.
const over, whole = "\r\x1b[K\x1b[?7l", "\x1b[?7h"

func (v *View) show(line string) {
	if v.Terminal {
		fmt.Fprint(v.Out, over+line+whole)
	} else {
		fmt.Fprintln(v.Out, line)
	}
}

func (v *View) stores(ctx context.Context) string {
	if v.Truth == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return v.Truth.Stores(ctx)
}

// Stores describes how many are online in Redis and in Postgres; "?": no answer.
func (t *Truth) Stores(ctx context.Context) string {
	said := func(n int, err error) string {
		if err != nil {
			return "?"
		}
		return strconv.Itoa(n)
	}
	return ", mirror " + said(t.InRedis(ctx)) + ", Postgres " + said(t.InPostgres(ctx))
}

// Line describes what a workforce does, and has done since before. stores follows the number of
// apps that are online.
func Line(c, before *Counts, since time.Duration, stores string) string {
	var b strings.Builder
	seconds := max(since.Seconds(), 1e-9)
	rate := func(n int) float64 { return float64(n) / seconds }
	fmt.Fprintf(&b, "online: apps %d%s  dead %d  sessions %d  heartbeats/s %.0f",
		c.Online, stores, c.Dead, c.Running, rate(c.Heartbeats-before.Heartbeats))
	if n := c.InPostgres - before.InPostgres; n > 0 {
		fmt.Fprintf(&b, " (asked Postgres %d)", n)
	}
	if n := c.NotOnline - before.NotOnline; n > 0 {
		fmt.Fprintf(&b, " (not online %d)", n)
	}
	if text := answers(c.Answers, before.Answers); text != "" {
		fmt.Fprintf(&b, "  answers: %s", text)
	}
	if n := c.Failed - before.Failed; n > 0 {
		fmt.Fprintf(&b, "  failed %d", n)
	}
	return b.String()
}

func answers(now, before map[string]int) string {
	var parts []string
	for _, source := range slices.Sorted(maps.Keys(now)) {
		if n := now[source] - before[source]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", cmp.Or(source, "unnamed"), n))
		}
	}
	return strings.Join(parts, ", ")
}

func summary(w io.Writer, c *Counts, took time.Duration) error {
	var b strings.Builder
	row := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "  %-24s %s\n", name, fmt.Sprintf(format, args...))
	}
	fmt.Fprintf(&b, "after %.1f s:\n", took.Seconds())
	row("went online", "%d times, offline %d times", c.WentOnline, c.WentOffline)
	row("heartbeats", "%d, %.1f a second", c.Heartbeats, float64(c.Heartbeats)/max(took.Seconds(), 1e-9))
	const exact = 10 * time.Microsecond
	p50, p99 := c.Beat.Quantile(0.5), c.Beat.Quantile(0.99)
	row("acknowledged within", "p50 %v, p99 %v", p50.Round(exact), p99.Round(exact))
	row("answered \"not online\"", "%d", c.NotOnline)
	row("sessions", "accepted %d, moved %d, ended %d, nobody found for %d",
		c.Accepted, c.Rerouted, c.Ended, c.Unserved)
	row("accepts refused", "%d: full, or set inactive", c.Full)
	row("polls", "%d", c.Polls)
	row("answers by source", "%s", answers(c.Answers, nil))
	row("requests that failed", "%d", c.Failed)
	if c.LastFailure != nil {
		row("last failure", "%v", c.LastFailure)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
