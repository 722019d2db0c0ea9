package gateway

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/outbox"
	"github.com/rollcall-redis/rollcall/internal/teltonika"
	"github.com/rollcall-redis/rollcall/internal/together"
)

// deadMost is tight: any peer that reaches the port may send letters. A device's share of a stream
// is [shareMost] and [shareBytes], or a twentieth if the stream is shorter.
const deadMost = 10_000

// store writes frames on its own goroutines: decoding and go-redis need 8 KiB of stack, which a
// goroutine keeps, and sockets are many.
type store struct {
	client  redis.UniversalClient
	notes   *notes
	streams []*stream
	queues  []chan job // without duplicates
	writers sync.WaitGroup
	results sync.Pool // of chan kept
}

type stream struct {
	client         redis.UniversalClient
	notes          *notes
	name           string
	maxLen         int64
	dead, messages capped
	share          int
	box            *outbox.Outbox[*message]
	frames         chan job
	buffers        sync.Pool // of *buffer
}

type origin struct {
	imei string
	peer string // address and port
}

type job struct {
	ctx context.Context
	to  *stream
	origin
	frame  teltonika.Frame
	result chan<- kept
}

type kept struct {
	records  int
	fault    error // why it is a dead letter
	repeated bool
	err      error // why it was not stored
}

// newStore gives each stream its own writers on a Redis Cluster. On a single server they would send
// it more at once than [underWay] allows.
func newStore(client redis.UniversalClient, names []string, maxLen int64) *store {
	s := &store{client: client, notes: newNotes()}
	s.results.New = func() any { return make(chan kept) }
	_, apart := client.(*redis.ClusterClient)
	for _, name := range names {
		if apart || len(s.queues) == 0 {
			s.queues = append(s.queues, make(chan job))
		}
		to := &stream{
			client: client, notes: s.notes, name: name, frames: s.queues[len(s.queues)-1],
			maxLen: equal(maxLen, len(names)),
			dead: capped{
				name: name + DeadSuffix, most: equal(min(maxLen, deadMost), len(names)), bytes: equal(deadBytes, len(names)),
			},
			messages: capped{
				name: name + MessagesSuffix, most: equal(maxLen, len(names)), bytes: equal(messageBytes, len(names)),
			},
		}
		to.share = int(min(max(1, to.dead.most/20), shareMost))
		to.buffers.New = func() any { return &buffer{stream: to} }
		s.streams = append(s.streams, to)
	}
	return s
}

func equal(most int64, streams int) int64 {
	return (most + int64(streams) - 1) / int64(streams)
}

func (s *store) start() {
	for _, queue := range s.queues {
		for range max(1, underWay(s.client)/len(s.queues)) {
			s.writers.Go(func() {
				for j := range queue {
					b := j.to.buffers.Get().(*buffer)
					r := b.write(j)
					j.to.buffers.Put(b)
					j.result <- r
				}
			})
		}
	}
}

// After close, keep must not be called any more.
func (s *store) close() {
	for _, queue := range s.queues {
		close(queue)
	}
	s.writers.Wait()
}

// underWay returns how many frames may be in flight to Redis at once, per server of a Cluster. A
// pipeline borrows other connections when its own are in use; half remain for the
// client's other users.
func underWay(client redis.UniversalClient) int {
	var shared, active, own int
	switch c := client.(type) {
	case *redis.Client:
		o := c.Options()
		shared, active, own = o.PoolSize, o.MaxActiveConns, o.PipelinePoolSize
	case *redis.ClusterClient:
		o := c.Options()
		shared, active, own = o.PoolSize, o.MaxActiveConns, o.PipelinePoolSize
	default:
		return redis.DefaultPipelinePoolSize
	}
	if active > 0 {
		shared = min(shared, active)
	}
	return max(1, max(0, cmp.Or(own, redis.DefaultPipelinePoolSize))+shared/2)
}

func (s *store) of(imei string) *stream {
	return s.streams[guard.PartitionOf(imei, len(s.streams))]
}

// keep stores a frame, decoded or not. One that still waits for a writer at until is not stored;
// after other errors it may be.
func (s *store) keep(
	ctx context.Context, until time.Time, from origin, frame teltonika.Frame,
) (kept, error) {
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	stored := s.results.Get().(chan kept)
	defer s.results.Put(stored)
	to := s.of(from.imei)
	select {
	case to.frames <- job{ctx, to, from, frame, stored}:
	case <-ctx.Done():
		return kept{}, fmt.Errorf("too many frames are under way: %w", ctx.Err())
	}
	r := <-stored
	return r, r.err
}

// buffer is all the memory for writing a frame. Idle sockets and idle writers hold none.
type buffer struct {
	*stream
	batch teltonika.Batch
	text  []byte
	pipe  redis.Pipeliner
	plain rows
	typed rows // with the generation type of codec 16
}

func (b *buffer) write(j job) kept {
	if fault := b.batch.Decode(j.frame.Body); fault != nil {
		repeated, err := b.addDead(j.ctx, j.origin, j.frame, fault)
		return kept{fault: fault, repeated: repeated, err: err}
	}
	return kept{records: len(b.batch.Records), err: b.records(j)}
}

type rows struct {
	rows []*row
	cmds []redis.Cmder
}

// row is one record's XADD. Its arguments point into it, so it is reused without allocations.
type row struct {
	cmd               *redis.StringCmd
	imei, peer, codec string
	index             int
	record            teltonika.Record
	lat, lon, io      text
	widths, frame     text
}

// text is passed to go-redis by pointer.
type text []byte

func (t *text) MarshalBinary() ([]byte, error) { return *t, nil }

// newRow trims approximately: for an exact cap Redis would walk the stream's oldest node on every
// record. Only codec 16 has a generation type, since Redis stores field names once per node if
// entries have the same ones.
func (s *stream) newRow(typed bool) *row {
	r := new(row)
	args := []any{"xadd", s.name, "maxlen", "~", s.maxLen, "*",
		"imei", &r.imei, "ts", &r.record.Timestamp, "lat", &r.lat, "lon", &r.lon,
		"alt", &r.record.Altitude, "angle", &r.record.Angle,
		"sat", &r.record.Satellites, "speed", &r.record.Speed,
		"event", &r.record.Event, "priority", &r.record.Priority, "codec", &r.codec, "io", &r.io,
		"widths", &r.widths, "frame", &r.frame, "record", &r.index, "peer", &r.peer}
	if typed {
		args = append(args, "generation", &r.record.Generation)
	}
	r.cmd = redis.NewStringCmd(context.Background(), args...)
	return r
}

func (r *rows) take(n int, more func() *row) ([]*row, []redis.Cmder) {
	for len(r.rows) < n {
		one := more()
		r.rows, r.cmds = append(r.rows, one), append(r.cmds, one.cmd)
	}
	return r.rows[:n], r.cmds[:n]
}

func (b *buffer) records(j job) error {
	n := len(b.batch.Records)
	if n == 0 {
		return nil
	}
	if b.pipe == nil {
		b.pipe = b.client.TxPipeline()
	}
	of := &b.plain
	typed := b.batch.Codec == teltonika.Codec16
	if typed {
		of = &b.typed
	}
	added, cmds := of.take(n, func() *row { return b.newRow(typed) })
	b.fill(added, j)
	err := b.pipe.BatchProcess(j.ctx, cmds...)
	if err == nil {
		_, err = b.pipe.Exec(j.ctx)
	}
	if err != nil {
		// The commands hold the error, and go-redis may still hold the commands.
		b.text, b.pipe, b.plain, b.typed = nil, nil, rows{}, rows{}
		return fmt.Errorf("%d records: %w", n, err)
	}
	return nil
}

// fill's views into b.text keep the old array if it grows.
func (b *buffer) fill(rows []*row, j job) {
	codec := b.batch.Codec.String()
	buf := appendFrameID(b.text[:0], j.imei, j.frame.Body)
	view := func(from int) text { return text(buf[from:len(buf):len(buf)]) }
	frame := view(0)
	for i, record := range b.batch.Records {
		r := rows[i]
		r.imei, r.peer, r.codec, r.index, r.frame = j.imei, j.peer, codec, i, frame
		at := len(buf)
		buf = teltonika.AppendDegrees(buf, record.Latitude)
		r.lat = view(at)
		at = len(buf)
		buf = teltonika.AppendDegrees(buf, record.Longitude)
		r.lon = view(at)
		at = len(buf)
		buf = record.IO.AppendJSON(buf)
		r.io = view(at)
		at = len(buf)
		buf = record.IO.AppendWidths(buf)
		r.widths = view(at)
		r.record = record
		r.record.IO = teltonika.Elements{} // a view of the socket's buffer
	}
	b.text = buf
}

// appendFrameID appends 96 bits of a hash of the frame; nobody can craft another one with the same.
func appendFrameID(dst []byte, imei string, body []byte) []byte {
	whole := append(append(dst, imei...), body...)
	sum := sha256.Sum256(whole[len(dst):])
	return base64.RawURLEncoding.AppendEncode(whole[:len(dst)], sum[:12])
}

// addDead keeps an undecodable frame, unless its entry still exists.
func (s *stream) addDead(
	ctx context.Context, from origin, frame teltonika.Frame, fault error,
) (repeated bool, err error) {
	id := string(appendFrameID(nil, from.imei, frame.Body))
	pipe := s.client.Pipeline() // only pipelines have their own connections, see underWay
	if entry := s.notes.letter(from.imei, id); entry != "" {
		found := pipe.XRange(ctx, s.dead.name, entry, entry)
		if _, err := pipe.Exec(ctx); err != nil {
			return false, fmt.Errorf("dead letter: %w", err)
		}
		if len(found.Val()) > 0 {
			return true, nil
		}
	}
	added := pipe.XAdd(ctx, &redis.XAddArgs{
		Stream: s.dead.name, MaxLen: s.dead.room(len(frame.Raw)), Approx: true, Values: []any{
			"imei", from.imei, "reason", fault.Error(), "codec", frame.Codec.String(),
			"raw", hex.EncodeToString(frame.Raw), "ts", time.Now().UnixMilli(),
			"frame", id, "peer", from.peer,
		}})
	if surplus := s.notes.surplus(from.imei, len(frame.Raw), s.share); len(surplus) > 0 {
		pipe.XDel(ctx, s.dead.name, surplus...)
	}
	// XDEL's error does not matter: the cap trims an entry that it left.
	if err := cmp.Or(together.Exec(ctx, pipe), added.Err()); err != nil {
		return false, fmt.Errorf("dead letter: %w", err)
	}
	s.notes.addLetter(from.imei, letter{id, added.Val(), len(frame.Raw)}, s.share)
	return false, nil
}

// Stream is the name of the only record stream; [DeadSuffix] after it names its dead letters.
const (
	Stream     = "telemetry:teltonika"
	DeadSuffix = ":dead"
)

// streams returns the names of n streams, a power of two.
//
// The part after base's last colon becomes a hash tag, divided as by guard.Layout.Partition. This
// spreads the streams evenly over a Redis Cluster, in other slots than the registry's partitions: a
// slot with a long stream takes long to move.
func streams(base string, n int) []string {
	if n == 1 {
		return []string{base}
	}
	at := strings.LastIndexByte(base, ':') + 1
	whole := guard.Layout{Prefix: base[:at] + "{" + base[at:] + "}"}
	names := make([]string, n)
	for k := range names {
		names[k] = whole.Partition(k, n).Prefix
	}
	return names
}

const (
	// messageBytes and deadBytes bound all streams of their kind. An entry has its bytes as hex.
	messageBytes, deadBytes = 256 << 20, 64 << 20
	// entryCost is what an entry takes beside its bytes.
	entryCost = 256
	// finely is in how many parts a capped stream's size is known.
	finely = 64
)

// capped is a stream with a bound in entries and in bytes. Redis trims by entries only, so it gets
// the number of newest entries that fit, judged by those that this replica has added.
type capped struct {
	name        string
	most, bytes int64

	mu    sync.Mutex
	parts []part // of the newest entries, oldest first
	sum   part
	full  bool
}

type part struct{ entries, bytes int64 }

func (p *part) add(entries, bytes int64) {
	p.entries += entries
	p.bytes += bytes
}

// room returns the stream's bound in entries when one of this size is added.
func (c *capped) room(size int) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.parts); n == 0 || c.parts[n-1].bytes >= c.bytes/finely {
		c.parts = append(c.parts, part{})
	}
	cost := int64(entryCost + 2*size)
	c.parts[len(c.parts)-1].add(1, cost)
	c.sum.add(1, cost)
	for c.sum.bytes > c.bytes && len(c.parts) > 1 {
		c.sum.add(-c.parts[0].entries, -c.parts[0].bytes)
		c.parts, c.full = c.parts[1:], true
	}
	if c.full {
		return min(c.most, c.sum.entries)
	}
	return c.most
}
