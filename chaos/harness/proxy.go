package harness

import (
	"testing"

	"github.com/rollcall-redis/rollcall/chaos/proxy"
)

// Proxy is the proxy between one process and Redis.
type Proxy struct {
	*proxy.Proxy
	login   string       // of the process, as in its REDIS_URL
	batches *proxy.Score // what the server answered to guarded deletes
}

// NewProxy opens a proxy to a server. It counts the answers to guarded deletes.
func NewProxy(t *testing.T, to string) *Proxy {
	p := &Proxy{Proxy: proxy.New(t, to)}
	p.batches = p.Answers(func(r proxy.Request) bool {
		_ = Named(r) // learns the text of a script that is sent in full
		return IsBatch(r)
	})
	return p
}

// Verdicts are the server's answers to all guarded deletes.
func (p *Proxy) Verdicts() map[string]int { return p.batches.Counts() }

// Unanswered is how many of them were sent and not answered: what became of them cannot be said
// here.
func (p *Proxy) Unanswered() int { return p.batches.Unanswered() }
