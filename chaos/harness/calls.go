package harness

import (
	"crypto/sha1"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rollcall-redis/rollcall/chaos/proxy"
	"github.com/rollcall-redis/rollcall/registry"
)

// Calls with keys of their own are recognised by those; owner scripts, which share theirs, by text.

// KeyNames have no prefix.
var KeyNames registry.Layout

var batchID = regexp.MustCompile(`^\d+-[1-9]\d*$`)

// IsBatch matches guarded deletes.
func IsBatch(r proxy.Request) bool { return BatchesOf(KeyNames)(r) }

// BatchesOf is IsBatch for other key names.
func BatchesOf(l registry.Layout) func(proxy.Request) bool {
	return func(r proxy.Request) bool {
		_, args := r.Script()
		return r.On(l.Log(), l.Lease(), l.Witness()) && len(args) > 6 &&
			batchID.MatchString(args[0]) && args[6] != "commands"
	}
}

// IsTick matches ticks of the witness.
func IsTick(r proxy.Request) bool { return r.On(KeyNames.Witness()) }

// IsBeat matches beats.
func IsBeat(r proxy.Request) bool { return Named(r) == "beat" }

// IsRegister matches registrations.
func IsRegister(r proxy.Request) bool { return Named(r) == "register" }

// IsRelease matches releases.
func IsRelease(r proxy.Request) bool { return Named(r) == "release" }

// IsHeal matches heals.
func IsHeal(r proxy.Request) bool { return Named(r) == "heal" }

// IsAcquire matches attempts to take the lease.
func IsAcquire(r proxy.Request) bool {
	return len(r) > 3 && r[0] == "SET" && r[1] == KeyNames.Lease() && r[3:].Has("NX")
}

// IsServed matches all but requests about the connection itself.
func IsServed(r proxy.Request) bool {
	return !slices.Contains([]string{"HELLO", "AUTH", "CLIENT", "SELECT", "PING", "QUIT", "RESET"}, r[0])
}

// known are the names of scripts, by SHA1.
var known = struct {
	sync.Mutex
	names map[string]string
}{names: map[string]string{}}

var scriptHead = regexp.MustCompile(`(?m)^-- (\w+)\.lua:`)

// Named returns the called script's name, from the last file in its text; "" until that was sent,
// as it is to each server once.
func Named(r proxy.Request) string {
	if len(r) < 2 || !strings.HasPrefix(r[0], "EVAL") {
		return ""
	}
	known.Lock()
	defer known.Unlock()
	if strings.HasPrefix(r[0], "EVALSHA") {
		return known.names[strings.ToLower(r[1])]
	}
	sha := fmt.Sprintf("%x", sha1.Sum([]byte(r[1])))
	if heads := scriptHead.FindAllStringSubmatch(r[1], -1); heads != nil {
		known.names[sha] = heads[len(heads)-1][1]
	}
	return known.names[sha]
}

// BatchIDOf returns the id of a guarded delete's log record.
func BatchIDOf(r proxy.Request) string {
	_, args := r.Script()
	return args[0]
}

// Proxy connects one process to Redis.
type Proxy struct {
	*proxy.Proxy
	login   string       // as in the process' REDIS_URL
	batches *proxy.Score // answers to guarded deletes
}

// NewProxy counts answers to guarded deletes.
func NewProxy(t *testing.T, to string) *Proxy {
	p := &Proxy{Proxy: proxy.New(t, to)}
	p.batches = p.Answers(func(r proxy.Request) bool {
		_ = Named(r) // learns a script's text
		return IsBatch(r)
	})
	return p
}

// Verdicts returns the answers to guarded deletes.
func (p *Proxy) Verdicts() map[string]int { return p.batches.Counts() }

// Unanswered counts guarded deletes whose outcome is unknown here.
func (p *Proxy) Unanswered() int { return p.batches.Unanswered() }
