package proxy

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/internal/wait"
)

// expected is a request that the server has got, or will, and its answer's fate.
type expected struct {
	scores   []*Score
	instead  []byte // what the replica gets in the answer's place
	lost     bool
	silently bool
	confirms string // what the pushes that answer a (un)subscribe are called
	times    int    // how many
}

var (
	wirePing    = []byte("*1\r\n$4\r\nPING\r\n")
	wireDiscard = []byte("*1\r\n$7\r\nDISCARD\r\n")
	wireAbort   = []byte("-EXECABORT Transaction discarded because of previous errors.\r\n")
)

// judge applies the rules to one request and notes what answer is expected. It returns what the
// server gets instead, if anything, and false when the connection is lost. It calls flush before it
// waits, or lets anything be lost.
func (c *conn) judge(frame []byte, flush func() bool) (instead []byte, ok bool) {
	var e expected
	first, count := firstWord(frame)
	switch first {
	case "": // an empty request, which has no answer
		return nil, true
	case "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE":
		e.confirms, e.times = strings.ToLower(first), max(1, count-1)
	case "MONITOR", "SYNC", "PSYNC", "?": // what comes then is no answers
		c.notUnderstood()
		return nil, true
	case "CLIENT":
		if bulks(frame, 2)[1:].Has("REPLY") {
			c.notUnderstood()
			return nil, true
		}
	case "MULTI":
		c.multi, c.dirty = true, false
	}
	rules, scores := *c.proxy.rules.Load(), *c.proxy.scores.Load()
	if len(scores) > 0 || slices.ContainsFunc(rules, func(r *Rule) bool { return r.match != nil }) {
		req := bulks(frame, wordsToMatch)
		for _, r := range rules {
			transactional := first == "MULTI" || first == "EXEC" || first == "DISCARD"
			if r.act == actAnswer && transactional || !r.takes(req) {
				continue
			}
			switch r.act {
			case actHold:
				r.Caught <- bulks(frame, 0)
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
				e = expected{instead: r.error}
				instead = wirePing
				c.dirty = c.multi
			}
			if e.lost || e.instead != nil {
				break
			}
		}
		for _, s := range scores {
			if !c.multi && e.instead == nil && s.match(req) {
				s.sent()
				e.scores = append(e.scores, s)
			}
		}
	}
	if first == "EXEC" || first == "DISCARD" || first == "RESET" {
		if c.dirty && first == "EXEC" {
			e, instead = expected{instead: wireAbort}, wireDiscard
		}
		c.multi, c.dirty = false, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listens = c.listens || e.confirms != ""
	c.pending = append(c.pending, e)
	return instead, true
}

// firstWord is a request's first word, "?" if it is no request, and how many words there are.
func firstWord(frame []byte) (first string, count int) {
	count, _, _ = respNumber(frame, '*')
	if !eachWord(frame, func(word []byte) bool {
		first = string(bytes.ToUpper(word))
		return false
	}) {
		return "?", 0
	}
	return first, count
}

// Has tells whether one of the words is this one, in capitals or not.
func (r Request) Has(word string) bool {
	return slices.ContainsFunc(r, func(w string) bool { return strings.EqualFold(w, word) })
}

// touched: the next answer may not go through as it is.
func (c *conn) touched() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.head < len(c.pending) && (c.pending[c.head].lost || c.pending[c.head].instead != nil)
}

// answered finds out which request a value from the server answers: none, for a push.
func (c *conn) answered(kind byte, text []byte) expected {
	c.mu.Lock()
	defer c.mu.Unlock()
	if kind == '>' || kind == '*' && c.listens {
		switch what := string(text); {
		case c.head < len(c.pending) && c.pending[c.head].confirms == what && what != "":
			if c.pending[c.head].times--; c.pending[c.head].times > 0 {
				return expected{}
			}
		case kind == '>', what == "message", what == "pmessage", what == "smessage", strings.HasSuffix(what, "unsubscribe"):
			return expected{}
		}
	}
	if c.head == len(c.pending) {
		c.notUnderstood()
		return expected{}
	}
	e := c.pending[c.head]
	c.pending[c.head] = expected{}
	if c.head++; c.head == len(c.pending) {
		c.pending, c.head = c.pending[:0], 0
	} else if c.head >= 64 && c.head >= len(c.pending)/2 {
		n := copy(c.pending, c.pending[c.head:])
		clear(c.pending[n:])
		c.pending, c.head = c.pending[:n], 0
	}
	if len(e.scores) > 0 {
		said := string(text)
		if kind == '-' || kind == '!' {
			prefix, _, _ := strings.Cut(said, " ")
			said = "error " + prefix
		}
		for _, s := range e.scores {
			s.answered(said)
		}
	}
	return e
}

// carry takes bytes one way, as the rules of the whole proxy have it; false: there is no further.
func (c *conn) carry(w way, p []byte) bool {
	if len(p) == 0 || c.silent.Load() {
		return true
	}
	var late bool
	speed := 0
	for _, r := range *c.proxy.rules.Load() {
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
			return w == toReplica // the replica may have given up: its answers are taken off all the same
		}
		p = p[n:]
	}
	return true
}

// flowing waits while the proxy is held; false: it has ended.
func (c *conn) flowing(w way) bool {
	for {
		rules := *c.proxy.rules.Load()
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

// met: a rule is about new connections, and this is one.
func (c *conn) met(a ruleAct) bool {
	for _, r := range *c.proxy.rules.Load() {
		if r.act == a {
			r.n.Add(1)
			return true
		}
	}
	return false
}
