package service

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Faults is everything that was wrong with the settings, one line each, naming
// the setting and what was expected of it.
type Faults []string

// Error puts each fault on a line of its own.
func (f Faults) Error() string {
	return "settings: " + strconv.Itoa(len(f)) + " wrong:\n  " + strings.Join(f, "\n  ")
}

// value is the text of a setting and where it came from, as an operator would
// look for it.
type value struct{ text, from string }

// Input is what a command was given.
type Input struct {
	// Args stand behind the flags.
	Args []string

	given map[string]value
	wrong map[string]bool
}

// Given reports whether all of these settings were given.
func (in *Input) Given(names ...string) bool {
	return !slices.ContainsFunc(names, func(n string) bool { _, ok := in.given[n]; return !ok })
}

// Understood reports whether all of these settings have a value that was understood.
func (in *Input) Understood(names ...string) bool {
	return !slices.ContainsFunc(names, func(n string) bool { return in.wrong[n] })
}

// Load reads the settings from arguments and from an environment in the form of os.Environ, and
// stores them. A flag wins; an empty variable counts as not set, since compose files and charts
// produce those. The error is [flag.ErrHelp], or [Faults] with all that is wrong.
func (c *Command) Load(args, environ []string) error {
	rows := slices.Concat(c.Settings, c.Inherited)
	in := &Input{given: make(map[string]value), wrong: make(map[string]bool)}
	faults := c.fromEnviron(in, rows, environ)
	more, err := c.fromArgs(in, rows, args)
	if err != nil {
		return err
	}
	faults = append(faults, more...)
	c.shown = nil
	for i := range rows {
		row := &rows[i]
		v, given := in.given[row.Name]
		if !given {
			v = value{row.Default, row.Name}
		}
		if given || row.Default != "" || row.Required {
			if err := row.Value(v.text); err != nil {
				in.wrong[row.Name] = true
				faults = append(faults, fmt.Sprintf("%s: expected %v%s", v.from, err, row.repeated(v.text)))
				continue
			}
		}
		if text := row.inLog(v.text); text != "" {
			c.shown = append(c.shown, slog.String(strings.ToLower(row.Name), text))
		}
	}
	if c.Check != nil {
		for _, err := range c.Check(in) {
			faults = append(faults, err.Error())
		}
	}
	if len(faults) > 0 {
		return faults
	}
	return nil
}

// repeated is how a refused value appears in a fault: not at all if it is, or
// might be, a secret that went into the wrong place.
func (s *Setting) repeated(v string) string {
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

// inLog is how a value appears in the log.
func (s *Setting) inLog(v string) string {
	switch {
	case s.Shown != nil:
		return s.Shown()
	case s.Secret:
		return Secret(v).String()
	}
	return v
}

// serviceLink matches what Kubernetes puts into the environment of every pod
// for a service of any name; one called "ingest" or "janitor" must not keep a
// replica from starting.
var serviceLink = regexp.MustCompile(`_SERVICE_HOST$|_SERVICE_PORT(_[A-Z0-9_]+)?$|_PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?$`)

func (c *Command) fromEnviron(in *Input, rows []Setting, environ []string) (faults Faults) {
	for _, pair := range environ {
		name, v, _ := strings.Cut(pair, "=")
		ours := slices.ContainsFunc(c.Prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
		switch {
		case slices.ContainsFunc(rows, func(s Setting) bool { return s.Name == name && !s.isFlagAlone() }):
			if v != "" {
				in.given[name] = value{v, name}
			}
		case ours && !serviceLink.MatchString(name):
			faults = append(faults, name+": no such setting; "+c.Name+" -h lists them")
		}
	}
	slices.Sort(faults)
	return faults
}

// flagName is what a mistyped flag may look like to be repeated in a fault;
// anything else might be a URL with a password.
var flagName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,40}$`)

// fromArgs reads flags by package flag, which stops at a fault: then it goes on behind that.
func (c *Command) fromArgs(in *Input, rows []Setting, args []string) (faults Faults, err error) {
	fs := flag.NewFlagSet(c.Name, flag.ContinueOnError)
	fs.SetOutput(io.Discard) // its complaints repeat values
	fs.Usage = func() {}
	version := fs.Bool("version", false, "")
	for i := range rows {
		row := &rows[i]
		add := fs.Func
		if row.Switch {
			add = fs.BoolFunc
		}
		add(row.flag(), "", func(v string) error {
			in.given[row.Name] = value{v, "--" + row.flag()}
			return nil
		})
	}
	for rest := args; ; {
		before := len(rest)
		err := fs.Parse(rest)
		rest = fs.Args()
		at := len(args) - len(rest) // arguments that were read
		switch {
		case errors.Is(err, flag.ErrHelp):
			return nil, err
		case *version:
			return nil, errVersion
		case err == nil && (len(rest) == 0 || c.Arguments != ""):
			in.Args = rest
			return faults, nil
		case err == nil || len(rest) == before: // no flag, or something like "--=x"
			faults = append(faults, fmt.Sprintf("argument %d: expected flags only; %s -h lists them", at+1, c.Name))
			rest = rest[1:]
			continue
		}
		name, _, hasValue := strings.Cut(strings.TrimLeft(args[at-1], "-"), "=")
		if fs.Lookup(name) != nil {
			faults = append(faults, "--"+name+": expected a value")
			continue
		}
		shown := fmt.Sprintf("argument %d", at)
		if flagName.MatchString(name) {
			shown = "--" + name
		}
		faults = append(faults, shown+": no such flag; "+c.Name+" -h lists them")
		// Its value, if it has one, is not a fault of its own.
		if !hasValue && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
			rest = rest[1:]
		}
	}
}
