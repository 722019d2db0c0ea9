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

	"github.com/rollcall-redis/rollcall/internal/outbox"
	"github.com/rollcall-redis/rollcall/internal/streak"
	"github.com/rollcall-redis/rollcall/internal/teltonika"
)

// MessagesSuffix ends the name of a stream of messages, after its record stream's.
const MessagesSuffix = ":messages"

const (
	// A device that sends a line a second fills its share in some eight minutes. Each stream has an
	// equal part of allWait.
	deviceWaits, allWait = 128 << 10, 64 << 20
	// messageCost is the memory that a message takes beyond its bytes.
	messageCost = 192
	batchBytes  = 64 << 10
	losersMost  = 1000
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

// messages counts what becomes of messages. Each stream has an outbox.
type messages struct {
	store   *store
	metrics *metrics
	log     *slog.Logger
	senders sync.WaitGroup
	stop    context.CancelFunc

	mu     sync.Mutex
	counts MessageCounts // without Waiting
}

func newMessages(s *store, m *metrics, log *slog.Logger) *messages {
	q := &messages{
		store: s, metrics: m, log: log,
		counts: MessageCounts{LostBy: make(map[string]int64)},
	}
	writes := streak.New(log, "messages of devices cannot be stored, trying again",
		"messages of devices are stored again")
	for _, to := range s.streams {
		to.box = outbox.New(outbox.Config[*message]{
			Write:  func(ctx context.Context, batch []*message) error { return q.write(ctx, to, batch) },
			Writes: writes, Within: storeTime, Most: int(equal(allWait, len(s.streams))), Batch: batchBytes,
			Cost: (*message).cost, Share: deviceWaits, Owner: func(m *message) string { return m.imei },
		})
	}
	return q
}

// Messages returns the counts.
func (g *Gateway) Messages() MessageCounts { return g.messages.read() }

func (q *messages) read() MessageCounts {
	q.mu.Lock()
	c := q.counts
	c.LostBy = maps.Clone(c.LostBy)
	q.mu.Unlock()
	for _, to := range q.store.streams {
		c.Waiting += to.box.Waiting()
	}
	return c
}

// add never blocks.
func (q *messages) add(m *message) {
	if !q.store.of(m.imei).box.Add(m) {
		q.count(m, false)
	}
}

func (q *messages) count(m *message, stored bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if stored {
		q.counts.Stored++
		q.metrics.messages.Inc()
		return
	}
	q.counts.Lost++
	q.metrics.lost.Inc()
	if _, known := q.counts.LostBy[m.imei]; known || len(q.counts.LostBy) < losersMost {
		q.counts.LostBy[m.imei]++
	}
}

func (q *messages) write(ctx context.Context, to *stream, batch []*message) error {
	err := to.addMessages(ctx, batch)
	if err == nil {
		for _, m := range batch {
			q.count(m, !m.refused)
		}
	}
	return err
}

// start sends until close, and loses what cannot be stored within last after that.
func (q *messages) start(last time.Duration) {
	var ctx context.Context
	ctx, q.stop = context.WithCancel(context.Background())
	for _, to := range q.store.streams {
		q.senders.Go(func() {
			for _, m := range to.box.Run(ctx, last) {
				q.count(m, false)
			}
		})
	}
}

func (q *messages) close() {
	q.stop()
	q.senders.Wait()
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
		s.g.messages.add(&message{origin: s.origin, received: now, frame: kept, fault: err})
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
			origin: s.origin, received: now, codec: frame.Codec, kind: m.Type, at: m.Timestamp,
			id: id, index: index, text: append([]byte(nil), m.Text...), ambiguous: ambiguous,
		}
		if m.IMEI != (teltonika.IMEI{}) && m.IMEI.String() != s.imei {
			one.named = m.IMEI.String()
		}
		s.g.messages.add(one)
	}
}

// addMessages writes one transaction.
func (s *stream) addMessages(ctx context.Context, batch []*message) error {
	pipe := s.client.TxPipeline()
	for _, m := range batch {
		if m.fault == nil {
			pipe.XAdd(ctx, &redis.XAddArgs{
				Stream: s.messages.name, MaxLen: s.messages.room(len(m.text)), Approx: true, Values: m.values(),
			})
			continue
		}
		_, err := s.addDead(ctx, m.origin, m.frame, m.fault)
		if m.refused = refused(err); err != nil && !m.refused {
			return err
		}
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("%d messages: %w", len(batch), err)
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
	if isText(m.text) {
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

func isText(text []byte) bool {
	hidden := func(r rune) bool { return !unicode.IsPrint(r) && r != '\r' && r != '\n' && r != '\t' }
	return len(text) > 0 && utf8.Valid(text) && !bytes.ContainsFunc(text, hidden)
}
