package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rollcall-redis/rollcall/internal/commands"
	"github.com/rollcall-redis/rollcall/internal/settings"
	"github.com/rollcall-redis/rollcall/internal/teltonika"
	"github.com/rollcall-redis/rollcall/registry"
)

const commandUsage = `usage: ingest command [--codec=12|14] [--expires=1m] [--redis-url=URL] IMEI TEXT

Sends TEXT to the device through the instance that holds it, waits for the
outcome, and prints what the device answered; what a terminal could take for more
than text is printed as Go would write it (\x1b, \n). Exit status: 0 answered, 1 any
other outcome, which is named on stderr, 2 wrong usage. REDIS_URL is taken from
the environment too; flags are written with '='.`

// sendCommand is "ingest command": it sends one command and waits for its outcome.
func sendCommand(ctx context.Context, args, environ []string, stdout, stderr io.Writer) int {
	c, rest, err := parseCommand(args)
	if errors.Is(err, settings.ErrHelp) {
		_, err := fmt.Fprintln(stdout, commandUsage)
		return printed(err, stderr)
	}
	if err != nil {
		fmt.Fprintf(stderr, "ingest: %v\n%s\n", err, commandUsage)
		return exitUsage
	}
	s, err := settings.Load(rest, environ)
	if err == nil && s.Redis.Embedded() {
		err = errors.New("REDIS_URL: expected the fleet's Redis; the one inside a replica is not this process'")
	}
	if err != nil {
		fmt.Fprintln(stderr, "ingest:", err)
		return exitUsage
	}
	outcome, err := deliver(ctx, s, c)
	switch {
	case errors.Is(err, registry.ErrNotRegistered):
		fmt.Fprintf(stderr, "%s: no instance holds %s\n", commands.NotConnected, c.IMEI)
	case err != nil:
		fmt.Fprintln(stderr, "ingest:", printable(err.Error()))
	case outcome.Status == commands.Answered:
		_, err := fmt.Fprintln(stdout, printable(outcome.Text))
		return printed(err, stderr)
	default:
		fmt.Fprintln(stderr, printable(fmt.Sprintf("%s at %s: %s", outcome.Status, outcome.Instance, outcome.Text)))
	}
	return exitFailed
}

// printable is text that comes from a device, or from anybody who can write to Redis, as a terminal
// may have it: control characters (line breaks too), marks that change the direction of text and
// bytes that are no UTF-8 are escaped as in a literal of Go. A backslash stays one, so what is
// printed does not always say what it was; the outcome in Redis does.
func printable(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && n == 1 || !strconv.IsPrint(r) {
			quoted := strconv.QuoteToASCII(s[:n])
			b.WriteString(quoted[1 : len(quoted)-1])
		} else {
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}

// parseCommand reads the arguments behind "command"; rest are flags that are settings.
func parseCommand(args []string) (c commands.Command, rest []string, err error) {
	c.Codec, c.Expires = 12, time.Now().Add(time.Minute)
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		name, value, _ := strings.Cut(strings.TrimLeft(args[0], "-"), "=")
		switch name {
		case "h", "help":
			return c, nil, settings.ErrHelp
		case "codec":
			if value != "12" && value != "14" {
				return c, nil, errors.New("--codec: expected 12 or 14")
			}
			if value == "14" {
				c.Codec = 14
			}
		case "expires":
			d, err := time.ParseDuration(value)
			if err != nil || d <= 0 || d > 24*time.Hour {
				return c, nil, errors.New("--expires: expected a duration such as 30s, at most 24h")
			}
			c.Expires = time.Now().Add(d)
		default:
			rest = append(rest, args[0])
		}
		args = args[1:]
	}
	if len(args) < 2 {
		return c, nil, errors.New("expected an IMEI and a text")
	}
	if _, err := teltonika.ParseIMEI(args[0]); err != nil {
		return c, nil, errors.New("IMEI: expected 15 digits")
	}
	c.IMEI, c.Text = args[0], strings.Join(args[1:], " ")
	return c, rest, nil
}

// deliver sends a command by way of the fleet's Redis.
func deliver(ctx context.Context, s *settings.Settings, c commands.Command) (commands.Outcome, error) {
	clients, err := connect(s)
	if err != nil {
		return commands.Outcome{}, err
	}
	defer func() { _ = clients.close() }() // nothing is left unsent
	reg, err := registry.New(registry.Config{
		Client: clients.data, Control: clients.control, HeartbeatInterval: s.HeartbeatInterval, HeartbeatTTL: s.HeartbeatTTL,
	}) // never run: only looked up in
	if err != nil {
		return commands.Outcome{}, err
	}
	return (&commands.Sender{Client: clients.data, Layout: reg.Layout(), Lookup: reg.Lookup}).Send(ctx, c)
}
