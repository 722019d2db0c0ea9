package janitor_test

import (
	"time"

	"github.com/redis/go-redis/v9"
)

// beatOf sends an instance's beat, if it can land, and restores its lost entries.
func (m *model) beatOf(n *instance) {
	if m.down || n.cut {
		n.next = time.Now().Add(n.interval / 10)
		return
	}
	now := time.Now()
	// In the model a heartbeat lasts until it is removed. Writing unchanged data again would change
	// nothing, and requests are most of a search's cost.
	if !n.written || m.entries(n) < len(n.imeis) {
		m.write(n)
	}
	if !n.old {
		m.tellGrace(n)
	}
	if n.expires.IsZero() || n.since.IsZero() {
		n.since = now
		m.changed()
		m.say("%s beats again", n.id)
	}
	n.beat, n.next, n.expires, n.fell = now, now.Add(n.interval), m.server().Add(n.ttl), time.Time{}
	n.byHand, n.listed, n.scanned = false, !n.old, false
}

// write writes a beat.
func (m *model) write(n *instance) {
	m.do(func(p redis.Pipeliner) {
		p.Set(m.ctx, m.Heartbeat(n.id), "1/1", 0)
		if !n.old {
			p.SAdd(m.ctx, m.Roster(), n.id)
			p.HDel(m.ctx, m.Witness(), m.Bye(n.id))
		}
		for _, imei := range n.imeis {
			if m.present[imei] != n {
				m.present[imei] = n
				p.HSet(m.ctx, m.Registry(), imei, n.id)
			}
		}
		if n.index && !n.old {
			p.SAdd(m.ctx, m.Devices(n.id), n.imeis[0], n.imeis[1], n.imeis[2])
		}
	})
	n.written = true
}

// silent: no heartbeat, and no goodbye before.
func (m *model) silent(n *instance) bool { return n.expires.IsZero() && !n.fell.IsZero() }

func (m *model) entries(n *instance) (sum int) {
	for _, imei := range n.imeis {
		if m.present[imei] == n {
			sum++
		}
	}
	return sum
}

// silence removes a heartbeat.
func (m *model) silence(n *instance) {
	m.do(func(p redis.Pipeliner) { p.Del(m.ctx, m.Heartbeat(n.id)) })
	n.expires, n.written = time.Time{}, false
	if n.fell.IsZero() {
		n.fell = time.Now()
	}
	m.changed()
}

func (m *model) changed() {
	if due := time.Now().Add(m.upTo(time.Second)); m.lookDue.IsZero() || due.Before(m.lookDue) {
		m.lookDue = due
	}
}
