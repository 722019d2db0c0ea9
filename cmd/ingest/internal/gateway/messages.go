package gateway

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/streak"
	"github.com/rollcall-redis/rollcall/internal/teltonika"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

// MessagesSuffix ends the name of a stream of messages, after its record stream's.
const MessagesSuffix = ":messages"

const (
	// A device that sends a line a second fills its share in some eight minutes.
	deviceWaits, allWait = 128 << 10, 64 << 20
	// messageCost is the memory that a message takes beyond its bytes.
	messageCost                = 192
	batchMost, batchBytes      = 100, 256 << 10
	losersMost                 = 1000
	messageFirst, messagePause = 50 * time.Millisecond, 5 * time.Second
)

type message struct {
	origin
	received  time.Time
	frame     teltonika.Frame // a copy, if fault is set
	fault     error           // why the frame could not be decoded: it becomes a dead letter
	codec     teltonika.Codec
	kind      teltonika.MessageType
	at        uint32 // device time, unix s; codecs 13 and 15
	named     string // the IMEI in the message, if it differs
	id        string // of the frame
	index     int    // in the frame
	text      []byte
	ambiguous bool // possibly the answer to a command, and included in its outcome
	refused   bool // Redis will not take it however often it is sent
}

func (m *message) cost() int { return messageCost + len(m.text) + len(m.frame.Raw) }

// MessageCounts counts this process' messages.
type MessageCounts struct {
	Waiting int              `json:"waiting"` // for Redis
	Stored  int64            `json:"stored"`
	Lost    int64            `json:"lost"`
	LostBy  map[string]int64 `json:"lost_by_device,omitempty"` // of the first thousand devices
}

// messages queues messages while Redis is away.
type messages struct {
	store   *store
	metrics *metrics
	log     *slog.Logger
	writes  *streak.Streak
	senders sync.WaitGroup // one per stream with messages
	ctx     context.Context
	abandon context.CancelFunc

	mu     sync.Mutex
	queues map[*stream][]*message // oldest first; each stream in it has a sender
	used   map[string]int         // bytes, by device
	bytes  int                    // total of used
	counts MessageCounts          // without Waiting
}

func newMessages(s *store, m *metrics, log *slog.Logger) *messages {
	q := &messages{
		store: s, metrics: m, log: log,
		writes: streak.New(log, "messages of devices cannot be stored, trying again",
			"messages of devices are stored again"),
		queues: make(map[*stream][]*message), used: make(map[string]int),
	}
	q.counts.LostBy = make(map[string]int64)
	q.ctx, q.abandon = context.WithCancel(context.Background())
	return q
}

// Messages returns the counts.
func (g *Gateway) Messages() MessageCounts { return g.messages.read() }

func (q *messages) read() MessageCounts {
	q.mu.Lock()
	defer q.mu.Unlock()
	c := q.counts
	c.LostBy = maps.Clone(c.LostBy)
	for _, waiting := range q.queues {
		c.Waiting += len(waiting)
	}
	return c
}

// add never blocks.
func (q *messages) add(m *message) {
	to := q.store.of(m.imei)
	q.mu.Lock()
	defer q.mu.Unlock()
	cost := m.cost()
	if q.used[m.imei]+cost > deviceWaits || q.bytes+cost > allWait || q.ctx.Err() != nil {
		q.lose(m)
		return
	}
	q.used[m.imei] += cost
	q.bytes += cost
	waiting, sending := q.queues[to]
	q.queues[to] = append(waiting, m)
	if !sending {
		q.senders.Go(func() { q.send(to) })
	}
}

// The caller holds mu.
func (q *messages) lose(m *message) {
	q.counts.Lost++
	q.metrics.lost.Inc()
	if _, known := q.counts.LostBy[m.imei]; known || len(q.counts.LostBy) < losersMost {
		q.counts.LostBy[m.imei]++
	}
}

func (q *messages) send(to *stream) {
	pause := wait.Between(messageFirst, messagePause)
	for batch := q.next(to); len(batch) > 0; batch = q.next(to) {
		ctx, cancel := context.WithTimeout(q.ctx, storeTime)
		err := q.store.do(job{ctx: ctx, to: to, messages: batch}).err
		cancel()
		if err == nil {
			q.writes.Note(nil)
			q.remove(to, len(batch), false)
			pause.Reset()
			continue
		}
		if q.ctx.Err() == nil {
			q.writes.Note(err)
		}
		if !pause.Wait(q.ctx) {
			q.remove(to, -1, true)
			return
		}
	}
}

// next returns a stream's oldest messages. If it returns none, the stream has no sender any more.
func (q *messages) next(to *stream) []*message {
	q.mu.Lock()
	defer q.mu.Unlock()
	waiting := q.queues[to]
	if len(waiting) == 0 {
		delete(q.queues, to)
		return nil
	}
	n, bytes := 0, 0
	for n < min(len(waiting), batchMost) && (n == 0 || bytes+waiting[n].cost() <= batchBytes) {
		bytes += waiting[n].cost()
		n++
	}
	return waiting[:n:n]
}

// remove takes -1 for all; then the sender ends.
func (q *messages) remove(to *stream, n int, lost bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	waiting := q.queues[to]
	if n < 0 {
		n = len(waiting)
		delete(q.queues, to)
	} else {
		q.queues[to] = waiting[n:]
	}
	for i, m := range waiting[:n] {
		waiting[i] = nil
		q.bytes -= m.cost()
		if q.used[m.imei] -= m.cost(); q.used[m.imei] <= 0 {
			delete(q.used, m.imei)
		}
		if lost || m.refused {
			q.lose(m)
		} else {
			q.counts.Stored++
			q.metrics.messages.Inc()
		}
	}
}

// close loses what cannot be stored in time.
func (q *messages) close(within time.Duration) {
	timer := time.AfterFunc(within, q.abandon)
	defer timer.Stop()
	q.senders.Wait()
	q.abandon()
	if c := q.read(); c.Lost > 0 {
		q.log.Warn("messages of devices were lost: Redis was away for too long", "messages", c.Lost,
			"devices", len(c.LostBy))
	}
}

// takeMessages passes answers to the pending command and stores the rest, an undecodable frame as a
// dead letter.
func (s *session) takeMessages(frame teltonika.Frame) {
	now := time.Now()
	found, err := teltonika.DecodeMessages(frame.Body)
	if err != nil {
		raw := append([]byte(nil), frame.Raw...)
		kept := teltonika.Frame{Codec: frame.Codec, Raw: raw, Body: raw[8 : 8+len(frame.Body)]}
		s.g.messages.add(&message{origin: s.origin(), received: now, frame: kept, fault: err})
		s.g.metrics.dead.Inc()
		s.fault(err, frame.Raw)
		return
	}
	// Identical messages are distinct, so the id depends on the time.
	salt := strconv.FormatInt(now.UnixNano(), 10)
	id, index := string(appendFrameID(nil, s.imei+salt, frame.Body)), -1
	for m := range found.All() {
		index++
		if len(m.Text) > 0 {
			s.speaks()
		}
		asked, ambiguous := s.takeAnswer(frame.Codec, m)
		if asked && !ambiguous {
			continue
		}
		one := &message{
			origin: s.origin(), received: now, codec: frame.Codec, kind: m.Type, at: m.Timestamp,
			id: id, index: index, text: append([]byte(nil), m.Text...), ambiguous: ambiguous,
		}
		if m.IMEI != (teltonika.IMEI{}) && m.IMEI.String() != s.imei {
			one.named = m.IMEI.String()
		}
		s.g.messages.add(one)
	}
}

// addMessages writes one transaction.
func (b *buffer) addMessages(j job) error {
	pipe := b.client.TxPipeline()
	for _, m := range j.messages {
		if m.fault == nil {
			pipe.XAdd(j.ctx, &redis.XAddArgs{
				Stream: b.messages.name, MaxLen: b.messages.room(len(m.text)), Approx: true, Values: m.values(),
			})
			continue
		}
		r := b.addDead(j.ctx, m.origin, m.frame, m.fault)
		if m.refused = refused(r.err); r.err != nil && !m.refused {
			return r.err
		}
	}
	if _, err := pipe.Exec(j.ctx); err != nil {
		return fmt.Errorf("%d messages: %w", len(j.messages), err)
	}
	return nil
}

// refused reports whether Redis refuses a dead letter for good: one device's broken frame must not
// stop the messages of all.
func refused(err error) bool {
	return redis.HasErrorPrefix(err, "WRONGTYPE ") || redis.HasErrorPrefix(err, "NOPERM ")
}

func (m *message) values() []any {
	values := []any{
		"imei", m.imei, "received", m.received.UnixMilli(), "codec", m.codec.String(),
		"type", fmt.Sprintf("%02X", byte(m.kind)), "hex", hex.EncodeToString(m.text),
		"frame", m.id, "record", m.index, "peer", m.peer,
	}
	if m.codec == teltonika.Codec13 || m.codec == teltonika.Codec15 {
		values = append(values, "ts", int64(m.at)*1000)
	}
	if printable(m.text) {
		values = append(values, "text", m.text)
	}
	if m.named != "" {
		values = append(values, "named", m.named)
	}
	if m.ambiguous {
		values = append(values, "ambiguous", "true")
	}
	return values
}

func printable(text []byte) bool {
	hidden := func(r rune) bool { return !unicode.IsPrint(r) && r != '\r' && r != '\n' && r != '\t' }
	return len(text) > 0 && utf8.Valid(text) && !bytes.ContainsFunc(text, hidden)
}
