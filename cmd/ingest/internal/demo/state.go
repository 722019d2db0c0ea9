package demo

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/cmd/ingest/internal/commands"
	"github.com/rollcall-redis/rollcall/cmd/ingest/internal/gateway"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

type state struct {
	leader  string // holder of the lease, or ""
	epoch   uint64
	entries map[string]string // IMEI -> instance
	roster  []string
	alive   map[string]bool     // heartbeat exists; of all replicas ever started
	indexes map[string][]string // likewise
}

func (d *demo) read(ctx context.Context) (s state, err error) {
	holder, err := d.elector.Holder(ctx)
	if err != nil {
		return s, fmt.Errorf("demo: %w", err)
	}
	s = state{leader: holder.Instance, epoch: holder.Epoch}
	s.alive, s.indexes = make(map[string]bool), make(map[string][]string)
	pipe := d.cfg.Redis.TxPipeline()
	entries, roster := pipe.HGetAll(ctx, d.keys.Registry()), pipe.SMembers(ctx, d.keys.Roster())
	beats, indexes := make(map[string]*redis.IntCmd), make(map[string]*redis.StringSliceCmd)
	for _, r := range d.all {
		beats[r.id] = pipe.Exists(ctx, d.keys.Heartbeat(r.id))
		indexes[r.id] = pipe.SMembers(ctx, d.keys.Devices(r.id))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return s, fmt.Errorf("demo: read Redis: %w", err)
	}
	s.entries, s.roster = entries.Val(), roster.Val()
	slices.Sort(s.roster)
	for id := range beats {
		s.alive[id] = beats[id].Val() == 1
		s.indexes[id] = indexes[id].Val()
	}
	return s, nil
}

func (s *state) naming(id string) (n int) {
	for _, owner := range s.entries {
		if owner == id {
			n++
		}
	}
	return n
}

// left reports whether nothing in Redis names an instance.
func (s *state) left(id string) bool {
	return s.naming(id) == 0 && !s.alive[id] && !slices.Contains(s.roster, id) && len(s.indexes[id]) == 0
}

func (d *demo) truth() map[string]string {
	// If two replicas had the same port, the later one wins.
	instances := make(map[string]string)
	for _, r := range d.all {
		instances[r.devices] = r.id
	}
	truth := d.fleet.Where()
	for imei, addr := range truth {
		truth[imei] = instances[addr]
	}
	return truth
}

func (d *demo) allRoutable(s *state) bool { return d.routable(s) == d.cfg.Devices }

// routable counts the devices that a router finds at the right replica, alive and not about to end.
func (d *demo) routable(s *state) (n int) {
	for imei, id := range d.truth() {
		if r := d.called(id); s.entries[imei] == id && s.alive[id] && r != nil && !r.leaving {
			n++
		}
	}
	return n
}

func (d *demo) swept(ctx context.Context, id string) (n int, err error) {
	batches, err := d.cfg.Redis.XRange(ctx, d.keys.Log(), "-", "+").Result()
	if err != nil {
		return 0, fmt.Errorf("demo: read the log: %w", err)
	}
	for _, b := range batches {
		if b.Values["owner"] != id {
			continue
		}
		count, err := strconv.Atoi(fmt.Sprint(b.Values["count"]))
		if err != nil {
			return 0, fmt.Errorf("demo: read the log: %w", err)
		}
		n += count
	}
	return n, nil
}

func (d *demo) wrong(s *state) []string {
	var ids []string
	for _, r := range d.running() {
		ids = append(ids, r.id)
	}
	return differences(s, d.truth(), d.cfg.Devices, ids)
}

func differences(s *state, truth map[string]string, devices int, running []string) (found []string) {
	wrong := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	if len(truth) != devices {
		wrong("%d of %d devices are connected", len(truth), devices)
	}
	indexed := make(map[string]string) // IMEI -> instance
	for id, imeis := range s.indexes {
		for _, imei := range imeis {
			if truth[imei] != id {
				wrong("the index of %s has %s, whose socket is at %q", id, imei, truth[imei])
			}
			indexed[imei] = id
		}
	}
	for _, imei := range slices.Sorted(maps.Keys(truth)) {
		if owner := s.entries[imei]; owner != truth[imei] {
			wrong("%s has its socket at %s, its entry names %q", imei, truth[imei], owner)
		}
		if indexed[imei] != truth[imei] {
			wrong("%s has its socket at %s and is not in its index", imei, truth[imei])
		}
	}
	for _, imei := range slices.Sorted(maps.Keys(s.entries)) {
		if _, ok := truth[imei]; !ok {
			wrong("an entry of %s names %s, and there is no socket", imei, s.entries[imei])
		}
	}
	slices.Sort(running)
	if !slices.Equal(s.roster, running) {
		wrong("on the roster are %v, running are %v", s.roster, running)
	}
	for _, id := range slices.Sorted(maps.Keys(s.alive)) {
		if runs := slices.Contains(running, id); runs != s.alive[id] {
			wrong("%s: running %v, heartbeat %v", id, runs, s.alive[id])
		}
	}
	if !slices.Contains(running, s.leader) {
		wrong("%q leads, which does not run", s.leader)
	}
	return found
}

// ours omits the keys of individual instances.
func (d *demo) ours() []string {
	k := d.keys
	return []string{
		k.Registry(), k.Roster(), k.Lease(), "{" + k.Lease() + "}:epoch", k.Witness(), k.Beats(), k.Paused(), k.Log(),
		k.Timeline(), k.Minutes(), k.Contenders(),
		gateway.Stream, gateway.Stream + gateway.DeadSuffix,
	}
}

// free returns ErrOccupied, with the keys, if a fleet uses this Redis.
func (d *demo) free(ctx context.Context) error {
	var taken []string
	for _, key := range d.ours() {
		n, err := d.cfg.Redis.Exists(ctx, key).Result()
		if err != nil {
			return fmt.Errorf("demo: ask Redis: %w", err)
		}
		if n > 0 {
			taken = append(taken, key)
		}
	}
	if len(taken) > 0 {
		return fmt.Errorf("%w (it has %s)", ErrOccupied, strings.Join(taken, ", "))
	}
	return nil
}

const (
	cleanTime = 5 * time.Second
	// quietReads: Redis may still have to read commands of a killed replica.
	quietReads = 10
)

// clean removes everything that the demo's replicas have written. If another instance has come to
// this Redis meanwhile, it shares the keys: clean leaves them and returns ErrOccupied.
func (d *demo) clean() error {
	ctx, cancel := context.WithTimeout(context.Background(), cleanTime)
	defer cancel()
	keys, ours := d.ours(), map[string]bool{}
	for _, r := range d.all {
		ours[r.id] = true
		keys = append(keys, d.keys.Heartbeat(r.id), d.keys.Devices(r.id), d.keys.About(r.id),
			commands.Outbound(d.keys, r.id))
	}
	for quiet := 0; quiet < quietReads; {
		listed, err := d.cfg.Redis.SMembers(ctx, d.keys.Roster()).Result()
		if err != nil {
			return fmt.Errorf("demo: clean up: %w", err)
		}
		for _, id := range listed {
			if !ours[id] {
				return fmt.Errorf("%w (instance %q came to it meanwhile): its keys are left", ErrOccupied, id)
			}
		}
		n, err := d.cfg.Redis.Del(ctx, keys...).Result()
		if err != nil {
			return fmt.Errorf("demo: clean up: %w", err)
		}
		if quiet++; n > 0 {
			quiet = 0
		}
		wait.For(ctx, pollEvery)
	}
	return nil
}
