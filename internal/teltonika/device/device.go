// Package device simulates Teltonika trackers, for tests of a gateway and for package simulate:
//
//	d := device.New("356307042441013", device.Options{})
//	defer d.Close()
//	accepted, err := d.Connect(ctx, "127.0.0.1:5027")
//	...
//	acked, err := d.Send(ctx, teltonika.Codec8, device.NewTrack(seed).Next(3)...)
//
// [Track] derives positions from nothing but a seed, so that a test can predict the contents of a
// stream exactly.
//
// A device that has lost its network forgets its socket, and comes back on a new one: connecting
// again leaves the former socket open and silent until [Device.DropStale]. No method leaves a
// goroutine behind.
package device

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/rollcall-redis/rollcall/internal/teltonika"
)

// ErrNotConnected means that the device has no socket.
var ErrNotConnected = errors.New("device: not connected")

// Options of a Device may be zero.
type Options struct {
	// Timeout bounds every exchange. Real devices wait 30 s, the default.
	Timeout time.Duration
}

// Device is one tracker. One goroutine at a time may use its present socket; others may call the
// closing methods.
type Device struct {
	imei string
	opt  Options

	mu      sync.Mutex
	present *socket
	stale   []*socket // forgotten, still open
}

// New accepts any IMEI, since a test may want a bad one.
func New(imei string, opt Options) *Device {
	opt.Timeout = cmp.Or(opt.Timeout, 30*time.Second)
	return &Device{imei: imei, opt: opt}
}

// IMEI returns the IMEI for the handshake.
func (d *Device) IMEI() string { return d.imei }

// Connect shakes hands on a new socket. If the server refuses, it returns false without an error.
// Otherwise that becomes the present one, and the former stays open as stale.
func (d *Device) Connect(ctx context.Context, addr string) (accepted bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, d.opt.Timeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return false, d.wrap("connect", err)
	}
	s := &socket{Conn: conn}
	hello := append([]byte{byte(len(d.imei) >> 8), byte(len(d.imei))}, d.imei...)
	answer := make([]byte, 1)
	if err := s.exchange(ctx, hello, answer); err != nil || answer[0] != teltonika.Accept {
		_ = s.Close() // err or the answer has the reason
		return false, d.wrap("handshake", err)
	}
	d.HalfOpen()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.present = s
	return true, nil
}

// Send returns the number of records that the server acknowledged. After an error the server may
// have stored them all the same.
func (d *Device) Send(
	ctx context.Context, codec teltonika.Codec, records ...teltonika.Record,
) (acked int, err error) {
	frame, err := teltonika.AppendFrame(nil, codec, records...)
	if err != nil {
		return 0, d.wrap("send", err)
	}
	answer := make([]byte, answerSize)
	err = d.exchange(ctx, frame, answer)
	return int(binary.BigEndian.Uint32(answer)), d.wrap("send", err)
}

// SendRaw sends bytes and does not wait for an answer.
func (d *Device) SendRaw(ctx context.Context, raw []byte) error {
	return d.wrap("send", d.exchange(ctx, raw, nil))
}

// KeepAlive sends what a parked device sends.
func (d *Device) KeepAlive(ctx context.Context) error { return d.SendRaw(ctx, []byte{0xFF}) }

// WaitClosed returns nil once the server has closed the present socket, properly or with a reset,
// and an error if it sends something instead.
func (d *Device) WaitClosed(ctx context.Context) error {
	err := d.exchange(ctx, nil, make([]byte, 1))
	switch {
	case err == nil:
		return fmt.Errorf("device %s: the server sent something instead of closing", d.imei)
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return nil
	}
	return d.wrap("wait for close", err)
}

func (d *Device) exchange(ctx context.Context, out, in []byte) error {
	s := d.socket()
	if s == nil {
		return ErrNotConnected
	}
	ctx, cancel := context.WithTimeout(ctx, d.opt.Timeout)
	defer cancel()
	return s.exchange(ctx, out, in)
}

func (d *Device) socket() *socket {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.present
}

func (d *Device) wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("device %s: %s: %w", d.imei, what, err)
}

// HalfOpen forgets the present socket without closing it.
func (d *Device) HalfOpen() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.present != nil {
		d.stale = append(d.stale, d.present)
		d.present = nil
	}
}

// DropStale closes the forgotten sockets: the late close that must not undo a newer claim.
func (d *Device) DropStale() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.stale {
		_ = s.Close() // nothing is unsent
	}
	d.stale = nil
}

// Close closes every socket. The device can connect again.
func (d *Device) Close() {
	d.HalfOpen()
	d.DropStale()
}
