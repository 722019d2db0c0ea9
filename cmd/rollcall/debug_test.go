package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/inspect"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/internal/timeline"
	"github.com/rollcall-redis/rollcall/janitor"
)

func TestADossierHasWhatOneAsksForAndNoSecret(t *testing.T) {
	t.Parallel()
	const password = "s3cret/pass word"
	server := redistest.Start(t)
	client := server.Client()
	w := newWorld(t, redistest.World{Client: client, Options: server.Options(), Real: true})
	w.listened()
	one := w.replica("one")
	until(t, "one leads", func() bool { return one.jan.Status().Leading })
	w.holds(one, imei)
	w.redis("HSET", w.keys.Registry(), other, "")
	// A reason may hold anything.
	require.NoError(t, one.jan.Pause(t.Context(), janitor.Pause{
		Who: "ann", Why: "redis://app:" + "another@10.0.0.1 for " + imei,
	}))
	w.redis("CONFIG", "SET", "requirepass", password)

	file := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(file, []byte(password+"\n"), 0o600))
	for name, environ := range map[string][]string{
		"in the URL":  {"REDIS_URL=redis://:s3cret%2Fpass%20word@" + server.Addr()},
		"in its file": {"REDIS_URL=redis://" + server.Addr(), "REDIS_PASSWORD_FILE=" + file},
	} {
		w.environ = environ
		to := filepath.Join(t.TempDir(), "a.txt")
		code, stdout, stderr := w.run("debug", "--file", to)
		require.Equal(t, cli.ExitOK, code, stderr)
		require.Contains(t, stdout, to+" is written; 0 parts")
		text, err := os.ReadFile(to)
		require.NoError(t, err)
		for _, has := range []string{
			"== about ==", "== status ==", "== doctor ==", "== events ==", "== INFO of " + server.Addr(), "redis_version", "<imei>",
		} {
			require.Contains(t, string(text), has, name)
		}
		for _, secret := range []string{password, "s3cret", "another", imei, other} {
			require.NotContains(t, string(text), secret, name)
		}
		code, _, stderr = w.run("debug", "--file", to)
		require.Equal(t, cli.ExitFailed, code)
		require.Contains(t, stderr, "file exists")
	}
	w.environ = []string{"REDIS_PASSWORD_FILE=" + file}
	code, _, _ := w.run("debug", "--file", "-", "--redis-url", "redis://:wrong-guess@"+server.Addr())
	require.Equal(t, cli.ExitUsage, code, "a password in the URL beside its file")
	w.environ = []string{"REDIS_URL=redis://:wrong-guess@" + server.Addr()}
	code, stdout, _ := w.run("debug", "--file", "-")
	require.Equal(t, cli.ExitOK, code)
	require.Regexp(t, `== redis ==\nnot read: .*WRONGPASS`, stdout)
	require.NotContains(t, stdout, "wrong-guess")
	require.NotContains(t, stdout, "== status")
}

func TestEventsTellWhatHappenedAndHowLongItLasted(t *testing.T) {
	redistest.Worlds(t, func(t *testing.T, rw redistest.World) {
		t.Parallel()
		w := newWorld(t, rw)
		now, err := w.client.Time(t.Context()).Result()
		require.NoError(t, err)
		at := func(ago time.Duration) time.Time { return now.Add(-ago) }
		require.NoError(t, timeline.Add(t.Context(), w.client, w.keys.Timeline(),
			timeline.Event{Kind: timeline.Hold, Reason: "gap", At: at(3 * time.Hour)},
			timeline.Event{Kind: timeline.Death, Instance: "seven", At: at(2*time.Hour + 50*time.Minute)},
			timeline.Event{Kind: timeline.HoldOver, Reason: "gap", At: at(3*time.Hour - 133*time.Second)},
			timeline.Event{Kind: timeline.Left, Instance: "six", At: at(2 * time.Hour)},
			timeline.Event{Kind: timeline.Pause, Who: "ann", Why: "look", At: at(30 * time.Minute)},
			timeline.Event{Kind: timeline.Alive, Instance: "seven", At: at(20 * time.Minute)},
			timeline.Event{Kind: timeline.Resume, Who: "ann", At: at(10 * time.Minute)},
		))
		w.tells(`
			0 events ~ Z +2m13s +nothing is deleted: Redis was not observed
			0 events ~ Z +2h30m +seven fell silent$
			0 events ~ Z +- +six said goodbye$
			0 events ~ Z +20m +paused by ann \(look\)$`)
		_, stdout, _ := w.run("events", "--since", "1h", "--json")
		var kinds []string
		for text := range strings.Lines(stdout) {
			var e inspect.Event
			require.NoError(t, json.Unmarshal([]byte(text), &e))
			kinds = append(kinds, string(e.Kind))
		}
		require.Equal(t, []string{"pause", "alive", "resume"}, kinds)
	})
}
