package search

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/slot"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// place is what episodes are played on.
type place struct {
	name    string
	masters int // of a Cluster; 0: it is none
	newest  bool
}

var places = []place{
	{name: "the usual"},
	{name: "the newest", newest: true},
	{name: "a Cluster of one master", masters: 1},
	{name: "a Cluster of three masters", masters: 3},
}

// tags are in the slots of the first, the second and the third master. No step moves them.
var tags = func() (all [3]string) {
	for i := range all {
		for n := 0; all[i] == "" || shardOf(all[i], len(all)) != i; n++ {
			all[i] = fmt.Sprintf("{search%d}:", n)
		}
	}
	return all
}()

// shardOf is the shard of a Cluster that has a key, where the masters share the slots equally.
func shardOf(key string, shards int) int {
	i := shards - 1
	for slot.Of(key) < slot.Count*i/shards {
		i--
	}
	return i
}

// server is one place. What waits for processes runs outside of the bubble, whose clock would go on
// while it waits.
type server struct {
	place
	t       *testing.T
	cluster *redistest.Cluster
	orders  chan func()
	done    chan bool
	busy    sync.Mutex
	pairs   [][2]*redistest.Server // of each shard: master and replica
	clients map[*redistest.Server]*redis.Client
	moves   sync.Mutex
	moved   map[int]moved // slots that are not where they were at first
	cut     []*redistest.Server
}

// moved is a slot that has moved: one of its keys, and the shard that has it.
type moved struct {
	key string
	to  int
}

func newServer(t *testing.T, p place) *server {
	s := &server{
		place: p, t: t, orders: make(chan func()), done: make(chan bool),
		clients: map[*redistest.Server]*redis.Client{}, moved: map[int]moved{},
	}
	switch {
	case p.masters == 1:
		s.cluster = redistest.StartCluster(t, 1, 0)
		s.pairs = [][2]*redistest.Server{{s.cluster.Nodes[0], nil}}
	case p.masters > 1:
		s.cluster = redistest.StartCluster(t, p.masters, 1,
			"--cluster-replica-no-failover", "yes", "--cluster-require-full-coverage", "no")
		for i := range p.masters {
			s.pairs = append(s.pairs, [2]*redistest.Server{s.cluster.Nodes[i], s.cluster.Nodes[i+p.masters]})
		}
	case p.newest:
		s.pairs = [][2]*redistest.Server{{redistest.StartNewest(t), nil}}
	default:
		s.pairs = [][2]*redistest.Server{{redistest.Start(t), nil}}
	}
	go s.obey()
	t.Cleanup(func() { close(s.orders) })
	return s
}

func (s *server) obey() {
	for f := range s.orders {
		over := false
		func() {
			defer func() {
				if s.done <- over; !over { // f has ended this goroutine
					go s.obey()
				}
			}()
			f()
			over = true
		}()
	}
}

// outside runs something outside of the bubble, and reports whether it came to its end.
func (s *server) outside(f func()) bool {
	s.busy.Lock()
	defer s.busy.Unlock()
	s.orders <- f
	return <-s.done
}

// shard is the one that has a key.
func (s *server) shard(key string) int {
	s.moves.Lock()
	defer s.moves.Unlock()
	if m, has := s.moved[slot.Of(key)]; has {
		return m.to
	}
	return shardOf(key, len(s.pairs))
}

// master and replica are those of a shard at present.
func (s *server) master(shard int) *redistest.Server  { return s.pairs[shard][0] }
func (s *server) replica(shard int) *redistest.Server { return s.pairs[shard][1] }

// client is one of the real clock, for use outside of bubbles.
func (s *server) client(of *redistest.Server) *redis.Client {
	if s.clients[of] == nil {
		s.clients[of] = of.Client()
	}
	return s.clients[of]
}

// ready makes a Cluster what it was at first, as far as that matters, and empties all servers.
func (s *server) ready() {
	if s.cluster != nil {
		s.mend()
	}
	for i := range s.pairs {
		require.NoError(s.t, s.client(s.master(i)).FlushAll(s.t.Context()).Err())
	}
	for _, m := range s.moved {
		s.cluster.BeginMove(m.key, s.master(shardOf(m.key, len(s.pairs))))()
	}
	clear(s.moved)
}

// move moves the slot of a key to another shard: the key first, and all others when finish is
// called.
func (s *server) move(key string, to int) (finish func()) {
	target := s.master(to)
	rest := s.cluster.BeginMove(key, target)
	if s.client(s.master(s.shard(key))).Exists(s.t.Context(), key).Val() > 0 {
		s.cluster.MoveKey(key, target)
	}
	return func() {
		rest()
		s.moves.Lock()
		defer s.moves.Unlock()
		if s.moved[slot.Of(key)] = (moved{key, to}); to == shardOf(key, len(s.pairs)) {
			delete(s.moved, slot.Of(key))
		}
	}
}

// separate keeps what a master writes from now on from its replica, which has all until now.
func (s *server) separate(shard int) {
	m := s.master(shard)
	c := s.client(m)
	s.synced(shard)
	require.NoError(s.t, c.Do(s.t.Context(), "ACL", "SETUSER", "default", "-psync", "-sync").Err())
	require.NoError(s.t, c.Do(s.t.Context(), "CLIENT", "KILL", "TYPE", "replica").Err())
	s.cut = append(s.cut, m)
}

// synced waits until the replica of a shard has all that the master has.
func (s *server) synced(shard int) {
	ctx := s.t.Context()
	pipe := s.client(s.master(shard)).Pipeline() // WAIT is about the writes of its own connection
	pipe.Set(ctx, tags[shard]+"synced", 1, 0)
	is := pipe.Do(ctx, "WAIT", 1, 2000)
	_, err := pipe.Exec(ctx)
	require.NoError(s.t, err)
	require.EqualValues(s.t, 1, is.Val(), "the replica has all")
}

// mend lets replicas follow their masters again.
func (s *server) mend() {
	for _, m := range s.cut {
		require.NoError(s.t, s.client(m).Do(s.t.Context(), "ACL", "SETUSER", "default", "+psync", "+sync").Err())
	}
	s.cut = nil
	s.cluster.AwaitOK()
}

// kill ends the master of a shard, when its replica has all that it has.
func (s *server) kill(shard int) {
	s.synced(shard)
	s.master(shard).Kill()
}

// failOver has the replica of a shard lead. The master ends, unless it has ended before.
func (s *server) failOver(shard int) {
	old, replica := s.master(shard), s.replica(shard)
	old.Kill()
	s.cluster.TakeOver(replica)
	old.Restart()
	s.pairs[shard] = [2]*redistest.Server{replica, old}
	require.Eventually(s.t, func() bool {
		info := s.client(old).Info(s.t.Context(), "replication").Val()
		return strings.Contains(info, "role:slave") && strings.Contains(info, "master_link_status:up")
	}, time.Minute, 10*time.Millisecond)
	s.mend()
}

// again has a master end and come back with all that it had.
func (s *server) again(shard int) {
	m := s.master(shard)
	require.NoError(s.t, s.client(m).Save(s.t.Context()).Err())
	m.Restart()
	if s.cluster != nil {
		s.cluster.AwaitOK()
	}
}

// addrs are the addresses of all nodes.
func (s *server) addrs() (all []string) {
	for _, p := range s.pairs {
		for _, n := range p {
			if n != nil {
				all = append(all, n.Addr())
			}
		}
	}
	return all
}
