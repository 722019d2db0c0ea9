package cli

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rollcall-redis/rollcall/internal/near"
)

// Faults are one line each, with the setting and the expected value.
type Faults []string

// Error puts each fault on a line of its own.
func (f Faults) Error() string {
	return "settings: " + strconv.Itoa(len(f)) + " wrong:\n  " + strings.Join(f, "\n  ")
}

type value struct {
	text, from string
	wrong      bool
}

// Input is what a command was given.
type Input struct {
	// Args follow the flags.
	Args []string

	given  map[string]*value
	faults Faults
}

// Given reports whether these settings were given.
func (in *Input) Given(names ...string) bool {
	return !slices.ContainsFunc(names, func(n string) bool { return in.given[n] == nil })
}

// Understood reports whether these settings are valid.
func (in *Input) Understood(names ...string) bool {
	return !slices.ContainsFunc(names, func(n string) bool { return in.given[n] != nil && in.given[n].wrong })
}

// Fault adds a fault.
func (in *Input) Fault(format string, args ...any) {
	in.faults = append(in.faults, fmt.Sprintf(format, args...))
}

// Load stores the settings of arguments and of an environment in the form of os.Environ. A flag
// wins. An empty variable counts as not set, because compose files and charts produce those. The
// error is [flag.ErrHelp], or [Faults] with everything that is wrong.
func (c *Command) Load(args, environ []string) error {
	rows := slices.Concat(c.Settings, c.Inherited)
	in := &Input{given: make(map[string]*value)}
	c.fromEnviron(in, rows, environ)
	if err := c.fromArgs(in, rows, args); err != nil {
		return err
	}
	c.shown, c.exposed = nil, nil
	for _, row := range rows {
		v, given := in.given[row.Name]
		if !given {
			v = &value{text: row.Default, from: row.Name}
		}
		if given || row.Default != "" || row.Required {
			if err := row.Value(v.text); err != nil {
				v.wrong = true
				in.Fault("%s: expected %v%s", v.from, err, row.repeated(v.text))
				continue
			}
		}
		if strings.HasPrefix(v.from, "--") && row.Secret && (row.Bare || hasPassword(v.text)) {
			c.exposed = append(c.exposed, v.from)
		}
		if text := row.inLog(v.text); text != "" {
			c.shown = append(c.shown, slog.String(strings.ToLower(row.Name), text))
		}
	}
	for _, row := range rows {
		if row.Check != nil {
			row.Check(in)
		}
	}
	if c.Check != nil {
		c.Check(in)
	}
	if len(in.faults) > 0 {
		return in.faults
	}
	return nil
}

// repeated leaves out secrets, and anything that might be a secret in the wrong place.
func (s Setting) repeated(v string) string {
	switch {
	case v == "" && s.Required:
		return "; it is not set"
	case s.Secret || strings.ContainsRune(v, '@'):
		return "; the value is not shown"
	case len(v) > 60:
		v = v[:60] + "…"
	}
	return fmt.Sprintf(", got %q", v)
}

func (s Setting) inLog(v string) string {
	switch {
	case s.Shown != nil:
		return s.Shown()
	case s.Secret:
		return Secret(v).String()
	}
	return v
}

// hasPassword also takes PostgreSQL's keywords.
func hasPassword(text string) bool {
	u, err := url.Parse(text)
	if err == nil && u.User != nil {
		if _, has := u.User.Password(); has {
			return true
		}
	}
	return strings.Contains(text, "password=")
}

// serviceLink matches what Kubernetes sets in every pod for a service: one called "ingest" must not
// keep a replica from starting.
var serviceLink = regexp.MustCompile(`_SERVICE_HOST$|_SERVICE_PORT(_[A-Z0-9_]+)?$|` +
	`_PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?$`)

func (c *Command) fromEnviron(in *Input, rows []Setting, environ []string) {
	for _, pair := range environ {
		name, v, _ := strings.Cut(pair, "=")
		ours := slices.ContainsFunc(c.Prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
		switch {
		case slices.ContainsFunc(rows, func(s Setting) bool { return s.Name == name && !s.isFlagAlone() }):
			if v != "" {
				in.given[name] = &value{text: v, from: name}
			}
		case ours && !serviceLink.MatchString(name):
			in.Fault("%s: no such setting; %s -h lists them", name, c.Name)
		}
	}
}

// flagName matches what may be repeated in a fault; anything else might be a URL with a password.
var flagName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,40}$`)

// fromArgs continues where package flag stops at a fault.
func (c *Command) fromArgs(in *Input, rows []Setting, args []string) error {
	fs := flag.NewFlagSet(c.Name, flag.ContinueOnError)
	fs.SetOutput(io.Discard) // its complaints repeat values
	version := fs.Bool("version", false, "")
	for _, row := range rows {
		add := fs.Func
		if row.Switch {
			add = fs.BoolFunc
		}
		add(row.Flag(), "", func(v string) error {
			in.given[row.Name] = &value{text: v, from: "--" + row.Flag()}
			return nil
		})
	}
	for rest := args; ; {
		before := len(rest)
		err := fs.Parse(rest)
		rest = fs.Args()
		at := len(args) - len(rest)
		switch {
		case errors.Is(err, flag.ErrHelp):
			return err
		case *version:
			return errVersion
		case err == nil && c.Mixed && len(rest) > 0 && (at == 0 || args[at-1] != "--"):
			in.Args = append(in.Args, rest[0])
			rest = rest[1:]
			continue
		case err == nil && (len(rest) == 0 || c.Arguments != ""):
			in.Args = append(in.Args, rest...)
			return nil
		case err == nil || len(rest) == before: // not a flag, or something like "--=x"
			in.Fault("argument %d: expected flags only; %s -h lists them", at+1, c.Name)
			rest = rest[1:]
			continue
		}
		name, _, hasValue := strings.Cut(strings.TrimLeft(args[at-1], "-"), "=")
		shown, meant := "--"+name, ""
		switch {
		case fs.Lookup(name) != nil:
			in.Fault("%s: expected a value", shown)
			continue
		case !flagName.MatchString(name):
			shown = fmt.Sprintf("argument %d", at)
		default:
			meant = near.Name(strings.ToLower(name), flags(rows), len(name)/4)
		}
		if meant != "" {
			meant = ", did you mean --" + meant + "?"
		}
		in.Fault("%s: no such flag%s; %s -h lists them", shown, meant, c.Name)
		// Its value is not a fault of its own.
		if !hasValue && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
			rest = rest[1:]
		}
	}
}
