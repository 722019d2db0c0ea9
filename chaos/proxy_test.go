package chaos

import (
	"testing"

	"github.com/rollcall-redis/rollcall/chaos/proxy"
)

// redisProxy is the proxy between one process and Redis.
type redisProxy struct {
	*proxy.Proxy
	login   string       // of the process, as in its REDIS_URL
	batches *proxy.Score // what the server answered to guarded deletes
}

// newProxy opens a proxy to a server. It counts the answers to guarded deletes.
func newProxy(t *testing.T, to string) *redisProxy {
	p := &redisProxy{Proxy: proxy.New(t, to)}
	p.batches = p.Answers(func(r proxy.Request) bool {
		learn(r)
		return isBatch(r)
	})
	return p
}

// verdicts are the server's answers to all guarded deletes.
func (p *redisProxy) verdicts() map[string]int { return p.batches.Counts() }

// unanswered is how many of them were sent and not answered: what became of them cannot be said here.
func (p *redisProxy) unanswered() int { return p.batches.Unanswered() }
