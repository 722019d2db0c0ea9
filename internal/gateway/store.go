package gateway

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/internal/teltonika"
)

// deadMost caps the dead letters more tightly than the records. One may be 8 KiB of anything, and
// any peer that reaches the port can send them. 10,000, of all streams together, are 160 MB at the
// very most.
const deadMost = 10_000

// store writes frames to Redis on goroutines of its own. Decoding and go-redis need 8 KiB of stack,
// and a stack that has grown stays with its goroutine. There are many sockets and few frames under
// way.
type store struct {
	client  redis.UniversalClient
	streams []*stream
	queues  []chan job // the streams', each once
	writers sync.WaitGroup
	results sync.Pool // of chan result
}

// stream is one of the streams of records, and that of its dead letters.
type stream struct {
	client           redis.UniversalClient
	name             string
	maxLen, deadMost int64
	frames           chan job
	buffers          sync.Pool // of *buffer
}

// job is a frame on its way to Redis.
type job struct {
	ctx    context.Context
	to     *stream
	imei   string
	frame  teltonika.Frame
	result chan<- result
}

type result struct {
	records int
	fault   error // why the frame could not be decoded
	err     error // why it was not stored
}

// newStore makes a store of these streams. maxLen is the cap of all of them together.
//
// On a Redis Cluster each stream has writers of its own, so that a master that hangs delays only
// the devices whose streams it has. On one server writers are shared: it has all streams, and would
// be sent more at once than [underWay] allows.
func newStore(client redis.UniversalClient, names []string, maxLen int64) *store {
	s := &store{client: client}
	s.results.New = func() any { return make(chan result) }
	_, apart := client.(*redis.ClusterClient)
	for _, name := range names {
		if apart || len(s.queues) == 0 {
			s.queues = append(s.queues, make(chan job))
		}
		to := &stream{
			client: client, name: name, frames: s.queues[len(s.queues)-1],
			maxLen: part(maxLen, len(names)), deadMost: part(min(maxLen, deadMost), len(names)),
		}
		to.buffers.New = func() any { return &buffer{stream: to} }
		s.streams = append(s.streams, to)
	}
	return s
}

// part is the part of a cap that one of so many streams has: one entry at least.
func part(most int64, streams int) int64 {
	return (most + int64(streams) - 1) / int64(streams)
}

// start starts the writers.
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

// close ends the writers. Nothing may be kept any more.
func (s *store) close() {
	for _, queue := range s.queues {
		close(queue)
	}
	s.writers.Wait()
}

// underWay is how many frames may be on their way to Redis at once, to one server of a Cluster: one
// for each connection for pipelines, and one for half of the other connections, which a pipeline
// takes when it finds none of its own. The other half is left to the other users of the client:
// registry, janitor, authority and commands. Otherwise a fleet that sends faster than Redis stores
// would keep them waiting.
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

// keep stores a frame: all of its records, or the raw frame if it has a fault. It returns the
// number of records and the fault. An error says that nothing may have been stored. keep gives up
// at until. If it still waits for a writer then, nothing was stored.
func (s *store) keep(
	ctx context.Context, until time.Time, imei string, frame teltonika.Frame,
) (records int, fault, err error) {
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	stored := s.results.Get().(chan result)
	defer s.results.Put(stored)
	to := s.streams[guard.PartitionOf(imei, len(s.streams))]
	select {
	case to.frames <- job{ctx, to, imei, frame, stored}:
	case <-ctx.Done():
		return 0, nil, fmt.Errorf("too many frames are under way: %w", ctx.Err())
	}
	r := <-stored
	return r.records, r.fault, r.err
}

// buffer is all the memory for writing a frame. Idle sockets and idle writers hold none.
type buffer struct {
	*stream
	batch teltonika.Batch
	text  []byte
	pipe  redis.Pipeliner
	rows  []*row
	cmds  []redis.Cmder
}

func (b *buffer) write(j job) result {
	if fault := b.batch.Decode(j.frame.Body); fault != nil {
		return result{fault: fault, err: b.dead(j, fault)}
	}
	return result{records: len(b.batch.Records), err: b.records(j)}
}

// row is the XADD of one record. Its arguments point into it, so that it is used again without
// allocating.
type row struct {
	cmd          *redis.StringCmd
	imei, codec  string
	record       teltonika.Record
	lat, lon, io text
}

// text is an argument of a command that go-redis takes by pointer.
type text []byte

// MarshalBinary implements encoding.BinaryMarshaler for go-redis.
func (t *text) MarshalBinary() ([]byte, error) { return *t, nil }

// newRow makes a row. Trimming is approximate: for an exact cap Redis would walk through the
// stream's oldest node at every record.
func (s *stream) newRow() *row {
	r := new(row)
	r.cmd = redis.NewStringCmd(context.Background(), "xadd", s.name, "maxlen", "~", s.maxLen, "*",
		"imei", &r.imei, "ts", &r.record.Timestamp, "lat", &r.lat, "lon", &r.lon,
		"alt", &r.record.Altitude, "angle", &r.record.Angle,
		"sat", &r.record.Satellites, "speed", &r.record.Speed,
		"event", &r.record.Event, "priority", &r.record.Priority, "codec", &r.codec, "io", &r.io)
	return r
}

// records adds all records of a frame to its stream, in one transaction: all or none, in one round
// trip. No record is no write. After an error they may have been added, with the reply lost. The
// device sends them again, so they may stand twice.
func (b *buffer) records(j job) error {
	n := len(b.batch.Records)
	if n == 0 {
		return nil
	}
	if b.pipe == nil {
		b.pipe = b.client.TxPipeline()
	}
	for len(b.rows) < n {
		r := b.newRow()
		b.rows, b.cmds = append(b.rows, r), append(b.cmds, r.cmd)
	}
	codec := b.batch.Codec.String()
	// Arguments are views into buf. If it grows, they keep the old array, which is not changed any
	// more.
	buf := b.text[:0]
	view := func(from int) text { return text(buf[from:len(buf):len(buf)]) }
	for i, record := range b.batch.Records {
		r := b.rows[i]
		r.imei, r.codec, r.record = j.imei, codec, record
		r.record.IO = teltonika.Elements{} // a view of the socket's buffer
		at := len(buf)
		buf = teltonika.AppendDegrees(buf, record.Latitude)
		r.lat = view(at)
		at = len(buf)
		buf = teltonika.AppendDegrees(buf, record.Longitude)
		r.lon = view(at)
		at = len(buf)
		buf = record.IO.AppendJSON(buf)
		r.io = view(at)
	}
	b.text = buf
	err := b.pipe.BatchProcess(j.ctx, b.cmds[:n]...)
	if err == nil {
		_, err = b.pipe.Exec(j.ctx)
	}
	if err != nil {
		// The commands hold the error, and go-redis may still hold the commands.
		b.text, b.pipe, b.rows, b.cmds = nil, nil, nil, nil
		return fmt.Errorf("%d records: %w", n, err)
	}
	return nil
}

// dead keeps a frame that could not be decoded, with the reason, for a person to look at. It is a
// pipeline of one, since only pipelines have connections of their own: see underWay.
func (b *buffer) dead(j job, fault error) error {
	pipe := b.client.Pipeline()
	pipe.Do(j.ctx, "xadd", b.name+DeadSuffix, "maxlen", "~", b.deadMost, "*",
		"imei", j.imei, "reason", fault.Error(), "codec", j.frame.Codec.String(),
		"raw", hex.EncodeToString(j.frame.Raw), "ts", time.Now().UnixMilli())
	if _, err := pipe.Exec(j.ctx); err != nil {
		return fmt.Errorf("dead letter: %w", err)
	}
	return nil
}
