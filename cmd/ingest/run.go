package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"runtime/debug"

	"github.com/rollcall-redis/rollcall/internal/settings"
)

// The program's exit statuses.
const (
	exitOK     = 0 // stopped as asked
	exitFailed = 1 // a failure at run time
	exitUsage  = 2 // wrong arguments or settings
)

// commandName is what a mistyped command may look like to be repeated; anything
// else might be a URL with a password.
var commandName = regexp.MustCompile(`^[a-z][a-z-]{0,20}$`)

// run is the program, until ctx ends or it is done: a replica that serves, or
// what the first argument names. It returns the exit status. Logs and complaints
// go to stderr, what was asked for to stdout.
func run(ctx context.Context, args, environ []string, stdout, stderr io.Writer) int {
	if len(args) > 0 {
		switch args[0] {
		case "command":
			return sendCommand(ctx, args[1:], environ, stdout, stderr)
		case "simulate":
			return runSimulate(ctx, args[1:], stdout, stderr)
		case "demo":
			return runDemo(ctx, args[1:], environ, stdout, stderr)
		}
		if commandName.MatchString(args[0]) {
			fmt.Fprintf(stderr, "ingest: unknown command %q; there are command, demo and simulate, and without one it serves (ingest -h)\n", args[0])
			return exitUsage
		}
	}
	return runServe(ctx, args, environ, stdout, stderr)
}

// runServe is the program without a name of anything else to do: a replica.
func runServe(ctx context.Context, args, environ []string, stdout, stderr io.Writer) int {
	s, err := settings.Load(args, environ)
	switch {
	case errors.Is(err, settings.ErrHelp):
		err = settings.WriteHelp(stdout)
		return printed(err, stderr)
	case errors.Is(err, settings.ErrVersion):
		_, err = fmt.Fprintln(stdout, "ingest", version())
		return printed(err, stderr)
	case err != nil:
		fmt.Fprintln(stderr, "ingest:", err)
		return exitUsage
	}
	log := newLogger(s, stderr)
	log.Info("starting", "version", version(), "settings", s)
	if err := serve(ctx, s, log); err != nil {
		log.Error("ingest failed", "error", err)
		return exitFailed
	}
	log.Info("stopped")
	return exitOK
}

// printed is the exit status of a run that only had something to print.
func printed(err error, stderr io.Writer) int {
	if err != nil {
		fmt.Fprintln(stderr, "ingest:", err)
		return exitFailed
	}
	return exitOK
}

func newLogger(s *settings.Settings, w io.Writer) *slog.Logger {
	o := &slog.HandlerOptions{Level: s.LogLevel}
	if s.LogJSON {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// version is what the build knows of itself: a module version, or a revision.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return info.Main.Version
}
