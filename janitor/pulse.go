package janitor

import "time"

// pulse knows from the rest of life that heartbeats have whether living owners beat in time. A healthy one
// never has less left than its TTL less the interval; one with less than two more retries' time has failed
// to beat. That says something about Redis for one interval; an owner that is silent for longer is dying, and
// sparing Redis does not help it. Each is measured by the most life that it was seen with: writers of other kinds have
// TTLs of their own. It is pure.
type pulse struct {
	interval time.Duration
	most     map[string]time.Duration // by owner
}

func newPulse(interval time.Duration) *pulse {
	return &pulse{interval: interval, most: map[string]time.Duration{}}
}

// thin takes what the owners on the roster have left, and tells whether one that lives beats late.
func (p *pulse) thin(left map[string]time.Duration) (thin bool) {
	for id, d := range left {
		p.most[id] = max(p.most[id], d)
		late := p.most[id] - d - p.interval - p.interval/5 // beats fail, and are tried again, each interval/10
		thin = thin || (late > 0 && late < p.interval)
	}
	for id := range p.most {
		if _, there := left[id]; !there {
			delete(p.most, id)
		}
	}
	return thin
}
