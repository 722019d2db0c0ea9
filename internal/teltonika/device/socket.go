package device

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/rollcall-redis/rollcall/internal/teltonika"
)

// socket has, in part, what has arrived of an answer or frame.
type socket struct {
	net.Conn
	part []byte
}

const (
	answerSize   = 4 // number of records
	headerSize   = 8 // preamble and length
	trailerSize  = 4 // CRC
	smallestBody = 3 // codec id and two counts
)

func (s *socket) exchange(ctx context.Context, out, in []byte) error {
	return s.interruptible(ctx, func() error {
		if _, err := s.Write(out); err != nil {
			return err
		}
		_, err := io.ReadFull(s, in)
		return err
	})
}

func (s *socket) receive(ctx context.Context) (r Received, err error) {
	err = s.interruptible(ctx, func() error {
		for r.Acked == 0 && len(r.Commands) == 0 {
			if err := s.next(&r); err != nil {
				return err
			}
		}
		return nil
	})
	return r, err
}

func (s *socket) interruptible(ctx context.Context, do func() error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := s.SetDeadline(time.Time{}); err != nil {
		return err
	}
	// A deadline in the past wakes a blocked read or write; a context alone cannot.
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		_ = s.SetDeadline(time.Unix(1, 0)) // fails only on a closed socket, which is awake already
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

// next reads nothing beyond an answer or a frame: another method may read the next bytes.
func (s *socket) next(r *Received) error {
	if err := s.have(answerSize); err != nil {
		return err
	}
	if n := binary.BigEndian.Uint32(s.part); n != 0 {
		s.part, r.Acked = s.part[:0], int(n)
		return nil
	}
	if err := s.have(headerSize); err != nil {
		return err
	}
	length := int(binary.BigEndian.Uint32(s.part[answerSize:]))
	switch {
	case length > teltonika.DefaultMaxBody:
		return fmt.Errorf("%w: it declares %d bytes", teltonika.ErrTooLong, length)
	case length < smallestBody:
		return fmt.Errorf("%w: it declares %d bytes", teltonika.ErrTooShort, length)
	}
	if err := s.have(headerSize + length + trailerSize); err != nil {
		return err
	}
	body, crc := s.part[headerSize:headerSize+length], binary.BigEndian.Uint32(s.part[headerSize+length:])
	if is := teltonika.CRC(body); crc != uint32(is) {
		return fmt.Errorf("%w: command says %08x, computed %04x", teltonika.ErrCRC, crc, is)
	}
	messages, err := teltonika.DecodeMessages(body)
	if err != nil {
		return err
	}
	for m := range messages.All() {
		switch {
		case m.Type != teltonika.TypeCommand:
		case messages.Codec == teltonika.Codec12:
			r.Commands = append(r.Commands, Command{Codec: messages.Codec, Text: string(m.Text)})
		case messages.Codec == teltonika.Codec14:
			c := Command{Codec: messages.Codec, IMEI: m.IMEI.String(), Text: string(m.Text)}
			r.Commands = append(r.Commands, c)
		}
	}
	s.part = s.part[:0]
	return nil
}

func (s *socket) have(n int) error {
	had := len(s.part)
	if had >= n {
		return nil
	}
	s.part = slices.Grow(s.part, n-had)
	m, err := io.ReadFull(s, s.part[had:n])
	s.part = s.part[:had+m]
	if err == io.EOF && had > 0 {
		return io.ErrUnexpectedEOF
	}
	return err
}
