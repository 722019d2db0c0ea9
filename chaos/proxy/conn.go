package proxy

import (
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/internal/wait"
)

// expected is the fate of an answer.
type expected struct {
	scores   []*Score
	instead  []byte // in place of the answer
	lost     bool
	silently bool
	confirms string // pushes of this name answer a (un)subscribe
	times    int    // how many
}

var (
	wirePing    = []byte("*1\r\n$4\r\nPING\r\n")
	wireDiscard = []byte("*1\r\n$7\r\nDISCARD\r\n")
	wireAbort   = []byte("-EXECABORT Transaction discarded because of previous errors.\r\n")
)

// judge returns the bytes for the server, and false if the connection is lost. It calls flush
// before it waits or lets anything be lost.
func (c *conn) judge(v *value, flush func() bool) (send []byte, ok bool) {
	e, send := expected{}, v.raw
	if v.kind != '*' {
		c.notUnderstood()
		return send, true
	}
	first := strings.ToUpper(v.word(0))
	switch first {
	case "": // empty, without an answer
		return send, true
	case "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE":
		e.confirms, e.times = strings.ToLower(first), max(1, len(v.words)-1)
	case "MONITOR", "SYNC", "PSYNC": // their output is not answers
		c.notUnderstood()
		return send, true
	case "CLIENT":
		if strings.EqualFold(v.word(1), "REPLY") {
			c.notUnderstood()
			return send, true
		}
	case "MULTI":
		c.multi, c.dirty = true, false
	}
	rules, scores := c.proxy.present()
	req := v.request()
	transactional := first == "MULTI" || first == "EXEC" || first == "DISCARD"
	for _, r := range rules {
		if e.lost || e.instead != nil {
			break
		}
		if r.act == actAnswer && transactional || !r.takes(req) {
			continue
		}
		switch r.act {
		case actHold:
			r.Caught <- req
			if !flush() || !c.until(r.done) {
				return nil, false
			}
		case actDelay:
			if !flush() || !wait.For(c.proxy.ctx, r.d) {
				return nil, false
			}
		case actLoseRequest:
			flush()
			c.lost(r.silently)
			return nil, r.silently
		case actLoseReply:
			e.lost, e.silently = true, r.silently
		case actAnswer:
			e.instead, send = r.error, wirePing
			c.dirty = c.multi
		}
	}
	for _, s := range scores {
		if !c.multi && e.instead == nil && s.match(req) {
			s.counts(func() { s.open++ })
			e.scores = append(e.scores, s)
		}
	}
	if first == "EXEC" || first == "DISCARD" || first == "RESET" {
		if c.dirty && first == "EXEC" {
			e, send = expected{instead: wireAbort}, wireDiscard
		}
		c.multi, c.dirty = false, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listens = c.listens || e.confirms != ""
	c.pending = append(c.pending, e)
	return send, true
}

// answered finds the request that a value answers; a push answers none.
func (c *conn) answered(v *value) (e expected) {
	c.mu.Lock()
	defer c.mu.Unlock()
	said := v.word(0)
	if v.kind == '>' || v.kind == '*' && c.listens {
		switch {
		case len(c.pending) > 0 && c.pending[0].confirms == said && said != "":
			if c.pending[0].times--; c.pending[0].times > 0 {
				return expected{}
			}
		case v.kind == '>', said == "message", said == "pmessage", said == "smessage",
			strings.HasSuffix(said, "unsubscribe"):
			return expected{}
		}
	}
	if len(c.pending) == 0 {
		c.notUnderstood()
		return expected{}
	}
	e, c.pending = c.pending[0], c.pending[1:]
	if v.kind == '-' || v.kind == '!' {
		prefix, _, _ := strings.Cut(said, " ")
		said = "error " + prefix
	}
	for _, s := range e.scores {
		s.counts(func() {
			s.open--
			s.texts[said]++
		})
	}
	return e
}

func (c *conn) carry(w way, p []byte) bool {
	if len(p) == 0 || c.silent.Load() {
		return true
	}
	var late bool
	speed := 0
	rules, _ := c.proxy.present()
	for _, r := range rules {
		if r.match != nil || !r.ways[w] {
			continue
		}
		var pause time.Duration
		switch r.act {
		case actLate:
			if rand.IntN(3) == 0 {
				pause, late = rand.N(r.d), true // and is not held besides: d is the most
			}
		case actLoss:
			for n := 0; n < 3 && rand.Float64() < r.p; n++ {
				pause += 200 * time.Millisecond << n
			}
		case actSlow:
			speed = r.speed
			r.n.Add(1)
		case actMute:
			c.mute.Store(true)
			r.n.Add(1)
		case actSilence:
			c.silent.Store(true)
			r.n.Add(1)
		}
		if pause > 0 {
			r.n.Add(1)
			if !wait.For(c.proxy.ctx, pause) {
				return false
			}
		}
	}
	if !late && !c.flowing(w) {
		return false
	}
	if c.silent.Load() || w == toReplica && c.mute.Load() {
		return true
	}
	to := c.server
	if w == toReplica {
		to = c.replica
	}
	for len(p) > 0 {
		n := len(p)
		if speed > 0 {
			n = min(n, max(1, speed/20))
			if !wait.For(c.proxy.ctx, time.Duration(n)*time.Second/time.Duration(speed)) {
				return false
			}
		}
		if _, err := to.Write(p[:n]); err != nil {
			return w == toReplica // the replica may have given up: its answers are still consumed
		}
		p = p[n:]
	}
	return true
}

// flowing waits while the proxy is held, and returns false once it has ended.
func (c *conn) flowing(w way) bool {
	for {
		rules, _ := c.proxy.present()
		i := slices.IndexFunc(rules, func(r *Rule) bool { return r.act == actHold && r.match == nil && r.ways[w] })
		if i < 0 {
			return c.proxy.ctx.Err() == nil
		}
		rules[i].n.Add(1)
		if !c.until(rules[i].done) {
			return false
		}
	}
}

func (c *conn) until(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-c.proxy.ctx.Done():
		return false
	}
}

func (c *conn) met(a ruleAct) bool {
	rules, _ := c.proxy.present()
	i := slices.IndexFunc(rules, func(r *Rule) bool { return r.act == a })
	if i >= 0 {
		rules[i].n.Add(1)
	}
	return i >= 0
}
