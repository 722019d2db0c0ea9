package postgres_test

import (
	"io"
	"net"
	"net/url"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rollcall-redis/rollcall/availability"
	"github.com/rollcall-redis/rollcall/availability/postgres"
)

// cut is a way to the server that holds what a client sends, as a network does that brings it once
// it is whole again. Nothing else passes meanwhile.
type cut struct {
	url      string
	down     atomic.Bool
	whole    chan struct{} // closed once it is
	answered chan struct{} // closed once the server has answered what was held
}

func (w world) cut() *cut {
	w.t.Helper()
	c := &cut{whole: make(chan struct{}), answered: make(chan struct{})}
	c.url = w.by(c.carry)
	return c
}

func (c *cut) carry(client, server net.Conn) {
	if c.down.Load() {
		_, _ = client.Close(), server.Close()
		return
	}
	held := make(chan struct{})
	hold := sync.OnceFunc(func() { close(held) })
	go func() {
		defer func() { _ = server.Close() }()
		for sent := make([]byte, 1<<16); ; {
			n, err := client.Read(sent)
			if err != nil {
				return
			}
			if c.down.Load() {
				<-c.whole
				hold()
			}
			if _, err := server.Write(sent[:n]); err != nil {
				return
			}
			if c.down.Load() { // the client is gone, and must not take the server's answer along
				<-c.answered
			}
		}
	}()
	defer func() { _ = client.Close() }()
	for answer := make([]byte, 1<<16); ; {
		n, err := server.Read(answer)
		select {
		case <-held:
			close(c.answered)
			return
		default:
		}
		if err != nil {
			return
		}
		if _, err := client.Write(answer[:n]); err != nil && err != io.EOF && !c.down.Load() {
			return
		}
	}
}

func TestAWriteThatWasGivenUpDoesNotUndoANewerOne(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(src *postgres.Source, newer bool, mitra, session, other string) error{
		"active": func(src *postgres.Source, newer bool, mitra, _, _ string) error {
			_, err := src.SetActive(t.Context(), mitra, newer)
			return err
		},
		"offline": func(src *postgres.Source, newer bool, mitra, _, _ string) error {
			_, err := src.SetOnline(t.Context(), mitra, !newer)
			return err
		},
		"paid": func(src *postgres.Source, newer bool, _, session, _ string) error {
			_, _, err := src.Extend(t.Context(), session, newer)
			return err
		},
		"setting": func(src *postgres.Source, newer bool, _, _, _ string) error {
			return src.PutSetting(t.Context(), "require_ping", newer)
		},
		"with another": func(src *postgres.Source, newer bool, mitra, session, other string) error {
			_, _, err := src.Reroute(t.Context(), session, map[bool]string{false: mitra, true: other}[newer], 9)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, _ := setup(t)
			mitra, other := w.mitra(), w.mitra()
			session := w.session("active", other)
			network := w.cut()
			hasty := open(t, network.url, postgres.Timeout(2*time.Second))
			for range 2 { // the statements are prepared: what is held is a whole call
				for _, newer := range []bool{false, true} {
					w.NoError(call(hasty, newer, mitra, session, other))
				}
			}
			network.down.Store(true)
			w.ErrorContains(call(hasty, false, mitra, session, other), "no answer within 2s")
			w.NoError(call(w.Source, true, mitra, session, other))
			states := func() []availability.State { return []availability.State{w.state(mitra), w.state(other)} }
			status := func() string {
				return one[string](w, "SELECT concat(status, mitra_id, (SELECT value FROM app_config WHERE key = 'require_ping')) FROM chat_sessions")
			}
			want, wantStatus := states(), status()
			until := one[time.Time](w, "SELECT clock_timestamp() + interval '2 s'") // its clock is known as exactly as an answer may take
			w.Eventually(func() bool { return one[bool](w, "SELECT clock_timestamp() > $1", until) }, patience, time.Millisecond)
			close(network.whole)
			<-network.answered
			w.Equal(want, states())
			w.Equal(wantStatus, status())
			w.requireTruth()
		})
	}
}

// A clock that was set costs a call that is made again, and refuses nobody.
func TestAServerWhoseClockIsAheadOfWhatIsKnownRefusesNobody(t *testing.T) {
	w, _ := setup(t)
	id := w.mitra()
	w.exec(`CREATE TABLE ahead AS SELECT interval '0' AS by;
		CREATE FUNCTION clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS
		$$ SELECT pg_catalog.clock_timestamp() + by FROM public.ahead $$`)
	src := open(t, w.URL+"&search_path=public,pg_catalog")
	for _, ahead := range []string{"0", "1 hour", "-1 hour", "2 days"} {
		w.exec("UPDATE ahead SET by = $1::text::interval", ahead)
		for _, online := range []bool{true, false} {
			st, err := src.SetOnline(t.Context(), id, online)
			w.NoError(err)
			w.Equal(online, st.Online)
		}
		w.exec("UPDATE ahead SET by = by + interval '1 hour'")
		w.NoError(src.PutSetting(t.Context(), "require_ping", true))
	}
}

// by returns the database's URL by a way of its own: carry gets each connection, and one to the
// server.
func (w world) by(carry func(client, server net.Conn)) string {
	w.t.Helper()
	at, err := url.Parse(w.URL)
	w.NoError(err)
	query := at.Query()
	const socket = ".s.PGSQL.5432"
	behind, folder := filepath.Join(query.Get("host"), socket), w.t.TempDir()
	query.Set("host", folder)
	at.RawQuery = query.Encode()
	ln, err := net.Listen("unix", filepath.Join(folder, socket))
	w.NoError(err)
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
