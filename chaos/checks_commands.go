package chaos

// c9: no command has two outcomes.
type c9 struct {
	passive
	outcome map[string]string // by the command's id
}

func newC9() *c9 { return &c9{outcome: make(map[string]string)} }

func (c *c9) before(m *moment) {
	if m.command[0] != "XADD" || m.key() != m.facts.responses() {
		return
	}
	var id, status string
	_, fields := streamEntry(m.command)
	for i := 0; i+1 < len(fields); i += 2 {
		switch fields[i] {
		case "id":
			id = fields[i+1]
		case "status":
			status = fields[i+1]
		}
	}
	if before, twice := c.outcome[id]; twice {
		m.violation("C9", "command %s has the outcome %s after %s", id, status, before)
	}
	c.outcome[id] = status
}

// struck: what a server has forgotten, or somebody made it forget, nobody can be asked to remember.
func (c *c9) struck(*moment) { clear(c.outcome) }
