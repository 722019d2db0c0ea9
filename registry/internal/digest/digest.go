// Package digest has digests of sets of entries, with which a leader's full scan vouches for the
// claims of owners.
package digest

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Parts is the number of parts of a digest. A device that comes or goes during a scan makes only
// one of them incomparable.
const Parts = 16

// A Digest is the set of an owner's entries: for each part, the sum of the hashes of its ids. Equal
// digests mean equal sets, except with a probability of 2^-64.
type Digest [Parts]uint64

// Part returns the part of an id.
func Part(id string) int { return part(xxhash.Sum64String(id)) }

func part(hash uint64) int { return int(hash >> 60) }

// Add adds an id, which must not be in the digest.
func (d *Digest) Add(id string) {
	hash := xxhash.Sum64String(id)
	d[part(hash)] += hash
}

// Remove removes an id, which must be in the digest.
func (d *Digest) Remove(id string) {
	hash := xxhash.Sum64String(id)
	d[part(hash)] -= hash
}

// A Finding is the finding of a full scan about one owner, as stored in guard.Layout.Scanned.
type Finding struct {
	Count        int
	Took, Expiry time.Duration // of the scan; of the key, when it was written
	Digest       Digest
	Scan         uint64 // its id, never parsed: it makes equal findings of two scans differ
}

// String returns the text that Parse reads.
func (f Finding) String() string {
	bytes := make([]byte, 0, 8*Parts)
	for _, part := range f.Digest {
		bytes = binary.BigEndian.AppendUint64(bytes, part)
	}
	return fmt.Sprintf("%d %d %d %x %x", f.Count, f.Took.Milliseconds(), f.Expiry.Milliseconds(), bytes, f.Scan)
}

// Parse reads the text of a Finding, without Scan.
func Parse(text string) (f Finding, err error) {
	var took, expiry int64
	var digits string
	if _, err := fmt.Sscan(text, &f.Count, &took, &expiry, &digits); err != nil {
		return f, err
	}
	bytes, err := hex.DecodeString(digits)
	if err != nil || len(bytes) != 8*Parts {
		return f, errors.Join(err, fmt.Errorf("registry: a digest of %d bytes", len(bytes)))
	}
	for i := range f.Digest {
		f.Digest[i] = binary.BigEndian.Uint64(bytes[8*i:])
	}
	f.Took, f.Expiry = time.Duration(took)*time.Millisecond, time.Duration(expiry)*time.Millisecond
	return f, nil
}
