package sim

import (
	"cmp"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/rollcall-redis/rollcall/internal/teltonika"
)

const (
	// MostDevices is the most in one simulation.
	MostDevices = 1_000_000
	// MostBacklog is what a real device can store.
	MostBacklog = 192_000
	// MostRecords fit in the frame of 1,280 bytes that trackers document.
	MostRecords = 10

	// MostFirstIMEI leaves room to count up.
	MostFirstIMEI = 99_999_999_999_999 - MostDevices

	firstIMEI = 35_630_704_000_000 // the fifteenth digit is the check digit
)

// Config describes a simulation. ingest simulate -h explains the fields, which are its flags, and
// their defaults.
type Config struct {
	Devices    int
	Targets    []string
	Interval   time.Duration
	Records    int
	Codec      teltonika.Codec
	Backlog    int
	HalfOpen   float64
	Seed       uint64
	FirstIMEI  uint64
	LadderUnit time.Duration
	Timeout    time.Duration
	// Ramp is the time within which devices are switched on. Default Interval, 10 s at most.
	Ramp time.Duration
	// Acknowledged, if not nil, is called for each frame, on any goroutine. It may keep the
	// records.
	Acknowledged func(imei string, records []teltonika.Record)
}

func (c Config) withDefaults() Config {
	c.Interval = cmp.Or(c.Interval, 10*time.Second)
	c.Records = cmp.Or(c.Records, 1)
	c.Codec = cmp.Or(c.Codec, teltonika.Codec8)
	c.FirstIMEI = cmp.Or(c.FirstIMEI, firstIMEI)
	c.LadderUnit = cmp.Or(c.LadderUnit, time.Minute)
	c.Timeout = cmp.Or(c.Timeout, 30*time.Second)
	c.Ramp = cmp.Or(c.Ramp, min(c.Interval, 10*time.Second))
	return c
}

// check leaves the other fields to callers: see "ingest simulate".
func (c Config) check() error {
	for _, t := range c.Targets {
		host, port, err := net.SplitHostPort(t)
		if n, bad := strconv.ParseUint(port, 10, 16); err != nil || host == "" || bad != nil || n == 0 {
			return fmt.Errorf("sim: expected a target as host:port, got %q", t)
		}
	}
	return nil
}

func imeiOf(first uint64, i int) string {
	digits := fmt.Sprintf("%014d", first+uint64(i))
	for check := byte('0'); check <= '9'; check++ {
		if imei := digits + string(check); teltonika.LuhnValid(imei) {
			return imei
		}
	}
	panic("sim: no check digit for " + digits) // one of ten always matches
}
