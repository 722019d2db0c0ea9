package gateway

import (
	"context"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/teltonika"
)

// store writes frames to Redis.
type store struct {
	client redis.UniversalClient
	stream string
	maxLen int64
}

// deadMost caps the dead letters more tightly than the records: one may be 8 KiB of anything, and whoever can
// reach the port can send them. 10,000 are 160 MB at the very most.
const deadMost = 10_000

// records adds all records of a frame to the stream, in one transaction: all or
// none, in one round trip. No record is no write. An error may mean that they
// were added and the reply was lost; the device sends them again, so they may
// stand twice.
func (s *store) records(ctx context.Context, imei string, work *scratch) error {
	if len(work.batch.Records) == 0 {
		return nil
	}
	codec := work.batch.Codec.String()
	pipe := s.client.TxPipeline()
	// Arguments are views into text. Where it grows, the views keep the old
	// array, which nobody changes any more.
	text := work.text[:0]
	view := func(from int) []byte { return text[from:len(text):len(text)] }
	for i := range work.batch.Records {
		r := &work.batch.Records[i]
		at := len(text)
		text = teltonika.AppendDegrees(text, r.Latitude)
		lat := view(at)
		at = len(text)
		text = teltonika.AppendDegrees(text, r.Longitude)
		lon := view(at)
		at = len(text)
		text = r.IO.AppendJSON(text)
		s.add(ctx, pipe, s.stream, s.maxLen,
			"imei", imei, "ts", r.Timestamp, "lat", lat, "lon", lon,
			"alt", r.Altitude, "angle", r.Angle, "sat", r.Satellites, "speed", r.Speed,
			"event", r.Event, "priority", r.Priority, "codec", codec, "io", view(at))
	}
	work.text = text
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("gateway: store %d records: %w", len(work.batch.Records), err)
	}
	return nil
}

// dead keeps a frame that could not be decoded, with the reason, for somebody
// to look at.
func (s *store) dead(ctx context.Context, imei string, frame teltonika.Frame, reason error) error {
	pipe := s.client.Pipeline()
	s.add(ctx, pipe, s.stream+DeadSuffix, min(s.maxLen, deadMost),
		"imei", imei, "reason", reason.Error(), "codec", frame.Codec.String(),
		"raw", hex.EncodeToString(frame.Raw), "ts", time.Now().UnixMilli())
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("gateway: store a dead letter: %w", err)
	}
	return nil
}

// add queues an XADD. Trimming is approximate, because an exact cap would cost
// Redis a walk through the stream's oldest node at every record.
func (s *store) add(ctx context.Context, pipe redis.Pipeliner, stream string, maxLen int64, fields ...any) {
	args := make([]any, 0, 6+len(fields))
	args = append(args, "xadd", stream, "maxlen", "~", maxLen, "*")
	pipe.Do(ctx, append(args, fields...)...)
}
