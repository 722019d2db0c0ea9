package simulate

import (
	"slices"

	"github.com/rollcall-redis/rollcall/internal/teltonika"
	"github.com/rollcall-redis/rollcall/internal/teltonika/device"
)

// backlog keeps a bookmark of the track per frame: the records would take many times as much
// memory.
type backlog struct {
	marks []device.Track // oldest first
	left  int            // records
}

func (b *backlog) store(track *device.Track, n int) {
	if n == 0 {
		return
	}
	b.left = n
	b.marks = make([]device.Track, 0, (n+MostRecords-1)/MostRecords)
	// The oldest frame is the one that is not full.
	for size := (n-1)%MostRecords + 1; n > 0; n, size = n-size, MostRecords {
		b.marks = append(b.marks, *track)
		track.Next(size)
	}
}

func (b *backlog) take() []teltonika.Record {
	if b.left == 0 {
		return nil
	}
	size := MostRecords
	if len(b.marks) == 1 {
		size = b.left
	}
	last := len(b.marks) - 1
	records := b.marks[last].Next(size)
	b.marks = b.marks[:last]
	b.left -= size
	slices.Reverse(records)
	return records
}
