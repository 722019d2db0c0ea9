package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
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

// unpacked returns the files of an archive by name.
func unpacked(t *testing.T, archive []byte) map[string]string {
	t.Helper()
	zipped, err := gzip.NewReader(bytes.NewReader(archive))
	require.NoError(t, err)
	files := map[string]string{}
	for r := tar.NewReader(zipped); ; {
		head, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		require.NoError(t, err)
		text, err := io.ReadAll(r)
		require.NoError(t, err)
		files[strings.TrimPrefix(head.Name, "rollcall-debug/")] = string(text)
	}
}

func TestAnArchiveHasWhatOneAsksForAndNoSecret(t *testing.T) {
	t.Parallel()
	const password = "s3cret/pass word"
	server := redistest.Start(t)
	client := server.Client()
	w := newWorld(t, redistest.World{Client: client, Options: server.Options(), Real: true})
	w.listened()
	one := w.replica("one")
	until(t, "one leads", func() bool { return one.jan.Status().Leading })
	w.holds(one, imei)
	require.NoError(t, client.HSet(t.Context(), w.keys.Registry(), other, "").Err())
	// A reason may hold anything.
	require.NoError(t, one.jan.Pause(t.Context(), janitor.Pause{
		Who: "ann", Why: "redis://app:" + "another@10.0.0.1 for " + imei,
	}))
	require.NoError(t, client.ConfigSet(t.Context(), "requirepass", password).Err())

	file := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(file, []byte(password+"\n"), 0o600))
	for name, environ := range map[string][]string{
		"in the URL":  {"REDIS_URL=redis://:s3cret%2Fpass%20word@" + server.Addr()},
		"in its file": {"REDIS_URL=redis://" + server.Addr(), "REDIS_PASSWORD_FILE=" + file},
	} {
		w.environ = environ
		to := filepath.Join(t.TempDir(), "a.tar.gz")
		code, stdout, stderr := w.run("debug", "--file", to)
		require.Equal(t, cli.ExitOK, code, stderr)
		require.Contains(t, stdout, to+" has ")
		text, err := os.ReadFile(to)
		require.NoError(t, err)
		files := unpacked(t, text)
		info := "redis/" + strings.ReplaceAll(server.Addr(), ":", "_")
		require.ElementsMatch(t, keysOf(files), []string{"about.txt", "status.json", "status.txt", "doctor.txt",
			"events.jsonl", info})
		require.Contains(t, files["status.txt"], "<imei>", name)
		require.Contains(t, files[info], "redis_version")
		for f, text := range files {
			for _, secret := range []string{password, "s3cret", "another", imei, other} {
				require.NotContains(t, text, secret, "%s: %s", name, f)
			}
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
	files := unpacked(t, []byte(stdout))
	require.Contains(t, files["not-read.txt"], "WRONGPASS")
	require.NotContains(t, files["not-read.txt"], "wrong-guess")
	require.Len(t, files, 1)
}

func keysOf(files map[string]string) (names []string) {
	for name := range files {
		names = append(names, name)
	}
	return names
}

func TestEventsTellWhatHappenedAndHowLongItLasted(t *testing.T) {
	redistest.Worlds(t, func(t *testing.T, rw redistest.World) {
		t.Parallel()
		w := newWorld(t, rw)
		code, stdout, _ := w.run("events")
		require.Equal(t, cli.ExitOK, code)
		require.Equal(t, "nothing happened that Redis still knows\n", stdout)
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
		_, stdout, _ = w.run("events")
		require.Regexp(t, `(?m)Z +2m13s +nothing is deleted: Redis was not observed`, stdout)
		require.Regexp(t, `(?m)Z +2h30m +seven fell silent$`, stdout)
		require.Regexp(t, `(?m)Z +- +six said goodbye$`, stdout)
		require.Regexp(t, `(?m)Z +20m +paused by ann \(look\)$`, stdout)
		_, stdout, _ = w.run("events", "--since", "1h", "--json")
		var kinds []string
		for text := range strings.Lines(stdout) {
			var e inspect.Event
			require.NoError(t, json.Unmarshal([]byte(text), &e))
			kinds = append(kinds, string(e.Kind))
		}
		require.Equal(t, []string{"pause", "alive", "resume"}, kinds)
	})
}
