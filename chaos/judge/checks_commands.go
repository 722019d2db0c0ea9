package judge

import (
	"strings"

	"github.com/rollcall-redis/rollcall/chaos/history"
)

// c9 also judges what devices did, if that is known: no command is executed twice, by another
// device, or although its outcome is "not sent"; none has another's answer, unless marked
// ambiguous. At rest each command has an outcome.
type c9 struct {
	passive
	asked   map[string]string     // device, by command
	outcome map[string]conclusion // by command
}

type conclusion struct {
	status, text string
	ambiguous    bool
}

// OfItself is data that devices send unasked, as serial ports do. It is not part of another
// command's answer, though nothing on the wire distinguishes it.
const OfItself = "data of the device itself"

func newC9() *c9 { return &c9{asked: make(map[string]string), outcome: make(map[string]conclusion)} }

func (c *c9) before(m *moment) {
	if m.command[0] != "XADD" {
		return
	}
	if strings.HasPrefix(m.key(), m.facts.outbound("")) || m.key() == m.facts.queue() {
		_, f := history.StreamEntry(m.command)
		c.asked[f["id"]] = f["imei"]
	}
	if m.key() != m.facts.responses() {
		return
	}
	_, f := history.StreamEntry(m.command)
	id, o := f["id"], conclusion{f["status"], f["text"], f["ambiguous"] == "true"}
	if before, twice := c.outcome[id]; twice {
		m.violation("C9", "command %s has the outcome %s after %s", id, o.status, before.status)
	}
	c.outcome[id] = o
}

func (o conclusion) unsent() bool {
	switch o.status {
	case "not_connected", "busy", "expired", "invalid":
		return true
	case "instance_lost":
		return strings.HasSuffix(o.text, "before it was sent")
	}
	return false
}

func (c *c9) end(m *moment) {
	if m.facts.Executed == nil {
		return
	}
	times := make(map[string]int)
	for _, e := range m.facts.Executed {
		if times[e.Command]++; times[e.Command] == 2 {
			m.violation("C9", "command %s was executed twice", e.Command)
		}
		if imei, known := c.asked[e.Command]; known && imei != e.IMEI {
			m.violation("C9", "command %s for %s was executed by %s", e.Command, imei, e.IMEI)
		}
	}
	for id, o := range c.outcome {
		switch n := times[id]; {
		case o.ambiguous, o.status == "answered" && o.text == OfItself:
		case o.status == "answered" && n == 0:
			m.violation("C9", "command %s is said to be answered, and no device has executed it", id)
		case o.status == "answered" && !strings.HasSuffix(o.text, id):
			m.violation("C9", "command %s is said to be answered with %q, which is another's answer", id, o.text)
		case o.unsent() && n > 0:
			m.violation("C9", "command %s was executed, and its outcome is %s: %s", id, o.status, o.text)
		}
	}
	for id := range c.asked {
		if _, ok := c.outcome[id]; !ok && m.facts.Truth != nil {
			m.violation("C9", "command %s has no outcome", id)
		}
	}
}

// struck: nobody has to remember what a server forgot or was made to forget.
func (c *c9) struck(*moment) {
	clear(c.outcome)
	clear(c.asked)
}
