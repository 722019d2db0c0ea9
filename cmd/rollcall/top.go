package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/inspect"
	"github.com/rollcall-redis/rollcall/internal/printable"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

// sizeEvery is needed because not every system has a signal for a new size.
const sizeEvery = 200 * time.Millisecond

// lookTimeout leaves several seconds for a server of a Redis Cluster that hangs.
const lookTimeout = 2 * replicaTimeout

func top() *cli.Command {
	var f fleet
	var every time.Duration
	return &cli.Command{
		Name: "rollcall top",
		About: `rollcall top shows what rollcall status does, and again and again, until Ctrl-C. First
come the leader and instances that differ, are old or are silent. It needs a terminal:
where there is none, take rollcall status.`,
		Settings: append(f.table(), f.replicas(),
			cli.Setting{Name: "every", Default: "2s",
				Value:   cli.Duration(&every, time.Second, time.Hour),
				Meaning: "how often the fleet is asked"}),
		Check: func(in *cli.Input) {
			f.check(in)
			if f.json {
				in.Fault("--json: top is for people; rollcall status has --json")
			}
		},
		Run: func(ctx context.Context, stdout, stderr io.Writer) error {
			file, ok := stdout.(*os.File)
			if !ok || !term.IsTerminal(int(file.Fd())) {
				return fmt.Errorf("stdout is not a terminal; rollcall status says the same once")
			}
			s := screen{w: file, size: func() (int, int, error) { return term.GetSize(int(file.Fd())) }}
			show := f.ask(func(ctx context.Context, r *inspect.Reader, _ io.Writer) error {
				return s.show(ctx, every,
					func(ctx context.Context) (inspect.Status, error) { return f.status(ctx, r) })
			})
			return show(ctx, stdout, stderr)
		},
		Notes: exits,
	}
}

type screen struct {
	w    io.Writer
	size func() (width, height int, err error)
}

// Every terminal of today understands these.
const (
	enter = "\x1b[?1049h\x1b[?25l\x1b[?7l" // another page, no cursor, long lines are cut
	leave = "\x1b[?7h\x1b[?25h\x1b[?1049l"
	home  = "\x1b[H"
	rest  = "\x1b[J" // clears below
	endOf = "\x1b[K" // clears to the right
)

// show restores the terminal at the end. An error of the first call ends it; a later one is shown
// below the last answer.
func (s *screen) show(
	ctx context.Context, every time.Duration, ask func(context.Context) (inspect.Status, error),
) (err error) {
	status, err := askWithin(ctx, ask)
	if err != nil || ctx.Err() != nil {
		return ignoreEnd(ctx, err)
	}
	if _, err := io.WriteString(s.w, enter); err != nil {
		return err
	}
	defer func() { _, _ = io.WriteString(s.w, leave) }() // an error has no reader
	for {
		width, height, sizeErr := s.size()
		if err := cmp.Or(sizeErr, s.draw(status, err, width, height)); err != nil {
			return ignoreEnd(ctx, err)
		}
		if !s.wait(ctx, every, width, height) {
			return nil
		}
		var now inspect.Status
		if now, err = askWithin(ctx, ask); err == nil {
			status = now
		}
	}
}

// askWithin keeps a Redis that hangs from freezing the screen.
func askWithin(
	ctx context.Context, ask func(context.Context) (inspect.Status, error),
) (inspect.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	return ask(ctx)
}

func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// wait also ends when the size changes. It is false when ctx has ended.
func (s *screen) wait(ctx context.Context, every time.Duration, width, height int) bool {
	for end := time.Now().Add(every); time.Now().Before(end); {
		if !wait.For(ctx, min(sizeEvery, time.Until(end))) {
			return false
		}
		if w, h, err := s.size(); err == nil && (w != width || h != height) {
			return true
		}
	}
	return ctx.Err() == nil
}

func (s *screen) draw(status inspect.Status, failed error, width, height int) error {
	lines, err := page(status, failed, width, height)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	b.WriteString(home)
	for i, text := range lines {
		if runes := []rune(text); len(runes) > width {
			text = string(runes[:max(0, width)])
		}
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(text + endOf)
	}
	b.WriteString(rest)
	_, err = s.w.Write(b.Bytes())
	return err
}

// The last line of page counts what does not fit, or has the error.
func page(s inspect.Status, failed error, width, height int) ([]string, error) {
	rank := func(in inspect.Instance) int {
		switch {
		case s.Leads(in.ID) != "":
			return 0
		case in.Differs != "" || in.Old || !in.Alive:
			return 1
		}
		return 2
	}
	s.Instances = slices.SortedStableFunc(slices.Values(s.Instances), func(a, b inspect.Instance) int {
		return cmp.Compare(rank(a), rank(b))
	})
	var b bytes.Buffer
	fmt.Fprintf(&b, "rollcall top, %s; Ctrl-C ends it\n\n", s.Now.UTC().Format(time.RFC3339))
	if err := cmp.Or(showHead(&b, s), showProblems(&b, s), showSweeps(&b, s, width),
		showInstances(&b, s, width)); err != nil {
		return nil, err
	}
	var lines []string
	for text := range strings.SplitSeq(strings.TrimRight(b.String(), "\n"), "\n") {
		lines = append(lines, wrapped(text, width)...)
	}
	last := ""
	if failed != nil {
		last = printable.Text("no answer now: " + failed.Error())
		height--
	}
	if height = max(height, 1); len(lines) > height {
		hidden := len(lines) - height + 1
		lines = append(lines[:height-1], fmt.Sprintf("... %d lines more: rollcall status", hidden))
	}
	if last != "" {
		lines = append(lines, last)
	}
	return lines, nil
}
