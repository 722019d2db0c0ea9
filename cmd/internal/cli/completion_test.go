package cli

import (
	"bytes"
	"context"
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// completed is a program with two commands, one of them completion.
func completed() *Command {
	c := &Command{Name: "tool", Commands: []*Command{{
		Name: "tool status", About: "tool status shows who's there, and more.",
		Settings: []Setting{{Name: "REDIS_URL"}, {Name: "json"}},
		Run:      func(context.Context, io.Writer, io.Writer) error { return nil },
	}}}
	c.Commands = append(c.Commands, Completion(c))
	return c
}

// script is what the command prints for a shell.
func script(t *testing.T, shell string) string {
	t.Helper()
	var out bytes.Buffer
	require.Equal(t, ExitOK,
		completed().Execute(t.Context(), []string{"completion", shell}, nil, &out, io.Discard))
	return out.String()
}

func TestBashCompletesCommandsFlagsAndArguments(t *testing.T) {
	t.Parallel()
	for words, want := range map[string]string{
		"tool ''":           "status completion",
		"tool st":           "status",
		"tool nothing":      "",
		"tool status --r":   "--redis-url",
		"tool status ''":    "--redis-url --json --help",
		"tool completion z": "zsh",
		"tool other --":     "",
	} {
		text := script(t, "bash") + "COMP_WORDS=(" + words +
			"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _tool; " +
			`echo "${COMPREPLY[@]}"` + "\n"
		cmd := exec.CommandContext(t.Context(), "bash", "--norc", "-u")
		cmd.Stdin = strings.NewReader(text)
		said, err := cmd.CombinedOutput()
		require.NoError(t, err, string(said))
		require.Equal(t, want, strings.TrimSpace(string(said)), words)
	}
}

// TestEachShellGetsEachCommandAndFlag asks a shell itself whether it can read the script, where it
// is installed.
func TestEachShellGetsEachCommandAndFlag(t *testing.T) {
	t.Parallel()
	for shell, want := range map[string][]string{
		"bash": {"complete -F _tool tool\n", `status) words="--redis-url --json --help"`},
		"zsh": {"#compdef tool\n", "'status:shows whos there'\n",
			"status) compadd -- --redis-url --json --help ;;",
			"completion) compadd -- bash zsh fish --help ;;", "compdef _tool tool\n"},
		"fish": {"complete -c tool -n __fish_use_subcommand -a status -d 'shows whos there'\n",
			"complete -c tool -n '__fish_seen_subcommand_from status' -l redis-url\n",
			"complete -c tool -n '__fish_seen_subcommand_from completion' -a zsh\n"},
	} {
		text := script(t, shell)
		for _, part := range want {
			require.Contains(t, text, part, shell)
		}
		if binary, err := exec.LookPath(shell); err == nil {
			cmd := exec.CommandContext(t.Context(), binary, "-n")
			cmd.Stdin = strings.NewReader(text)
			said, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s: %s", shell, said)
		}
	}
}

func TestAShellThatIsNotKnownIsAFault(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"completion"}, {"completion", "tcsh"}, {"completion", "bash", "zsh"}} {
		var said bytes.Buffer
		require.Equal(t, ExitUsage, completed().Execute(t.Context(), args, nil, io.Discard, &said))
		require.Contains(t, said.String(), "expected one of bash, zsh and fish")
	}
}

func TestAFlagIsNamedWithTheNearestOne(t *testing.T) {
	t.Parallel()
	c := &Command{Name: "greet", Settings: []Setting{{Name: "REDIS_URL"}, {Name: "follow"}, {Name: "HEARTBEAT_TTL"}}}
	for word, want := range map[string]string{
		"folow": ", did you mean --follow?", "redis-ulr": ", did you mean --redis-url?",
		"HEARTBEAT-TTL":      ", did you mean --heartbeat-ttl?",
		"heartbeat-interval": "", "url": "", "x": "",
	} {
		require.Equal(t, Faults{"--" + word + ": no such flag" + want + "; greet -h lists them"},
			c.Load([]string{"--" + word}, nil), word)
	}
}
