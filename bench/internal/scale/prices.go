// Package scale calculates what a fleet costs its Redis servers. It simulates a fleet in virtual
// time: each master is a queue that serves one call after the other, and each call takes as long
// as it was measured to take. `make bench ARGS="-only=prices"` measures the prices on a real
// server, and `make bench ARGS="-only=predict"` compares the predictions with a real, small
// Cluster.
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
	Trip     = "round trip"   // the overhead of any call or pipeline
	Get      = "GET"          // in a pipeline: the floor, 1 by definition
	Script   = "small script" // a renewal of the lease
	Beat     = "beat"         // beat.lua
	Tick     = "tick"         // tick.lua
	Register = "register"     // register.lua, each: a device
	Release  = "release"      // release.lua
	Heal     = "heal"         // heal.lua, of entries that are lost
	Check    = "check"        // HMGET of entries
	Lookup   = "look-up"      // lookup.lua
	Tell     = "PUBLISH"      // to the one subscriber, a former owner
	Exists   = "EXISTS"       // each: a heartbeat, many in one command
	Left     = "PTTL"         // of a heartbeat, in a pipeline
	Members  = "SSCAN"        // each: a member of a set
	Entries  = "HSCAN"        // each: an entry of the registry
	Evict    = "evict"        // guard.lua and evict.lua
	Record   = "XADD"         // of a telemetry record, in a pipeline
	// Move is MIGRATE of a registry, each: an entry. It is the CPU of both nodes, since one waits for
	// the other.
	Move = "move to a node"
)

// coldAfter is the idle time after which a server's caches are cold: an assumption.
const coldAfter = 1000 // µs

// Sizes, in bytes.
const (
	EntryBytes    = "entry"       // of the registry
	IndexBytes    = "indexed"     // a member of a large index
	IntsBytes     = "indexed few" // a member of an index of at most intsMost
	IndexKeyBytes = "index"       // the index of a replica itself, in each partition where it has one
	BeatBytes     = "heartbeat"   // a heartbeat and its member of the roster
)

// intsMost is the size up to which Redis keeps a set of numbers as an array
// (set-max-intset-entries).
const intsMost = 512

// Prices are the costs of Rollcall's calls to a server, as measured on one.
type Prices struct {
	Server string  `json:"server"`   // the one measured
	Floor  float64 `json:"floor_us"` // µs of Redis CPU for a GET in a pipeline
	// Cold multiplies the cost of a small call on a server that was idle, and ColdMost is the most
	// floors that this adds.
	Cold     float64            `json:"cold"`
	ColdMost float64            `json:"cold_most"`
	Calls    map[string]Price   `json:"calls"`
	Bytes    map[string]float64 `json:"bytes"`
}

// Price is the cost of a call, in floors.
type Price struct {
	Fixed float64 `json:"fixed"`
	Each  float64 `json:"each"` // of its items
}

// ReadPrices reads them as the measurement wrote them.
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

// us is the cost of one call for n items, in µs, without the round trip.
func (p Prices) us(call string, n float64) float64 {
	return p.Floor*p.Calls[call].Fixed + n*p.each(call)
}

// each is the cost of one more item in a call, in µs.
func (p Prices) each(call string) float64 { return p.Floor * p.Calls[call].Each }

// cold is the extra cost of a call to a server that was idle before; all in µs.
func (p Prices) cold(work, idle float64) float64 {
	return min(max(0, p.Cold-1)*work, p.ColdMost*p.Floor) * min(1, idle/coldAfter)
}

// trip is the cost of a call that is sent by itself, in µs.
func (p Prices) trip(call string, n float64) float64 { return p.us(Trip, 0) + p.us(call, n) }
