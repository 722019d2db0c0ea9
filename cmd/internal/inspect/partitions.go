package inspect

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc"
	"github.com/sourcegraph/conc/pool"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/partition"
)

// Partitions describes a registry that has several.
type Partitions struct {
	Count   int     `json:"count"`
	Leaders []Leads `json:"leaders"`
	Worst   int     `json:"worst"`   // of Witness and Hold
	Largest int     `json:"largest"` // by entries
	Most    int64   `json:"most_entries"`
	Unread  []int   `json:"unread,omitempty"`
}

// Leads lists an instance's partitions.
type Leads struct {
	Instance   string `json:"instance"`
	Address    string `json:"address,omitempty"`
	Partitions []int  `json:"partitions"`
}

// Leads describes what an instance leads.
func (s *Status) Leads(instance string) string {
	switch which := s.Partitions.Leads(instance); {
	case len(which) > 0:
		return "leads " + Numbers(which)
	case s.Partitions == nil && s.Leader != nil && s.Leader.Instance == instance:
		return "leads"
	}
	return ""
}

// Leads returns what an instance leads.
func (p *Partitions) Leads(instance string) []int {
	if p == nil {
		return nil
	}
	for _, l := range p.Leaders {
		if l.Instance == instance {
			return l.Partitions
		}
	}
	return nil
}

// Numbers formats partitions for people: 0-3, 7.
func Numbers(partitions []int) string {
	var texts []string
	for i := 0; i < len(partitions); {
		j := i
		for j+1 < len(partitions) && partitions[j+1] == partitions[j]+1 {
			j++
		}
		text := strconv.Itoa(partitions[i])
		if j > i {
			text += "-" + strconv.Itoa(partitions[j])
		}
		texts, i = append(texts, text), j+1
	}
	return strings.Join(texts, ", ")
}

func named(partitions []int) string {
	if len(partitions) == 1 {
		return "partition " + Numbers(partitions)
	}
	return "partitions " + Numbers(partitions)
}

// parts is r itself if the keys have no hash tag, or this user may not read the number of
// partitions.
func (r *Reader) parts(ctx context.Context) ([]*Reader, error) {
	if r.single || !r.keys.OneSlot() {
		return []*Reader{r}, nil
	}
	known := r.divided.Load()
	n, err := r.count(ctx)
	switch {
	case err == nil:
		is := n
		if n = r.really(ctx, n); n == is {
			is = 0
		}
		r.foreign.Store(int64(is))
	case Refused(err):
		n = 1
	case known != nil:
		return *known, nil
	default:
		if n = r.probe(ctx); n == 0 {
			return nil, fmt.Errorf("inspect: %w", err)
		}
	}
	switch {
	case n == 1:
		return []*Reader{r}, nil
	case known != nil && len(*known) == n:
		return *known, nil
	}
	parts := make([]*Reader, n)
	for k := range parts {
		parts[k] = &Reader{client: r.client, keys: r.keys.Partition(k, n), number: k, single: true}
	}
	r.divided.Store(&parts)
	return parts, nil
}

// really returns the fleet's number of partitions, where Redis has n. It is another one only on
// evidence that somebody overwrote it: the first partition of n has no witness, and that of the
// other number was heard lately. An old witness may be a former fleet's, and an unreadable one
// proves nothing.
func (r *Reader) really(ctx context.Context, n int) int {
	if known := r.divided.Load(); known != nil && len(*known) == n {
		return n
	}
	if found, err := r.client.Exists(ctx, r.keys.Partition(0, n).Witness()).Result(); err != nil || found > 0 {
		return n
	}
	now, err := r.now(ctx)
	if err != nil {
		return n
	}
	for other := 1; other <= guard.MostPartitions; other *= 2 {
		if other == n {
			continue
		}
		first := &Reader{client: r.client, keys: r.keys.Partition(0, other), single: true}
		if w, err := first.witness(ctx); err == nil && w.heard(now) {
			return other
		}
	}
	return n
}

// overwrittenNumber is of a divided fleet, whose key for that has another one.
type overwrittenNumber struct {
	key, is string
	parts   int
}

func (r *Reader) overwritten(parts int) *overwrittenNumber {
	n := r.foreign.Load()
	if n == 0 {
		return nil
	}
	is := strconv.FormatInt(n, 10)
	if n == 1 {
		is += " or missing"
	}
	return &overwrittenNumber{r.keys.Partitions(), is, parts}
}

func (r *Reader) count(ctx context.Context) (int, error) {
	_, several := r.client.(*redis.ClusterClient)
	ctx, cancel := briefly(ctx, several)
	defer cancel()
	return partition.Count(ctx, r.client, r.keys)
}

const atOnce = 16

func each[T any](
	ctx context.Context, parts []*Reader, ask func(ctx context.Context, part *Reader) (T, error),
) ([]T, error) {
	answers := make([]T, len(parts))
	p := pool.New().WithMaxGoroutines(atOnce).WithContext(ctx).WithCancelOnError().WithFirstError()
	for i, part := range parts {
		p.Go(func(ctx context.Context) (err error) {
			if answers[i], err = ask(ctx, part); err != nil && part.single {
				return fmt.Errorf("partition %d: %w", part.number, err)
			}
			return err
		})
	}
	return answers, p.Wait()
}

// reachTimeout bounds the question whether one server of several answers.
const reachTimeout = time.Second

// probeTimeout is for each of ten calls at most.
const probeTimeout = 500 * time.Millisecond

// unreadServer is a server of a Redis Cluster that does not answer, and its keys.
type unreadServer struct {
	Server     string `json:"server"`
	Partitions []int  `json:"partitions"`
	Fleet      bool   `json:"fleet,omitempty"`
	Error      string `json:"error"`
}

// unreadError means that the answer is valid and lacks some partitions.
type unreadError struct {
	Servers []unreadServer

	about string // the missing part, if it is one
}

func (e *unreadError) Error() string {
	var texts []string
	for _, u := range e.Servers {
		texts = append(texts, u.Sentence())
	}
	return "inspect: " + e.about + strings.Join(texts, "; ")
}

// Sentence names the server, its error, and its keys.
func (u unreadServer) Sentence() string {
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

// reached are the parts that answer.
type reached struct {
	all, parts []*Reader
	clocks     []reading // by number
	unread     []unreadServer
	fleet      bool // its own keys answer
}

// reading is a clock of a server, and when it was read.
type reading struct{ now, at time.Time }

func (f reached) now(part *Reader) time.Time {
	c := f.clocks[part.number]
	return c.now.Add(time.Since(c.at))
}

// briefly bounds a question to one server of several.
func briefly(ctx context.Context, several bool) (context.Context, context.CancelFunc) {
	if several {
		return context.WithTimeout(ctx, reachTimeout)
	}
	return context.WithCancel(ctx)
}

// reach fails if no server returns its time. A refusal counts as an answer.
func (r *Reader) reach(ctx context.Context) (reached, error) {
	parts, err := r.parts(ctx)
	if err != nil {
		return reached{}, err
	}
	ask := parts
	if len(parts) > 1 {
		ask = append(slices.Clone(parts), r)
	}
	found := reached{all: parts, clocks: make([]reading, len(ask))}
	errs := make([]error, len(ask))
	p := pool.New().WithMaxGoroutines(atOnce)
	for k, part := range ask {
		p.Go(func() {
			ctx, cancel := briefly(ctx, len(parts) > 1)
			defer cancel()
			found.clocks[k].now, errs[k] = part.now(ctx)
			found.clocks[k].at = time.Now()
		})
	}
	p.Wait()
	unread := func(part *Reader, err error) *unreadServer {
		server := part.address(ctx)
		i := slices.IndexFunc(found.unread, func(u unreadServer) bool { return u.Server == server })
		if i < 0 {
			i = len(found.unread)
			found.unread = append(found.unread, unreadServer{Server: server, Partitions: []int{}, Error: cause(err)})
		}
		return &found.unread[i]
	}
	for k, part := range parts {
		if errs[k] == nil {
			found.parts = append(found.parts, part)
			continue
		}
		u := unread(part, errs[k])
		u.Partitions = append(u.Partitions, k)
	}
	last := errs[len(errs)-1]
	if found.fleet = last == nil; !found.fleet {
		unread(r, last).Fleet = true
	}
	if len(found.parts) > 0 {
		return found, nil
	}
	if answered(errs[0]) {
		found.parts = parts
	}
	return found, errs[0]
}

// err is nil if all parts were reached.
func (f reached) err() error {
	if len(f.unread) == 0 {
		return nil
	}
	return &unreadError{Servers: f.unread}
}

// node is what a server answered to INFO.
type node struct {
	info string
	err  error
}

// nodes asks the servers of a Redis Cluster, or the server, by address.
func (r *Reader) nodes(ctx context.Context, replicasToo bool) (map[string]node, error) {
	var mu sync.Mutex
	all := map[string]node{}
	ask := func(ctx context.Context, at *redis.Client) error {
		ctx, cancel := context.WithTimeout(ctx, reachTimeout)
		defer cancel()
		info, err := at.Info(ctx).Result()
		mu.Lock()
		defer mu.Unlock()
		all[at.Options().Addr] = node{info, err}
		return nil
	}
	switch c := r.client.(type) {
	case *redis.Client:
		return all, ask(ctx, c)
	case *redis.ClusterClient:
		if replicasToo {
			return all, c.ForEachShard(ctx, ask)
		}
		return all, c.ForEachMaster(ctx, ask)
	}
	return all, nil
}

// Away returns a sentence for each master of a Redis Cluster that does not answer.
func (r *Reader) Away(ctx context.Context) (away []string) {
	if _, ok := r.client.(*redis.ClusterClient); !ok {
		return nil
	}
	all, _ := r.nodes(ctx, false) // the known ones
	for addr, n := range all {
		if n.err != nil && !answered(n.err) {
			away = append(away, fmt.Sprintf("Redis at %s does not answer (%s)", addr, cause(n.err)))
		}
	}
	slices.Sort(away)
	return away
}

func (r *Reader) address(ctx context.Context) string {
	if at, err := r.at(ctx); err == nil {
		return addressOf(at)
	}
	return ""
}

func addressOf(at redis.UniversalClient) string {
	if node, ok := at.(*redis.Client); ok {
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

// probe counts partitions by their keys, if the server with the number does not answer; 0: unknown.
func (r *Reader) probe(ctx context.Context) int {
	c, ok := r.client.(*redis.ClusterClient)
	if !ok {
		return 0
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
			return n
		}
	}
	return 0
}

// Partial reports whether an answer with this error is valid, but lacks partitions.
func Partial(err error) bool {
	var unread *unreadError
	return errors.As(err, &unread)
}

// Infos returns INFO of the server, or of each of a Redis Cluster with its replicas, by address; of
// one that does not answer its error.
func (r *Reader) Infos(ctx context.Context) map[string]string {
	found, err := r.nodes(ctx, true)
	if err != nil {
		found["cluster"] = node{err: err}
	}
	all := map[string]string{}
	for addr, n := range found {
		if all[addr] = n.info; n.err != nil {
			all[addr] = "not read: " + n.err.Error()
		}
	}
	return all
}
