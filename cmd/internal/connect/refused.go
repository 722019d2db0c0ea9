package connect

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// After a refused login, or one client too many, the process opens one connection in
	// refusedPause until none was refused for refusedFor. Otherwise each command of each device
	// would bring one more.
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
	// Redis answers a long command without a login by a protocol error, which names no cause: the next
	// short one is told it.
	if !redis.IsAuthError(err) && !redis.IsMaxClientsError(err) || errors.As(err, new(refusedBefore)) || strings.Contains(err.Error(), "unauthenticated") {
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

// refusedBefore is an earlier refusal.
type refusedBefore struct{ error }

func (e refusedBefore) Unwrap() error { return e.error }

type refusedConn struct {
	net.Conn
	err error
}

func (c refusedConn) Read([]byte) (int, error)  { return 0, c.err }
func (c refusedConn) Write([]byte) (int, error) { return 0, c.err }

// SyscallConn fails, so that no pool gives the connection out again: without a password a refused
// HELLO is no reason for it not to.
func (c refusedConn) SyscallConn() (syscall.RawConn, error) { return nil, c.err }

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
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		h.note(err)
		return err
	}
}

func (h refusalHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		h.note(err)
		return err
	}
}
