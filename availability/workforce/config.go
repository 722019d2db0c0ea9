package workforce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// MostMitras is the largest simulation.
const MostMitras = 100_000

// Config configures a workforce. Mitras, Targets, Secret and Backend are required.
type Config struct {
	// Mitras is 1 to MostMitras.
	Mitras int
	// Targets are replicas, as http://host:port, used in turn.
	Targets []string
	// Secret signs tokens, by HS256.
	Secret  []byte
	Backend Backend
	// Interval between two heartbeats of an app. Default 30 s.
	Interval time.Duration
	// Sessions that begin per second. Default none.
	Sessions float64
	// SessionLasts is the average. Default 1 min.
	SessionLasts time.Duration
	// Polls by customers per second. Default none.
	Polls float64
	// Rest is the probability that an app goes offline at a heartbeat, for about RestFor, by default
	// five intervals.
	Rest    float64
	RestFor time.Duration
	// Die is the probability that an app dies at a heartbeat, for about DeadFor, by default ten
	// intervals.
	Die     float64
	DeadFor time.Duration
	Seed    uint64
	// Timeout of a request. Default 5 s.
	Timeout time.Duration
	// Ramp is the period over which apps start. Default Interval, at most 10 s.
	Ramp time.Duration
	// Transport's default has net/http's settings.
	Transport http.RoundTripper
}

// A Backend is the rest of the service, which shares the program's database.
type Backend interface {
	// AddMitras creates mitras that may work. Existing ones stay as they are.
	AddMitras(ctx context.Context, ids []string) error
	// Search creates a searching session. An existing one stays as it is.
	Search(ctx context.Context, session string) error
	// Session returns a session's mitra, or "", and its status.
	Session(ctx context.Context, session string) (mitra, status string, err error)
}

func (c Config) withDefaults() Config {
	c.Interval = cmp.Or(c.Interval, 30*time.Second)
	c.SessionLasts = cmp.Or(c.SessionLasts, time.Minute)
	c.RestFor = cmp.Or(c.RestFor, 5*c.Interval)
	c.DeadFor = cmp.Or(c.DeadFor, 10*c.Interval)
	c.Timeout = cmp.Or(c.Timeout, 5*time.Second)
	c.Ramp = cmp.Or(c.Ramp, min(c.Interval, 10*time.Second))
	return c
}

// check leaves the other fields to those who set them: see "availability simulate".
func (c Config) check() error {
	var errs []error
	if c.Mitras < 1 || c.Mitras > MostMitras {
		errs = append(errs, fmt.Errorf("workforce: expected 1 to %d mitras, got %d", MostMitras, c.Mitras))
	}
	if len(c.Targets) == 0 {
		errs = append(errs, errors.New("workforce: expected a target, http://host:port"))
	}
	for _, t := range c.Targets {
		u, err := url.Parse(t)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			errs = append(errs, fmt.Errorf("workforce: expected a target as http://host:port, got %q", t))
		}
	}
	if len(c.Secret) == 0 {
		errs = append(errs, errors.New("workforce: expected a secret that signs tokens"))
	}
	if c.Backend == nil {
		errs = append(errs, errors.New("workforce: expected a backend"))
	}
	return errors.Join(errs...)
}
