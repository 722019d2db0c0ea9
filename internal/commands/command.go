package commands

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/teltonika"
)

// Status is what became of a command. The package comment says what each means.
type Status string

// Every status that an outcome may have.
const (
	Answered     Status = "answered"
	NotConnected Status = "not_connected"
	Busy         Status = "busy"
	WrongDevice  Status = "wrong_device"
	Timeout      Status = "timeout"
	Expired      Status = "expired"
	InstanceLost Status = "instance_lost"
	Invalid      Status = "invalid"
)

const (
	maxID, maxText = 128, 1024
	// maxIMEI is what is kept of a field imei that is none: its outcome repeats it.
	maxIMEI = 32
	// lifetime is what a command without expires has, maxLifetime what one may have.
	lifetime, maxLifetime = time.Minute, 24 * time.Hour
)

// Command is what somebody wants said to a device.
type Command struct {
	ID      string
	IMEI    string
	Text    string
	Codec   int // 12 or 14; 0: 12
	Expires time.Time
}

// Outcome is what became of it.
type Outcome struct {
	ID, IMEI, Instance string
	Status             Status
	Text               string
}

// entry is a command in a stream.
type entry struct {
	at string // its id in the stream
	Command
	fault error // what is wrong with it; then only ID and IMEI mean anything, as they stand there
}

// Faults of which nobody can be told.
var (
	errNoID    = errors.New("commands: no usable id")
	errRemoved = errors.New("commands: pending, and gone from its stream")
)

func parse(m redis.XMessage) entry {
	e, fault := read(m)
	if e.fault = fault; fault != nil { // nobody will send it: what may be large is let go
		e.Text, e.IMEI = "", strings.Clone(e.IMEI[:min(len(e.IMEI), maxIMEI)])
	}
	return e
}

func read(m redis.XMessage) (entry, error) {
	field := func(name string) string { s, _ := m.Values[name].(string); return s }
	e := entry{at: m.ID, Command: Command{IMEI: field("imei"), Text: field("text"), Codec: 12}}
	if len(m.Values) == 0 {
		return e, errRemoved
	}
	if e.ID = field("id"); !validID(e.ID) {
		e.ID = ""
		return e, errNoID
	}
	ms, err := strconv.ParseInt(m.ID[:max(0, strings.IndexByte(m.ID, '-'))], 10, 64)
	if err != nil {
		return e, fmt.Errorf("entry id %q", m.ID)
	}
	added := time.UnixMilli(ms)
	e.Expires = added.Add(lifetime)
	if _, err := teltonika.ParseIMEI(e.IMEI); err != nil {
		return e, errors.New("imei: want 15 digits")
	}
	if len(e.Text) == 0 || len(e.Text) > maxText {
		return e, fmt.Errorf("text: want 1 to %d bytes", maxText)
	}
	switch field("codec") {
	case "", "12":
	case "14":
		e.Codec = 14
	default:
		return e, errors.New("codec: want 12 or 14")
	}
	if s := field("expires"); s != "" {
		ms, err := strconv.ParseInt(s, 10, 64)
		if err != nil || ms < 0 || ms > added.Add(maxLifetime).UnixMilli() {
			return e, errors.New("expires: want unix ms, at most a day ahead")
		}
		e.Expires = time.UnixMilli(ms)
	}
	return e, nil
}

// validID accepts what can stand in a key, a log line and a JSON string as it is.
func validID(s string) bool {
	return s != "" && len(s) <= maxID && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

func (c Command) codec() teltonika.Codec {
	if c.Codec == 14 {
		return teltonika.Codec14
	}
	return teltonika.Codec12
}
