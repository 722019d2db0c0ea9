// Package scale reckons what a fleet costs its Redis servers. It plays a fleet through in virtual
// time: each master is a queue that serves one call after the other, and each call takes what it
// was measured to take. `make bench ARGS="-only=prices"` measures the prices on a real server, and
// `make bench ARGS="-only=predict"` compares what is reckoned here with a real, small Cluster.
//
//	prices, err := scale.ReadPrices("docs/prices.json")
//	fleet := scale.Fleet{Devices: 1e6, Replicas: 100}.WithDefaults(prices)
//	steady := scale.Simulate(prices, fleet, scale.Scenario{For: time.Minute})
//
// What is not in it: the network's bandwidth, forks to save a snapshot, replication, the Cluster's
// own gossip, and calls that fail and are tried again.
package scale

import (
	"encoding/json"
	"fmt"
	"os"
)

// The calls that have a price.
const (
	Trip     = "round trip"     // what any call or pipeline costs beside its commands
	Get      = "GET"            // in a pipeline: the floor, 1 by definition
	Script   = "small script"   // a renewal of the lease
	Beat     = "beat"           // beat.lua
	Tick     = "tick"           // tick.lua
	Register = "register"       // register.lua, each: a device
	Release  = "release"        // release.lua
	Heal     = "heal"           // heal.lua, of entries that are lost
	Check    = "check"          // HMGET of entries
	Lookup   = "look-up"        // lookup.lua
	Tell     = "PUBLISH"        // to the one that listens: a former owner
	Exists   = "EXISTS"         // each: a heartbeat, many in one command
	Left     = "PTTL"           // of a heartbeat, in a pipeline
	Members  = "SSCAN"          // each: a member of a set
	Entries  = "HSCAN"          // each: an entry of the registry
	Evict    = "evict"          // guard.lua and evict.lua
	Record   = "XADD"           // of a telemetry record, in a pipeline
	Move     = "move to a node" // MIGRATE of a registry, each: an entry; the CPU of both, since the one waits for the other
)

// coldAfter is for how long a server has stood idle that finds its caches cold: an assumption.
const coldAfter = 1000 // µs

// What has a size, in bytes.
const (
	EntryBytes    = "entry"       // of the registry
	IndexBytes    = "indexed"     // a member of an index that is large
	IntsBytes     = "indexed few" // a member of an index of at most intsMost
	IndexKeyBytes = "index"       // a replica's index itself, in each partition where it has one
	BeatBytes     = "heartbeat"   // a heartbeat and its member of the roster
)

// intsMost is the size up to which Redis keeps a set of numbers as an array of them
// (set-max-intset-entries).
const intsMost = 512

// Prices are what the calls of Rollcall cost a server, measured on one.
type Prices struct {
	Server string  `json:"server"`   // it was measured on
	Floor  float64 `json:"floor_us"` // µs of Redis CPU for a GET in a pipeline
	// Cold is how many times as much a small call costs a server that stood idle, and ColdMost how
	// many floors more it costs at most.
	Cold     float64            `json:"cold"`
	ColdMost float64            `json:"cold_most"`
	Calls    map[string]Price   `json:"calls"`
	Bytes    map[string]float64 `json:"bytes"`
}

// Price is what a call costs, in floors.
type Price struct {
	Fixed float64 `json:"fixed"`
	Each  float64 `json:"each"` // of the items that it carries
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

// us is what one call for n items costs, in µs, without the round trip.
func (p Prices) us(call string, n float64) float64 {
	return p.Floor*p.Calls[call].Fixed + n*p.each(call)
}

// each is what one more item costs in a call, in µs.
func (p Prices) each(call string) float64 { return p.Floor * p.Calls[call].Each }

// cold is how many µs more a call costs a server that stood idle for so many µs before.
func (p Prices) cold(work, idle float64) float64 {
	return min(max(0, p.Cold-1)*work, p.ColdMost*p.Floor) * min(1, idle/coldAfter)
}

// trip is what a call costs that is sent by itself, in µs.
func (p Prices) trip(call string, n float64) float64 { return p.us(Trip, 0) + p.us(call, n) }
