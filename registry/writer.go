package registry

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc/pool"

	"github.com/rollcall-redis/rollcall/internal/failpoint"
	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/keyless"
	"github.com/rollcall-redis/rollcall/internal/together"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

const callTimeout = 3 * time.Second

// write is the only goroutine that writes entries, a batch at a time.
func (r *Registry) write(ctx context.Context) error {
	for ctx.Err() == nil {
		r.mu.Lock()
		if r.boot == "" || r.table.queued() == 0 {
			r.mu.Unlock()
			select {
			case <-ctx.Done():
			case <-r.table.wake: // also sent by drawBoot
			}
			continue
		}
		b := r.table.next(time.Now())
		r.mu.Unlock()
		r.metrics.failures.WithLabelValues("register").Add(float64(b.late))

		err := errors.Join(
			r.run(ctx, registerScript, "register", b.register),
			r.run(ctx, releaseScript, "release", b.release),
			r.run(ctx, healScript, "heal", b.heal),
			r.run(ctx, healScript, "heal", b.outlive),
			r.overlap(b.check, func(ops []op) error { return r.check(ctx, ops) }),
		)

		r.mu.Lock()
		r.table.ended(err)
		r.former(err)
		r.changed.Broadcast()
		r.mu.Unlock()
		r.tellReconciled()
		if err != nil {
			r.endIfReplaced(err)
			wait.For(ctx, r.retryDelay())
		}
	}
	return nil
}

func (r *Registry) retryDelay() time.Duration {
	return min(r.cfg.HeartbeatInterval/10, time.Second)
}

// overlap calls one for batchSize ops at a time. The calls overlap, and leave half of Client's
// connections to others.
func (r *Registry) overlap(ops []op, one func([]op) error) error {
	calls := pool.New().WithErrors().WithMaxGoroutines(max(1, min(overlapped, connections(r.cfg.Client)/2)))
	for some := range slices.Chunk(ops, batchSize) {
		calls.Go(func() error { return one(some) })
	}
	return calls.Wait()
}

func connections(c redis.UniversalClient) int {
	switch c := c.(type) {
	case *redis.Client:
		return c.Options().PoolSize
	case *redis.ClusterClient:
		return c.Options().PoolSize
	}
	return 0
}

func (r *Registry) run(ctx context.Context, s *redis.Script, name string, ops []op) error {
	alone := len(ops) <= batchSize
	return r.overlap(ops, func(ops []op) error { return r.runOne(ctx, s, name, ops, alone) })
}

func (r *Registry) runOne(ctx context.Context, s *redis.Script, name string, ops []op, alone bool) error {
	r.mu.Lock()
	ops = r.table.wanted(ops)
	r.mu.Unlock()
	if len(ops) == 0 {
		return nil
	}
	ids := make([]any, len(ops), len(ops)+1)
	for i, o := range ops {
		ids[i] = o.h.id
	}
	over := ops[0].dead != ""
	keys, args := r.owning(r.Newest(), ids...)
	if over {
		keys, args = append(keys, r.heartbeats(ops)...), append(args, r.Timing().Gap().Milliseconds())
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	got, err := r.owned(time.Now(), s.Run(call, r.cfg.Client, keys, args...))

	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if over && err == nil && got.count < 0 {
		r.table.notYet(ops, now)
		r.read(got, now)
		return nil
	}
	r.table.wrote(ops, got, err, now)
	if err != nil {
		n := 1
		if name == "register" {
			n = len(ops)
		}
		r.fail(name, err, n)
		return err
	}
	if name == "heal" {
		r.healed += uint64(got.count)
		r.metrics.healed.Add(float64(got.count))
		r.restoring.owed = r.restoring.owed || got.count > 0
		r.recovered("register") // healing retries failed registrations
	}
	r.recovered(name)
	if !alone { // the others have changed the index, too
		got.size = r.table.indexed
	}
	r.read(got, now)
	return nil
}

func (r *Registry) check(ctx context.Context, ops []op) error {
	ids := make([]string, len(ops))
	for i, o := range ops {
		ids[i] = o.h.id
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	found, err := r.entries(call, ids)
	if err != nil {
		r.noteFailed(err)
	}
	failpoint.Hit(failpoint.Comparing)

	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	r.table.checked(ops, found, err, now)
	if err != nil {
		r.fail("check", err, 1)
	} else {
		r.recovered("check")
	}
	return err
}

func (r *Registry) endIfReplaced(err error) {
	if errors.Is(err, ErrReplaced) {
		r.end(ErrReplaced)
	}
}

//go:embed *.lua
var files embed.FS

func script(first string, names ...string) *redis.Script {
	text := first + guard.FormerLua
	for _, name := range names {
		file, err := files.ReadFile(name + ".lua")
		if err != nil {
			panic(err)
		}
		text += string(file)
	}
	return redis.NewScript(text)
}

var (
	bootScript     = script(guard.SettingsLua, "record", "boot")
	beatScript     = script(guard.SettingsLua, "record", "owner", "beat")
	fullScript     = script("#!lua flags=allow-oom\n"+guard.SettingsLua, "record", "owner", "beat")
	hereScript     = script("", "record", "owner", "here")
	registerScript = script("", "record", "owner", "register")
	healScript     = script(guard.SettingsLua, "record", "owner", "heal")
	releaseScript  = script("", "record", "owner", "release")
	goodbyeScript  = script("", "record", "owner", "goodbye")
	lookupScript   = script("", "lookup")
)

// ErrReplaced ends Run, and every claim, when a newer process has the same instance id. This one
// writes nothing more and hands nothing back; it must exit.
var ErrReplaced = errors.New("registry: replaced by a newer process with the same instance id")

// A reply is the answer of every owner script: the signs that Redis lost something.
type reply struct {
	found, last int64  // ms of the own record, as it was found and as it is now; 0: none
	size        int    // members of the index; -1: not a set
	lost        string // when Redis may last have lost entries; "": unknown
	count       int    // the script's own; see its header
	foreign     map[string]string
	ms          int64 // the server's clock
}

// own runs a script through Control, whose beats repair what this process would find fault with.
func (r *Registry) own(ctx context.Context, s *redis.Script, more ...any) (reply, error) {
	keys, args := r.owning(0, more...)
	return r.owned(time.Now(), s.Run(ctx, r.cfg.Control, keys, args...))
}

// owning returns what all scripts of an owner are called with; see record.lua.
func (r *Registry) owning(newest int64, more ...any) (keys []string, args []any) {
	k := r.keys
	keys = []string{k.Heartbeat(r.id), k.Roster(), k.Devices(r.id), k.Witness(), k.Registry(), k.Beats()}
	r.mu.Lock()
	defer r.mu.Unlock()
	holds := "i"
	if r.table.held() > 0 {
		holds = "h"
	}
	args = []any{
		r.id, r.boot, r.cfg.HeartbeatTTL.Milliseconds(), !r.cfg.NoReverseIndex,
		r.cfg.HeartbeatInterval.Milliseconds(), holds, newest, keyless.Tag(r.cfg.Client),
	}
	return keys, append(args, more...)
}

// owned returns the reply to a script that was sent then.
func (r *Registry) owned(sent time.Time, cmd *redis.Cmd) (reply, error) {
	out, err := cmd.Slice()
	if err != nil {
		r.noteFailed(err)
		return reply{}, err
	}
	if len(out) == 1 && out[0] == "SUPERSEDED" {
		return reply{}, ErrReplaced
	}
	got, err := parseReply(out)
	if err == nil {
		r.mu.Lock()
		r.table.clock.read(got.ms, sent, time.Now())
		r.mu.Unlock()
	}
	return got, err
}

// noteFailed notes what the next beat or answer has to make good. Without an answer the script may
// have found the record missing and written it, which hides that from all later answers; a server
// that takes no writes has been replaced by one that may lack some.
func (r *Registry) noteFailed(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.surprises.unheard = r.surprises.unheard || !together.Answered(err) || redis.IsReadOnlyError(err)
}

func parseReply(out []any) (reply, error) {
	if len(out) == 8 {
		found, ok1 := out[1].(int64)
		last, ok2 := out[2].(int64)
		size, ok3 := out[3].(int64)
		lost, ok4 := out[4].(string)
		count, ok5 := out[5].(int64)
		flat, ok6 := out[6].([]any)
		ms, ok7 := out[7].(int64)
		if ok1 && ok2 && ok3 && ok4 && ok5 && ok6 && ok7 {
			var foreign map[string]string
			if len(flat) > 0 {
				foreign = make(map[string]string, len(flat)/2)
			}
			for pair := range slices.Chunk(flat, 2) {
				foreign[fmt.Sprint(pair[0])] = fmt.Sprint(pair[len(pair)-1])
			}
			return reply{found, last, int(size), lost, int(count), foreign, ms}, nil
		}
	}
	return reply{}, fmt.Errorf("registry: unexpected answer %v", out)
}
