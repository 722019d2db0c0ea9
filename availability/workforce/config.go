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

// MostMitras is how many a simulation has at most.
const MostMitras = 100_000

// Config says what a workforce is. Mitras, Targets, Secret and Backend are required.
type Config struct {
	// Mitras is their number, 1 to MostMitras.
	Mitras int
	// Targets are replicas, as http://host:port. Each request draws the next one.
	Targets []string
	// Secret signs tokens, by HS256.
	Secret []byte
	// Backend is the rest of the service.
	Backend Backend
	// Interval between two heartbeats of an app. Default 30 s.
	Interval time.Duration
	// Sessions that begin in a second. Default 0: there are none.
	Sessions float64
	// SessionLasts on average. Default 1 min.
	SessionLasts time.Duration
	// Polls of customers in a second. Default 0.
	Polls float64
	// Rest is how likely an app goes offline at a heartbeat, 0 to 1, for about RestFor. Default of
	// that: five intervals.
	Rest    float64
	RestFor time.Duration
	// Die is how likely an app dies without a word at a heartbeat, 0 to 1. It comes back after about
	// DeadFor. Default of that: ten intervals.
	Die     float64
	DeadFor time.Duration
	// Seed decides what is drawn.
	Seed uint64
	// Timeout of a request. Default 5 s.
	Timeout time.Duration
	// Ramp is the time within which apps are started. Default Interval, 10 s at most.
	Ramp time.Duration
	// Transport carries requests. Default: one of its own, with net/http's settings.
	Transport http.RoundTripper
}

// A Backend is the rest of the service, which shares the program's database.
type Backend interface {
	// AddMitras makes mitras that may work. Those that there are already stay.
	AddMitras(ctx context.Context, ids []string) error
	// Search makes a session whose customer searches. One that there is already stays.
	Search(ctx context.Context, session string) error
	// Session says who has a session, "" for nobody, and its status.
	Session(ctx context.Context, session string) (mitra, status string, err error)
}

// withDefaults fills in what is zero.
func (c Config) withDefaults() Config {
	c.Interval = cmp.Or(c.Interval, 30*time.Second)
	c.SessionLasts = cmp.Or(c.SessionLasts, time.Minute)
	c.RestFor = cmp.Or(c.RestFor, 5*c.Interval)
	c.DeadFor = cmp.Or(c.DeadFor, 10*c.Interval)
	c.Timeout = cmp.Or(c.Timeout, 5*time.Second)
	c.Ramp = cmp.Or(c.Ramp, min(c.Interval, 10*time.Second))
	return c
}

// check says what is wrong with what is required. Those who set the other fields check them: see
// "availability simulate".
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
