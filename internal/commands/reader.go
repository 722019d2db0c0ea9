package commands

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc/pool"

	"github.com/rollcall-redis/rollcall/internal/gateway"
	"github.com/rollcall-redis/rollcall/internal/streak"
	"github.com/rollcall-redis/rollcall/internal/wait"
	"github.com/rollcall-redis/rollcall/registry"
)

const (
	// readMost is how many entries one read takes, refusalsMost how many of them are refused at the
	// same time.
	readMost, refusalsMost = 100, 16
	// deviceMost is how many commands may wait for one device, outstandingMost for all of them
	// together: what is beyond is answered busy at once, so that commands for a device that does
	// not take them are in nobody's way. Once half of all places are taken a device has one. So
	// many, with the quiet time of three seconds behind each answer, still fit into the minute that
	// a command has by default. A command costs 6 to 10 KiB, all of them together 100 MB at the
	// most.
	deviceMost, outstandingMost = 16, 10_000
	// blockTime is how long one read waits. It is the time after which a line that died without a word
	// is noticed.
	blockTime = 30 * time.Second
	// callTime bounds a call to Redis, pauseFirst and pauseMost the time between two tries of one that
	// fails.
	callTime              = 5 * time.Second
	pauseFirst, pauseMost = 50 * time.Millisecond, 5 * time.Second
)

// Devices are what commands are for: the sockets of this instance. A gateway.Gateway is one.
type Devices interface {
	// Command sends a command and returns the answer: see gateway.Gateway.Command.
	Command(ctx context.Context, c gateway.Command) ([]byte, error)
}

// Config is what a Reader is made of.
type Config struct {
	// Instance names the stream; Layout the keys.
	Instance string
	Layout   registry.Layout
	// Devices is where commands go.
	Devices Devices
	// Client is for marks and outcomes. It must honour contexts. Not closed here.
	Client redis.UniversalClient
	// Blocking is for reads that wait, and for nothing else, so that they hold up nobody. Run closes
	// it: a read that waits is ended by no context.
	Blocking redis.UniversalClient
	// Drain is how long commands that are under way may take to be answered after Run's context ended;
	// 0: a second.
	Drain time.Duration
	// Logger defaults to slog.Default, Registerer to none.
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Reader reads the commands for one instance's devices and sees to their outcomes.
type Reader struct {
	// Set by New, read-only after.
	cfg     Config
	layout  registry.Layout
	stream  string
	life    string // tells this process' marks from those of an earlier one
	metrics *metrics
	lines   sync.WaitGroup
	reads   *streak.Streak

	mu       sync.Mutex
	underway map[string]bool // by entry
	// by IMEI, the one under way first: while there is one, a goroutine sees to it
	queues map[string][]entry
}

// New returns a Reader, or says what is missing. It does not talk to Redis.
func New(cfg Config) (*Reader, error) {
	if cfg.Instance == "" || cfg.Devices == nil || cfg.Client == nil || cfg.Blocking == nil {
		return nil, errors.New("commands: Config needs Instance, Devices, Client and Blocking")
	}
	cfg.Drain = cmp.Or(cfg.Drain, time.Second)
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	r := &Reader{
		cfg: cfg, layout: cfg.Layout, stream: Outbound(cfg.Layout, cfg.Instance), life: rand.Text(),
		underway: make(map[string]bool), queues: make(map[string][]entry),
	}
	r.reads = streak.New(cfg.Logger, "commands cannot be read, trying again", "commands are read again", "stream", r.stream)
	r.metrics = newMetrics(cfg.Registerer, func() float64 { return float64(r.Outstanding()) })
	return r, nil
}

// Outstanding is how many commands have been read and have no outcome yet.
func (r *Reader) Outstanding() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.underway)
}

// Run reads until ctx ends. Then it reads nothing more: commands that were not written yet are
// answered instance_lost, those that wait for an answer may have it within Config.Drain, and what
// was not read stays for the next life of this instance, or for the sweep. It blocks, leaves no
// goroutine behind, and returns nil.
func (r *Reader) Run(ctx context.Context) error {
	wake := context.AfterFunc(ctx, func() { _ = r.cfg.Blocking.Close() })
	defer wake()
	work, abandon := context.WithCancelCause(context.WithoutCancel(ctx))
	defer abandon(nil)

	for pause := pauseFirst; ctx.Err() == nil; pause = min(2*pause, pauseMost) {
		began := time.Now()
		err := r.follow(ctx, work)
		if ctx.Err() != nil {
			break
		}
		r.reads.Note(err)
		if time.Since(began) > pauseMost { // it went well for a while
			pause = pauseFirst
		}
		if !wait.For(ctx, pause) {
			break
		}
	}
	timer := time.AfterFunc(r.cfg.Drain, func() { abandon(errStopping) })
	defer timer.Stop()
	r.lines.Wait()
	r.leave(work)
	return nil
}

// follow reads the stream until that fails: first what is pending, from an earlier life or because
// a reply was lost, then what is new.
func (r *Reader) follow(ctx, work context.Context) error {
	call, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	err := r.cfg.Blocking.XGroupCreateMkStream(call, r.stream, group, "0").Err()
	if err != nil && !strings.HasPrefix(err.Error(), "BUSYGROUP") {
		return err
	}
	for from := "0"; ; {
		page, err := r.read(ctx, from, -1)
		if err != nil {
			return err
		}
		if len(page) == 0 {
			break
		}
		from = page[len(page)-1].ID
		if !r.begin(ctx, work, page) {
			return ctx.Err()
		}
	}
	for {
		page, err := r.read(ctx, ">", blockTime)
		if err != nil {
			return err
		}
		if !r.begin(ctx, work, page) {
			return ctx.Err()
		}
	}
}

// read returns the next entries; none, if there are none within block.
func (r *Reader) read(ctx context.Context, from string, block time.Duration) ([]redis.XMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime+max(0, block))
	defer cancel()
	streams, err := r.cfg.Blocking.XReadGroup(ctx, &redis.XReadGroupArgs{
		Group: group, Consumer: consumer, Streams: []string{r.stream, from}, Count: readMost, Block: block,
	}).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, err
	}
	r.reads.Note(nil)
	if len(streams) == 0 {
		return nil, nil
	}
	return streams[0].Messages, nil
}

// begin has commands seen to, in order for each device. What is no command, or one too many, it
// answers at once. It returns false when ctx ends; what has no outcome by then is left as it is.
func (r *Reader) begin(ctx, work context.Context, page []redis.XMessage) bool {
	refusals := pool.New().WithMaxGoroutines(refusalsMost)
	for _, m := range page {
		e := parse(m)
		status, text := r.enqueue(ctx, work, e)
		if status != "" {
			refusals.Go(func() { r.settle(ctx, e, status, text) })
		}
	}
	refusals.Wait()
	return ctx.Err() == nil
}

// enqueue puts a command behind the others for its device, or says why it does not.
func (r *Reader) enqueue(ctx, work context.Context, e entry) (refused Status, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	most := deviceMost
	if len(r.underway) >= outstandingMost/2 {
		most = 1
	}
	queue := r.queues[e.IMEI]
	switch {
	case r.underway[e.at]: // read again after a failure
		return "", ""
	case e.fault != nil:
		return Invalid, e.fault.Error()
	case len(queue) >= most:
		return Busy, fmt.Sprintf("%d commands wait for the device already", len(queue))
	case len(r.underway) >= outstandingMost:
		return Busy, fmt.Sprintf("%d commands wait at the instance already", len(r.underway))
	}
	r.underway[e.at] = true
	r.queues[e.IMEI] = append(queue, e)
	if len(queue) == 0 {
		r.lines.Go(func() { r.serve(ctx, work, e.IMEI) })
	}
	return "", ""
}

// serve sees to the commands for one device, one after the other, until there are none.
func (r *Reader) serve(ctx, work context.Context, imei string) {
	for {
		r.mu.Lock()
		e := r.queues[imei][0]
		r.mu.Unlock()

		status, text := r.send(ctx, work, e)
		r.settle(work, e, status, text)

		r.mu.Lock()
		delete(r.underway, e.at)
		rest := r.queues[imei][1:]
		r.queues[imei] = rest
		if len(rest) == 0 {
			delete(r.queues, imei)
		}
		r.mu.Unlock()
		if len(rest) == 0 {
			return
		}
	}
}

// leave takes the stream away if nothing is in it. What fails is the sweep's.
func (r *Reader) leave(work context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(work), time.Second)
	defer cancel()
	if err := leaveScript.Run(ctx, r.cfg.Client, []string{r.stream}).Err(); err != nil {
		r.cfg.Logger.Debug("stream of commands not taken away", "stream", r.stream, "error", err)
	}
}
