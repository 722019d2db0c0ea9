package chaos

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Faults on a line, and counts of what passes it. Matchers see every request, also those that are queued in a
// transaction, and MULTI and EXEC: who wants to lose a transaction's answer loses that of EXEC.

// What a rule does. Those of the whole line act on chunks or connections, the others on the requests that match.
type ruleAct int

const (
	actHold    ruleAct = iota // keeps back until it ends
	actLate                   // up to a duration, a third of the chunks
	actLoss                   // packets, with a probability
	actSlow                   // bytes a second
	actMute                   // loses replies
	actSilence                // half-open
	actRefuse                 // new connections

	actLoseRequest
	actLoseReply
	actAnswer
	actDelay
)

// A way is a direction.
type way int

const (
	toServer way = iota
	toReplica
)

// rule is a fault that lasts. It counts what it really hit: chunks, connections or requests.
type rule struct {
	line  *line
	act   ruleAct
	ways  [2]bool
	match func(request) bool // nil: of the whole line
	done  chan struct{}      // closed by end

	d        time.Duration
	p        float64 // of losing a packet
	speed    int
	error    []byte
	silently bool
	caught   chan request

	n    atomic.Int64
	mu   sync.Mutex
	left int // requests that it still acts on; negative: any number
}

func (r *rule) hits() int { return int(r.n.Load()) }

// end ends it. What it kept back goes on, what it made silent remains so. It may be called more than once.
func (r *rule) end() {
	r.line.mu.Lock()
	defer r.line.mu.Unlock()
	rules := *r.line.rules.Load()
	if i := slices.Index(rules, r); i >= 0 {
		rules = slices.Delete(slices.Clone(rules), i, i+1)
		r.line.rules.Store(&rules)
		close(r.done)
	}
}

// takes: it acts on this one.
func (r *rule) takes(req request) bool {
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

func (l *line) rule(r *rule) *rule {
	r.line, r.done = l, make(chan struct{})
	l.mu.Lock()
	defer l.mu.Unlock()
	rules := append(slices.Clone(*l.rules.Load()), r)
	l.rules.Store(&rules)
	return r
}

var bothWays, requestsOnly, repliesOnly = [2]bool{true, true}, [2]bool{true, false}, [2]bool{false, true}

// hold keeps back everything, both ways, until it ends. A replica that is held for good is dead to Redis.
func (l *line) hold() *rule { return l.rule(&rule{act: actHold, ways: bothWays}) }

// holdRequests keeps back what the replica sends; replies come through.
func (l *line) holdRequests() *rule { return l.rule(&rule{act: actHold, ways: requestsOnly}) }

// holdReplies keeps back what Redis answers; requests go through.
func (l *line) holdReplies() *rule { return l.rule(&rule{act: actHold, ways: repliesOnly}) }

// loseReplies lets no reply through. Behind a lost reply nothing more comes through on that connection, as TCP has it.
func (l *line) loseReplies() *rule { return l.rule(&rule{act: actMute, ways: repliesOnly}) }

// delay lets a third of the requests arrive up to d later.
func (l *line) delay(d time.Duration) *rule {
	return l.rule(&rule{act: actLate, ways: requestsOnly, d: d})
}

// loss is what losing packets does to TCP, both ways: with probability p a chunk, and everything behind it, is late by
// one retransmission (200 ms), by another twice as late, and so on; by three at most.
func (l *line) loss(p float64) *rule { return l.rule(&rule{act: actLoss, ways: bothWays, p: p}) }

// slow is a link of so many bytes a second, each way and for each connection.
func (l *line) slow(bytesPerSecond int) *rule {
	return l.rule(&rule{act: actSlow, ways: bothWays, speed: bytesPerSecond})
}

// halfOpen lets nothing through and closes nothing: connections fall silent for good with the next that is sent on them,
// new ones are accepted and silent. It hits chunks and new connections.
func (l *line) halfOpen() *rule { return l.rule(&rule{act: actSilence, ways: bothWays}) }

// refuse resets new connections: its port stays its own.
func (l *line) refuse() *rule { return l.rule(&rule{act: actRefuse}) }

// holdNext keeps back the next request that matches, and everything behind it on its connection. When released it
// reaches the server, also if the replica has closed the connection, stands still or is dead.
func (l *line) holdNext(match func(request) bool) (caught <-chan request, release func()) {
	r := l.rule(&rule{act: actHold, match: match, left: 1, caught: make(chan request, 1)})
	return r.caught, r.end
}

// loseReply lets the next n requests that match through, takes the answer off and resets the replica's connection.
func (l *line) loseReply(match func(request) bool, n int) *rule {
	return l.rule(&rule{act: actLoseReply, match: match, left: n})
}

// loseReplySilently leaves the connection half-open instead.
func (l *line) loseReplySilently(match func(request) bool, n int) *rule {
	return l.rule(&rule{act: actLoseReply, match: match, left: n, silently: true})
}

// loseRequest keeps the next n requests that match from the server, for good, and resets the replica's connection.
func (l *line) loseRequest(match func(request) bool, n int) *rule {
	return l.rule(&rule{act: actLoseRequest, match: match, left: n})
}

// loseRequestSilently leaves the connection half-open instead.
func (l *line) loseRequestSilently(match func(request) bool, n int) *rule {
	return l.rule(&rule{act: actLoseRequest, match: match, left: n, silently: true})
}

// delayEach has every request that matches, and what is behind it on its connection, arrive later by d.
func (l *line) delayEach(match func(request) bool, d time.Duration) *rule {
	return l.rule(&rule{act: actDelay, match: match, left: -1, d: d})
}

// answerWith actRefuse the next n requests (negative: all) that match with an error, such as "LOADING Redis is loading the
// dataset in memory". They do not reach the server: a PING does in their place, whose answer is exchanged, so that the
// order is kept. In a transaction it is as with a server: the queued command is refused, nothing of the transaction
// is done, and EXEC is answered EXECABORT. MULTI, EXEC and DISCARD themselves are never refused.
func (l *line) answerWith(match func(request) bool, err string, n int) *rule {
	return l.rule(&rule{act: actAnswer, match: match, left: n, error: []byte("-" + err + "\r\n")})
}

// answers counts what the server answers to requests that match, from now on.
func (l *line) answers(match func(request) bool) *score {
	s := newScore(match)
	l.mu.Lock()
	defer l.mu.Unlock()
	scores := append(slices.Clone(*l.scores.Load()), s)
	l.scores.Store(&scores)
	return s
}

// verdicts are the server's answers to all batches.
func (l *line) verdicts() map[string]int { return (*l.scores.Load())[0].counts() }

// unanswered is how many batches were sent and not answered: what became of them cannot be said here.
func (l *line) unanswered() int { return (*l.scores.Load())[0].unanswered() }

// score counts answers by their text: of an array the first element's, of an error "error " and its first word, of a null
// "nil". It counts also what the replica did not get to see, and not what was refused here or queued in a transaction.
type score struct {
	match func(request) bool
	mu    sync.Mutex
	texts map[string]int
	open  int
}

func newScore(match func(request) bool) *score { return &score{match: match, texts: map[string]int{}} }

func (s *score) counts() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.texts)
}

func (s *score) unanswered() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}

func (s *score) sent() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open++
}

func (s *score) answered(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
	s.texts[text]++
}
