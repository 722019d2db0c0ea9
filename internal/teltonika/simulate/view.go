package simulate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/internal/wait"
)

// View runs a fleet and displays its progress.
type View struct {
	Fleet *Fleet
	Out   io.Writer
	// Terminal rewrites one line, every second; otherwise a new line is written every ten seconds.
	Terminal bool
	// Routable, if not nil, returns the number of connected devices that can be found.
	Routable func(context.Context) (int, error)

	began  time.Time
	before Counts    // at the last line
	at     time.Time // of the last line
	width  int       // of the last line
}

// Run shows the fleet's progress until ctx ends, then writes a summary. It returns an error if
// nothing could connect at all, or if the summary could not be written.
func (v *View) Run(ctx context.Context) error {
	began := time.Now()
	// The fleet runs until the last query of Redis.
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = v.Fleet.Run(running)
	}()
	v.progress(ctx)
	c, took, routable := v.Fleet.Counts(), time.Since(began), -1
	if v.Routable != nil {
		if n, err := v.Routable(running); err == nil {
			routable = n
		}
	}
	stop()
	<-ended
	if err := summary(v.Out, c, took, routable); err != nil {
		return err
	}
	if c.Accepted == 0 {
		why := cmp.Or(c.LastFailure, errors.New("there was no time to"))
		return fmt.Errorf("nothing could connect: %w", why)
	}
	return nil
}

func (v *View) progress(ctx context.Context) {
	v.began = time.Now()
	v.at, v.before = v.began, v.Fleet.Counts()
	every := 10 * time.Second
	if v.Terminal {
		every = time.Second
	}
	for wait.For(ctx, every) {
		routable := v.routable(ctx)
		if ctx.Err() == nil { // otherwise the summary reports it
			v.show(v.line(time.Now(), v.Fleet.Counts(), routable))
		}
	}
	if v.Terminal && v.width > 0 {
		fmt.Fprintln(v.Out)
	}
}

func (v *View) show(line string) {
	if !v.Terminal {
		fmt.Fprintln(v.Out, line)
		return
	}
	fmt.Fprintf(v.Out, "\r%-*s", v.width, line) // the width hides a longer line
	v.width = len(line)
}

// routable must query Redis before the fleet's counts are read, so that routable devices never
// outnumber connected ones.
func (v *View) routable(ctx context.Context) string {
	if v.Routable == nil {
		return ""
	}
	n, err := v.Routable(ctx)
	if err != nil {
		return "  routable unknown"
	}
	return fmt.Sprintf("  routable %d", n)
}

func (v *View) line(now time.Time, c Counts, routable string) string {
	var b strings.Builder
	seconds := max(now.Sub(v.at).Seconds(), 1e-9)
	frames := float64(c.Frames - v.before.Frames)
	fmt.Fprintf(&b, "%5.0fs  connected %d/%d  frames/s %.1f  acknowledged %d  re-sent %d",
		now.Sub(v.began).Seconds(), c.Connected, c.Devices, frames/seconds, c.Records, c.Resent)
	if c.Backlog > 0 {
		fmt.Fprintf(&b, "  backlog %d", c.Backlog)
	}
	b.WriteString(routable)
	if c.Accepted == 0 && c.LastFailure != nil {
		fmt.Fprintf(&b, "  (%v)", c.LastFailure)
	}
	v.before, v.at = c, now
	return b.String()
}

// A negative routable is unknown.
func summary(w io.Writer, c Counts, took time.Duration, routable int) error {
	var b strings.Builder
	row := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "  %-24s %s\n", name, fmt.Sprintf(format, args...))
	}
	fmt.Fprintf(&b, "after %.1f s:\n", took.Seconds())
	row("connected", "%d of %d", c.Connected, c.Devices)
	if routable >= 0 {
		row("routable", "%d", routable)
	}
	row("frames", "%d, %.1f a second", c.Frames, float64(c.Frames)/max(took.Seconds(), 1e-9))
	row("records acknowledged", "%d, in %d frames", c.Records, c.Acked)
	row("re-sent frames", "%d", c.Resent)
	if c.Backlog > 0 {
		row("backlog left", "%d records", c.Backlog)
	}
	p50, p99 := c.Acknowledgements.Quantile(0.5), c.Acknowledgements.Quantile(0.99)
	const exact = 10 * time.Microsecond
	row("acknowledged within", "p50 %v, p99 %v", p50.Round(exact), p99.Round(exact))
	row("reconnects", "%d, attempts that failed %d (refused %d)", c.Reconnects, c.Failed, c.Refused)
	row("half-open sockets left", "%d", c.HalfOpen)
	row("keep-alives", "%d", c.KeepAlives)
	row("commands answered", "%d", c.Commands)
	if c.LastFailure != nil {
		row("last failure", "%v", c.LastFailure)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
