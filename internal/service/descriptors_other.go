//go:build !unix

package service

import "math"

// OpenFiles is how many files this process may open. Here the sockets that cannot be opened say so.
func OpenFiles() int { return math.MaxInt }
