//go:build !unix

package main

import "math"

// openFiles is how many files this process may open. Here the sockets that cannot be opened say so.
func openFiles() int { return math.MaxInt }
