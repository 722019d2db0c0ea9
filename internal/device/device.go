// Package device simulates Teltonika trackers: one device with the manners of the real ones
// ([Device]), a fleet that knows where each of its sockets is ([Fleet]), and positions that depend
// on nothing but a seed ([Track]), so that a test can say exactly what must stand in a stream.
//
// A real device that has lost its network forgets its socket without closing it and comes back on a
// new one. So does a Device: connecting again leaves the former socket open and silent until
// [Device.DropStale]. No method leaves a goroutine behind.
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

// ErrNotConnected is returned by what needs a socket where there is none.
var ErrNotConnected = errors.New("device: not connected")

// Options of a Device. The zero value is ready for use.
type Options struct {
	// Timeout bounds every exchange with the server, in addition to the caller's context. Real devices
	// wait 30 s, the default; a test that expects no answer sets less.
	Timeout time.Duration
}

// Device is one tracker. At most one goroutine at a time may use its present socket; the closing
// methods may be called from others meanwhile.
type Device struct {
	imei string
	opt  Options

	heard heard // what has arrived of something not whole; whoever uses the present socket owns it

	mu    sync.Mutex // guards what follows
	conn  net.Conn   // the present socket, nil if none
	stale []net.Conn // sockets that the device has forgotten and nobody has closed
}

// New returns a device that has not connected yet. The IMEI is not checked: a test may want a bad
// one.
func New(imei string, opt Options) *Device {
	opt.Timeout = cmp.Or(opt.Timeout, 30*time.Second)
	return &Device{imei: imei, opt: opt}
}

// IMEI returns what the device says in its handshake.
func (d *Device) IMEI() string { return d.imei }

// Connect opens a socket to addr and shakes hands. It returns false and no error if the server
// refused; then the new socket is closed. Once accepted the new socket is the present one, and the
// former is left open as stale.
func (d *Device) Connect(ctx context.Context, addr string) (accepted bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, d.opt.Timeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return false, fmt.Errorf("device %s: connect: %w", d.imei, err)
	}
	hello := append([]byte{byte(len(d.imei) >> 8), byte(len(d.imei))}, d.imei...)
	answer := make([]byte, 1)
	if err := d.exchange(ctx, conn, hello, answer); err != nil || answer[0] != teltonika.Accept {
		_ = conn.Close() // of no use any more; what matters is in err or in the answer
		if err != nil {
			return false, fmt.Errorf("device %s: handshake: %w", d.imei, err)
		}
		return false, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.conn != nil {
		d.stale = append(d.stale, d.conn)
	}
	d.conn = conn
	return true, nil
}

// Send sends the records as one frame and returns the number that the server acknowledged. An error
// may mean that the server has stored them all the same: a real device then sends them again.
func (d *Device) Send(ctx context.Context, codec teltonika.Codec, records ...teltonika.Record) (acked int, err error) {
	frame, err := teltonika.AppendFrame(nil, codec, records...)
	if err != nil {
		return 0, fmt.Errorf("device %s: %w", d.imei, err)
	}
	return d.SendFrame(ctx, frame)
}

// SendFrame sends a frame, good or bad, and returns the number in the server's answer.
func (d *Device) SendFrame(ctx context.Context, frame []byte) (acked int, err error) {
	answer := make([]byte, 4)
	if err := d.onSocket(ctx, frame, answer); err != nil {
		return 0, fmt.Errorf("device %s: send: %w", d.imei, err)
	}
	return int(binary.BigEndian.Uint32(answer)), nil
}

// SendRaw sends bytes and waits for no answer.
func (d *Device) SendRaw(ctx context.Context, raw []byte) error {
	if err := d.onSocket(ctx, raw, nil); err != nil {
		return fmt.Errorf("device %s: send: %w", d.imei, err)
	}
	return nil
}

// KeepAlive sends the one byte that a parked device sends to keep its socket open.
func (d *Device) KeepAlive(ctx context.Context) error { return d.SendRaw(ctx, []byte{0xFF}) }

// WaitClosed returns nil when the server has closed the present socket, properly or with a reset,
// and an error if it has not in time or says something instead.
func (d *Device) WaitClosed(ctx context.Context) error {
	err := d.onSocket(ctx, nil, make([]byte, 1))
	switch {
	case err == nil:
		return fmt.Errorf("device %s: the server spoke instead of closing", d.imei)
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return nil
	}
	return fmt.Errorf("device %s: wait for close: %w", d.imei, err)
}

// onSocket is exchange on the present socket, within the device's timeout.
func (d *Device) onSocket(ctx context.Context, out, in []byte) error {
	d.mu.Lock()
	conn := d.conn
	d.mu.Unlock()
	if conn == nil {
		return ErrNotConnected
	}
	ctx, cancel := context.WithTimeout(ctx, d.opt.Timeout)
	defer cancel()
	return d.exchange(ctx, conn, out, in)
}

// exchange writes out, then fills in. It ends when ctx does.
func (d *Device) exchange(ctx context.Context, conn net.Conn, out, in []byte) error {
	return interruptible(ctx, conn, func() error {
		if _, err := conn.Write(out); err != nil {
			return err
		}
		_, err := io.ReadFull(conn, in)
		return err
	})
}

// interruptible does something with a socket, and ends it when ctx does.
func interruptible(ctx context.Context, conn net.Conn, do func() error) error {
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	// A deadline in the past wakes a blocked read or write; a context alone cannot.
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		_ = conn.SetDeadline(time.Unix(1, 0)) // fails only on a closed socket, which is awake already
	})
	err := do()
	if !stop() {
		<-done // so that this deadline cannot hit the next exchange
	}
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w (%w)", context.Cause(ctx), err)
	}
	return err
}

// HalfOpen forgets the present socket without closing it, as a device does whose power or coverage
// is gone: the server keeps a socket on which nothing ever comes again.
func (d *Device) HalfOpen() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.conn != nil {
		d.stale = append(d.stale, d.conn)
		d.conn = nil
	}
}

// DropStale closes the sockets that the device had forgotten: the late close that must not undo a
// newer claim.
func (d *Device) DropStale() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.stale {
		_ = c.Close() // nothing unsent, and nobody to tell
	}
	d.stale = nil
}

// Close closes every socket of the device, present and stale. The device can connect again.
func (d *Device) Close() {
	d.HalfOpen()
	d.DropStale()
}

// Abort closes the present socket with a reset instead of a farewell, as middleboxes do.
func (d *Device) Abort() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.conn == nil {
		return
	}
	if tcp, ok := d.conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // fails only on a closed socket
	}
	_ = d.conn.Close()
	d.conn = nil
}
