package commands

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc/pool"

	"github.com/rollcall-redis/rollcall/cmd/ingest/internal/gateway"
	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/streak"
	"github.com/rollcall-redis/rollcall/internal/wait"
	"github.com/rollcall-redis/rollcall/registry"
)

const (
	readMost, refusalsMost = 100, 16
	// With three seconds of quiet after each answer, 16 commands fit into their default minute. A
	// command costs 6 to 10 KiB, all of them 100 MB at most.
	deviceMost, outstandingMost = 16, 10_000
	// blockTime is also how long a silently dead connection goes unnoticed.
	blockTime             = 30 * time.Second
	callTime              = 5 * time.Second
	pauseFirst, pauseMost = 50 * time.Millisecond, 5 * time.Second
)

// countUnusable is a label of ingest_commands_total, beside the statuses of outcomes and the
// verdicts queued and duplicate: no usable id, removed without an outcome.
const countUnusable = "unusable"

// Devices is a gateway.Gateway.
type Devices interface {
	// Command returns the device's answer.
	Command(ctx context.Context, c gateway.Command) ([]byte, error)
	// Ready reports whether a device's socket here takes commands.
	Ready(imei string) bool
}

// Config configures a Reader.
type Config struct {
	Instance string
	Layout   registry.Layout
	Devices  Devices
	// Lookup is registry.Registry.Lookup.
	Lookup func(ctx context.Context, imei string) (registry.Owner, error)
	// Client must honour contexts. The Reader does not close it.
	Client redis.UniversalClient
	// Blocking is for blocking reads only, which would delay other calls. Run closes it, since
	// contexts do not end a blocking read. After guard.ErrTooLarge entries are read cut to the size
	// of a command.
	Blocking redis.UniversalClient
	// Drain is how long commands under way may be answered after Run's context has ended; 0 means a
	// second.
	Drain time.Duration
	// Answer is how long a device may take to answer a command with Queue; 0 means a minute. After
	// twice that time without an outcome, another instance adds instance_lost.
	Answer time.Duration
	// Logger defaults to slog.Default. A nil Registerer registers no metrics.
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Reader reads the commands for one instance's devices and adds their outcomes.
type Reader struct {
	// Read-only after New.
	cfg     Config
	layout  registry.Layout
	stream  string
	queue   string
	life    string // token/instance: distinguishes this process' marks from an earlier one's
	counted *prometheus.CounterVec
	reads   *streak.Streak
	looks   *streak.Streak // of the queue
	senders sync.WaitGroup

	mu          sync.Mutex
	outstanding int
	queues      map[string][]entry // by IMEI; each has a goroutine, which sends the first entry
	waiting     waiting
}

// New needs Instance, Devices, Lookup and both clients. It does not talk to Redis.
func New(cfg Config) *Reader {
	cfg.Drain = cmp.Or(cfg.Drain, time.Second)
	cfg.Answer = cmp.Or(cfg.Answer, lifetime)
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	r := &Reader{
		cfg: cfg, layout: cfg.Layout, stream: Outbound(cfg.Layout, cfg.Instance), queue: Queue(cfg.Layout),
		life: rand.Text() + "/" + cfg.Instance, queues: make(map[string][]entry), waiting: newWaiting(),
	}
	r.reads = streak.New(cfg.Logger,
		"commands cannot be read, trying again", "commands are read again", "stream", r.stream)
	r.looks = streak.New(cfg.Logger,
		"the queue of commands cannot be read, trying again", "the queue of commands is read again")
	auto := promauto.With(cfg.Registerer)
	r.counted = auto.NewCounterVec(prometheus.CounterOpts{Name: "ingest_commands_total",
		Help: "Commands that this replica saw to, by status."}, []string{"status"})
	auto.NewGaugeFunc(prometheus.GaugeOpts{Name: "ingest_commands_outstanding",
		Help: "Commands read here without an outcome yet.",
	}, func() float64 { return float64(r.Outstanding()) })
	auto.NewGaugeFunc(prometheus.GaugeOpts{Name: "ingest_commands_waiting",
		Help: "Commands in the fleet's queue for devices that are away.",
	}, func() float64 { return float64(r.Waiting()) })
	return r
}

// Outstanding returns the number of commands that have been read and have no outcome yet.
func (r *Reader) Outstanding() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.outstanding
}

// Run reads commands until ctx ends. It then answers instance_lost for commands that are not yet
// written, and waits up to Config.Drain for the answers of the others. Unread commands are left to
// this instance's next life, or to the sweep. Run leaves no goroutine behind, and returns nil.
func (r *Reader) Run(ctx context.Context) error {
	wake := context.AfterFunc(ctx, func() { _ = r.cfg.Blocking.Close() })
	defer wake()
	work, abandon := context.WithCancelCause(context.WithoutCancel(ctx))
	defer abandon(nil)

	var queue sync.WaitGroup
	queue.Go(func() { r.followQueue(ctx, work) })
	for pause := wait.Between(pauseFirst, pauseMost); ctx.Err() == nil; pause.Wait(ctx) {
		began := time.Now()
		err := r.follow(ctx, work)
		if ctx.Err() != nil {
			break
		}
		r.reads.Note(err)
		if time.Since(began) > pauseMost { // reads succeeded for a while
			pause.Reset()
		}
	}
	timer := time.AfterFunc(r.cfg.Drain, func() { abandon(errStopping) })
	defer timer.Stop()
	queue.Wait() // it starts senders
	r.senders.Wait()
	return nil
}

// follow reads the stream from its beginning, again now and then: a silently dead connection may
// have got an entry.
func (r *Reader) follow(ctx, work context.Context) error {
	for from, began := first, time.Now(); ; {
		page, err := r.read(ctx, from)
		if err != nil {
			return err
		}
		r.reads.Note(nil)
		r.begin(ctx, r.stream, page, func(e entry) (Status, string) { return r.enqueue(ctx, work, e) })
		if len(page) > 0 {
			from = page[len(page)-1].ID
		}
		if len(page) < readMost && time.Since(began) >= r.block() {
			from, began = first, time.Now()
		}
	}
}

// first is before all entries.
const first = "0-0"

func (r *Reader) block() time.Duration { return min(blockTime, r.cfg.Answer) }

// read waits for entries after from, and returns none after some time.
func (r *Reader) read(ctx context.Context, from string) ([]redis.XMessage, error) {
	waiting, cancel := context.WithTimeout(ctx, callTime+blockTime)
	defer cancel()
	err := r.cfg.Blocking.XRead(waiting, &redis.XReadArgs{
		Streams: []string{r.stream, from}, Count: 1, Block: r.block(),
	}).Err()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil && !errors.Is(err, guard.ErrTooLarge) {
		return nil, err
	}
	return r.page(ctx, r.stream, "("+from)
}

// begin takes up a page of a stream: queue returns why an entry must not wait. Such an entry gets
// its outcome at once, or when it is read again.
func (r *Reader) begin(
	ctx context.Context, stream string, page []redis.XMessage, queue func(entry) (refused Status, text string),
) {
	refusals := pool.New().WithMaxGoroutines(refusalsMost)
	for _, m := range page {
		e := r.parse(stream, m)
		if status, text := queue(e); status != "" {
			refusals.Go(func() { _ = r.tryConclude(ctx, e, status, text) })
		}
	}
	refusals.Wait()
}

func (r *Reader) enqueue(ctx, work context.Context, e entry) (refused Status, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	most := deviceMost
	if r.outstanding >= outstandingMost/2 {
		most = 1
	}
	queue := r.queues[e.IMEI]
	switch {
	case e.fault != nil:
		return Invalid, e.fault.Error()
	case slices.ContainsFunc(queue, e.same): // read again
		return "", ""
	case len(queue) >= most:
		return Busy, fmt.Sprintf("%d commands wait for the device already", len(queue))
	case r.outstanding >= outstandingMost:
		return Busy, fmt.Sprintf("%d commands wait at the instance already", r.outstanding)
	}
	r.outstanding++
	r.queues[e.IMEI] = append(queue, e)
	if len(queue) == 0 {
		r.senders.Go(func() { r.serve(ctx, work, e) })
	}
	return "", ""
}

// serve keeps a device's first command in the queue until it has its outcome.
func (r *Reader) serve(ctx, work context.Context, e entry) {
	for more := true; more; {
		status, text := r.send(ctx, work, e)
		r.conclude(work, e, status, text)
		e, more = r.next(e.IMEI)
	}
}

func (r *Reader) next(imei string) (e entry, more bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.outstanding--
	rest := r.queues[imei][1:]
	if len(rest) == 0 {
		delete(r.queues, imei)
		return entry{}, false
	}
	r.queues[imei] = rest
	return rest[0], true
}
