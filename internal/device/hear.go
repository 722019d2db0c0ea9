package device

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"

	"github.com/rollcall-redis/rollcall/internal/teltonika"
)

// Heard is what a server says to a device: the answer to a frame of records or, if Command is not
// empty, a frame of codec 12 or 14.
type Heard struct {
	// Acked is the number in the answer.
	Acked int
	// Command is the body of a frame whose length and CRC are right: what [teltonika.DecodeMessages]
	// takes. The caller may keep it.
	Command []byte
}

// heard is what has arrived of something that is not whole yet.
type heard struct {
	on   net.Conn // the socket that it came from
	part []byte
}

const (
	answerSize   = 4 // of the answer to a frame of records
	headerSize   = 8 // of a frame: preamble and length
	trailerSize  = 4 // of a frame: CRC
	smallestBody = 3 // codec id and two counts
)

// Hear waits until the server says something, or until ctx ends: unlike other methods it does not
// end by itself, since a server may have nothing to say for an hour. What has arrived of something
// when ctx ends is not lost: Hear may be called again.
//
// An answer and a frame begin with four bytes each. Those of a frame are zero, so an answer of zero
// records, which is due only to a frame without records, is taken for the beginning of a command.
//
// Errors are [ErrNotConnected], io.EOF when the server has closed, the cause of ctx, those of
// [teltonika.Reader.Next] for what is not a frame, and the network's.
func (d *Device) Hear(ctx context.Context) (Heard, error) {
	d.mu.Lock()
	conn := d.conn
	d.mu.Unlock()
	if conn == nil {
		return Heard{}, ErrNotConnected
	}
	if d.heard.on != conn {
		d.heard = heard{on: conn}
	}
	var h Heard
	err := interruptible(ctx, conn, func() (err error) {
		h, err = d.heard.next()
		return err
	})
	if err != nil {
		return Heard{}, fmt.Errorf("device %s: hear: %w", d.imei, err)
	}
	return h, nil
}

// next reads on until something is whole. It never reads beyond it: what follows may be read by
// another method.
func (h *heard) next() (Heard, error) {
	if err := h.have(answerSize); err != nil {
		return Heard{}, err
	}
	if n := binary.BigEndian.Uint32(h.part); n != 0 {
		h.part = h.part[:0]
		return Heard{Acked: int(n)}, nil
	}
	if err := h.have(headerSize); err != nil {
		return Heard{}, err
	}
	length := int(binary.BigEndian.Uint32(h.part[answerSize:]))
	switch {
	case length > teltonika.DefaultMaxBody:
		return Heard{}, fmt.Errorf("%w: it declares %d bytes", teltonika.ErrTooLong, length)
	case length < smallestBody:
		return Heard{}, fmt.Errorf("%w: it declares %d bytes", teltonika.ErrTooShort, length)
	}
	if err := h.have(headerSize + length + trailerSize); err != nil {
		return Heard{}, err
	}
	body := h.part[headerSize : headerSize+length : headerSize+length]
	if says, is := binary.BigEndian.Uint32(h.part[headerSize+length:]), teltonika.CRC(body); says != uint32(is) {
		return Heard{}, fmt.Errorf("%w: command says %08x, computed %04x", teltonika.ErrCRC, says, is)
	}
	h.part = nil // the caller's now
	return Heard{Command: body}, nil
}

// have reads until n bytes are there.
func (h *heard) have(n int) error {
	for len(h.part) < n {
		if cap(h.part) < n {
			h.part = append(make([]byte, 0, n), h.part...)
		}
		m, err := h.on.Read(h.part[len(h.part):n])
		h.part = h.part[:len(h.part)+m]
		if err == io.EOF && len(h.part) > 0 && len(h.part) < n {
			return io.ErrUnexpectedEOF
		}
		if err != nil && len(h.part) < n {
			return err
		}
	}
	return nil
}
