package orphan

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
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
			if r.many() && r.holds(key) && !strings.Contains(key, " ") {
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
	if err == nil && r.container != nil && !r.many() {
		err = r.walkMembers(ctx, c, rules.Literal(r.container.String()), add)
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
	members := &members{rule: r, key: key, named: true}
	for cursor, first := uint64(0), true; first || cursor != 0; first = false {
		var some []*candidate
		err := c.Call(ctx, func(ctx context.Context) (err error) {
			some, cursor, err = members.scan(ctx, c, cursor)
			return err
		})
		if err != nil {
			return err
		}
		if err := page(some); err != nil {
			return err
		}
	}
	return nil
}

type members struct {
	*rule
	key   string
	pages proof.Pages
	named bool // HSCAN NOVALUES: Redis 7.4
}

func (m *members) scan(ctx context.Context, c caller, cursor uint64) (some []*candidate, next uint64, err error) {
	var found []string
	each, client, size := 2, c.Client(), m.pages.Next(c.PageSize())
	switch {
	case m.Members.ZSet != "":
		found, next, err = client.ZScan(ctx, m.key, cursor, "", size).Result()
	case m.Members.Set != "":
		each = 1
		found, next, err = client.SScan(ctx, m.key, cursor, "", size).Result()
	case m.named:
		each = 1
		found, next, err = client.HScanNoValues(ctx, m.key, cursor, "", size).Result()
		if err != nil && together.Answered(err) {
			m.named = false
			return m.scan(ctx, c, cursor)
		}
	default:
		found, next, err = client.HScan(ctx, m.key, cursor, "", size).Result()
	}
	m.pages.Read(found)
	for i := 0; i < len(found); i += each {
		some = append(some, m.ofMember(m.key, found[i]))
	}
	return some, next, err
}

// walks shares walks through the keyspace: SCAN makes Redis visit every key, whatever its pattern.
//
// A rider without keys reads the next page itself if nobody else is reading, so one that fails or
// leaves stops no other. Nobody joins a walk that has begun: SCAN only guarantees keys that exist
// from its beginning to its end.
type walks struct {
	mu       sync.Mutex
	coming   int // passes that have not joined their walk yet
	boarding *walk
	running  *walk
	news     chan struct{} // closed when any of this, or of a walk, changes
}

// gatherFor bounds the wait for passes that have begun, which may be waiting for a database.
const gatherFor = time.Second

// backlog is how many keys may wait for a rider before the walk pauses, and patience for how long.
// A rider that takes longer, as one that waits for its database, goes on alone from where the walk
// is.
const (
	backlog  = 2 * pageOf
	patience = 250 * time.Millisecond
)

type walk struct {
	servers *topology
	since   time.Time // when the first rider joined
	riders  []*rider
	byBegin map[string][]*rider // by prefix; set when the walk begins
	lengths []int
	pattern string
	at      int
	cursor  uint64
	reading bool
}

type rider struct {
	*walks
	walk   *walk
	begins []string
	glob   string
	keys   []string  // read, but not taken
	full   time.Time // since when so many wait; zero: they do not
}

// expect announces a pass that will join a walk. Call the result when it has, or will not.
func (w *walks) expect() (arrived func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.coming++
	return sync.OnceFunc(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.coming--
		w.announce()
	})
}

// announce requires the lock.
func (w *walks) announce() {
	if w.news != nil {
		close(w.news)
	}
	w.news = make(chan struct{})
}

// join boards the next walk, or a separate one if the Cluster has changed since.
func (w *walks) join(servers *topology, templates []*rules.Template) *rider {
	if len(templates) == 0 {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.boarding == nil {
		w.boarding = &walk{servers: servers, since: time.Now()}
	}
	if w.boarding.servers.changed(servers) != nil {
		return new(walks).join(servers, templates)
	}
	d := &rider{walks: w, walk: w.boarding, glob: globOf(templates)}
	for _, t := range templates {
		d.begins = append(d.begins, t.Prefix())
	}
	slices.Sort(d.begins)
	d.begins = slices.Compact(d.begins)
	w.boarding.riders = append(w.boarding.riders, d)
	w.announce()
	return d
}

func (d *rider) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	w := d.walk
	w.without(d)
	if len(w.riders) == 0 {
		if d.boarding == w {
			d.boarding = nil
		}
		if d.running == w {
			d.running = nil
		}
	}
	d.announce()
}

// eachKey leaves the walk. A nil rider has no keys.
func (d *rider) eachKey(ctx context.Context, c caller, page func([]string) error) error {
	if d == nil {
		return nil
	}
	defer d.leave()
	for {
		keys, err := d.next(ctx, c)
		if err != nil || len(keys) == 0 {
			return err
		}
		if err := page(keys); err != nil {
			return err
		}
	}
}

// next returns keys, some repeatedly, or none at the end of the walk.
func (d *rider) next(ctx context.Context, c caller) ([]string, error) {
	for {
		d.mu.Lock()
		if over := d.walk.at == len(d.walk.servers.masters); len(d.keys) > 0 || over {
			keys := d.keys
			d.keys, d.full = nil, time.Time{}
			d.announce()
			d.mu.Unlock()
			return keys, nil
		}
		read, wait := d.turn()
		if d.news == nil {
			d.news = make(chan struct{})
		}
		news := d.news
		d.mu.Unlock()
		if read {
			if err := d.read(ctx, c); err == nil {
				continue
			} else if ctx.Err() == nil {
				return nil, err
			}
			return nil, context.Cause(ctx)
		}
		timer := time.NewTimer(wait)
		select {
		case <-news:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
}

// turn reports whether the rider reads the next page, or how long it may wait. It requires the
// lock.
func (d *rider) turn() (read bool, wait time.Duration) {
	w := d.walk
	wait = time.Hour
	if d.boarding == w {
		if d.running != nil {
			return false, wait
		}
		if left := gatherFor - time.Since(w.since); d.coming > 0 && left > 0 {
			return false, left
		}
		d.boarding, d.running = nil, w
		w.begin()
	}
	if w.reading {
		return false, wait
	}
	for _, other := range slices.Clone(w.riders) {
		if other.full.IsZero() {
			continue
		}
		if late := time.Since(other.full); late < patience {
			wait = min(wait, patience-late)
		} else {
			w.goAlone(other)
		}
	}
	if wait < time.Hour {
		return false, wait
	}
	w.reading = true
	return true, 0
}

func (w *walk) without(d *rider) {
	is := func(other *rider) bool { return other == d }
	w.riders = slices.DeleteFunc(w.riders, is)
	for begin, riders := range w.byBegin {
		w.byBegin[begin] = slices.DeleteFunc(riders, is)
	}
}

// goAlone lets a rider read the rest of the walk for itself.
func (w *walk) goAlone(d *rider) {
	w.without(d)
	alone := &walk{servers: w.servers, riders: []*rider{d}, at: w.at, cursor: w.cursor}
	alone.begin()
	d.walk = alone
}

func (w *walk) begin() {
	w.byBegin, w.pattern = map[string][]*rider{}, w.riders[0].glob
	common := w.riders[0].begins[0]
	for _, d := range w.riders {
		for _, begin := range d.begins {
			w.byBegin[begin] = append(w.byBegin[begin], d)
			w.lengths = append(w.lengths, len(begin))
			common = commonBegin(common, begin)
		}
	}
	slices.Sort(w.lengths)
	w.lengths = slices.Compact(w.lengths)
	if len(w.riders) > 1 {
		w.pattern = rules.EscapeGlob(common) + "*"
	}
}

func (d *rider) read(ctx context.Context, c caller) error {
	w := d.walk
	var keys []string
	cursor := w.cursor
	err := c.Call(ctx, func(ctx context.Context) (err error) {
		on := w.servers.masters[w.at].client
		keys, cursor, err = on.Scan(ctx, w.cursor, w.pattern, int64(c.PageSize())).Result()
		return err
	})
	d.mu.Lock()
	defer d.mu.Unlock()
	defer d.announce()
	w.reading = false
	if err != nil {
		return err
	}
	for _, key := range keys {
		for _, n := range w.lengths {
			if n > len(key) {
				break
			}
			for _, one := range w.byBegin[key[:n]] {
				if last := len(one.keys) - 1; last < 0 || one.keys[last] != key {
					if one.keys = append(one.keys, key); len(one.keys) >= backlog && one.full.IsZero() {
						one.full = time.Now()
					}
				}
			}
		}
	}
	if w.cursor = cursor; cursor == 0 {
		if w.at++; w.at == len(w.servers.masters) && d.running == w {
			d.running = nil
		}
	}
	return nil
}

func commonBegin(a, b string) string {
	for !strings.HasPrefix(b, a) {
		a = a[:len(a)-1]
	}
	return a
}

func globOf(templates []*rules.Template) string {
	if len(templates) == 1 {
		return templates[0].Glob()
	}
	common := templates[0].Prefix()
	for _, t := range templates {
		common = commonBegin(common, t.Prefix())
	}
	return rules.EscapeGlob(common) + "*"
}
