package settings

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// What [Load] returns when the command line asks for something else than
// serving.
var (
	// ErrHelp: -h, -help or --help was given.
	ErrHelp = errors.New("settings: help asked for")
	// ErrVersion: -version was given.
	ErrVersion = errors.New("settings: version asked for")
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

// Load reads the settings from command-line arguments (without the program's
// name) and from an environment in the form of os.Environ. The error is
// [ErrHelp], [ErrVersion] or [Faults].
func Load(args, environ []string) (*Settings, error) {
	var faults Faults
	given, stray := fromEnviron(environ)
	faults = append(faults, stray...)
	flags, stray, err := fromArgs(args)
	if err != nil {
		return nil, err
	}
	faults = append(faults, stray...)
	for name, v := range flags {
		given[name] = v
	}

	s := new(Settings)
	wrong := make(map[string]bool)
	for i := range table {
		row := &table[i]
		v, isSet := given[row.name]
		if !isSet {
			if row.def == "" && !row.required {
				continue
			}
			v = value{row.def, row.name}
		}
		if err := row.set(s, v.text); err != nil {
			wrong[row.name] = true
			faults = append(faults, fmt.Sprintf("%s: expected %v%s", v.from, err, row.shown(v.text)))
		}
	}
	faults = append(faults, s.relations(given, wrong)...)
	if len(faults) > 0 {
		return nil, faults
	}
	return s, nil
}

// relations finds settings that are fine alone and unsafe together. A setting
// that was not understood takes no part.
func (s *Settings) relations(given map[string]value, wrong map[string]bool) (faults Faults) {
	if !wrong["HEARTBEAT_TTL"] && !wrong["HEARTBEAT_INTERVAL"] && s.HeartbeatTTL < 3*s.HeartbeatInterval {
		faults = append(faults, fmt.Sprintf(
			"HEARTBEAT_TTL: expected at least three times HEARTBEAT_INTERVAL (%v), got %v: a lost beat or two would make a living replica look dead",
			s.HeartbeatInterval, s.HeartbeatTTL))
	}
	if s.IngestTLSAddr != Off && !wrong[ingestTLSAddr] && (s.IngestTLSCert == "" || s.IngestTLSKey == "") {
		faults = append(faults, ingestTLSAddr+": expected "+ingestTLSCert+" and "+ingestTLSKey+" with it, got one or none")
	}
	if s.IngestProxyAddr != Off && !wrong[ingestProxyAddr] && !wrong[ingestProxyTrusted] && len(s.IngestProxyTrusted) == 0 {
		faults = append(faults, ingestProxyAddr+": expected "+ingestProxyTrusted+" with it: anybody could claim any address")
	}
	_, d := given[janitorInterval]
	_, ms := given[janitorIntervalMS]
	if d && ms {
		faults = append(faults, janitorInterval+" and "+janitorIntervalMS+": expected one of the two, got both")
	}
	return faults
}

// shown is how a refused value is repeated in a fault: not at all if it is, or
// might be, a secret that went into the wrong place.
func (s *setting) shown(v string) string {
	if v == "" && s.required {
		return "; it is not set"
	}
	if s.secret || strings.ContainsRune(v, '@') {
		return "; the value is not shown"
	}
	if len(v) > 60 {
		v = v[:60] + "…"
	}
	return fmt.Sprintf(", got %q", v)
}

func find(match func(*setting) bool) *setting {
	for i := range table {
		if match(&table[i]) {
			return &table[i]
		}
	}
	return nil
}

// ours are the prefixes under which an unknown environment variable is taken
// for a setting that somebody mistyped. REDIS_, HTTP_, LOG_ and the like belong
// to everybody and are left alone.
var ours = []string{"JANITOR_", "HEARTBEAT_", "INGEST_", "DEVICE_AUTH", "TELEMETRY_", "REGISTRY_REVERSE"}

// serviceLink matches what Kubernetes puts into the environment of every pod
// for a service of any name; one called "ingest" or "janitor" must not keep a
// replica from starting.
var serviceLink = regexp.MustCompile(`_SERVICE_HOST$|_SERVICE_PORT(_[A-Z0-9_]+)?$|_PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?$`)

func fromEnviron(environ []string) (map[string]value, Faults) {
	given := make(map[string]value)
	var faults Faults
	for _, pair := range environ {
		name, v, _ := strings.Cut(pair, "=")
		if find(func(s *setting) bool { return s.name == name }) != nil {
			if v != "" {
				given[name] = value{v, name}
			}
			continue
		}
		mine := slices.ContainsFunc(ours, func(p string) bool { return strings.HasPrefix(name, p) })
		if mine && !serviceLink.MatchString(name) {
			faults = append(faults, name+": no such setting; ingest -h lists them")
		}
	}
	slices.Sort(faults)
	return given, faults
}

// flagName is what a mistyped flag may look like to be repeated in a fault;
// anything else might be a URL with a password.
var flagName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,40}$`)

// fromArgs reads --name value, --name=value and, for switches, --name alone;
// one dash or two. The flag package would do, but stops at the first fault.
func fromArgs(args []string) (map[string]value, Faults, error) {
	given := make(map[string]value)
	var faults Faults
	for i := 0; i < len(args); i++ {
		arg := strings.TrimPrefix(args[i], "-")
		if arg == args[i] || arg == "" {
			faults = append(faults, fmt.Sprintf("argument %d: expected flags only; ingest -h lists them", i+1))
			continue
		}
		name, v, hasValue := strings.Cut(strings.TrimPrefix(arg, "-"), "=")
		switch name {
		case "h", "help":
			return nil, nil, ErrHelp
		case "version":
			return nil, nil, ErrVersion
		}
		row := find(func(s *setting) bool { return s.flag() == name })
		if row == nil {
			shown := fmt.Sprintf("argument %d", i+1)
			if flagName.MatchString(name) {
				shown = "--" + name
			}
			faults = append(faults, shown+": no such flag; ingest -h lists them")
			// Its value, if it has one, is not a fault of its own.
			if !hasValue && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
				i++
			}
			continue
		}
		switch {
		case hasValue:
		case row.toggle:
			v = "true"
		case i+1 < len(args):
			i++
			v = args[i]
		default:
			faults = append(faults, "--"+name+": expected a value")
			continue
		}
		given[row.name] = value{v, "--" + name}
	}
	return given, faults, nil
}
