package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
)

// These name the file of the fleets, and one of them.
const fleetsVariable, fleetVariable = "ROLLCALL_FLEETS", "ROLLCALL_FLEET"

// inFleets may be set in the file.
var inFleets = []string{
	"REDIS_URL", "REDIS_PASSWORD_FILE", "REDIS_TLS_CA_FILE", "REDIS_TLS_CERT_FILE", "REDIS_TLS_KEY_FILE",
	"ADMIN_TOKEN", "ADMIN_TOKEN_FILE", "prefix", "http",
}

// named lets a verb take its settings from the file of the fleets. Flags win over the file, and the
// file over the environment, so that a named fleet is never mixed with another one.
func named(c *cli.Command) *cli.Command {
	c.Settings = append(c.Settings, cli.Setting{
		Name: "fleet", Value: cli.Text(new(string)),
		Meaning: "Name of a fleet in the file " + fleetsVariable + ", by default rollcall/fleets in the user's " +
			"configuration (~/.config). Its settings are used instead of the environment's. " + fleetVariable +
			" in the environment does the same.",
	})
	c.Prepare = func(args, environ []string) ([]string, []string, error) {
		name := fleetNamed(args, environ)
		if name == "" {
			return args, environ, nil
		}
		settings, err := readFleet(name, environ)
		if err != nil {
			return nil, nil, err
		}
		environ = slices.DeleteFunc(slices.Clone(environ), func(pair string) bool {
			variable, _, _ := strings.Cut(pair, "=")
			return slices.Contains(inFleets, variable)
		})
		var flags []string
		for _, setting := range slices.Sorted(maps.Keys(settings)) {
			if setting != strings.ToLower(setting) {
				environ = append(environ, setting+"="+settings[setting])
			} else if slices.ContainsFunc(c.Settings, func(s cli.Setting) bool { return s.Name == setting }) {
				flags = append(flags, "--"+setting+"="+settings[setting])
			}
		}
		return append(flags, args...), environ, nil
	}
	return c
}

func fleetNamed(args, environ []string) (name string) {
	for _, pair := range environ {
		if v, ok := strings.CutPrefix(pair, fleetVariable+"="); ok {
			name = v
		}
	}
	for i, arg := range args {
		flag := strings.TrimPrefix(arg, "-")
		if arg == "--" {
			break
		}
		if v, ok := strings.CutPrefix(flag, "-fleet="); ok {
			name = v
		} else if flag == "-fleet" && i+1 < len(args) {
			name = args[i+1]
		}
	}
	return name
}

// readFleet reads lines NAME=value after a line [fleet].
func readFleet(name string, environ []string) (map[string]string, error) {
	path := ""
	for _, pair := range environ {
		if v, ok := strings.CutPrefix(pair, fleetsVariable+"="); ok {
			path = v
		}
	}
	if path == "" {
		dir, err := os.UserConfigDir()
		if err != nil {
			return nil, fmt.Errorf("%s: expected the file of the fleets: %w", fleetsVariable, err)
		}
		path = filepath.Join(dir, "rollcall", "fleets")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--fleet: expected a file with fleets: %w", err)
	}
	fleets := map[string]map[string]string{}
	var of map[string]string
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		line = strings.TrimSpace(line)
		setting, v, isSetting := strings.Cut(line, "=")
		setting = strings.TrimSpace(setting)
		switch {
		case line == "", strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "[") && strings.HasSuffix(line, "]"):
			of = map[string]string{}
			fleets[strings.TrimSpace(line[1:len(line)-1])] = of
		case of == nil || !isSetting || !slices.Contains(inFleets, setting):
			return nil, fmt.Errorf("%s, line %d: expected [name of a fleet], or after it one of %s, = and its value",
				path, number, strings.Join(inFleets, ", "))
		default:
			of[setting] = strings.TrimSpace(v)
		}
	}
	if fleets[name] == nil {
		return nil, fmt.Errorf("--fleet: %s has no fleet %q; it has: %s", path, name,
			strings.Join(slices.Sorted(maps.Keys(fleets)), ", "))
	}
	return fleets[name], nil
}
