//go:build !unix

package cli

import "math"

// OpenFiles is unknown on this system.
func OpenFiles() int { return math.MaxInt }
