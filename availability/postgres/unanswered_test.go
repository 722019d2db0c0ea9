package postgres_test

import (
	"context"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/availability"
)

// by returns the database's URL by a way of its own: carry gets each connection, and one to the
// server.
func (w world) by(carry func(client, server net.Conn)) string {
	w.t.Helper()
	at, err := url.Parse(w.URL)
	require.NoError(w.t, err)
	query := at.Query()
	const socket = ".s.PGSQL.5432"
	behind, folder := filepath.Join(query.Get("host"), socket), w.t.TempDir()
	query.Set("host", folder)
	at.RawQuery = query.Encode()
	ln, err := net.Listen("unix", filepath.Join(folder, socket))
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("unix", behind)
			if err != nil {
				_ = client.Close()
				continue
			}
			go carry(client, server)
		}
	}()
	return at.String()
}

// unanswered returns the database's URL by a way on which connections end, instead of bringing an
// answer, once committed returns true.
func (w world) unanswered(committed func() bool) string {
	w.t.Helper()
	return w.by(func(client, server net.Conn) {
		go func() {
			defer func() { _ = server.Close() }()
			_, _ = io.Copy(server, client)
		}()
		defer func() { _ = client.Close() }()
		for answer := make([]byte, 1<<16); ; {
			n, err := server.Read(answer)
			if err != nil || committed() {
				return
			}
			if _, err := client.Write(answer[:n]); err != nil {
				return
			}
		}
	})
}

// The commit is the last sign of what was changed: it is known before.
func TestWhatACommitWithoutAnAnswerChangedIsReported(t *testing.T) {
	t.Parallel()
	t.Run("a repair", func(t *testing.T) {
		t.Parallel()
		w := setup(t)
		id := w.mitra()
		w.exec("UPDATE mitra_availability SET active_sessions = 5")
		src := open(t, w.unanswered(func() bool { return w.state(id).Sessions == 0 }))
		repaired, err := src.Repair(t.Context())
		require.Error(t, err)
		require.Equal(t, []availability.Repaired{
			{ID: id, Was: "online f, active t, sessions 5", Became: "online f, active t, sessions 0"},
		}, repaired)
	})
	t.Run("a version that outbids", func(t *testing.T) {
		t.Parallel()
		w := setup(t)
		id := w.mitra()
		src := open(t, w.unanswered(func() bool { return w.state(id).Version > 7 }))
		states, err := src.Outbid(t.Context(), []string{id}, []int64{7})
		require.Error(t, err)
		require.Equal(t, []availability.State{w.state(id)}, states)
	})
	t.Run("an auto-offline", func(t *testing.T) {
		t.Parallel()
		w := setup(t)
		id := w.mitra()
		online, err := w.src.SetOnline(t.Context(), id, true)
		require.NoError(t, err)
		src := open(t, w.unanswered(func() bool { return !w.state(id).Online }))
		those := []availability.Condemned{{ID: id, Version: online.Version}}
		_, flipped, err := src.AutoOffline(t.Context(), those, time.Now().Add(time.Hour), fine)
		require.Error(t, err)
		require.Equal(t, []string{id}, flipped)
	})
}

func TestWhatWasRolledBackIsNotReported(t *testing.T) {
	t.Parallel()
	w := setup(t)
	id := w.mitra()
	online, err := w.src.SetOnline(t.Context(), id, true)
	require.NoError(t, err)
	those := []availability.Condemned{{ID: id, Version: online.Version}}
	ctx, cancel := context.WithCancel(t.Context())
	for _, confirm := range []func() error{
		func() error { return errNo },
		func() error { cancel(); return nil },
	} {
		_, flipped, err := w.src.AutoOffline(ctx, those, time.Now().Add(time.Hour), confirm)
		require.Error(t, err)
		require.Empty(t, flipped)
		require.True(t, w.state(id).Online)
	}
}
