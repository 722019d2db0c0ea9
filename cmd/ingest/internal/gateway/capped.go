package gateway

import "sync"

const (
	// messageBytes and deadBytes bound all streams of their kind. An entry has its bytes as hex.
	messageBytes, deadBytes = 256 << 20, 64 << 20
	// entryCost is what an entry takes beside its bytes.
	entryCost = 256
	// finely is in how many parts a capped stream's size is known.
	finely = 64
)

// capped is a stream with a bound in entries and in bytes. Redis trims by entries only, so it gets
// the number of newest entries that fit, judged by those that this replica has added.
type capped struct {
	name        string
	most, bytes int64

	mu    sync.Mutex
	parts []part // of the newest entries, oldest first
	sum   part
	full  bool
}

type part struct{ entries, bytes int64 }

func (p *part) add(entries, bytes int64) {
	p.entries += entries
	p.bytes += bytes
}

// room returns the stream's bound in entries when one of this size is added.
func (c *capped) room(size int) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.parts); n == 0 || c.parts[n-1].bytes >= c.bytes/finely {
		c.parts = append(c.parts, part{})
	}
	cost := int64(entryCost + 2*size)
	c.parts[len(c.parts)-1].add(1, cost)
	c.sum.add(1, cost)
	for c.sum.bytes > c.bytes && len(c.parts) > 1 {
		c.sum.add(-c.parts[0].entries, -c.parts[0].bytes)
		c.parts, c.full = c.parts[1:], true
	}
	if c.full {
		return min(c.most, c.sum.entries)
	}
	return c.most
}
