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

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/testservers/fakeredis"
)

// refusal is how the server turns new connections away.
type refusal int

const (
	welcome   refusal = iota
	full              // at its limit of connections
	noLogin           // the password is not the one that the replicas have
	noAuth            // a password is asked for, and the replicas have none
	noPerm            // their user has lost its rights
	unnoticed         // by something in front of the server: it counts nothing
)

// answers are what the server says to those that it turns away.
var answers = map[refusal]string{
	full:    "-ERR max number of clients reached\r\n",
	noLogin: "-WRONGPASS invalid username-password pair or user is disabled.\r\n",
	noAuth:  "-NOAUTH Authentication required.\r\n",
	noPerm:  "-NOPERM this user has no permissions to run the 'hello' command\r\n",
}

// redisServer is miniredis with the facts that a real server tells of itself, and a record of what
// the oracle needs: each beat and each eviction, at the instant at which it lands.
type redisServer struct {
	*miniredis.Miniredis
	t       *testing.T
	options *redis.Options
	evicted func(e eviction) // is called in the middle of a script: it must not ask the server

	mu       sync.Mutex
	up       bool
	run      string // life of the server
	mute     bool   // nobody may ask for INFO
	refuses  refusal
	turned   map[refusal]int      // clients turned away
	evicts   int                  // keys evicted
	commands int                  // done in this life
	accepted int                  // connections
	beats    map[string]time.Time // by key: when a heartbeat last landed
	records  map[string]time.Time // by hash and owner: when a record did
	forged   time.Time            // somebody wrote into a key
}

// eviction is one record of the eviction log.
type eviction struct {
	prefix, owner, leader, sweep string
	imeis                        []string
}

func newServer(t *testing.T) *redisServer {
	m, o := fakeredis.Start(t)
	s := &redisServer{
		Miniredis: m, t: t, options: o, up: true, run: "run1", turned: map[refusal]int{}, beats: map[string]time.Time{}, records: map[string]time.Time{},
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
		if s.silent() {
			c.WriteError("NOPERM this user has no permissions to run the 'info' command")
		} else {
			c.WriteBulk(s.info(args))
		}
		return true
	case "SET":
		if strings.Contains(args[0], guard.Layout{}.News()) {
			s.mu.Lock()
			s.beats[args[0]] = time.Now()
			s.mu.Unlock()
		}
	case "HSET":
		if strings.HasSuffix(args[0], guard.Layout{}.Beats()) {
			s.mu.Lock()
			s.records[args[0]+" "+args[1]] = time.Now()
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
		return fmt.Sprintf("# Server\r\nrun_id:%s\r\n", s.run)
	case "replication":
		return fmt.Sprintf("# Replication\r\nrole:master\r\nmaster_replid:id%s\r\n", s.run)
	case "errorstats":
		return fmt.Sprintf("# Errorstats\r\nerrorstat_NOAUTH:count=%d\r\nerrorstat_NOPERM:count=%d\r\nerrorstat_WRONGPASS:count=%d\r\n",
			s.turned[noAuth], s.turned[noPerm], s.turned[noLogin])
	case "stats":
		return fmt.Sprintf("# Stats\r\ntotal_connections_received:%d\r\ntotal_commands_processed:%d\r\n"+
			"rejected_connections:%d\r\nevicted_keys:%d\r\nevicted_clients:0\r\nacl_access_denied_auth:%d\r\n",
			s.accepted, s.commands, s.turned[full], s.evicts, s.turned[noLogin])
	}
	return ""
}

func (s *redisServer) silent() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mute
}

var errAway = errors.New("connection refused")

// dial connects, or is turned away: by what the server does to all, or to this client. It reports
// how.
func (s *redisServer) dial(ctx context.Context, own refusal) (net.Conn, refusal, error) {
	s.mu.Lock()
	up, by := s.up, s.refuses
	if by == welcome {
		by = own
	}
	switch {
	case !up || by == unnoticed:
		s.mu.Unlock()
		return nil, by, errAway
	case by != welcome:
		s.turned[by]++
		fallthrough
	default:
		s.accepted++
	}
	s.mu.Unlock()
	if by == welcome {
		c, err := s.options.Dialer(ctx, "", "")
		return c, welcome, err
	}
	ours, theirs := net.Pipe()
	go func() {
		defer theirs.Close()
		_ = theirs.SetDeadline(time.Now().Add(time.Second))
		if _, err := theirs.Read(make([]byte, 1<<12)); err == nil {
			_, _ = theirs.Write([]byte(answers[by]))
		}
	}()
	return ours, by, nil
}

// restart is the beginning of another life of the server.
func (s *redisServer) restart(keeps bool) {
	if !keeps {
		s.FlushAll()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.run += "+"
	s.commands, s.accepted, s.evicts = 0, 0, 0
	clear(s.turned)
	s.up = true
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

// record is when an owner's record last landed.
func (s *redisServer) record(key, owner string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.records[key+" "+owner]
}

// copyTo copies all keys to an empty server.
func (s *redisServer) copyTo(to *redisServer) {
	for _, key := range s.Keys() {
		switch s.Type(key) {
		case "string":
			v, _ := s.Get(key)
			_ = to.Set(key, v)
		case "hash":
			fields, _ := s.HKeys(key)
			for _, f := range fields {
				to.HSet(key, f, s.HGet(key, f))
			}
		case "set":
			members, _ := s.SMembers(key)
			_, _ = to.SAdd(key, members...)
		case "zset":
			scores, _ := s.SortedSet(key)
			for member, score := range scores {
				_, _ = to.ZAdd(key, score, member)
			}
		case "stream":
			entries, _ := s.Stream(key)
			for _, e := range entries {
				_, _ = to.XAdd(key, e.ID, e.Values)
			}
		}
		if left := s.TTL(key); left > 0 {
			to.SetTTL(key, left)
		}
	}
}
