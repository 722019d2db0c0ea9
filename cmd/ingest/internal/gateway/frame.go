package gateway

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rollcall-redis/rollcall/internal/teltonika"
)

// hasty consecutive early frames show that a device does not wait for acknowledgements.
const hasty = 3

// errUnawaited is the fault of a device that takes a frame for delivered once TCP has it.
var errUnawaited = errors.New("gateway: frames come before the ones before them were acknowledged; " +
	"the device loses what is under way when a connection ends")

// handle requires the socket to be closed after an error.
func (s *session) handle(ctx context.Context, frame teltonika.Frame) error {
	codec, outcome := frame.Codec.String(), "acknowledged"
	if !frame.Codec.HasRecords() && !frame.Codec.IsCommand() {
		codec = "unknown" // one label per id would let a peer create 256
	}
	defer func() { s.g.metrics.frames.WithLabelValues(codec, outcome).Inc() }()
	if frame.Codec.IsCommand() {
		outcome = "command"
		s.early = false
		s.takeMessages(frame)
		return s.pace(frame)
	}
	s.noteHaste(frame)
	s.claim.Touch()
	until := time.Now().Add(storeTime)
	if err := s.pace(frame); err != nil {
		outcome = "abandoned"
		return err
	}
	began := time.Now()
	kept, err := s.g.store.keep(ctx, until, s.origin, frame)
	if err != nil {
		outcome = "failed"
		return fmt.Errorf("%w: %w", errStore, err)
	}
	switch {
	case kept.fault == nil:
		s.g.metrics.records.WithLabelValues(codec).Add(float64(kept.records))
		if kept.records > 0 {
			s.speaks()
			s.guest.Earn()
		}
	case kept.repeated:
		outcome = "repeated"
	default:
		outcome = "dead"
		s.g.metrics.dead.Inc()
		s.fault(kept.fault, frame.Raw)
	}
	if kept.mustRepeat() {
		return kept.fault
	}
	bytes, _ := s.unread()
	var ack [4]byte
	if err := s.answer(teltonika.AppendAck(ack[:0], int(frame.Count))); err != nil {
		outcome = "unanswered"
		return err
	}
	s.g.metrics.latency.Observe(time.Since(began).Seconds())
	s.early = bytes
	s.acceptCommands()
	return nil
}

// mustRepeat reports whether an undecodable frame stays unacknowledged, because its number of
// records is unknown. A repeat is already kept, and would come for ever.
func (k kept) mustRepeat() bool {
	unknown := errors.Is(k.fault, teltonika.ErrUnknownCodec) || errors.Is(k.fault, teltonika.ErrCount)
	return unknown && !k.repeated
}

func (s *session) noteHaste(frame teltonika.Frame) {
	if !s.early {
		s.hasty = 0
		return
	}
	if s.hasty++; s.hasty == hasty {
		s.fault(errUnawaited, frame.Raw)
	}
}
