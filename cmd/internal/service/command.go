package service

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

	"github.com/redis/go-redis/v9/logging"

	"github.com/rollcall-redis/rollcall/internal/printable"
	"github.com/rollcall-redis/rollcall/registry"
)

// Exit statuses.
const (
	ExitOK     = 0 // stopped as asked
	ExitFailed = 1 // a failure at run time
	ExitUsage  = 2 // wrong arguments or settings
	ExitNo     = 3 // the answer is no
)

// ErrNo is returned by a command that was asked a question, and has answered no on stdout.
var ErrNo = errors.New("service: the answer is no")

// ErrSaid is returned by a command that failed and has itself said why on stderr.
var ErrSaid = errors.New("service: the reason was said")

// errVersion: --version was given.
var errVersion = errors.New("service: version asked for")

// Run is what a command does.
type Run func(ctx context.Context, stdout, stderr io.Writer) error

// Command is a program, or one of its commands.
type Command struct {
	// Name as it is called: "ingest simulate".
	Name string
	// About is the beginning of -h, without a line break at its end.
	About string
	// Arguments says in -h what stands behind the flags; empty: nothing may.
	Arguments string
	// Mixed: flags may stand between and behind the arguments too, up to "--".
	Mixed bool
	// Settings are what can be set.
	Settings []Setting
	// Inherited can be set too, and -h does not show them.
	Inherited []Setting
	// Prefixes of variables: one that begins so and is no setting is a fault.
	Prefixes []string
	// Check adds, with [Input.Fault], what is wrong with settings that are fine alone, and with the
	// arguments.
	Check func(in *Input)
	// Run does what was asked for, until it is done or ctx ends. Logs and complaints go to stderr.
	Run Run
	// Notes are the end of -h: the exit statuses, above all.
	Notes string
	// Commands are the program's, called by the last word of their names.
	Commands []*Command

	shown   []slog.Attr
	exposed []string // flags that were given a secret
}

// Main runs a program and ends the process with its exit status. SIGINT and SIGTERM end the
// context; a second one ends the process at once.
func Main(c *Command) {
	// What go-redis would print reaches us as errors, which are counted or logged.
	logging.Disable()

	ctx, stop := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		<-signals
		stop()
		<-signals // the second one does not wait
		fmt.Fprintln(os.Stderr, c.Name+": second signal, leaving at once")
		os.Exit(ExitFailed)
	}()
	os.Exit(c.Execute(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}

// commandName is what a mistyped command may look like to be repeated; anything else might be a URL
// with a password.
var commandName = regexp.MustCompile(`^[A-Za-z][A-Za-z_-]{0,20}$`)

// Execute runs the command, or the one of its commands that the first argument names. It returns
// the exit status.
func (c *Command) Execute(ctx context.Context, args, environ []string, stdout, stderr io.Writer) int {
	if len(args) > 0 && len(c.Commands) > 0 && commandName.MatchString(args[0]) {
		for _, sub := range c.Commands {
			if sub.Name == c.Name+" "+args[0] {
				return sub.Execute(ctx, args[1:], environ, stdout, stderr)
			}
		}
		switch args[0] {
		case "help": // as kubectl has it: help VERB
			return c.Execute(ctx, append(slices.Clone(args[1:]), "-h"), environ, stdout, stderr)
		case "version":
			return c.Execute(ctx, append([]string{"--version"}, args[1:]...), environ, stdout, stderr)
		}
		fmt.Fprintf(stderr, "%s: unknown command %q%s (%s -h shows all)\n",
			c.Name, args[0], c.nearest(args[0]), c.Name)
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
		// Somebody's own words may be in it, and each line of it is of an error of its own.
		lines := strings.Split(err.Error(), "\n")
		for i, line := range lines {
			lines[i] = printable.Text(line)
		}
		fmt.Fprintln(stderr, c.Name+":", strings.Join(lines, "\n"))
	}
	return ExitFailed
}

// Serving returns a Run that logs how the program begins and ends.
func (c *Command) Serving(b *Base, serve func(context.Context, *slog.Logger) error) Run {
	return func(ctx context.Context, _, stderr io.Writer) error {
		options := &slog.HandlerOptions{Level: b.LogLevel}
		log := slog.New(slog.NewTextHandler(stderr, options))
		if b.LogFormat == "json" {
			log = slog.New(slog.NewJSONHandler(printable.Writer(stderr), options))
		}
		// Here and not by the registry, so that the first line has it, too.
		if b.InstanceID == "" {
			b.InstanceID, b.Unique = registry.UniqueInstance(), true
		}
		log = log.With("instance", b.InstanceID)
		log.Info("starting", "version", Version(), slog.Any("settings", slog.GroupValue(c.shown...)))
		if len(c.exposed) > 0 {
			log.Warn("a secret is on the command line, where every user of this machine can read it: "+
				"set it in the environment or in a file", "flags", c.exposed)
		}
		if err := serve(ctx, log); err != nil {
			log.Error(c.Name+" failed", "error", err)
			return ErrSaid
		}
		log.Info("stopped")
		return nil
	}
}
