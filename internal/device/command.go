package device

import (
	"context"
	"fmt"

	"github.com/rollcall-redis/rollcall/internal/teltonika"
)

// Command is a command as a device received it.
type Command struct {
	Codec teltonika.Codec
	IMEI  string // codec 14: whom it is for; else empty
	Text  string
}

// Executes says what a real device does with a command: it answers with the given text in the
// command's own codec, unless the command names another device, which it refuses.
func (d *Device) Executes(c Command, text string) teltonika.Message {
	m := teltonika.Message{Type: teltonika.TypeResponse, Text: []byte(text)}
	if c.Codec == teltonika.Codec14 {
		m.IMEI, _ = teltonika.ParseIMEI(d.imei) // of a bad one zeros, as its firmware would have them
		if c.IMEI != d.imei {
			m.Type, m.Text = teltonika.TypeNACK, nil
		}
	}
	return m
}

// Say sends the server a frame with one message.
type Say func(teltonika.Codec, teltonika.Message) error

// Obey reads commands from the present socket and sends what answer returns for each, in the
// command's codec; none: the device stays silent. It returns nil when ctx ends, and otherwise why
// the socket could not be read or written any more. Meanwhile nobody else may use that socket, but
// it may be closed, and left by [Device.Connect].
func (d *Device) Obey(ctx context.Context, answer func(Command) []teltonika.Message) error {
	return d.Follow(ctx, func(c Command, say Say) error {
		for _, m := range answer(c) {
			if err := say(c.Codec, m); err != nil {
				return err
			}
		}
		return nil
	})
}

// Follow is Obey for a device that says what it likes when it likes: follow is called for each
// command and may send any number of frames. No other command is read before it returns; its error
// ends Follow.
func (d *Device) Follow(ctx context.Context, follow func(Command, Say) error) error {
	d.mu.Lock()
	conn := d.conn
	d.mu.Unlock()
	if conn == nil {
		return ErrNotConnected
	}
	err := interruptible(ctx, conn, func() error { return obey(&heard{on: conn}, follow) })
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("device %s: %w", d.imei, err)
}

func obey(h *heard, follow func(Command, Say) error) error {
	say := func(codec teltonika.Codec, m teltonika.Message) error {
		out, err := teltonika.AppendMessages(nil, codec, m)
		if err != nil {
			return err
		}
		_, err = h.on.Write(out)
		return err
	}
	for {
		said, err := h.next()
		if err != nil {
			return err
		}
		if said.Command == nil {
			continue // an answer that nobody waits for any more
		}
		messages, err := teltonika.DecodeMessages(said.Command)
		if err != nil {
			return err
		}
		for m := range messages.All() {
			c := Command{Codec: messages.Codec, Text: string(m.Text)}
			if messages.Codec == teltonika.Codec14 {
				c.IMEI = m.IMEI.String()
			}
			if err := follow(c, say); err != nil {
				return err
			}
		}
	}
}
