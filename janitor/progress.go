package janitor

import (
	"log/slog"
	"sync"
	"time"
)

// progressEvery is how often a pass under way says how far it is.
const progressEvery = 10 * time.Second

// Progress says how far a pass under way is.
type Progress struct {
	Sweep   string    `json:"sweep"`
	Owner   string    `json:"owner,omitempty"` // of the request
	DryRun  bool      `json:"dry_run"`
	Started time.Time `json:"started"`
	Scanned int       `json:"scanned"` // elements looked at so far; a scan may meet one twice
	Total   int       `json:"total"`   // elements to be looked at, as counted at the beginning; 0: not known
	Evicted int       `json:"evicted"`
	// PerSecond is how many elements were looked at a second, in the last 10 to 20 s.
	PerSecond float64 `json:"per_second"`
	// SecondsLeft at that rate; 0: not known, or nothing.
	SecondsLeft float64 `json:"seconds_left"`
}

// Ratio is how much of the pass is done, 0 to 1; 0 also while its total is not known.
func (p Progress) Ratio() float64 {
	if p.Total == 0 {
		return 0
	}
	return min(1, float64(p.Scanned)/float64(p.Total))
}

// progress counts on behalf of a pass, for those who look at it meanwhile.
type progress struct {
	log *slog.Logger

	mu         sync.Mutex
	p          Progress
	mark, next mark // the rate is taken since mark; next becomes it, each 10 s
}

type mark struct {
	at      time.Time
	scanned int
}

func newProgress(r *Report, log *slog.Logger) *progress {
	begun := mark{at: r.Started}
	return &progress{
		log:  log.With("sweep", r.Sweep, "epoch", r.Epoch),
		p:    Progress{Sweep: r.Sweep, Owner: r.Owner, DryRun: r.DryRun, Started: r.Started},
		mark: begun, next: begun,
	}
}

// expect, looked and evicted add to the counts.

func (g *progress) expect(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.p.Total += n
}

func (g *progress) evicted(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.p.Evicted += n
}

func (g *progress) looked(n int, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.p.Scanned += n
	if now.Sub(g.next.at) < progressEvery {
		return
	}
	p := g.at(now)
	g.mark, g.next = g.next, mark{now, g.p.Scanned}
	g.log.Info("pass under way", "scanned", p.Scanned, "total", p.Total, "evicted", p.Evicted,
		"per_second", int(p.PerSecond), "seconds_left", int(p.SecondsLeft))
}

func (g *progress) get(now time.Time) Progress {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.at(now)
}

// at is get for who holds mu.
func (g *progress) at(now time.Time) Progress {
	p := g.p
	if took := now.Sub(g.mark.at).Seconds(); took > 0 {
		p.PerSecond = float64(p.Scanned-g.mark.scanned) / took
	}
	if left := p.Total - p.Scanned; left > 0 && p.PerSecond > 0 {
		p.SecondsLeft = float64(left) / p.PerSecond
	}
	return p
}
