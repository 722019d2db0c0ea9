package console

import (
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/rollcall-redis/rollcall/internal/peer"
)

const (
	// guessPause passes between two checks of an address' wrong tokens.
	guessPause = time.Second
	// guessesInAll is how many wrong tokens are checked in a guessPause, over all addresses that
	// have not shown the right one lately. One address alone must not keep the others out.
	guessesInAll = 10
	// After guessQuiet a wrong token is logged again.
	guessQuiet = time.Minute
	// trustedFor is how long the right token is remembered.
	trustedFor  = time.Hour
	mostTrusted = 100
)

// guesses bounds how often a wrong administrator's token is checked.
type guesses struct {
	mu      sync.Mutex
	refused map[netip.Prefix]time.Time // lately
	trusted map[netip.Prefix]time.Time // since when
	last    time.Time                  // of a refusal
}

// look refuses to check a peer's token after too many wrong ones.
func (g *guesses) look(remote string, now time.Time, isRight func() bool) (looked, right bool) {
	g.mu.Lock() // also during the comparison: one by one
	defer g.mu.Unlock()
	for at, when := range g.refused {
		if age := now.Sub(when); age >= guessPause || age < 0 {
			delete(g.refused, at)
		}
	}
	at := peer.Network(remote)
	since, known := g.trusted[at]
	trusted := known && now.Sub(since) < trustedFor
	if _, lately := g.refused[at]; lately || len(g.refused) >= guessesInAll && !trusted {
		return false, false
	}
	if !isRight() {
		if g.refused == nil {
			g.refused = map[netip.Prefix]time.Time{}
		}
		g.refused[at] = now
		return true, false
	}
	g.trust(at, now)
	return true, true
}

// The caller holds mu.
func (g *guesses) trust(at netip.Prefix, now time.Time) {
	if g.trusted == nil {
		g.trusted = map[netip.Prefix]time.Time{}
	}
	if _, known := g.trusted[at]; !known && len(g.trusted) >= mostTrusted {
		for other := range g.trusted {
			delete(g.trusted, other)
			break
		}
	}
	g.trusted[at] = now
}

// log logs the first refusal in a while.
func (g *guesses) log(r *http.Request, now time.Time, log *slog.Logger) {
	g.mu.Lock()
	quiet := g.last.IsZero() || now.Sub(g.last) >= guessQuiet
	g.last = now
	g.mu.Unlock()
	if quiet {
		log.Warn("admin request refused", "path", r.URL.Path, "peer", r.RemoteAddr)
	}
}
