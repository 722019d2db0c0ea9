package proxy

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// The first act on the whole proxy's chunks or connections, the others on matching requests.
type ruleAct int

const (
	actHold    ruleAct = iota // until it ends
	actLate                   // up to a duration, a third of the chunks
	actLoss                   // of packets, with a probability
	actSlow                   // bytes a second
	actMute                   // loses replies
	actSilence                // half-open, new connections too
	actRefuse                 // new connections

	actLoseRequest
	actLoseReply
	actAnswer
	actDelay
)

type way int

const (
	toServer way = iota
	toReplica
)

// Rule is a fault that lasts, and counts what it really hit.
type Rule struct {
	proxy *Proxy
	act   ruleAct
	ways  [2]bool
	match func(Request) bool // nil: the whole proxy
	done  chan struct{}      // at End

	d        time.Duration
	p        float64 // of losing a packet
	speed    int
	error    []byte
	silently bool
	Caught   chan Request

	n    atomic.Int64
	mu   sync.Mutex
	left int // requests that it still acts on; negative: any number
}

// Hits counts chunks, connections or requests.
func (r *Rule) Hits() int { return int(r.n.Load()) }

// End moves held requests on; silenced connections stay silent. It may be called again.
func (r *Rule) End() {
	r.proxy.mu.Lock()
	defer r.proxy.mu.Unlock()
	if i := slices.Index(r.proxy.rules, r); i >= 0 {
		r.proxy.rules = slices.Delete(slices.Clone(r.proxy.rules), i, i+1)
		close(r.done)
	}
}

func (r *Rule) takes(req Request) bool {
	if r.match == nil || !r.match(req) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.left == 0 {
		return false
	}
	r.left--
	r.n.Add(1)
	return true
}

func (p *Proxy) rule(r *Rule) *Rule {
	r.proxy, r.done = p, make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(slices.Clone(p.rules), r)
	return r
}

var bothWays, requestsOnly, repliesOnly = [2]bool{true, true}, [2]bool{true, false}, [2]bool{false, true}

// Hold holds back everything, both ways. A replica that is held for good is dead to Redis.
func (p *Proxy) Hold() *Rule { return p.rule(&Rule{act: actHold, ways: bothWays}) }

// HoldReplies holds back Redis' answers alone.
func (p *Proxy) HoldReplies() *Rule { return p.rule(&Rule{act: actHold, ways: repliesOnly}) }

// LoseReplies lets no reply through, and then nothing more on that connection, as TCP.
func (p *Proxy) LoseReplies() *Rule { return p.rule(&Rule{act: actMute, ways: repliesOnly}) }

// Delay makes a third of the requests arrive up to d later.
func (p *Proxy) Delay(d time.Duration) *Rule {
	return p.rule(&Rule{act: actLate, ways: requestsOnly, d: d})
}

// Loss imitates lost packets on TCP, both ways: with the probability given, a chunk and everything
// after it is late by one retransmission (200 ms), by another twice as late, and so on; by three at
// most.
func (p *Proxy) Loss(probability float64) *Rule {
	return p.rule(&Rule{act: actLoss, ways: bothWays, p: probability})
}

// Slow limits each connection, each way.
func (p *Proxy) Slow(bytesPerSecond int) *Rule {
	return p.rule(&Rule{act: actSlow, ways: bothWays, speed: bytesPerSecond})
}

// HalfOpen lets nothing through and closes nothing. A connection falls silent for good with the
// next bytes sent on it; new ones are accepted and silent.
func (p *Proxy) HalfOpen() *Rule { return p.rule(&Rule{act: actSilence, ways: bothWays}) }

// Refuse resets new connections. The proxy keeps its port.
func (p *Proxy) Refuse() *Rule { return p.rule(&Rule{act: actRefuse}) }

// HoldNext holds back the next request that matches, and everything after it on its connection.
// Once released it reaches the server, even if the replica is dead.
func (p *Proxy) HoldNext(match func(Request) bool) (caught <-chan Request, release func()) {
	r := p.rule(&Rule{act: actHold, match: match, left: 1, Caught: make(chan Request, 1)})
	return r.Caught, r.End
}

// HoldEach holds back every request that matches.
func (p *Proxy) HoldEach(match func(Request) bool) *Rule {
	return p.rule(&Rule{act: actHold, match: match, left: -1, Caught: make(chan Request, 1000)})
}

// LoseReply lets the next n requests that match through, consumes the answer and resets the
// replica's connection.
func (p *Proxy) LoseReply(match func(Request) bool, n int) *Rule {
	return p.rule(&Rule{act: actLoseReply, match: match, left: n})
}

// LoseReplySilently leaves the connection half-open instead.
func (p *Proxy) LoseReplySilently(match func(Request) bool, n int) *Rule {
	return p.rule(&Rule{act: actLoseReply, match: match, left: n, silently: true})
}

// LoseRequest drops the next n requests that match, and resets the replica's connection.
func (p *Proxy) LoseRequest(match func(Request) bool, n int) *Rule {
	return p.rule(&Rule{act: actLoseRequest, match: match, left: n})
}

// LoseRequestSilently leaves the connection half-open instead.
func (p *Proxy) LoseRequestSilently(match func(Request) bool, n int) *Rule {
	return p.rule(&Rule{act: actLoseRequest, match: match, left: n, silently: true})
}

// DelayEach delays every request that matches, and everything after it on its connection.
func (p *Proxy) DelayEach(match func(Request) bool, d time.Duration) *Rule {
	return p.rule(&Rule{act: actDelay, match: match, left: -1, d: d})
}

// AnswerWith answers the next n requests (negative: all) that match with an error, such as "LOADING
// Redis is loading the dataset in memory". The server gets a PING in place of each, to keep the
// order. In a transaction the command is refused, nothing is executed, and EXEC is answered
// EXECABORT, as by a server. MULTI, EXEC and DISCARD themselves are never refused.
func (p *Proxy) AnswerWith(match func(Request) bool, err string, n int) *Rule {
	return p.rule(&Rule{act: actAnswer, match: match, left: n, error: []byte("-" + err + "\r\n")})
}

// Answers counts the server's answers to requests that match, from now on.
func (p *Proxy) Answers(match func(Request) bool) *Score {
	s := &Score{match: match, texts: make(map[string]int)}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.scores = append(slices.Clone(p.scores), s)
	return s
}

// Score counts answers by text: the first element of an array, "error " and the first word of an
// error, "nil" for a null. It includes answers that the replica never got, but no requests refused
// here or queued in a transaction.
type Score struct {
	match func(Request) bool
	mu    sync.Mutex
	texts map[string]int
	open  int
}

func (s *Score) counts(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
}

// Counts returns the answers so far.
func (s *Score) Counts() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.texts)
}

// Unanswered counts requests without an answer.
func (s *Score) Unanswered() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}
