package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"regexp"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/calltest"
)

// greeter is a program with one setting, one secret and one command.
func greeter(run func(name string) error) *Command {
	var name string
	rows := []Setting{
		{Name: "NAME", Default: "you", Meaning: "`whom` to greet. **Never** nobody", Value: Text(&name)},
		{Name: "KEY", Secret: true, Value: func(v string) error {
			if v != "right" {
				return errors.New("the right one")
			}
			return nil
		}},
		{Name: "loud", Default: "false", Switch: true, Value: Bool(new(bool))},
	}
	does := func(context.Context, io.Writer, io.Writer) error { return run(name) }
	said := func(_ context.Context, _, stderr io.Writer) error {
		_, err := io.WriteString(stderr, "in my words\n")
		return errors.Join(err, ErrSaid)
	}
	return &Command{
		Name: "greet", About: "greet greets.", Settings: rows, Run: does, Prefixes: []string{"NAME"},
		Commands: []*Command{{Name: "greet fail", Arguments: "TEXT", Run: said}},
	}
}

func TestFlagsAreReadToTheEndWhateverIsWrong(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args []string
		want Faults
	}{
		{[]string{"--name", "a", "-name=b", "--loud"}, nil},
		{[]string{"--name"}, Faults{"--name: expected a value"}},
		{[]string{"--nope", "value", "--nope2=3", "--name"}, Faults{
			"--nope: no such flag; greet -h lists them", "--nope2: no such flag; greet -h lists them", "--name: expected a value",
		}},
		{[]string{"--=x", "---x", "-", "--", "stray", "--loud=maybe"}, Faults{
			"argument 1: expected flags only; greet -h lists them", "argument 2: expected flags only; greet -h lists them",
			"argument 3: expected flags only; greet -h lists them", "argument 5: expected flags only; greet -h lists them",
			`--loud: expected true or false, got "maybe"`,
		}},
		{[]string{"--redis://:hunter2@h", "--key", "hunter2"}, Faults{
			"argument 1: no such flag; greet -h lists them", "--key: expected the right one; the value is not shown",
		}},
	} {
		err := greeter(nil).Load(tt.args, nil)
		if tt.want == nil {
			require.NoError(t, err)
			continue
		}
		require.Equal(t, tt.want, err, tt.args)
	}
	require.Equal(t, Faults{"NAMES: no such setting; greet -h lists them"}, greeter(nil).Load(nil, []string{"NAMES=x", "loud=maybe"}))
}

func TestAFlagWinsOverTheEnvironment(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]struct{ args, environ []string }{
		"you": {nil, []string{"NAME="}}, "env": {nil, []string{"NAME=env", "KEY=right"}},
		"flag": {[]string{"--name=flag"}, []string{"NAME=env"}},
	} {
		greeted := ""
		greet := greeter(func(name string) error { greeted = name; return nil })
		require.Equal(t, ExitOK, greet.Execute(t.Context(), c.args, c.environ, io.Discard, io.Discard))
		require.Equal(t, want, greeted)
	}
}

func TestTheExitStatusSaysWhatHappened(t *testing.T) {
	t.Parallel()
	var err error
	greet := func(args ...string) (int, string) {
		var stdout, stderr bytes.Buffer
		status := greeter(func(string) error { return err }).Execute(t.Context(), args, nil, &stdout, &stderr)
		if stderr.Len() > 0 {
			require.Empty(t, stdout.String())
			return status, "stderr: " + stderr.String()
		}
		return status, stdout.String()
	}
	calltest.Tells(t, greet, `
		0 ~ \A\z
		1 fail ~ ^stderr: in my words$
		2 Fail ~ ^stderr: greet: unknown command "Fail": did you mean fail\? \(greet -h shows all\)$
		2 fial ~ ^stderr: greet: unknown command "fial": did you mean fail\? \(greet -h shows all\)$
		2 help fial ~ ^stderr: greet: unknown command "fial": did you mean fail\?
		2 --nmae=x ~ ^stderr: greet: settings: 1 wrong:\n  --nmae: no such flag; greet -h lists them\n\(greet -h shows every flag\)$
		2 --nope ~ ^stderr: greet: settings: 1 wrong:\n  --nope: no such flag; greet -h lists them
		0 fail --version ~ ^greet $VERSION$
		0 version ~ ^greet $VERSION$`, "$VERSION", regexp.QuoteMeta(Version()))
	err = errors.New("no luck")
	calltest.Tells(t, greet, `1 ~ ^stderr: greet: no luck$`)
	var help bytes.Buffer
	require.Equal(t, ExitOK, greeter(nil).Execute(t.Context(), []string{"--nope", "-h"}, nil, &help, io.Discard))
	require.Contains(t, help.String(), "  --name, NAME (default: you)\n        whom to greet. Never nobody\n")
	for _, of := range [][]string{{}, {"fail"}} {
		var verb, flag bytes.Buffer
		require.Equal(t, ExitOK, greeter(nil).Execute(t.Context(), append([]string{"help"}, of...), nil, &verb, io.Discard))
		require.Equal(t, ExitOK, greeter(nil).Execute(t.Context(), append(of, "-h"), nil, &flag, io.Discard))
		require.Equal(t, flag.String(), verb.String())
	}
	reader, writer := io.Pipe()
	require.NoError(t, reader.Close())
	require.Equal(t, ExitFailed, greeter(nil).Execute(t.Context(), []string{"-h"}, nil, writer, io.Discard), "nobody reads it")
}

func TestAnErrorThatRepeatsWhatSomebodyWroteDoesNothingToTheTerminal(t *testing.T) {
	c := &Command{Name: "tool", Run: func(context.Context, io.Writer, io.Writer) error {
		return errors.Join(errors.New("the replica answers \x1b[2J\u009b31m"), errors.New(`key "a\b"`))
	}}
	var stdout, stderr bytes.Buffer
	require.Equal(t, ExitFailed, c.Execute(t.Context(), nil, nil, &stdout, &stderr))
	require.Equal(t, "tool: the replica answers \\x1b[2J\\u009b31m\nkey \"a\\b\"\n", stderr.String())
}

// timeout(1) sends a signal to the process and the same to its group, microseconds apart.
func TestASecondSignalCountsOnlyAfterHalfASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		signals := make(chan os.Signal, 2)
		stopped, left := false, false
		go func() {
			insisted(signals, func() { stopped = true })
			left = true
		}()
		signals <- syscall.SIGTERM
		signals <- syscall.SIGTERM
		synctest.Wait()
		require.Equal(t, []bool{true, false}, []bool{stopped, left}, "one request to stop, sent twice")
		time.Sleep(echo - time.Millisecond)
		signals <- syscall.SIGINT
		synctest.Wait()
		require.False(t, left)
		time.Sleep(time.Millisecond)
		signals <- syscall.SIGINT
		synctest.Wait()
		require.True(t, left, "somebody insists")
	})
}
