//go:build unix

package main

import "syscall"

// reserve is how many descriptors a replica needs beside device sockets: for Redis' pools, HTTP, listeners.
const reserve = 256

// affordable is how many device sockets the descriptor limit allows. Without it a flood of devices takes the
// descriptors that Redis is dialled with, and a replica that has lost Redis once never finds it again.
func affordable(want int) int {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil || uint64(l.Cur) >= uint64(want)+reserve {
		return want
	}
	return max(1, int(l.Cur)-min(reserve, int(l.Cur)/2))
}
