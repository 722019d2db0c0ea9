package service

import (
	"log/slog"
	"net/netip"
	"sync"
	"time"
)

const (
	// guessEvery is how often one address may be wrong: a request that comes sooner after a refused one
	// is not looked at.
	guessEvery = time.Second
	// mostGuessers is how many addresses have a limit of their own.
	mostGuessers = 1000
	// guessesOver is the silence after which refusals are logged anew.
	guessesOver = time.Minute
)

// guesses slows down those who try tokens, and logs them once while it lasts.
type guesses struct {
	log *slog.Logger

	mu      sync.Mutex
	wrong   map[netip.Prefix]time.Time // when an address was last refused
	last    time.Time                  // when anybody was
	refused int                        // since the last line of the log
}

// tooSoon reports whether a request of this address is not to be looked at, and for how long.
func (g *guesses) tooSoon(peer string, now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if now.Sub(g.wrong[g.from(peer)]) < guessEvery {
		g.note(peer, now)
		return true
	}
	return false
}

// refuse notes a request without the token. One that brought none has guessed nothing.
func (g *guesses) refuse(peer string, guessed bool, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.wrong == nil {
		g.wrong = map[netip.Prefix]time.Time{}
	}
	if guessed {
		g.wrong[g.from(peer)] = now
	}
	g.note(peer, now)
}

// note logs the first refusal of a row. The caller holds mu.
func (g *guesses) note(peer string, now time.Time) {
	g.refused++
	if g.last.IsZero() || now.Sub(g.last) > guessesOver {
		g.log.Warn("admin requests are refused: wrong or no token; logged once while it lasts",
			"peer", peer, "refused", g.refused)
		g.refused = 0
	}
	g.last = now
}

// from returns what an address is remembered as: of IPv6 the /64. Those beyond mostGuessers are one.
// The caller holds mu.
func (g *guesses) from(peer string) (p netip.Prefix) {
	at, err := netip.ParseAddrPort(peer)
	if err != nil {
		return p
	}
	ip := at.Addr().Unmap().WithZone("")
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	p, _ = ip.Prefix(bits)
	if _, known := g.wrong[p]; !known && len(g.wrong) >= mostGuessers {
		for old, at := range g.wrong {
			if time.Since(at) >= guessEvery {
				delete(g.wrong, old)
			}
		}
		if len(g.wrong) >= mostGuessers {
			return netip.Prefix{}
		}
	}
	return p
}
