package gateway

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/internal/streak"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

// Deadlines of a socket. Only firstFrame can be set. Vendors and fleets fix the others: parked
// devices report hourly, and a device closes its socket after 30 s without an acknowledgement.
const (
	handshakeTime = 15 * time.Second
	completeTime  = 30 * time.Second
	firstFrame    = time.Minute
	idleTime      = 3900 * time.Second
	claimTime     = time.Second
	storeTime     = 10 * time.Second
	movedTime     = time.Minute // of silence, when the device is said to be at another replica
	rescueTime    = time.Second // for reading what has arrived when a socket ends
)

// Claim is what a socket holds while its device is registered through it.
type Claim interface {
	// Wait returns when the registration has landed, or with an error when it has failed or ctx has
	// ended. The socket is served in both cases.
	Wait(ctx context.Context) error
	// FrameReceived says that a frame has arrived that must be acknowledged.
	FrameReceived()
	// FrameAcked says that the device was sent the acknowledgement.
	FrameAcked()
	// Release gives the claim back. It never blocks.
	Release()
}

// Config configures a Gateway.
type Config struct {
	// Register claims a device for this replica. It must not block.
	Register func(imei string) Claim
	// Client stores telemetry. It must not retry by itself (a retried write may run twice) and must
	// honour contexts.
	Client redis.UniversalClient
	// Stream names the telemetry stream; empty means [Stream]. Streams is how many there are, a power
	// of two; 0 means one. With more, each name has a hash tag beside: telemetry:{teltonika:16:05:21}
	// is stream 5 of 16, named as guard.Layout.Partition does, and holds the devices of which
	// guard.PartitionOf is 5.
	Stream  string
	Streams int
	// Allowed names the set of IMEIs that may be served; empty: every device is.
	Allowed string
	// MaxLen is the approximate cap of all telemetry streams together, in entries, of which each has
	// an equal part; 0 means a million. The streams of messages have the same cap. Dead letters:
	// 10,000, or this if it is less.
	MaxLen int64
	// MaxConns bounds open sockets. At the bound a new socket displaces one without an IMEI, or else
	// one without a frame, or else one with fewer than three frames: the oldest of the address that
	// has most of them. While none may be closed, new ones wait in the kernel's backlog. 0 means
	// 100,000.
	MaxConns int
	// MaxUnidentified bounds open sockets from which no IMEI has come. At the bound the same is done
	// among them. 0 means 4,096.
	MaxUnidentified int
	// FirstFrame is how long a device that was accepted may take for its first frame. Afterwards it
	// may be silent for as long as a parked device is. 0 means a minute.
	FirstFrame time.Duration
	// MaxRegistering bounds devices that are being registered at once. Further ones wait for their
	// answer. 0 means 4,096.
	MaxRegistering int
	// Quiet is how long a socket must be quiet after the answer to a command before the next command
	// is written; 0 means 3 s. A frame of that answer that comes later than this may be taken for the
	// next answer.
	Quiet time.Duration
	// Drain is how long sockets may take to finish the frame under way after the gateway was told to
	// stop; 0 means 5 s. Then they are closed. Messages of devices have a quarter of it more. A write
	// that still waits for Redis ends by its own deadline, ten seconds from its beginning, or when
	// Client is closed.
	Drain time.Duration
	// ClientCAs, if not nil, returns the authorities that may vouch for a device's certificate, the
	// same pool until it changes. Each device on a listener of OverTLS must then show one that names
	// its IMEI as common name or DNS name.
	ClientCAs func() *x509.CertPool
	// StartSpan, if not nil, is told of each registration: see janitor.Config. No attribute names the
	// device.
	StartSpan func(ctx context.Context, name string, attrs ...slog.Attr) (
		_ context.Context, end func(err error, attrs ...slog.Attr))
	// Logger defaults to slog.Default, Registerer to none.
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Gateway serves device sockets.
type Gateway struct {
	cfg       Config
	store     *store
	messages  *messages
	faults    *faults
	metrics   *metrics
	rate      rate // of each device
	admission *admission
	refusals  refusals
	authority *authority    // nil: every device is served
	slots     chan struct{} // one taken for each open socket

	stopping context.Context // ends when the gateway begins to drain
	stop     context.CancelFunc
	running  sync.WaitGroup // sessions

	mu       sync.Mutex
	sessions map[*session]struct{} // every open socket
	newest   map[string]*session   // of each IMEI
}

// New makes a Gateway. It returns an error that names what is missing or negative.
func New(cfg Config) (*Gateway, error) {
	if cfg.Register == nil || cfg.Client == nil {
		return nil, errors.New("gateway: Config needs Register and Client")
	}
	if cfg.MaxLen < 0 || cfg.MaxConns < 0 {
		return nil, errors.New("gateway: MaxLen and MaxConns must not be negative")
	}
	cfg.Streams = cmp.Or(cfg.Streams, 1)
	if cfg.Streams < 1 || cfg.Streams > guard.MostPartitions || cfg.Streams&(cfg.Streams-1) != 0 {
		return nil, fmt.Errorf("gateway: Streams is %d, expected a power of two from 1 to %d",
			cfg.Streams, guard.MostPartitions)
	}
	cfg.Stream = cmp.Or(cfg.Stream, Stream)
	cfg.MaxLen = cmp.Or(cfg.MaxLen, 1_000_000)
	cfg.MaxConns = cmp.Or(cfg.MaxConns, 100_000)
	cfg.MaxUnidentified = cmp.Or(cfg.MaxUnidentified, manyUnidentified)
	cfg.MaxRegistering = cmp.Or(cfg.MaxRegistering, manyRegistrations)
	cfg.FirstFrame = cmp.Or(cfg.FirstFrame, firstFrame)
	cfg.Quiet = cmp.Or(cfg.Quiet, quietTime)
	cfg.Drain = cmp.Or(cfg.Drain, 5*time.Second)
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	g := &Gateway{
		cfg:       cfg,
		store:     newStore(cfg.Client, streams(cfg.Stream, cfg.Streams), cfg.MaxLen),
		rate:      deviceRate,
		admission: newAdmission(cfg.MaxConns, cfg.MaxUnidentified, cfg.MaxRegistering),
		sessions:  make(map[*session]struct{}),
		newest:    make(map[string]*session),
	}
	g.slots = make(chan struct{}, cfg.MaxConns)
	g.stopping, g.stop = context.WithCancel(context.Background())
	g.metrics = newMetrics(cfg.Registerer, g)
	g.messages = newMessages(g.store, g.metrics, cfg.Logger)
	g.faults = newFaults(cfg.Client, cfg.Stream+FaultsSuffix, g.store.notes, cfg.Logger)
	if cfg.Allowed != "" {
		g.authority = newAuthority(cfg.Client, cfg.Allowed, cfg.Logger, g.metrics.authority)
	}
	return g, nil
}

// Connections is the number of open sockets, greeted or not.
func (g *Gateway) Connections() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.sessions)
}

func (g *Gateway) draining() bool { return g.stopping.Err() != nil }

// Serve accepts devices from all of these listeners until ctx ends or one of them fails. Then it
// drains: it closes them, lets each socket finish the frame under way, closes it and releases its
// claim. No goroutine of its own outlives it. The error is nil after ctx ended, else it says why a
// listener failed. A Gateway serves once.
func (g *Gateway) Serve(ctx context.Context, lns ...net.Listener) error {
	accepting, stop := context.WithCancelCause(ctx)
	defer stop(nil)

	// Sockets outlive ctx: they finish what they have begun.
	work, abandon := context.WithCancel(context.WithoutCancel(ctx))
	defer abandon()
	g.store.start()

	var running sync.WaitGroup
	if g.authority != nil {
		running.Go(func() { g.authority.run(accepting, g.devices, g.expel) })
	}
	running.Go(func() { g.faults.run(accepting) })
	if g.cfg.ClientCAs != nil {
		running.Go(func() { g.recheckCertificates(accepting) })
	}
	for _, ln := range lns {
		// A second Close does no harm.
		defer context.AfterFunc(accepting, func() { _ = ln.Close() })()
		running.Go(func() {
			err := g.accept(accepting, work, ln)
			_ = ln.Close()
			stop(err)
		})
	}
	running.Wait()
	g.drain(abandon)
	g.messages.close(g.cfg.Drain / 4)
	g.store.close()
	if ctx.Err() != nil {
		return nil
	}
	return context.Cause(accepting)
}

// accept returns when ctx has ended or ln has failed for good. A listener has at most one socket
// that waits for its place; further ones wait in the backlog.
func (g *Gateway) accept(ctx, work context.Context, ln net.Listener) error {
	pause := wait.Between(5*time.Millisecond, time.Second)
	accepts := streak.New(g.cfg.Logger, "cannot accept devices, trying again", "devices are accepted again")
	for {
		conn, err := ln.Accept()
		if err == nil {
			pause.Reset()
			accepts.Note(nil)
			g.admission.wait(ctx)
			if !g.admission.take(ctx, g.slots) {
				_ = conn.Close()
				return nil
			}
			g.start(work, conn)
			continue
		}
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, net.ErrClosed) {
			return fmt.Errorf("gateway: accept: %w", err)
		}
		// There are no descriptors left, or a peer gave up in the backlog: both pass.
		accepts.Note(err)
		if !pause.Wait(ctx) {
			return nil
		}
	}
}

func (g *Gateway) start(work context.Context, conn net.Conn) {
	s := newSession(g, conn)
	g.mu.Lock()
	g.sessions[s] = struct{}{}
	g.mu.Unlock()
	g.admission.enter(s)
	g.running.Go(func() {
		defer g.admission.ended(s, g.slots)
		s.run(work)
	})
}

// drain interrupts every socket, and closes those that remain after Config.Drain.
func (g *Gateway) drain(abandon func()) {
	g.stop()
	for _, s := range g.open() {
		s.interrupt()
	}
	done := make(chan struct{})
	go func() {
		g.running.Wait()
		close(done)
	}()
	select {
	case <-done:
		return
	case <-time.After(g.cfg.Drain):
	}
	rest := g.open()
	g.cfg.Logger.Warn("sockets not finished in time, closing them", "sockets", len(rest))
	abandon()
	for _, s := range rest {
		_ = s.under.Close()
	}
	<-done
}

func (g *Gateway) open() []*session {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Keys(g.sessions))
}

// claim registers the device and makes s its newest socket. Both are one step, so that the newest
// socket here is the one that the registry knows. An older socket of the device is closed: such
// sockets are normally half open. (registry.Config.OnSuperseded is not one step.)
func (g *Gateway) claim(s *session) Claim {
	g.mu.Lock()
	c := g.cfg.Register(s.imei)
	old := g.newest[s.imei]
	g.newest[s.imei] = s
	g.mu.Unlock()
	if old != nil {
		old.end(endSuperseded)
	}
	return c
}

// Displaced says that a device has registered with another replica. Its socket here is most likely
// half open, and is closed unless it speaks within a minute. Displaced never blocks. It is for
// registry.Config.OnDisplaced.
func (g *Gateway) Displaced(imei, owner string) {
	if s := g.newestSocket(imei); s != nil {
		g.cfg.Logger.Debug("device is at another replica", "imei", imei, "owner", owner)
		s.displace()
	}
}

// newestSocket is the newest socket of a device; nil: it has none here.
func (g *Gateway) newestSocket(imei string) *session {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.newest[imei]
}

// devices are the IMEIs that are connected.
func (g *Gateway) devices() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Keys(g.newest))
}

// expel closes the socket of a device that may no longer be served.
func (g *Gateway) expel(imei string) {
	if s := g.newestSocket(imei); s != nil {
		s.end(endUnknownDevice)
	}
}

// forget removes a socket that has ended.
func (g *Gateway) forget(s *session) {
	g.admission.leave(s)
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.sessions, s)
	if g.newest[s.imei] == s {
		delete(g.newest, s.imei)
	}
}
