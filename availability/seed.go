package availability

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"
)

// seedingLasts is how long others wait before they seed, in case the seeding replica has died.
const seedingLasts = 10 * time.Second

var (
	errOtherSeeds = errors.New("availability: another replica seeds")
	errEmptied    = errors.New("availability: Redis was emptied while it was seeded, or that took too long")
)

// seed makes the mirror whole and returns when it began, by the server's clock. An empty server is
// the simplest case of a reconciliation.
func (m *Mirror) seed(ctx context.Context) (at string, err error) {
	token := rand.Text()
	defer func() {
		if err != nil && !errors.Is(err, errOtherSeeds) {
			short, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.patience)
			defer cancel()
			_, _ = m.seeding(short, "give_up", token) // otherwise it expires
		}
	}()
	if at, err = m.seeding(ctx, "begin", token); err != nil {
		return "", err
	}
	if at == "" {
		return "", errOtherSeeds
	}
	begun := time.Now()
	extend := func(ctx context.Context) error {
		at, err := m.seeding(ctx, "extend", token)
		if err == nil && at == "" {
			err = errEmptied
		}
		return err
	}
	r := &reconciliation{Mirror: m, page: extend, mode: heal, found: map[string]int{}, call: directly}
	if err := r.run(ctx); err != nil {
		return "", err
	}
	at, err = m.seeding(ctx, "certify", token)
	if err == nil && at == "" {
		err = errEmptied
	}
	if err != nil {
		return "", err
	}
	m.metrics.seeds.Inc()
	m.log.Info("mirror seeded", "states", r.states, "seconds", time.Since(begun).Seconds(), "found", r.found)
	return at, nil
}

func (m *Mirror) seeding(ctx context.Context, step, token string) (string, error) {
	keys := m.keys.all(m.keys.seeding())
	at, err := seedScript.Run(ctx, m.rdb, keys, step, token, seedingLasts.Milliseconds()).Text()
	if err != nil {
		return "", fmt.Errorf("availability: seed, %s: %w", step, err)
	}
	return at, nil
}
