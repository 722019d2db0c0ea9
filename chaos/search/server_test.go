package search

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// refusal is how the server turns new connections away.
type refusal int

const (
	welcome   refusal = iota
	full              // at its limit of connections
	noLogin           // the password is not the one that the replicas have
	unnoticed         // by something in front of the server: it counts nothing
)

// redisServer is miniredis with the facts that a real server tells of itself, and a record of what
// the oracle needs: each beat and each eviction, at the instant at which it lands.
type redisServer struct {
	*miniredis.Miniredis
	t       *testing.T
	options *redis.Options
	evicted func(e eviction) // is called in the middle of a script: it must not ask the server

	mu       sync.Mutex
	up       bool
	run      int // life of the server
	refuses  refusal
	rejected int                  // connections turned away for want of room
	denied   int                  // logins refused
	commands int                  // done in this life
	accepted int                  // connections
	beats    map[string]time.Time // by key: when a heartbeat last landed
	held     map[string]time.Time // by prefix of a partition: the last hold for a mass failure
	opened   map[string]time.Time // by prefix of a partition: when its newest term began
	wiped    time.Time            // something was lost or deleted by hand
}

// eviction is one record of the eviction log.
type eviction struct {
	prefix, owner, leader, sweep string
	imeis                        []string
}

func newServer(t *testing.T) *redisServer {
	m, o := redistest.FakeServer(t)
	s := &redisServer{
		Miniredis: m, t: t, options: o, up: true, run: 1,
		beats: map[string]time.Time{}, held: map[string]time.Time{}, opened: map[string]time.Time{},
	}
	m.Server().SetPreHook(s.hook)
	return s
}

// hook sees each command, those of scripts too, and answers INFO.
func (s *redisServer) hook(c *server.Peer, cmd string, args ...string) bool {
	s.mu.Lock()
	s.commands++
	s.mu.Unlock()
	switch cmd {
	case "INFO":
		c.WriteBulk(s.info(args))
		return true
	case "SET":
		if strings.Contains(args[0], guard.Layout{}.News()) {
			s.mu.Lock()
			s.beats[args[0]] = time.Now()
			s.mu.Unlock()
		}
	case "HSET":
		if prefix, is := strings.CutSuffix(args[0], guard.Layout{}.Witness()); is && args[1] == "mass_failure" {
			s.mu.Lock()
			s.held[prefix] = time.Now()
			s.mu.Unlock()
		}
	case "XADD":
		if prefix, is := strings.CutSuffix(args[0], guard.Layout{}.Log()); is {
			s.logged(prefix, args[2:])
		}
	}
	return false
}

func (s *redisServer) logged(prefix string, record []string) {
	field := map[string]string{}
	for pair := range slices.Chunk(record, 2) {
		field[pair[0]] = pair[1]
	}
	if field["term"] != "" {
		s.mu.Lock()
		s.opened[prefix] = time.Now()
		s.mu.Unlock()
		return
	}
	e := eviction{prefix: prefix, owner: field["owner"], leader: field["leader"], sweep: field["sweep"]}
	if json.Unmarshal([]byte(field["imeis"]), &e.imeis) == nil && len(e.imeis) > 0 {
		s.evicted(e)
	}
}

func (s *redisServer) info(sections []string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch strings.Join(sections, " ") {
	case "server":
		return fmt.Sprintf("# Server\r\nrun_id:run%d\r\n", s.run)
	case "replication":
		return fmt.Sprintf("# Replication\r\nrole:master\r\nmaster_replid:id%d\r\n", s.run)
	case "stats":
		return fmt.Sprintf("# Stats\r\ntotal_connections_received:%d\r\ntotal_commands_processed:%d\r\n"+
			"rejected_connections:%d\r\nevicted_keys:0\r\nevicted_clients:0\r\nacl_access_denied_auth:%d\r\n",
			s.accepted, s.commands, s.rejected, s.denied)
	}
	return ""
}

var errAway = errors.New("connection refused")

// dial connects, or is turned away. It reports how.
func (s *redisServer) dial(ctx context.Context) (net.Conn, refusal, error) {
	s.mu.Lock()
	up, refuses := s.up, s.refuses
	answer := ""
	switch {
	case !up || refuses == unnoticed:
		s.mu.Unlock()
		return nil, refuses, errAway
	case refuses == full:
		s.rejected++
		answer = "-ERR max number of clients reached\r\n"
	case refuses == noLogin:
		s.denied++
		s.accepted++
		answer = "-WRONGPASS invalid username-password pair or user is disabled.\r\n"
	default:
		s.accepted++
	}
	s.mu.Unlock()
	if answer == "" {
		c, err := s.options.Dialer(ctx, "", "")
		return c, welcome, err
	}
	ours, theirs := net.Pipe()
	go func() {
		defer theirs.Close()
		_ = theirs.SetDeadline(time.Now().Add(time.Second))
		if _, err := theirs.Read(make([]byte, 1<<12)); err == nil {
			_, _ = theirs.Write([]byte(answer))
		}
	}()
	return ours, refuses, nil
}

// restart is the beginning of another life of the server.
func (s *redisServer) restart(keeps bool) {
	if !keeps {
		s.FlushAll()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.run++
	s.commands, s.accepted, s.rejected, s.denied = 0, 0, 0, 0
	s.up = true
	if !keeps {
		s.wiped = time.Now()
	}
}

func (s *redisServer) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// beat is when a heartbeat last landed.
func (s *redisServer) beat(key string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.beats[key]
}
