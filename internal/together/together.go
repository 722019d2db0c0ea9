// Package together sends in one pipeline the commands that several parts of a process need at about
// the same time. Waking up for a pipeline costs an idle Redis more than most commands.
//
//	m := together.Join(client, "beats")
//	defer m.Leave()
//	err := m.Do(ctx, time.Second, func(pipe redis.Pipeliner) { beat = pipe.EvalSha(...) })
//
// On a Redis Cluster the client splits it into one pipeline per node.
package together

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

type key struct {
	client  redis.UniversalClient
	purpose string
}

var groups = struct {
	sync.Mutex
	of map[key]*group
}{of: map[key]*group{}}

type group struct {
	key
	born    time.Time // first member's joining
	members int       // guarded by groups

	mu    sync.Mutex
	round *round // being filled
}

type round struct {
	client redis.UniversalClient
	pipe   redis.Pipeliner
	asked  int
	until  time.Time     // at the latest
	wait   *time.Timer   // fires at until
	all    chan struct{} // every member has asked
	closed bool          // all is
	done   chan struct{} // answered
	err    error         // if nothing was answered; otherwise each command has its own
}

// Member belongs to a group.
type Member struct{ group *group }

// Join adds a member to a client's group for a purpose.
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

// Leave may be called once.
func (m *Member) Leave() {
	groups.Lock()
	defer groups.Unlock()
	if m.group.members--; m.group.members == 0 {
		delete(groups.of, m.group.key)
	}
}

// Turns returns the time until the next turn of members that meet at this interval.
func (m *Member) Turns(every time.Duration) (next time.Duration) {
	return m.TurnAfter(0, every)
}

// TurnAfter returns the time until the first turn more than d away.
func (m *Member) TurnAfter(d, every time.Duration) (next time.Duration) {
	return d + every - (time.Since(m.group.born)+d)%every
}

// Do sends the commands that fill adds, with those of the other members, as soon as each member has
// asked, or the within of one of them has passed; at least half of the time until ctx's deadline is
// left for the answers. The commands hold the answers; Do's error is one that no command has. The
// first member's deadline bounds everybody's wait.
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
	} else if until.Before(r.until) { // a member that asks more often waits less
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

func (r *round) send(ctx context.Context) {
	if deadline, ok := ctx.Deadline(); ok && r.asked > 1 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(context.WithoutCancel(ctx), deadline)
		defer cancel()
	}
	if cmds := r.pipe.Cmds(); len(cmds) == 1 { // needs no pipeline
		r.err = r.client.Process(ctx, cmds[0])
		return
	}
	r.err = Exec(ctx, r.pipe)
}

// Answered reports whether an error is a server's answer.
func Answered(err error) bool {
	_, is := errors.AsType[redis.Error](err)
	return is
}

// Exec returns an error that no command has, such as a refused connection; each command then looks
// answered.
func Exec(ctx context.Context, pipe redis.Pipeliner) error {
	cmds, err := pipe.Exec(ctx)
	for _, cmd := range cmds {
		if cmd.Err() != nil {
			return nil
		}
	}
	return err
}
