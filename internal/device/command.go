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

// Executes says what a real device does with a command: it answers with the given text in the command's own codec, unless the
// command names another device, which it refuses.
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

// Obey reads commands from the present socket and sends what answer returns for each, in the command's codec; none: the device stays silent. It
// returns nil when ctx ends, and otherwise why the socket could not be read or written any more. Meanwhile nobody else may use
// that socket, but it may be closed, and left by [Device.Connect].
func (d *Device) Obey(ctx context.Context, answer func(Command) []teltonika.Message) error {
	d.mu.Lock()
	conn := d.conn
	d.mu.Unlock()
	if conn == nil {
		return ErrNotConnected
	}
	err := interruptible(ctx, conn, func() error { return obey(&heard{on: conn}, answer) })
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("device %s: %w", d.imei, err)
}

func obey(h *heard, answer func(Command) []teltonika.Message) error {
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
			for _, a := range answer(c) {
				out, err := teltonika.AppendMessages(nil, messages.Codec, a)
				if err != nil {
					return err
				}
				if _, err := h.on.Write(out); err != nil {
					return err
				}
			}
		}
	}
}
