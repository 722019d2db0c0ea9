package connect

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// After a refused login, the process opens one connection in refusedPause until none was
	// refused for refusedFor. Otherwise each command of each device would bring one more.
	refusedPause = time.Second
	refusedFor   = 3 * refusedPause
)

// refusals is shared by a process' clients.
type refusals struct {
	mu   sync.Mutex
	err  error
	at   time.Time // of the last one
	next time.Time // when the next connection may be opened
}

func (r *refusals) note(err error) {
	if !redis.IsAuthError(err) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if r.at.IsZero() || now.Sub(r.at) >= refusedFor {
		r.next = now.Add(refusedPause)
	}
	r.err, r.at = err, now
}

// dial returns the last refusal if no connection may be opened now.
func (r *refusals) dial() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	switch {
	case r.err == nil:
		return nil
	case now.Sub(r.at) >= refusedFor:
		r.err = nil
		return nil
	case now.Before(r.next):
		return r.err
	}
	r.next = now.Add(refusedPause)
	return nil
}

// watch adds the hook to a client, or to each node of a Cluster.
func (r *refusals) watch(client redis.UniversalClient) redis.UniversalClient {
	if r == nil {
		return client
	}
	if c, ok := client.(*redis.ClusterClient); ok {
		c.OnNewNode(func(node *redis.Client) { node.AddHook(refusalHook{r}) })
		return client
	}
	client.AddHook(refusalHook{r})
	return client
}

// refusedBefore is an earlier refusal. It does not wrap it: after an error of Redis itself, the pool
// would keep the connection.
type refusedBefore struct{ refusal error }

func (e refusedBefore) Error() string { return e.refusal.Error() }

type refusedConn struct {
	net.Conn
	err error
}

func (c refusedConn) Read([]byte) (int, error)  { return 0, c.err }
func (c refusedConn) Write([]byte) (int, error) { return 0, c.err }

type refusalHook struct{ *refusals }

func (h refusalHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if err := h.dial(); err != nil {
			// The pool would count a failed dial against the server, and then stop dialling itself.
			ours, _ := net.Pipe()
			return refusedConn{ours, refusedBefore{err}}, nil
		}
		return next(ctx, network, addr)
	}
}

func (h refusalHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return h.judge(next(ctx, cmd), cmd) }
}

func (h refusalHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { return h.judge(next(ctx, cmds), cmds...) }
}

// judge returns the earlier refusal itself, and notes a new one.
func (h refusalHook) judge(err error, cmds ...redis.Cmder) error {
	var before refusedBefore
	if !errors.As(err, &before) {
		h.note(err)
		return err
	}
	for _, cmd := range cmds {
		if errors.As(cmd.Err(), &before) {
			cmd.SetErr(before.refusal)
		}
	}
	return before.refusal
}
