//go:build !unix

package main

// affordable is how many device sockets the descriptor limit allows: here nobody can say.
func affordable(want int) int { return want }

// descriptorsFor: the sockets that cannot be opened will say so.
func descriptorsFor(int) error { return nil }
