// Package scale calculates what a fleet costs its Redis servers. It simulates a fleet in virtual
// time: each master is a queue that serves one call after the other, and each call takes as long as
// it was measured to take. `make bench ARGS="-only=prices"` measures the prices, and `make bench
// ARGS="-only=predict"` compares the predictions with a real, small Cluster.
//
//	prices, err := scale.ReadPrices("bench/prices.json")
//	fleet := scale.Fleet{Devices: 1e6, Replicas: 100}.WithDefaults(prices)
//	steady := scale.Simulate(prices, fleet, scale.Scenario{For: time.Minute})
//
// It omits the network's bandwidth, forks to save a snapshot, replication, the Cluster's own
// gossip, and calls that fail and are retried.
package scale

import (
	"encoding/json"
	"fmt"
	"os"
)

// The calls that have a price.
const (
	Trip     = "round trip"   // of any call or pipeline
	Get      = "GET"          // in a pipeline: the floor, 1 by definition
	Script   = "small script" // a renewal of the lease
	Beat     = "beat"
	Tick     = "tick"
	Register = "register" // each: a device
	Release  = "release"
	Heal     = "heal"  // of lost entries
	Check    = "check" // HMGET of entries
	Lookup   = "look-up"
	Tell     = "PUBLISH" // to one subscriber, a former owner
	Exists   = "EXISTS"  // each: a heartbeat, many in one command
	Left     = "PTTL"    // a heartbeat, in a pipeline
	Members  = "SSCAN"   // each: a member of a set
	Entries  = "HSCAN"   // each: an entry of the registry
	Evict    = "evict"   // guard.lua and evict.lua
	Record   = "XADD"    // of a telemetry record, in a pipeline
	// Move is MIGRATE of a registry, each: an entry. It is the CPU of both nodes, since one waits for
	// the other.
	Move = "move to a node"
)

// coldAfter is an assumption: when an idle server's caches are cold.
const coldAfter = 1000 // µs

// Sizes, in bytes.
const (
	EntryBytes    = "entry"       // of the registry
	IndexBytes    = "indexed"     // in a large index
	IntsBytes     = "indexed few" // in an index of at most intsMost
	IndexKeyBytes = "index"       // of a replica, in each partition where it has one
	BeatBytes     = "heartbeat"   // with its record and its member of the roster
)

// intsMost is the largest set of numbers that Redis keeps as an array (set-max-intset-entries).
const intsMost = 512

// Prices were measured on a server.
type Prices struct {
	Server string  `json:"server"`
	Floor  float64 `json:"floor_us"` // µs of CPU for a GET in a pipeline
	// Cold multiplies a small call on a server that was idle, by ColdMost floors at most.
	Cold     float64            `json:"cold"`
	ColdMost float64            `json:"cold_most"`
	Calls    map[string]Price   `json:"calls"`
	Bytes    map[string]float64 `json:"bytes"`
}

// Price is counted in floors.
type Price struct {
	Fixed float64 `json:"fixed"`
	Each  float64 `json:"each"` // of its items
}

// ReadPrices reads a measurement.
func ReadPrices(file string) (Prices, error) {
	var p Prices
	text, err := os.ReadFile(file)
	if err != nil {
		return p, err
	}
	if err := json.Unmarshal(text, &p); err != nil {
		return p, fmt.Errorf("%s: %w", file, err)
	}
	for _, call := range []string{
		Trip, Get, Script, Beat, Tick, Register, Release, Heal, Check, Lookup, Tell, Exists, Left, Members,
		Entries, Evict, Record, Move,
	} {
		if _, ok := p.Calls[call]; !ok {
			return p, fmt.Errorf("%s: no price of %q", file, call)
		}
	}
	for _, what := range []string{EntryBytes, IndexBytes, IntsBytes, IndexKeyBytes, BeatBytes} {
		if _, ok := p.Bytes[what]; !ok {
			return p, fmt.Errorf("%s: no size of %q", file, what)
		}
	}
	return p, nil
}

// us returns a call's cost for n items, in µs, without the round trip.
func (p Prices) us(call string, n float64) float64 {
	return p.Floor*p.Calls[call].Fixed + n*p.each(call)
}

// each returns an item's cost in µs.
func (p Prices) each(call string) float64 { return p.Floor * p.Calls[call].Each }

// cold returns what idleness adds, in µs.
func (p Prices) cold(work, idle float64) float64 {
	return min(max(0, p.Cold-1)*work, p.ColdMost*p.Floor) * min(1, idle/coldAfter)
}

// trip returns the cost of a call that is sent by itself, in µs.
func (p Prices) trip(call string, n float64) float64 { return p.us(Trip, 0) + p.us(call, n) }
