package orphan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/together"
	"github.com/rollcall-redis/rollcall/janitor/proof"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

// walk meets every candidate of a rule, some more than once, and every key that its rider is given.
func (r *rule) walk(
	ctx context.Context, c caller, d *rider, met func(key string), page func([]*candidate) error,
) error {
	var found []*candidate
	add := func(some []*candidate) error {
		var full [][]*candidate
		full, found = pagesOf(append(found, some...))
		for _, one := range full {
			if err := page(one); err != nil {
				return err
			}
		}
		return nil
	}
	err := d.eachKey(ctx, c, func(keys []string) error {
		var some []*candidate
		var containers []string
		for _, key := range keys {
			met(key)
			if r.holds(key) {
				containers = append(containers, key)
			}
			if each := r.ofKey(key); each != nil {
				some = append(some, each)
			}
		}
		types, err := typesOf(ctx, c, containers)
		if err != nil {
			return err
		}
		for _, key := range containers {
			if types[key] != r.Members.Kind() {
				continue
			}
			if err := r.walkMembers(ctx, c, key, add); err != nil {
				return err
			}
		}
		return add(some)
	})
	if err == nil && r.fixed() != "" {
		err = r.walkMembers(ctx, c, r.fixed(), add)
	}
	if err != nil || len(found) == 0 {
		return err
	}
	return page(found)
}

// pageNames (bytes) is about how much the names of a page may have.
const pageNames = 1 << 20

// pagesOf cuts candidates into pages that are full, and the rest.
func pagesOf(all []*candidate) (full [][]*candidate, rest []*candidate) {
	from, bytes := 0, 0
	for i, c := range all {
		if bytes += len(c.key) + len(c.member); i+1-from == pageOf || bytes >= pageNames {
			full, from, bytes = append(full, all[from:i+1]), i+1, 0
		}
	}
	return full, slices.Clone(all[from:])
}

func typesOf(ctx context.Context, c caller, keys []string) (types map[string]string, err error) {
	types = make(map[string]string, len(keys))
	if len(keys) == 0 {
		return types, nil
	}
	err = c.Call(ctx, func(ctx context.Context) error {
		cmds, err := c.Client().Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for _, key := range keys {
				pipe.Type(ctx, key)
			}
			return nil
		})
		for i, cmd := range cmds {
			types[keys[i]] = cmd.(*redis.StatusCmd).Val()
		}
		return err
	})
	return types, err
}

// mostCompact (bytes) is the largest compact encoding that is scanned: a scan returns one whole,
// whatever its COUNT.
const mostCompact = 256 << 10

// errCompact: the members of one key cannot be read in small calls.
var errCompact = errors.New("its encoding is one piece, too large to be read at once: lower " +
	"the server's limits of listpacks and intsets")

// checkCompact asks before the first page whether members can be read page by page.
func (r *rule) checkCompact(ctx context.Context, c caller, key string) error {
	return c.Call(ctx, func(ctx context.Context) error {
		is, err := c.Client().ObjectEncoding(ctx, key).Result()
		if err == redis.Nil || err == nil && is != "listpack" && is != "intset" && is != "ziplist" && is != "listpackex" {
			return nil
		}
		if err != nil && together.Answered(err) { // unknown: the default limits are small
			return nil
		}
		if err != nil {
			return err
		}
		bytes, err := c.Client().MemoryUsage(ctx, key, 0).Result()
		if err == nil && bytes > mostCompact {
			return fmt.Errorf("orphan: rule %q: %s: %w", r.Name, rules.Spell(key), errCompact)
		}
		if err != nil && !together.Answered(err) {
			return err
		}
		return nil
	})
}

func (r *rule) walkMembers(ctx context.Context, c caller, key string, page func([]*candidate) error) error {
	if err := r.checkCompact(ctx, c, key); err != nil {
		return err
	}
	var pages proof.Pages
	named := r.Members.Hash != "" // HSCAN NOVALUES: Redis 7.4
	scan := func(ctx context.Context, cursor uint64) *redis.ScanCmd {
		client, size := c.Client(), pages.Next(c.PageSize())
		switch {
		case named:
			return client.HScanNoValues(ctx, key, cursor, "", size)
		case r.Members.Hash != "":
			return client.HScan(ctx, key, cursor, "", size)
		case r.Members.Set != "":
			return client.SScan(ctx, key, cursor, "", size)
		}
		return client.ZScan(ctx, key, cursor, "", size)
	}
	for cursor, first := uint64(0), true; first || cursor != 0; first = false {
		var found []string
		err := c.Call(ctx, func(ctx context.Context) (err error) {
			cmd := scan(ctx, cursor)
			if named && cmd.Err() != nil && together.Answered(cmd.Err()) {
				named = false
				cmd = scan(ctx, cursor)
			}
			found, cursor, err = cmd.Result()
			return err
		})
		if err != nil {
			return err
		}
		pages.Read(found)
		var some []*candidate
		for i, name := range found {
			if named || r.Members.Set != "" || i%2 == 0 {
				some = append(some, r.ofMember(key, name))
			}
		}
		if err := page(some); err != nil {
			return err
		}
	}
	return nil
}

// walks shares walks through the keyspace: SCAN makes Redis visit every key, whatever its pattern.
//
// A walk is a chain of pages. The rider that comes to its end reads the next one, so one that fails
// or leaves stops no other. Nobody joins a walk that has begun: SCAN only guarantees keys that
// exist from its beginning to its end.
type walks struct {
	mu       sync.Mutex
	coming   int // passes that have not joined their walk yet
	boarding *walk
}

// gatherFor bounds the wait for passes that have begun, which may be waiting for a database.
const gatherFor = time.Second

// chainBytes is how much the keys of pages may have that some rider has yet to come to. One that is
// further behind finds the chain cut, and reads the rest for itself.
const chainBytes = 4 << 20

type walk struct {
	servers *topology
	names   []*rules.Template // of all riders
	since   time.Time         // when the first one joined
	first   *page             // until it begins, as it would keep the whole chain
	begun   chan struct{}
	turn    chan struct{} // full while a page is read
}

// A page of keys, and where the next one begins.
type page struct {
	keys   []string
	master int
	cursor uint64
	bytes  int   // of all keys up to here
	tail   *page // of the last page: where the chain was cut
	next   atomic.Pointer[page]
}

type rider struct {
	*walks
	*walk
	own []*rules.Template
	at  *page
}

// expect announces a pass that will join a walk. Call the result when it has, or will not.
func (w *walks) expect() (arrived func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.coming++
	return sync.OnceFunc(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.coming--; w.coming == 0 && w.boarding != nil {
			w.begin(w.boarding)
		}
	})
}

// begin requires the lock.
func (w *walks) begin(one *walk) {
	if w.boarding == one {
		w.boarding, one.first = nil, nil
		close(one.begun)
	}
}

// join boards the next walk, or a separate one if the Cluster has changed since.
func (w *walks) join(servers *topology, templates []*rules.Template) *rider {
	if len(templates) == 0 {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.boarding == nil {
		w.boarding = &walk{
			servers: servers, since: time.Now(), first: new(page), begun: make(chan struct{}), turn: make(chan struct{}, 1),
		}
	}
	if w.boarding.servers.changed(servers) != nil {
		return new(walks).join(servers, templates)
	}
	w.boarding.names = append(w.boarding.names, templates...)
	return &rider{walks: w, walk: w.boarding, own: templates, at: w.boarding.first}
}

// eachKey visits the keys that may have the rider's names, some repeatedly. A nil rider has none.
func (d *rider) eachKey(ctx context.Context, c caller, visit func([]string) error) error {
	if d == nil {
		return nil
	}
	if err := d.board(ctx); err != nil {
		return err
	}
	for d.at.master < len(d.servers.masters) {
		next := d.at.next.Load()
		if next == nil {
			if err := d.read(ctx, c); err != nil {
				return err
			}
			continue
		}
		d.at = next
		var keys []string
		for _, key := range next.keys {
			if slices.ContainsFunc(d.own, func(t *rules.Template) bool { return strings.HasPrefix(key, t.Prefix()) }) {
				keys = append(keys, key)
			}
		}
		if err := visit(keys); err != nil {
			return err
		}
	}
	return nil
}

// board waits until the walk begins.
func (d *rider) board(ctx context.Context) error {
	late := time.NewTimer(gatherFor - time.Since(d.since))
	defer late.Stop()
	select {
	case <-d.begun:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-late.C:
		d.mu.Lock()
		defer d.mu.Unlock()
		d.begin(d.walk)
	}
	return nil
}

// read reads the next page unless another rider has, and cuts the pages that are too far behind.
func (d *rider) read(ctx context.Context, c caller) error {
	select {
	case d.turn <- struct{}{}:
		defer func() { <-d.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if d.at.next.Load() != nil {
		return nil
	}
	next := &page{master: d.at.master, tail: cmp.Or(d.at.tail, d.at), bytes: d.at.bytes}
	err := c.Call(ctx, func(ctx context.Context) (err error) {
		on := d.servers.masters[next.master].client
		next.keys, next.cursor, err = on.Scan(ctx, d.at.cursor, globOf(d.names), int64(c.PageSize())).Result()
		return err
	})
	if err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	if next.cursor == 0 {
		next.master++
	}
	for _, key := range next.keys {
		next.bytes += len(key) + 16
	}
	d.at.tail = nil
	d.at.next.Store(next)
	for next.bytes-next.tail.bytes > chainBytes && next.tail != d.at {
		next.tail = next.tail.next.Swap(nil)
	}
	return nil
}

func globOf(templates []*rules.Template) string {
	if len(templates) == 1 {
		return templates[0].Glob()
	}
	common := templates[0].Prefix()
	for _, t := range templates {
		for !strings.HasPrefix(t.Prefix(), common) {
			common = common[:len(common)-1]
		}
	}
	return rules.EscapeGlob(common) + "*"
}
