package api

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/rollcall-redis/rollcall/availability"
)

// changes are when a mitra last went online and offline, which only Postgres knows; null: never.
type changes struct {
	LastOnline  *time.Time `json:"last_online_at"`
	LastOffline *time.Time `json:"last_offline_at"`
}

const (
	// how long a version's times are used: going online or offline takes a version, so this only
	// delays a statement that sets nothing but a time
	changesFor = 5 * time.Minute
	// in each of two generations, some 100 bytes per mitra
	mostChanges = 50_000
	// after Postgres did not answer, so that polls do not each wait for it
	changesAgain = time.Second
)

// knownChanges are nil if Postgres has no such mitra.
type knownChanges struct {
	*changes
	version int64
	at      time.Time
}

// changesCache asks once per version, so that an app that polls its status costs Postgres nothing
// until the mitra's state changes. Redis may have an older version than Postgres returned.
type changesCache struct {
	source Source
	asking *semaphore.Weighted

	mu            sync.Mutex
	recent, older map[string]knownChanges // a full recent becomes older
	quiet         time.Time               // no questions before this time
}

func newChangesCache(source Source) *changesCache {
	return &changesCache{
		source: source, asking: semaphore.NewWeighted(heartbeatsAtSource), recent: map[string]knownChanges{},
	}
}

// of returns nil if Postgres cannot be asked.
func (k *changesCache) of(ctx context.Context, id string, version int64) *changes {
	found, known := k.known(id, version)
	if known {
		return found
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := k.asking.Acquire(ctx, 1); err != nil {
		k.failed(err)
		return nil
	}
	defer k.asking.Release(1)
	if found, known := k.known(id, version); known { // another call has fetched it meanwhile
		return found
	}
	m, err := k.source.Mitra(ctx, id)
	switch {
	case errors.Is(err, availability.ErrNotFound):
		k.keep(id, knownChanges{nil, version, time.Now()})
		return nil
	case err != nil:
		k.failed(err)
		return nil
	}
	found = &changes{moment(m.LastOnline), moment(m.LastOffline)}
	k.keep(id, knownChanges{found, m.Version, time.Now()})
	return found
}

// known also reports whether to do without Postgres.
func (k *changesCache) known(id string, version int64) (*changes, bool) {
	now := time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	found, ok := k.recent[id]
	if !ok {
		found, ok = k.older[id]
	}
	if ok && found.version >= version && version > 0 && now.Sub(found.at) < changesFor {
		return found.changes, true
	}
	return nil, now.Before(k.quiet)
}

func (k *changesCache) keep(id string, found knownChanges) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.recent) >= mostChanges {
		k.recent, k.older = map[string]knownChanges{}, k.recent
	}
	k.recent[id] = found
}

// failed stops others for a while, unless the caller merely went away.
func (k *changesCache) failed(err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.quiet = time.Now().Add(changesAgain)
}
