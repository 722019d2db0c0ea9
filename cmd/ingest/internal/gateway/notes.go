package gateway

import (
	"sync"
	"time"
)

const (
	// manyNotes bounds what is remembered of devices: a note counts as one, and each of its dead
	// letters as one more.
	manyNotes = 10_000
	// shareMost is how many dead letters one device has in its stream at most.
	shareMost = 100
)

// notes are what the gateway remembers of devices when their sockets have ended. Ordinary devices
// need none. When there are too many, any one is forgotten: then a line is logged once more, or a
// frame kept once more.
type notes struct {
	mu    sync.Mutex
	of    map[string]*note // by IMEI
	count int
}

type note struct {
	letters []letter  // the newest dead letters, oldest first
	faults  uint16    // bits of the kinds that were logged
	faulted time.Time // when the last fault was stored
	talks   uint8     // bits of codecs: see commandState.unsure
}

// letter is a dead letter in its stream.
type letter struct {
	frame string // the frame's id
	entry string // in the stream
}

func newNotes() *notes { return &notes{of: make(map[string]*note)} }

// change changes the note on a device.
func (n *notes) change(imei string, do func(*note)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	of := n.of[imei]
	if of == nil {
		of = new(note)
		n.count++
	}
	delete(n.of, imei) // so that it is not the one forgotten
	before := len(of.letters)
	do(of)
	n.count += len(of.letters) - before
	for any, victim := range n.of {
		if n.count <= manyNotes {
			break
		}
		delete(n.of, any)
		n.count -= 1 + len(victim.letters)
	}
	n.of[imei] = of
}

// talks returns the codecs in which a device is known to send responses that nobody asked for.
func (n *notes) talks(imei string) uint8 {
	n.mu.Lock()
	defer n.mu.Unlock()
	if of := n.of[imei]; of != nil {
		return of.talks
	}
	return 0
}

// letter returns the entry of a frame that is a dead letter already, or "". oldest is the entry to
// delete when another one is added; "": the device has not used up its share.
func (n *notes) letter(imei, frame string, share int) (entry, oldest string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	of := n.of[imei]
	if of == nil {
		return "", ""
	}
	for _, l := range of.letters {
		if l.frame == frame {
			entry = l.entry
		}
	}
	if len(of.letters) >= share {
		oldest = of.letters[0].entry
	}
	return entry, oldest
}

// addLetter notes a dead letter in place of the oldest one.
func (n *notes) addLetter(imei string, l letter, share int) {
	n.change(imei, func(of *note) {
		of.letters = append(of.letters, l)
		if beyond := len(of.letters) - share; beyond > 0 {
			of.letters = append([]letter(nil), of.letters[beyond:]...)
		}
	})
}
