package gateway

import (
	"sync"
	"time"
)

const (
	// manyNotes bounds the notes and their dead letters together.
	manyNotes = 10_000
	shareMost = 100
	// shareBytes are ten of the largest frames.
	shareBytes = 320 << 10
)

// notes is the memory of odd devices whose sockets have ended. At the bound an arbitrary one is
// forgotten: then a line is logged, or a frame kept, once more.
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

type letter struct {
	frame string // id
	entry string // in the stream
	size  int
}

func newNotes() *notes { return &notes{of: make(map[string]*note)} }

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

func (n *notes) talks(imei string) uint8 {
	n.mu.Lock()
	defer n.mu.Unlock()
	if of := n.of[imei]; of != nil {
		return of.talks
	}
	return 0
}

// letter returns the entry of a frame's dead letter.
func (n *notes) letter(imei, frame string) (entry string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if of := n.of[imei]; of != nil {
		for _, l := range of.letters {
			if l.frame == frame {
				entry = l.entry
			}
		}
	}
	return entry
}

// surplus returns the entries that a device gives up for a letter of this size.
func (n *notes) surplus(imei string, size, share int) (entries []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if of := n.of[imei]; of != nil {
		for _, l := range of.letters[:of.beyond(size, share)] {
			entries = append(entries, l.entry)
		}
	}
	return entries
}

// beyond returns how many of the oldest letters leave no room for another one.
func (n *note) beyond(size, share int) int {
	i := len(n.letters)
	for room := share - 1; i > 0 && room > 0 && size+n.letters[i-1].size <= shareBytes; i, room = i-1, room-1 {
		size += n.letters[i-1].size
	}
	return i
}

func (n *notes) addLetter(imei string, l letter, share int) {
	n.change(imei, func(of *note) {
		of.letters = append([]letter(nil), append(of.letters[of.beyond(l.size, share):], l)...)
	})
}
