package gateway

import (
	"crypto/tls"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// A frame, keep-alives and the rest of an earlier answer, each a TLS record, come in one packet.
func TestAKeepAliveOverTLSHidesNothingBehindIt(t *testing.T) {
	certFile, keyFile := certify(t, t.TempDir(), "one")
	server := redistest.Start(t)
	b := setupOn(t, server, overTLS(t, certFile, keyFile, slog.Default()))
	raw := b.dial(t)
	gather := &gathering{Conn: raw.Conn}
	w := &wire{t, tls.Client(gather, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12})}
	w.send(handshake(t, imei))
	w.expect("01")
	w.send(frame(t, 1))
	w.expect("00000001")
	server.Stop()
	gather.hold = true
	w.send(frame(t, 2))
	w.send([]byte{0xFF})
	w.send([]byte{0xFF})
	w.send(response(t, c12, "the rest of an earlier answer"))
	gather.flush(t)
	b.mu.Lock()
	s := b.newest[imei]
	b.mu.Unlock()
	await(t, func() bool { return s.locked(func() bool { return !s.resting }) })
	got := asks(b.Gateway, c12, "setparam 1:2", patience)
	await(t, func() bool {
		return s.locked(func() bool { return s.commands.pending != nil && s.commands.pending.permitted })
	})
	server.Cont()
	w.expect("00000002")
	hears(t, w, c12, "setparam 1:2")
	w.send(response(t, c12, "did setparam"))
	a := <-got
	require.ErrorIs(t, a.err, ErrAmbiguous)
	require.Equal(t, "did setparam", a.text)
}
