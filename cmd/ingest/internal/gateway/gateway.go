package gateway

import (
	"cmp"
	"context"
	"crypto/tls"
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

	"github.com/rollcall-redis/rollcall/cmd/internal/doors"
	"github.com/rollcall-redis/rollcall/internal/streak"
	"github.com/rollcall-redis/rollcall/internal/wait"
	"github.com/rollcall-redis/rollcall/registry"
)

// Vendors and fleets dictate all but firstFrame: parked devices report hourly, and devices close
// their socket after 30 s without an acknowledgement.
const (
	placeTime     = 20 * time.Second // of waiting for a place; devices give up after 30
	handshakeTime = 15 * time.Second
	completeTime  = 30 * time.Second
	firstFrame    = time.Minute
	idleTime      = 3900 * time.Second
	claimTime     = time.Second
	storeTime     = 10 * time.Second
	rescueTime    = time.Second // for reading the data that has arrived when a socket ends
)

const (
	// manyRegistrations take a second without Redis, so 100,000 devices get their answer within 25
	// s. They give up at 30.
	manyRegistrations = 4096
	// manyEnding bounds the sockets that have lost their places and are still ending: one that is
	// registering takes up to a second, and a flood brings thousands in that time.
	manyEnding = 1024
)

// Unidentified returns how many sockets may be open without an IMEI, beside those of so many
// devices.
func Unidentified(devices int) int { return min(4096, max(1, devices/4, min(devices/2, 64))) }

// Claim is a socket's hold on its device's registration.
type Claim interface {
	// Wait returns nil once the registration has landed. The socket is served after an error too.
	Wait(ctx context.Context) error
	// Touch reports that the device has sent something.
	Touch()
	// Err returns why the claim has ended, nil if it has not.
	Err() error
	// Release gives the claim back. It never blocks.
	Release()
}

// Config configures a Gateway.
type Config struct {
	// Register claims a device for this replica. It must not block, and calls end in a goroutine of
	// its own when the device has a newer socket, or this replica stops.
	Register func(imei string, end func() error) Claim
	// Client must not retry by itself (a retried write may run twice) and must honour contexts.
	Client redis.UniversalClient
	// Stream names the telemetry stream; empty means [Stream]. Streams is their number, a power of
	// two; 0 means one. telemetry:{teltonika:16:05:21} is stream 5 of 16, for the devices with
	// guard.PartitionOf 5.
	Stream  string
	Streams int
	// Allowed names the set of IMEIs that may be served. If empty, every device may be.
	Allowed string
	// MaxLen is the approximate cap of all telemetry streams together, in entries; 0 means a
	// million. The message streams have the same cap, dead letters 10,000, or MaxLen if that is
	// less.
	MaxLen int64
	// MaxConns bounds the sockets of devices; 0 means 100,000. At the bound a device takes the place
	// of another one as package doors describes, or waits for its answer. Stored records earn a
	// place.
	MaxConns int
	// MaxUnidentified likewise bounds open sockets without an IMEI, beside the devices'. 0 means
	// [Unidentified].
	MaxUnidentified int
	// FirstFrame is an accepted device's time for its first frame; 0 means a minute.
	FirstFrame time.Duration
	// MaxRegistering bounds concurrent registrations; further devices wait. 0 means 4,096.
	MaxRegistering int
	// Quiet is how long a socket must be quiet after an answer before the next command; 0 means 3
	// s.
	Quiet time.Duration
	// Drain is how long sockets may take to finish their current frame, once the gateway stops; 0
	// means 5 s. Messages get another quarter of it. A write that still waits for Redis ends ten
	// seconds after it began, or when Client is closed.
	Drain time.Duration
	// ClientCAs, if not nil, returns the authorities for device certificates, the same pool until
	// it changes. A certificate has the IMEI as common name or DNS name.
	ClientCAs func() *x509.CertPool
	// Certificate returns the one of OverTLS.
	Certificate func() *tls.Certificate
	// StartSpan, if not nil, is called for each registration: see janitor.Config. No attribute names
	// the device.
	StartSpan func(ctx context.Context, name string, attrs ...slog.Attr) (
		_ context.Context, end func(err error, attrs ...slog.Attr))
	// Logger defaults to slog.Default. A nil Registerer registers no metrics.
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
	rate      rate        // per device
	hall      *doors.Room // sockets without an IMEI
	places    *doors.Room // devices
	refusals  perMinute
	authority *authority    // nil: every device is served
	running   chan struct{} // one taken per socket that has not ended
	turns     chan struct{} // one taken per running registration

	stopping context.Context // ends when the gateway begins to drain
	stop     context.CancelFunc
	serving  sync.WaitGroup // sessions

	mu       sync.Mutex
	sessions map[*session]struct{}
	newest   map[string]*session // by IMEI
}

// New needs Register and Client.
func New(cfg Config) *Gateway {
	cfg.Stream = cmp.Or(cfg.Stream, Stream)
	cfg.Streams = cmp.Or(cfg.Streams, 1)
	cfg.MaxLen = cmp.Or(cfg.MaxLen, 1_000_000)
	cfg.MaxConns = cmp.Or(cfg.MaxConns, 100_000)
	cfg.MaxUnidentified = cmp.Or(cfg.MaxUnidentified, Unidentified(cfg.MaxConns))
	cfg.MaxRegistering = cmp.Or(cfg.MaxRegistering, manyRegistrations)
	cfg.FirstFrame = cmp.Or(cfg.FirstFrame, firstFrame)
	cfg.Quiet = cmp.Or(cfg.Quiet, quietTime)
	cfg.Drain = cmp.Or(cfg.Drain, 5*time.Second)
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	g := &Gateway{
		cfg:      cfg,
		store:    newStore(cfg.Client, streams(cfg.Stream, cfg.Streams), cfg.MaxLen),
		rate:     deviceRate,
		hall:     doors.New(doors.Config{Most: cfg.MaxUnidentified}),
		places:   doors.New(doors.Config{Most: cfg.MaxConns, Keep: idleTime}),
		running:  make(chan struct{}, cfg.MaxConns+cfg.MaxUnidentified+manyEnding),
		turns:    make(chan struct{}, cfg.MaxRegistering),
		sessions: make(map[*session]struct{}),
		newest:   make(map[string]*session),
	}
	g.stopping, g.stop = context.WithCancel(context.Background())
	g.metrics = newMetrics(cfg.Registerer, g)
	g.messages = newMessages(g.store, g.metrics, cfg.Logger)
	g.faults = newFaults(cfg.Client, cfg.Stream+FaultsSuffix, g.store.notes, cfg.Logger)
	if cfg.Allowed != "" {
		g.authority = newAuthority(cfg.Client, cfg.Allowed, cfg.Logger, g.metrics.authority)
	}
	return g
}

// Connections returns the number of open sockets, greeted or not.
func (g *Gateway) Connections() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.sessions)
}

func (g *Gateway) draining() bool { return g.stopping.Err() != nil }

// Serve accepts devices until ctx ends or a listener fails. Then it closes the listeners, lets each
// socket finish its current frame, and releases its claim. No goroutine outlives it. It returns nil
// or the listener's error. A Gateway serves once.
func (g *Gateway) Serve(ctx context.Context, lns ...net.Listener) error {
	accepting, stop := context.WithCancelCause(ctx)
	defer stop(nil)

	// Sockets outlive ctx to finish the work they have begun.
	work, abandon := context.WithCancel(context.WithoutCancel(ctx))
	defer abandon()
	g.store.start()
	g.messages.start(g.cfg.Drain / 4)

	var running sync.WaitGroup
	if g.authority != nil {
		running.Go(func() { g.authority.recheck(accepting, g.devices, g.expel) })
	}
	running.Go(func() { g.faults.box.Run(accepting, 0) })
	if g.cfg.ClientCAs != nil {
		running.Go(func() { g.recheckCertificates(accepting) })
	}
	for _, ln := range lns {
		defer context.AfterFunc(accepting, func() { _ = ln.Close() })()
		running.Go(func() {
			err := g.accept(accepting, work, ln)
			_ = ln.Close()
			stop(err)
		})
	}
	running.Wait()
	g.drain(abandon)
	g.messages.close()
	g.store.close()
	if ctx.Err() != nil {
		return nil
	}
	return context.Cause(accepting)
}

func (g *Gateway) accept(ctx, work context.Context, ln net.Listener) error {
	pause := wait.Between(5*time.Millisecond, time.Second)
	accepts := streak.New(g.cfg.Logger, "cannot accept devices, trying again", "devices are accepted again")
	for {
		conn, err := ln.Accept()
		if err == nil {
			pause.Reset()
			accepts.Note(nil)
			if !g.start(ctx, work, conn) {
				_ = conn.Close()
				return nil
			}
			continue
		}
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, net.ErrClosed) {
			return fmt.Errorf("gateway: accept: %w", err)
		}
		// No descriptors are left, or a peer gave up in the backlog: both pass.
		accepts.Note(err)
		if !pause.Wait(ctx) {
			return nil
		}
	}
}

// start returns false when ctx ends before there is room.
func (g *Gateway) start(ctx, work context.Context, conn net.Conn) bool {
	select {
	case g.running <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	s := newSession(g, conn)
	if g.hall.Wait(ctx, s.guest, s.knocks()) != nil {
		return false
	}
	g.mu.Lock()
	g.sessions[s] = struct{}{}
	g.mu.Unlock()
	g.serving.Go(func() {
		defer func() { <-g.running }()
		s.run(work)
	})
	return true
}

func (g *Gateway) drain(abandon func()) {
	g.stop()
	for _, s := range g.open() {
		s.interrupt()
	}
	done := make(chan struct{})
	go func() {
		g.serving.Wait()
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

// claim registers the device and makes s its newest socket in one step: registry and gateway agree.
func (g *Gateway) claim(s *session) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s.claim = g.cfg.Register(s.imei, func() error { g.lost(s); return nil })
	g.newest[s.imei] = s
}

// lost ends a socket whose claim has ended, after the frame in hand.
func (g *Gateway) lost(s *session) {
	g.mu.Lock() // until Register has returned
	why := s.claim.Err()
	g.mu.Unlock()
	reason := endDraining
	if _, moved := errors.AsType[registry.MovedError](why); moved {
		reason = endMoved
	}
	s.end(reason)
}

func (g *Gateway) newestSocket(imei string) *session {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.newest[imei]
}

func (g *Gateway) devices() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Keys(g.newest))
}

func (g *Gateway) expel(imei string) {
	if s := g.newestSocket(imei); s != nil {
		s.end(endUnknownDevice)
	}
}

func (g *Gateway) forget(s *session) {
	s.guest.Leave()
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.sessions, s)
	if g.newest[s.imei] == s {
		delete(g.newest, s.imei)
	}
}
