package api

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rollcall-redis/rollcall/availability"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

// Counts are the numbers of mitras, as last read.
type Counts struct {
	// At is when Online and Available were read, zero if never.
	Online    int                 `json:"online"`
	Available int                 `json:"available"`
	At        time.Time           `json:"at,omitzero"`
	Source    availability.Origin `json:"source,omitempty"`
	// Error is why the last read failed.
	Error string `json:"error,omitempty"`
}

const countEvery = 2 * time.Second

// Counts returns the last result of Run.
func (a *API) Counts() (known Counts) {
	if last := a.counts.Load(); last != nil {
		known = *last
	}
	return known
}

// Run counts mitras, for status and metrics, until ctx ends.
func (a *API) Run(ctx context.Context) error {
	for {
		found := a.count(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if why := found.Error; why != "" {
			found = a.Counts()
			found.Error = why
		}
		a.counts.Store(&found)
		if !wait.For(ctx, countEvery) {
			return nil
		}
	}
}

func (a *API) count(ctx context.Context) Counts {
	online, err := a.mirror.CountOnline(ctx)
	if err != nil {
		return Counts{Error: err.Error()}
	}
	s, err := a.mirror.Snapshot(ctx)
	if err != nil {
		return Counts{Error: err.Error()}
	}
	return Counts{Online: online.Value, Available: s.Value.Count, At: time.Now(), Source: online.From}
}

func (a *API) gauges() []prometheus.Collector {
	gauge := func(name, help string, value func(Counts) int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help},
			func() float64 { return float64(value(a.Counts())) })
	}
	return []prometheus.Collector{
		gauge("availability_mitras_online", "Mitras who are online, as last asked.",
			func(c Counts) int { return c.Online }),
		gauge("availability_mitras_available", "Mitras who can take work, as last asked.",
			func(c Counts) int { return c.Available }),
	}
}
