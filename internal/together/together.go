// Package together sends in one pipeline what several parts of a process ask for at about the same
// time. Redis pays for each pipeline that it has to wake up for, whatever is in it: to wake up
// costs a server with little to do more than most commands.
//
//	m := together.Join(client, "beats")
//	defer m.Leave()
//	err := m.Do(ctx, time.Second, func(pipe redis.Pipeliner) { beat = pipe.EvalSha(...) })
//
// On a Redis Cluster the client makes one pipeline a node of it.
package together

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// key names a group: members of one client that ask at the same times.
type key struct {
	client  redis.UniversalClient
	purpose string
}

var groups = struct {
	sync.Mutex
	of map[key]*group
}{of: map[key]*group{}}

// group is what the members of one client and purpose share.
type group struct {
	key
	born    time.Time // when the first joined
	members int       // guarded by groups

	mu    sync.Mutex
	round *round // gathering; nil: none
}

// round is one pipeline.
type round struct {
	client redis.UniversalClient
	pipe   redis.Pipeliner
	asked  int
	until  time.Time     // it is sent then, whoever has not asked
	wait   *time.Timer   // fires then
	all    chan struct{} // closed when every member has asked
	closed bool          // all is
	done   chan struct{} // closed when it was answered
	err    error         // why nothing was answered; nil: each command knows
}

// Member is one of those that ask together.
type Member struct{ group *group }

// Join adds a member to those that use a client for the same purpose. Leave takes it off again.
func Join(client redis.UniversalClient, purpose string) *Member {
	groups.Lock()
	defer groups.Unlock()
	k := key{client, purpose}
	g := groups.of[k]
	if g == nil {
		g = &group{key: k, born: time.Now()}
		groups.of[k] = g
	}
	g.members++
	return &Member{g}
}

// Leave ends a membership. It is called once.
func (m *Member) Leave() {
	groups.Lock()
	defer groups.Unlock()
	if m.group.members--; m.group.members == 0 {
		delete(groups.of, m.group.key)
	}
}

// Turns are when the members come together again and again: it is so long until the next turn,
// where one comes every so often. Turns are counted from when the first member joined.
func (m *Member) Turns(every time.Duration) (next time.Duration) {
	return m.TurnAfter(0, every)
}

// TurnAfter returns how long it is until the first turn that is more than d away.
func (m *Member) TurnAfter(d, every time.Duration) (next time.Duration) {
	return d + every - (time.Since(m.group.born)+d)%every
}

// Do sends the commands that fill adds, with those of the other members, as soon as each member has
// asked, or the within of any that asked has passed. Half of the time until ctx's deadline is left
// for the answers, however long within is. The commands hold the answers. The error is one that
// no command knows: a connection that was refused. An answer may come with those of a slower
// server: the first member's deadline bounds the wait of all, and its context does not interrupt
// it.
func (m *Member) Do(ctx context.Context, within time.Duration, fill func(redis.Pipeliner)) error {
	g := m.group
	groups.Lock()
	members := g.members
	groups.Unlock()

	if deadline, ok := ctx.Deadline(); ok {
		within = min(within, time.Until(deadline)/2)
	}
	until := time.Now().Add(within)
	g.mu.Lock()
	r, first := g.round, g.round == nil
	if first {
		r = &round{
			client: g.client, pipe: g.client.Pipeline(), until: until, wait: time.NewTimer(within),
			all: make(chan struct{}), done: make(chan struct{}),
		}
		g.round = r
	} else if until.Before(r.until) { // one that asks more often waits less
		r.until = until
		r.wait.Reset(within)
	}
	fill(r.pipe)
	if r.asked++; r.asked >= members && !r.closed {
		r.closed = true
		close(r.all)
	}
	g.mu.Unlock()

	if !first {
		<-r.done
		return r.err
	}
	if members > 1 {
		select {
		case <-r.all:
		case <-r.wait.C:
		case <-ctx.Done():
		}
	}
	g.mu.Lock()
	r.wait.Stop()
	g.round = nil
	g.mu.Unlock()
	r.send(ctx)
	close(r.done)
	return r.err
}

// send sends it, and tells an error that no command has.
func (r *round) send(ctx context.Context) {
	if deadline, ok := ctx.Deadline(); ok && r.asked > 1 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(context.WithoutCancel(ctx), deadline)
		defer cancel()
	}
	if cmds := r.pipe.Cmds(); len(cmds) == 1 { // that needs no pipeline
		r.err = r.client.Process(ctx, cmds[0])
		return
	}
	r.err = Exec(ctx, r.pipe)
}

// Answered reports whether an error is an answer of a server, and not the lack of one.
func Answered(err error) bool {
	_, is := errors.AsType[redis.Error](err)
	return is
}

// Exec executes a pipeline. The error is one that none of its commands has: a connection that was
// refused, for a wrong password. Each command then looks as if it had been answered.
func Exec(ctx context.Context, pipe redis.Pipeliner) error {
	cmds, err := pipe.Exec(ctx)
	for _, cmd := range cmds {
		if cmd.Err() != nil {
			return nil
		}
	}
	return err
}
