package gateway

import (
	"context"
	"encoding/hex"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/connect"
	"github.com/rollcall-redis/rollcall/internal/teltonika"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/internal/wait/waittest"
	"github.com/rollcall-redis/rollcall/registry"
)

func TestMain(m *testing.M) { redistest.Main(m) }

const imei = "356307042441013"

// patience bounds the wait for an event; no event takes that long.
const patience = 2 * time.Minute

// registrar makes claims that record the gateway's calls.
type registrar struct {
	mu     sync.Mutex
	claims []*claim
	land   bool // registrations land at once
}

type claim struct {
	imei             string
	end              func() error
	landed           chan struct{}
	mu               sync.Mutex
	touched, release int
	released         chan struct{}
	err              error
}

// register ends the device's older sockets, as a registry does.
func (r *registrar) register(imei string, end func() error) Claim {
	for _, older := range r.all() {
		if older.imei == imei {
			older.moves()
		}
	}
	c := &claim{imei: imei, end: end, landed: make(chan struct{}), released: make(chan struct{})}
	if r.land {
		close(c.landed)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.claims = append(r.claims, c)
	return c
}

func (r *registrar) all() []*claim {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.claims[:len(r.claims):len(r.claims)]
}

func (c *claim) Wait(ctx context.Context) error {
	select {
	case <-c.landed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *claim) Touch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.touched++
}

func (c *claim) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// moves ends the claim: the device has a newer socket.
func (c *claim) moves() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil && c.release == 0 {
		c.err = registry.MovedError{}
		go func() { _ = c.end() }()
	}
}

func (c *claim) Release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.release++
	close(c.released) // a second release would panic
}

func (c *claim) counts() (touched, release int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.touched, c.release
}

// bench is a gateway that serves on a loopback port until the test ends.
type bench struct {
	*Gateway
	registrar *registrar
	client    *redis.Client // the gateway's
	rdb       *redis.Client // the test's own
	stream    string
	addr      string
	stop      context.CancelFunc
	served    chan error
}

func setup(t testing.TB, server *redistest.Server, change ...func(*Config)) *bench {
	t.Helper()
	return setupOn(t, server, func(_ *bench, ln net.Listener) net.Listener { return ln }, change...)
}

// setupOn is setup for a wrapped listener.
func setupOn(t testing.TB, server *redistest.Server, wrap func(*bench, net.Listener) net.Listener, change ...func(*Config)) *bench {
	t.Helper()
	var target connect.Redis
	require.NoError(t, target.Parse("redis://"+server.Addr()))
	clients, err := connect.Open(t.Context(), &target, time.Second) // as the program does
	require.NoError(t, err)
	client := clients.Data.(*redis.Client)
	b := &bench{
		client:    client,
		registrar: &registrar{land: true},
		rdb:       server.Client(),
		stream:    redistest.Prefix(t) + "telemetry",
		served:    make(chan error, 1),
	}
	cfg := Config{
		Register: b.registrar.register, Client: client, Stream: b.stream,
		Registerer: prometheus.NewRegistry(),
	}
	t.Cleanup(func() { _ = client.Close() }) // a test may have closed it
	for _, f := range change {
		f(&cfg)
	}
	b.Gateway = New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	b.stop = cancel
	ln, err := Listen(ctx, "127.0.0.1:0")
	require.NoError(t, err)
	b.addr = ln.Addr().String()
	ln = wrap(b, ln)
	go func() { b.served <- b.Serve(ctx, ln) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-b.served)
	})
	return b
}

// entries returns a stream's entries, oldest first.
func (b *bench) entries(t testing.TB, stream string) []map[string]any {
	t.Helper()
	messages, err := b.rdb.XRange(t.Context(), stream, "-", "+").Result()
	require.NoError(t, err)
	var all []map[string]any
	for _, m := range messages {
		all = append(all, m.Values)
	}
	return all
}

// await waits for the gateway's work after the device has its answer.
func await(t testing.TB, what func() bool) {
	t.Helper()
	waittest.Until(t, time.Millisecond, what)
}

// awaitCount waits until a metric has this value, and fails if it exceeds it.
func awaitCount(t testing.TB, want int, metric prometheus.Collector) {
	t.Helper()
	await(t, func() bool { return testutil.ToFloat64(metric) >= float64(want) })
	require.Equal(t, float64(want), testutil.ToFloat64(metric))
}

func requireCount(t testing.TB, want int, metric prometheus.Collector, why ...any) {
	t.Helper()
	require.Equal(t, float64(want), testutil.ToFloat64(metric), why...)
}

// awaitEnds waits until so many sockets have ended for a reason.
func (g *Gateway) awaitEnds(t testing.TB, want int, reason string) {
	t.Helper()
	awaitCount(t, want, g.metrics.disconnects.WithLabelValues(reason))
}

func (b *bench) frames(codec, outcome string) prometheus.Collector {
	return b.metrics.frames.WithLabelValues(codec, outcome)
}

// wire is the device's end of a socket, byte by byte.
type wire struct {
	t testing.TB
	net.Conn
}

// dial connects from an address of the loopback, if one is given.
func (b *bench) dial(t testing.TB, from ...string) *wire {
	t.Helper()
	d := net.Dialer{}
	for _, ip := range from {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(ip)}
	}
	conn, err := d.DialContext(t.Context(), "tcp", b.addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	return &wire{t, conn}
}

// login returns a socket after its handshake.
func (b *bench) login(t testing.TB, imei string) *wire {
	t.Helper()
	w := b.dial(t)
	w.login(imei)
	return w
}

func (w *wire) login(imei string) {
	w.t.Helper()
	w.send(handshake(imei))
	w.expect("01")
}

func (w *wire) refused(imei string) {
	w.t.Helper()
	w.send(handshake(imei))
	w.expect("00")
}

// reports earns the device its place.
func (w *wire) reports() {
	w.t.Helper()
	w.send(frame(1))
	w.expect("00000001")
}

func (w *wire) send(p []byte) {
	w.t.Helper()
	_, err := w.Write(p)
	require.NoError(w.t, err)
}

// expect reads exactly these bytes, given in hex.
func (w *wire) expect(want string) {
	w.t.Helper()
	got := make([]byte, len(want)/2)
	_, err := io.ReadFull(w, got)
	require.NoError(w.t, err)
	require.Equal(w.t, want, hex.EncodeToString(got))
}

// expectEnd requires the end of the stream, without further bytes.
func (w *wire) expectEnd() {
	w.t.Helper()
	got, err := io.ReadAll(w)
	require.Empty(w.t, got)
	if err != nil { // unread data turns the close into a reset
		require.ErrorContains(w.t, err, "reset")
	}
}

// hears reads the frame of a command.
func (w *wire) hears(codec teltonika.Codec, text string) {
	w.t.Helper()
	w.expect(hex.EncodeToString(encoded(codec, teltonika.TypeCommand, text)))
}

// junk is a frame that cannot be decoded.
var junk = teltonika.AppendEnvelope(nil, []byte("\x08\x01\xff\xff\xff\xff\x01"))

func handshake(imei string) []byte {
	p, _ := teltonika.AppendIMEI(nil, imei)
	return p
}

// frame returns a frame of n records of codec 8 with distinct times.
func frame(n int) []byte {
	records := make([]teltonika.Record, n)
	for i := range records {
		records[i] = teltonika.Record{Timestamp: uint64(1_700_000_000_000 + i), Satellites: 9}
	}
	return teltonika.AppendFrame(nil, teltonika.Codec8, records...)
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	p, err := hex.DecodeString(s)
	require.NoError(t, err)
	return p
}
