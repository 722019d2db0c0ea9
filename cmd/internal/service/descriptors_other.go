//go:build !unix

package service

import "math"

// OpenFiles is how many files this process may open: on this system the limit is not known.
func OpenFiles() int { return math.MaxInt }
