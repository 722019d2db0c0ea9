package demo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/cmd/ingest/internal/gateway"
	"github.com/rollcall-redis/rollcall/internal/teltonika"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

type state struct {
	leader  *replica          // nil: none that runs
	entries map[string]string // IMEI -> instance
	alive   map[string]bool   // heartbeat exists
}

func (d *demo) read(ctx context.Context) (s state, err error) {
	holder, err := d.elector.Holder(ctx)
	if err != nil {
		return s, fmt.Errorf("demo: %w", err)
	}
	pipe := d.Redis.TxPipeline()
	entries, beats := pipe.HGetAll(ctx, d.keys.Registry()), make(map[string]*redis.IntCmd)
	for _, r := range d.all {
		beats[r.id] = pipe.Exists(ctx, d.keys.Heartbeat(r.id))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return s, fmt.Errorf("demo: read Redis: %w", err)
	}
	s.entries, s.alive = entries.Val(), make(map[string]bool)
	for _, r := range d.all {
		s.alive[r.id] = beats[r.id].Val() == 1
		if r.id == holder.Instance && !r.leaving {
			s.leader = r
		}
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

// differences compares entries with truth: where the devices have their sockets.
func (d *demo) differences(s *state, truth map[string]string) (found []string) {
	instances := make(map[string]string)
	for _, r := range d.all {
		if r.leaving {
			continue
		}
		instances[r.devices] = r.id // if two replicas had the same port, the later one wins
		if !s.alive[r.id] {
			found = append(found, r.id+" has no heartbeat")
		}
	}
	if len(truth) != d.Devices {
		found = append(found, fmt.Sprintf("%d of %d devices are connected", len(truth), d.Devices))
	}
	for imei, addr := range truth {
		if id := instances[addr]; id == "" || s.entries[imei] != id {
			found = append(found, fmt.Sprintf("%s has its socket at %q, its entry names %q", imei, id, s.entries[imei]))
		}
	}
	for imei, id := range s.entries {
		if truth[imei] == "" {
			found = append(found, fmt.Sprintf("an entry of %s names %s, and there is no socket", imei, id))
		}
	}
	return found
}

// whole is the event that all devices are routable.
func (d *demo) whole() event {
	return event{"every device to be routable", func(s *state) bool { return len(d.differences(s, d.fleet.Where())) == 0 },
		func(s *state) string {
			var parts []string
			for _, r := range d.running() {
				parts = append(parts, fmt.Sprintf("%s %d", r.id, s.naming(r.id)))
			}
			return fmt.Sprintf("all %d devices routable: %s", d.Devices, strings.Join(parts, ", "))
		}}
}

type event struct {
	what  string
	holds func(*state) bool
	say   func(*state) string // nil: nothing
}

// await reports each event as it happens, in any order.
func (d *demo) await(ctx context.Context, events ...event) error {
	began := time.Now()
	for len(events) > 0 {
		s, err := d.read(ctx)
		var waiting []event
		for _, e := range events {
			switch {
			case err != nil || !e.holds(&s):
				waiting = append(waiting, e)
			case e.say != nil:
				d.say("%s, %.1f s after", e.say(&s), time.Since(began).Seconds())
			}
		}
		if events = waiting; len(events) == 0 {
			return nil
		}
		for _, r := range d.running() {
			if text := r.Log(); !r.Runs() {
				return fmt.Errorf("demo: %s has ended: %s", r.id, text[max(0, len(text)-1000):])
			}
		}
		if time.Since(began) > d.Pace.Patience { // one failed read is not a reason to give up
			return errors.Join(fmt.Errorf("demo: waited in vain for %s", events[0].what), err)
		}
		if !wait.For(ctx, pollEvery) {
			return context.Cause(ctx)
		}
	}
	return nil
}

func (d *demo) judge(ctx context.Context) error {
	var found []string
	if err := d.await(ctx, event{"the registry to be the truth", func(s *state) bool {
		found = d.differences(s, d.fleet.Where())
		return len(found) == 0
	}, nil}); err != nil {
		return errors.Join(err, errors.New(strings.Join(found[:min(10, len(found))], "; ")))
	}
	acked, missing, err := d.stored(ctx)
	if err == nil && missing > 0 {
		err = fmt.Errorf("demo: %d of %d acknowledged records are not in the stream", missing, acked)
	}
	if err != nil {
		return err
	}
	d.say("CONVERGED: %d entries, each names the replica that holds the socket; "+
		"%d records acknowledged, every one is in the stream", d.Devices, acked)
	return nil
}

type record struct {
	imei string
	at   uint64 // Unix milliseconds
}

func (d *demo) acknowledged(imei string, records []teltonika.Record) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range records {
		d.acked[record{imei, records[i].Timestamp}] = true
	}
}

// stored counts the records that were acknowledged, and those that the telemetry stream lacks.
func (d *demo) stored(ctx context.Context) (acked, missing int, err error) {
	d.mu.Lock() // a copy: what is acknowledged from now on may land before the read position
	left := maps.Clone(d.acked)
	d.mu.Unlock()
	acked = len(left)
	for from := "-"; ; {
		page, err := d.Redis.XRangeN(ctx, gateway.Stream, from, "+", 1000).Result()
		if err != nil {
			return 0, 0, fmt.Errorf("demo: read telemetry: %w", err)
		}
		for _, m := range page {
			at, _ := strconv.ParseUint(fmt.Sprint(m.Values["ts"]), 10, 64)
			delete(left, record{fmt.Sprint(m.Values["imei"]), at})
			from = "(" + m.ID
		}
		if len(page) == 0 {
			return acked, len(left), nil
		}
	}
}
