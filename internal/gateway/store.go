package gateway

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/teltonika"
)

// deadMost caps the dead letters more tightly than the records: one may be 8 KiB of anything, and
// whoever can reach the port can send them. 10,000 are 160 MB at the very most.
const deadMost = 10_000

// idleWriters is how many writers are kept for the next frame; more are started when more frames
// are under way.
const idleWriters = 64

// store writes frames to Redis, on goroutines of its own: decoding and go-redis need 8 KiB of
// stack, and a stack that has grown stays with its goroutine. Sockets are many and nearly all
// silent; frames under way are few.
type store struct {
	client redis.UniversalClient
	stream string
	maxLen int64

	room    chan struct{} // holds one for each frame under way
	queue   chan *job     // to a writer that has nothing to do
	idle    atomic.Int32
	writers sync.WaitGroup
	jobs    sync.Pool // of *job
}

func newStore(client redis.UniversalClient, stream string, maxLen int64) *store {
	s := &store{client: client, stream: stream, maxLen: maxLen, room: make(chan struct{}, underWay(client)), queue: make(chan *job)}
	s.jobs.New = func() any { return &job{done: make(chan struct{}, 1)} }
	return s
}

// underWay is how many frames may be on their way to Redis at once: one for each connection that is
// there for pipelines alone, and for half of the others, which a pipeline takes when it finds none
// of its own. The other half is left to whoever shares the client: registry, janitor, authority and
// commands. Else a fleet that sends faster than Redis stores would keep them waiting.
func underWay(client redis.UniversalClient) int {
	c, ok := client.(*redis.Client)
	if !ok {
		return redis.DefaultPipelinePoolSize
	}
	o := c.Options()
	shared := o.PoolSize
	if o.MaxActiveConns > 0 {
		shared = min(shared, o.MaxActiveConns)
	}
	return max(1, max(0, cmp.Or(o.PipelinePoolSize, redis.DefaultPipelinePoolSize))+shared/2)
}

// job is a frame on its way to Redis, and all the memory that needs; idle sockets hold none.
type job struct {
	ctx   context.Context
	imei  string
	frame teltonika.Frame

	batch teltonika.Batch
	fault error // why the frame could not be decoded
	err   error // why it was not stored
	done  chan struct{}

	text []byte
	pipe redis.Pipeliner
	rows []*row
	cmds []redis.Cmder
}

// keep stores a frame, all of its records or, if it has a fault, as it came. It gives up at until,
// also while it waits for room: then nothing was stored.
// It returns the number of records and the fault; err says that nothing may have been stored.
func (s *store) keep(ctx context.Context, until time.Time, imei string, frame teltonika.Frame) (records int, fault, err error) {
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	// Before the job: what waits holds no decoded frame.
	select {
	case s.room <- struct{}{}:
		defer func() { <-s.room }()
	case <-ctx.Done():
		return 0, nil, fmt.Errorf("gateway: store a frame: too many are under way: %w", ctx.Err())
	}
	j := s.jobs.Get().(*job)
	j.ctx, j.imei, j.frame = ctx, imei, frame
	select {
	case s.queue <- j:
	default:
		s.writers.Go(func() { s.write(j) })
	}
	<-j.done
	records, fault, err = len(j.batch.Records), j.fault, j.err
	j.ctx, j.frame, j.fault, j.err = nil, teltonika.Frame{}, nil, nil
	s.jobs.Put(j)
	return records, fault, err
}

// write is a writer's life: its first job, and then others as they come.
func (s *store) write(j *job) {
	for j != nil {
		s.do(j)
		if s.idle.Add(1) > idleWriters {
			s.idle.Add(-1)
			j.done <- struct{}{}
			return
		}
		j.done <- struct{}{}
		j = <-s.queue // nil: closed
		s.idle.Add(-1)
	}
}

// close ends the writers. Nothing may be kept any more.
func (s *store) close() {
	close(s.queue)
	s.writers.Wait()
}

func (s *store) do(j *job) {
	if j.fault = j.batch.Decode(j.frame.Body); j.fault != nil {
		j.err = s.dead(j.ctx, j)
		return
	}
	j.err = s.records(j.ctx, j)
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

// MarshalBinary is what go-redis asks for.
func (t *text) MarshalBinary() ([]byte, error) { return *t, nil }

// newRow makes a row. Trimming is approximate, because an exact cap would cost Redis a walk through
// the stream's oldest node at every record.
func (s *store) newRow() *row {
	r := new(row)
	r.cmd = redis.NewStringCmd(context.Background(), "xadd", s.stream, "maxlen", "~", s.maxLen, "*",
		"imei", &r.imei, "ts", &r.record.Timestamp, "lat", &r.lat, "lon", &r.lon,
		"alt", &r.record.Altitude, "angle", &r.record.Angle, "sat", &r.record.Satellites, "speed", &r.record.Speed,
		"event", &r.record.Event, "priority", &r.record.Priority, "codec", &r.codec, "io", &r.io)
	return r
}

// records adds all records of a frame to the stream, in one transaction: all or
// none, in one round trip. No record is no write. An error may mean that they
// were added and the reply was lost; the device sends them again, so they may
// stand twice.
func (s *store) records(ctx context.Context, j *job) error {
	n := len(j.batch.Records)
	if n == 0 {
		return nil
	}
	if j.pipe == nil {
		j.pipe = s.client.TxPipeline()
	}
	for len(j.rows) < n {
		r := s.newRow()
		j.rows, j.cmds = append(j.rows, r), append(j.cmds, r.cmd)
	}
	codec := j.batch.Codec.String()
	// Arguments are views into buf. Where it grows, the views keep the old
	// array, which nobody changes any more.
	buf := j.text[:0]
	view := func(from int) text { return text(buf[from:len(buf):len(buf)]) }
	for i := range j.batch.Records {
		r := j.rows[i]
		r.imei, r.codec, r.record = j.imei, codec, j.batch.Records[i]
		at := len(buf)
		buf = teltonika.AppendDegrees(buf, r.record.Latitude)
		r.lat = view(at)
		at = len(buf)
		buf = teltonika.AppendDegrees(buf, r.record.Longitude)
		r.lon = view(at)
		at = len(buf)
		buf = r.record.IO.AppendJSON(buf)
		r.io = view(at)
		r.record.IO = teltonika.Elements{} // a view of the socket's buffer
	}
	j.text = buf
	err := j.pipe.BatchProcess(ctx, j.cmds[:n]...)
	if err == nil {
		_, err = j.pipe.Exec(ctx)
	}
	if err != nil {
		// They hold the error, and whatever failed may hold them.
		j.text, j.pipe, j.rows, j.cmds = nil, nil, nil, nil
		return fmt.Errorf("gateway: store %d records: %w", n, err)
	}
	return nil
}

// dead keeps a frame that could not be decoded, with the reason, for somebody to look at. It is a
// pipeline of one, since only those have connections of their own: see underWay.
func (s *store) dead(ctx context.Context, j *job) error {
	pipe := s.client.Pipeline()
	pipe.Do(ctx, "xadd", s.stream+DeadSuffix, "maxlen", "~", min(s.maxLen, deadMost), "*",
		"imei", j.imei, "reason", j.fault.Error(), "codec", j.frame.Codec.String(),
		"raw", hex.EncodeToString(j.frame.Raw), "ts", time.Now().UnixMilli())
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("gateway: store a dead letter: %w", err)
	}
	return nil
}
