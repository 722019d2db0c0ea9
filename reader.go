package rollcall

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/partition"
	"github.com/rollcall-redis/rollcall/registry"
)

// ReaderConfig configures a Reader. Its fields are those of Config.
type ReaderConfig struct {
	Redis    *redis.Options
	Sentinel *redis.FailoverOptions
	Cluster  *redis.ClusterOptions
	Prefix   string
	Logger   *slog.Logger
}

// A Reader is a Directory for a process that holds no sockets, such as a gateway. It writes
// nothing, and needs rights to read only. Its methods are safe for concurrent use.
type Reader struct {
	load, control redis.UniversalClient
	layout        guard.Layout
	log           *slog.Logger

	mu  sync.Mutex
	reg *partition.Registry // nil until the number of partitions is known
}

// NewReader returns a Reader, or one error with everything that is wrong in c. It does not talk to
// Redis.
func NewReader(c ReaderConfig) (*Reader, error) {
	all := Config{Redis: c.Redis, Sentinel: c.Sentinel, Cluster: c.Cluster, Prefix: c.Prefix}.withDefaults()
	if err := all.check(); err != nil {
		return nil, err
	}
	r := &Reader{layout: guard.Layout{Prefix: all.Prefix}, log: c.Logger}
	r.load, r.control = all.clients()
	return r, nil
}

// Close closes the connections.
func (r *Reader) Close() error { return errors.Join(r.load.Close(), r.control.Close()) }

// directory reads the number of partitions once. The fleet stops before it changes that, and so
// must readers.
func (r *Reader) directory(ctx context.Context) (Directory, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reg != nil {
		return r.reg, nil
	}
	n, err := partition.Count(ctx, r.load, r.layout)
	if err != nil {
		return nil, fmt.Errorf("rollcall: read the number of partitions: %w", err)
	}
	r.reg, err = partition.NewRegistry(registry.Config{
		Client: r.load, Control: r.control, Layout: r.layout, Logger: r.log,
	}, n)
	return r.reg, err
}

// Lookup is part of Directory.
func (r *Reader) Lookup(ctx context.Context, id string) (Owner, error) {
	d, err := r.directory(ctx)
	if err != nil {
		return Owner{}, err
	}
	return d.Lookup(ctx, id)
}

// LookupMany is part of Directory.
func (r *Reader) LookupMany(ctx context.Context, ids []string) (map[string]Owner, error) {
	d, err := r.directory(ctx)
	if err != nil {
		return nil, err
	}
	return d.LookupMany(ctx, ids)
}

// Owners is part of Directory.
func (r *Reader) Owners(ctx context.Context) ([]Owner, error) {
	d, err := r.directory(ctx)
	if err != nil {
		return nil, err
	}
	return d.Owners(ctx)
}

// Holdings is part of Directory.
func (r *Reader) Holdings(ctx context.Context, instance string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		d, err := r.directory(ctx)
		if err != nil {
			yield("", err)
			return
		}
		d.Holdings(ctx, instance)(yield)
	}
}
