// Package cli has command lines: commands, their settings and help, and exit statuses.
//
// HEARTBEAT_TTL in the environment is --heartbeat-ttl as a flag, and a flag wins. A malformed value
// is a fault, and never a silent default. All faults are reported together. No error, help text or
// log line repeats any part of a secret's value.
//
// The exit status is 0 on success, including a graceful stop; 1 after a failure at run time; 2 if
// arguments or settings are wrong; 3 if the answer to a question is no.
package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/rollcall-redis/rollcall/internal/near"
	"github.com/rollcall-redis/rollcall/internal/printable"
)

// Exit statuses.
const (
	ExitOK     = 0 // stopped as asked
	ExitFailed = 1 // at run time
	ExitUsage  = 2 // wrong arguments or settings
	ExitNo     = 3 // the answer is no
)

// ErrNo is the answer no, which is printed on stdout.
var ErrNo = errors.New("cli: the answer is no")

// ErrSaid is a failure whose reason is printed on stderr.
var ErrSaid = errors.New("cli: the reason was said")

var errVersion = errors.New("cli: version asked for")

// Run carries out a command.
type Run func(ctx context.Context, stdout, stderr io.Writer) error

// Command is a program, or one of its commands.
type Command struct {
	// Name is the full name: "ingest simulate".
	Name string
	// About begins -h, without a line break at its end.
	About string
	// Arguments describes the arguments after the flags in -h; empty: none are allowed.
	Arguments string
	// Mixed allows flags between and after the arguments too, up to "--".
	Mixed    bool
	Settings []Setting
	// Inherited settings are not in -h.
	Inherited []Setting
	// Prefixes are reserved: a variable with one that is not a setting is a fault.
	Prefixes []string
	// Check adds faults of arguments and of settings that are only wrong in combination.
	Check func(in *Input)
	// Run ends when ctx does. Logs and complaints go to stderr.
	Run Run
	// Notes end -h, with the exit statuses.
	Notes string
	// Commands are called by the last word of their names.
	Commands []*Command

	shown   []slog.Attr
	exposed []string // flags given a secret
}

// Main ends the process with the exit status. SIGINT and SIGTERM end the context; a second one,
// half a second later or more, ends the process at once.
func Main(c *Command) {
	// go-redis would also print what reaches us as errors.
	logging.Disable()

	ctx, stop := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		insisted(signals, stop)
		fmt.Fprintln(os.Stderr, c.Name+": second signal, leaving at once")
		os.Exit(ExitFailed)
	}()
	os.Exit(c.Execute(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}

// echo is how long another signal is the same request: timeout(1), a shell's Ctrl-C and supervisors
// signal the process and then its group.
const echo = 500 * time.Millisecond

// insisted ignores echoes.
func insisted(signals <-chan os.Signal, stop func()) {
	<-signals
	first := time.Now()
	stop()
	for range signals {
		if time.Since(first) >= echo {
			return
		}
	}
}

// commandName matches what may be repeated; anything else might be a URL with a password.
var commandName = regexp.MustCompile(`^[A-Za-z][A-Za-z_-]{0,20}$`)

// Execute runs the command, or the one that the first argument names.
func (c *Command) Execute(ctx context.Context, args, environ []string, stdout, stderr io.Writer) int {
	if len(args) > 0 && !strings.Contains(c.Name, " ") {
		switch args[0] {
		case "help": // as kubectl has it: help VERB
			return c.Execute(ctx, append(slices.Clone(args[1:]), "-h"), environ, stdout, stderr)
		case "version":
			return c.Execute(ctx, append([]string{"--version"}, args[1:]...), environ, stdout, stderr)
		}
	}
	if len(args) > 0 && len(c.Commands) > 0 && commandName.MatchString(args[0]) {
		var names []string
		for _, sub := range c.Commands {
			if sub.Name == c.Name+" "+args[0] {
				return sub.Execute(ctx, args[1:], environ, stdout, stderr)
			}
			names = append(names, strings.TrimPrefix(sub.Name, c.Name+" "))
		}
		meant := near.Name(strings.ToLower(args[0]), names, 2)
		if meant != "" {
			meant = ": did you mean " + meant + "?"
		}
		fmt.Fprintf(stderr, "%s: unknown command %q%s (%s -h shows all)\n",
			c.Name, args[0], meant, c.Name)
		return ExitUsage
	}
	err := c.Load(args, environ)
	switch {
	case errors.Is(err, flag.ErrHelp):
		_, err = io.WriteString(stdout, c.help())
	case errors.Is(err, errVersion):
		program, _, _ := strings.Cut(c.Name, " ")
		_, err = fmt.Fprintln(stdout, program, Version())
	case err != nil:
		fmt.Fprintf(stderr, "%s: %v\n(%s -h shows every flag)\n", c.Name, err, c.Name)
		return ExitUsage
	default:
		err = c.Run(ctx, stdout, stderr)
	}
	if err == nil {
		return ExitOK
	}
	if errors.Is(err, ErrNo) {
		return ExitNo
	}
	if !errors.Is(err, ErrSaid) {
		// The text may contain an operator's own words; its lines are separate errors.
		lines := strings.Split(err.Error(), "\n")
		for i, line := range lines {
			lines[i] = printable.Text(line)
		}
		fmt.Fprintln(stderr, c.Name+":", strings.Join(lines, "\n"))
	}
	return ExitFailed
}

// Shown returns what [Command.Load] stored, for a log: without secrets.
func (c *Command) Shown() []slog.Attr { return c.shown }

// Exposed returns flags that were given a secret, where every user of the machine can read it.
func (c *Command) Exposed() []string { return c.exposed }
