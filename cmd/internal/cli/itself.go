package cli

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// Itself returns commands of the running program, for a demonstration that starts it. These
// settings are meant for the program, and not for those that it starts.
func Itself(settings []Setting, environ []string) (func(args ...string) *exec.Cmd, error) {
	binary, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("cli: %w", err)
	}
	inherited := slices.DeleteFunc(slices.Clone(environ), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		return slices.ContainsFunc(settings, func(s Setting) bool { return s.Name == name })
	})
	return func(args ...string) *exec.Cmd {
		cmd := exec.Command(binary, args...)
		cmd.Env = slices.Clone(inherited)
		return cmd
	}, nil
}
