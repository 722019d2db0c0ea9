package inspect

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc"
	"github.com/sourcegraph/conc/pool"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/keyless"
)

// reachTimeout bounds the question whether one server of several answers.
const reachTimeout = time.Second

// probeTimeout is for each of ten calls at most.
const probeTimeout = 500 * time.Millisecond

// Unread is a server of a Redis Cluster that does not answer, and its keys.
type Unread struct {
	Server     string `json:"server"`
	Partitions []int  `json:"partitions"`
	Fleet      bool   `json:"fleet,omitempty"`
	Error      string `json:"error"`
}

// UnreadError means that the answer is valid and lacks some partitions.
type UnreadError struct {
	Servers []Unread

	about string // the missing part, if it is one
}

func (e *UnreadError) Error() string {
	var texts []string
	for _, u := range e.Servers {
		texts = append(texts, u.Sentence())
	}
	return "inspect: " + e.about + strings.Join(texts, "; ")
}

// Sentence names the server, its error, and its keys.
func (u Unread) Sentence() string {
	where := "Redis at " + u.Server
	if u.Server == "" {
		where = "a part of Redis"
	}
	text := fmt.Sprintf("%s does not answer (%s)", where, u.Error)
	if strings.HasPrefix(u.Error, "WRONGPASS") || strings.HasPrefix(u.Error, "NO") { // NOAUTH, NOPERM
		text = fmt.Sprintf("%s refuses this user (%s)", where, u.Error)
	}
	switch {
	case len(u.Partitions) > 0 && u.Fleet:
		text += ", which has " + named(u.Partitions) + " and the fleet's own keys"
	case len(u.Partitions) > 0:
		text += ", which has " + named(u.Partitions)
	default:
		text += ", which has the fleet's own keys"
	}
	return text
}

// reached has parts alone if there is a single one.
type reached struct {
	parts  []*Reader
	nows   []time.Time // by number; zero without an answer
	asked  []time.Time // likewise, by the local clock
	unread []Unread
	fleet  bool // its own keys answer
}

func (r *Reader) reachParts(ctx context.Context) (parts []*Reader, to reached, err error) {
	if parts, err = r.parts(ctx); err == nil {
		to, err = r.reach(ctx, parts)
	}
	return parts, to, err
}

// reach fails if no server answers.
func (r *Reader) reach(ctx context.Context, parts []*Reader) (reached, error) {
	if len(parts) == 1 {
		return reached{parts: parts, fleet: true}, nil
	}
	found := reached{nows: make([]time.Time, len(parts)), asked: make([]time.Time, len(parts))}
	errs := make([]error, len(parts)+1)
	p := pool.New().WithMaxGoroutines(atOnce)
	for k, part := range append(slices.Clone(parts), r) {
		p.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, reachTimeout)
			defer cancel()
			now, err := part.now(ctx)
			if errs[k] = err; k < len(parts) {
				found.nows[k], found.asked[k] = now, time.Now()
			}
		})
	}
	p.Wait()
	by := map[string]*Unread{}
	var servers []string
	of := func(part *Reader, err error) *Unread {
		server := part.address(ctx)
		if by[server] == nil {
			by[server] = &Unread{Server: server, Partitions: []int{}, Error: cause(err)}
			servers = append(servers, server)
		}
		return by[server]
	}
	for k, part := range parts {
		if errs[k] == nil {
			found.parts = append(found.parts, part)
			continue
		}
		u := of(part, errs[k])
		u.Partitions = append(u.Partitions, k)
	}
	if found.fleet = errs[len(parts)] == nil; !found.fleet {
		of(r, errs[len(parts)]).Fleet = true
	}
	if len(found.parts) == 0 {
		return reached{}, errs[0]
	}
	for _, server := range servers {
		found.unread = append(found.unread, *by[server])
	}
	return found, nil
}

func (f reached) err() error {
	if len(f.parts) == 0 || len(f.unread) == 0 {
		return nil
	}
	return &UnreadError{Servers: f.unread}
}

func (f reached) answers(part *Reader) bool { return slices.Contains(f.parts, part) }

// Away returns a sentence for each master of a Redis Cluster that does not answer.
func (r *Reader) Away(ctx context.Context) (away []string) {
	c, ok := r.client.(*redis.ClusterClient)
	if !ok {
		return nil
	}
	var mu sync.Mutex
	// Errors are part of the answer.
	_ = c.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		ctx, cancel := context.WithTimeout(ctx, reachTimeout)
		defer cancel()
		var answer redis.Error
		if err := node.Ping(ctx).Err(); err != nil && !errors.As(err, &answer) {
			mu.Lock()
			defer mu.Unlock()
			away = append(away, fmt.Sprintf("Redis at %s does not answer (%s)", node.Options().Addr, cause(err)))
		}
		return nil
	})
	slices.Sort(away)
	return away
}

func (r *Reader) address(ctx context.Context) string {
	at, err := keyless.At(ctx, r.client, r.keys.Witness())
	if node, ok := at.(*redis.Client); ok && err == nil {
		return node.Options().Addr
	}
	return ""
}

func cause(err error) string {
	for e := err; e != nil; e = errors.Unwrap(e) {
		err = e
	}
	return strings.TrimRight(ofScript.ReplaceAllString(err.Error(), ""), ".")
}

// ofScript is what Redis adds to the error of a script's command.
var ofScript = regexp.MustCompile(`\.? script: [0-9a-f]{40}, on @user_script:\d+\.?`)

// probe counts partitions by their keys, if the server with the number does not answer.
func (r *Reader) probe(ctx context.Context) (int, bool) {
	c, ok := r.client.(*redis.ClusterClient)
	if !ok {
		return 0, false
	}
	for n := 2; n <= guard.MostPartitions && ctx.Err() == nil; n *= 2 {
		by := map[*redis.Client][]string{}
		for k := range n {
			key := r.keys.Partition(k, n).Witness()
			if node, err := c.MasterForKey(ctx, key); err == nil {
				by[node] = append(by[node], key)
			}
		}
		var found atomic.Bool
		var asking conc.WaitGroup
		for node, keys := range by {
			asking.Go(func() {
				ctx, cancel := context.WithTimeout(ctx, probeTimeout)
				defer cancel()
				p := node.Pipeline()
				there := make([]*redis.IntCmd, len(keys))
				for i, key := range keys {
					there[i] = p.Exists(ctx, key)
				}
				_, _ = p.Exec(ctx) // those that answer suffice
				if slices.ContainsFunc(there, func(c *redis.IntCmd) bool { return c.Err() == nil && c.Val() > 0 }) {
					found.Store(true)
				}
			})
		}
		if asking.Wait(); found.Load() {
			return n, true
		}
	}
	return 0, false
}

// Partial reports whether an answer with this error is valid, but lacks partitions.
func Partial(err error) bool {
	var unread *UnreadError
	return errors.As(err, &unread)
}
