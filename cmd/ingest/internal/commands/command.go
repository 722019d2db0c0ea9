package commands

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/teltonika"
	"github.com/rollcall-redis/rollcall/registry"
)

// Status is the kind of an outcome: see docs/devices.md.
type Status string

// Statuses.
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

// MaybeAnswered is Answered for an outcome marked ambiguous in the stream.
const MaybeAnswered Status = "answered, ambiguous"

const (
	maxID, maxText = 128, 1024
	// maxIMEI bounds the part of an invalid imei that the outcome repeats.
	maxIMEI = 32
	// maxLifetime bounds a command's expires, and is a queued one's default.
	lifetime, maxLifetime = time.Minute, 24 * time.Hour
	// responsesMost is 21 MB of usual answers (100 bytes), 170 MB of the longest (1,280 bytes),
	// measured on Redis 7.0.
	responsesMost = 100_000
	// Commands that were sent are pending in them.
	group, consumer = "rollcall", "instance"
)

func outboundPrefix(l registry.Layout) string { return l.Prefix + "commands:outbound:" }

// Outbound returns the key of the stream of commands for an instance's devices.
func Outbound(l registry.Layout, instance string) string { return outboundPrefix(l) + instance }

// Queue returns the key of the stream of commands that wait for their devices.
func Queue(l registry.Layout) string { return l.Prefix + "commands:queue" }

// Responses returns the key of the stream of outcomes.
func Responses(l registry.Layout) string { return l.Prefix + "commands:responses" }

func state(l registry.Layout, id string) string { return l.Prefix + "commands:state:" + id }

// Command is a text to be sent to a device.
type Command struct {
	ID      string
	IMEI    string
	Text    string
	Codec   int // 12 or 14; 0: 12
	Expires time.Time
	// Queue lets the command wait while its device is away.
	Queue bool
}

// Outcome is the final result of a command.
type Outcome struct {
	ID, IMEI, Instance string
	Status             Status
	Text               string
}

func field(m redis.XMessage, name string) string {
	s, _ := m.Values[name].(string)
	return s
}

func outcome(m redis.XMessage) Outcome {
	status := Status(field(m, "status"))
	if status == Answered && field(m, "ambiguous") == "true" {
		status = MaybeAnswered
	}
	return Outcome{field(m, "id"), field(m, "imei"), field(m, "instance"), status, field(m, "text")}
}

type entry struct {
	stream string
	at     string // id in the stream
	Command
	fault error // if set, only ID and IMEI are meaningful, as sent

	// In the queue:
	due     time.Time // when to ask Redis for its outcome
	attempt int64     // see state.lua
}

// errNoID leaves no id to add an outcome under.
var errNoID = errors.New("commands: no usable id")

func (r *Reader) parse(stream string, m redis.XMessage) entry {
	e, fault := read(m, stream == r.queue)
	e.stream = stream
	if e.fault = fault; fault != nil { // will not be sent: drop fields that may be large
		e.Text, e.IMEI = "", strings.Clone(e.IMEI[:min(len(e.IMEI), maxIMEI)])
	}
	return e
}

func read(m redis.XMessage, queued bool) (entry, error) {
	e := entry{at: m.ID, Command: Command{
		IMEI: field(m, "imei"), Text: field(m, "text"), Codec: 12,
		Queue: queued || field(m, "queue") == "true",
	}}
	if e.ID = field(m, "id"); !validID(e.ID) {
		e.ID = ""
		return e, errNoID
	}
	ms, err := strconv.ParseInt(m.ID[:max(0, strings.IndexByte(m.ID, '-'))], 10, 64)
	if err != nil {
		return e, fmt.Errorf("entry id %q", m.ID)
	}
	added := time.UnixMilli(ms)
	e.Expires = added.Add(lifetime)
	if e.Queue {
		e.Expires = added.Add(maxLifetime)
	}
	if _, err := teltonika.ParseIMEI(e.IMEI); err != nil {
		return e, errors.New("imei: want 15 digits")
	}
	if len(e.Text) == 0 || len(e.Text) > maxText {
		return e, fmt.Errorf("text: want 1 to %d bytes", maxText)
	}
	switch field(m, "codec") {
	case "", "12":
	case "14":
		e.Codec = 14
	default:
		return e, errors.New("codec: want 12 or 14")
	}
	if q := field(m, "queue"); q != "" && q != "true" && q != "false" {
		return e, errors.New("queue: want true or false")
	}
	if s := field(m, "expires"); s != "" {
		ms, err := strconv.ParseInt(s, 10, 64)
		if err != nil || ms < 0 || ms > added.Add(maxLifetime).UnixMilli() {
			return e, errors.New("expires: want unix ms, at most a day ahead")
		}
		e.Expires = time.UnixMilli(ms)
	}
	return e, nil
}

// validID accepts what needs no escaping in a key, a log line or JSON.
func validID(s string) bool {
	hidden := func(r rune) bool { return r <= ' ' || r > '~' }
	return s != "" && len(s) <= maxID && !strings.ContainsFunc(s, hidden)
}
