package scale

import (
	"cmp"
	"math"
	"time"
)

const (
	// maxPartition: moving a slot to another master blocks the source for the whole move.
	maxPartition = 100_000
	// leastPartitions lets a Cluster add masters.
	leastPartitions = 16
	// fullSeats and leastSeats contend first: see package partition.
	fullSeats, leastSeats = 32, 3
	// Most cores of a master in the steady state, and while owners restore everything.
	busy, healing = 0.5, 0.8
	// Limits of the registry and the janitor.
	batch = 500
	page  = 1000
	tenth = 10 // beats until every claim is checked
	slice = 500
	looks = 1 // full readings of the roster in a heartbeat interval
	burst = time.Second / 2
	// Of full scans that find nothing.
	fullScanShare = 0.0005
	longestGap    = 15 * time.Minute
)

// Fleet takes defaults for zeros.
type Fleet struct {
	Devices    int // entries
	Replicas   int // of devices
	Partitions int // a power of two; default: 1 if one server will do, else see Partitions
	Masters    int // default: see Masters
	Contenders int // first in line for each partition's lease; default 32 in all, 3 at least

	Interval, TTL time.Duration // 30 s and three times that by default
	LeaseTTL      time.Duration // default 15 s
	Scan          time.Duration // JANITOR_INTERVAL, default 60 s: see scanEvery
	Share         float64       // of a server's time, for all sweeps; default 0.25
	RTT           time.Duration // default 0.2 ms

	// A second, in all.
	Registrations float64 // to another replica; see moving
	Lookups       float64
	Records       float64 // telemetry, spread over all masters
}

// WithDefaults fills in zeros.
func (f Fleet) WithDefaults(p Prices) Fleet {
	f.Replicas = max(1, f.Replicas)
	f.Interval = cmp.Or(f.Interval, 30*time.Second)
	f.TTL = cmp.Or(f.TTL, 3*f.Interval)
	f.LeaseTTL = cmp.Or(f.LeaseTTL, 15*time.Second)
	f.Scan = cmp.Or(f.Scan, time.Minute)
	f.Share = cmp.Or(f.Share, 0.25)
	f.RTT = cmp.Or(f.RTT, 200*time.Microsecond)
	if f.Partitions == 0 {
		one := f
		one.Partitions, one.Contenders = 1, min(cmp.Or(f.Contenders, fullSeats), f.Replicas)
		if f.Partitions = 1; f.Masters > 1 || Masters(p, one) > 1 {
			f.Partitions = Partitions(f.Devices)
		}
	}
	f.Contenders = min(cmp.Or(f.Contenders, max(leastSeats, fullSeats/f.Partitions)), f.Replicas)
	f.Masters = cmp.Or(f.Masters, Masters(p, f))
	return f
}

// Partitions returns the least power of two, from 16 on, with at most 100,000 entries in each.
func Partitions(devices int) int {
	n := leastPartitions
	for devices > n*maxPartition {
		n *= 2
	}
	return n
}

// Load returns the work of all masters in the steady state, in cores, with warm caches: the formula
// of docs/scale.md.
func Load(p Prices, f Fleet) float64 { return sum(loads(p, f)) }

func loads(p Prices, f Fleet) map[string]float64 {
	r, n, parts := float64(f.Replicas), float64(f.Devices), float64(f.Partitions)
	trips := math.Min(parts, math.Max(1, float64(f.Masters))) // of a replica's beats
	claims := n / r / parts                                   // of a replica in a partition
	beat, gap := f.Interval.Seconds(), (f.TTL-f.Interval).Seconds()/2
	renew := f.LeaseTTL.Seconds() / 3
	others := float64(f.Contenders - 1)
	us := map[string]float64{
		kinds[beats]:  r * (trips*p.us(Trip, 0) + parts*p.us(Beat, 0)) / beat,
		kinds[checks]: r * parts / beat * checking(p, claims) / tenth,
		kinds[ticks]: parts*ticking(p)*(1/(gap/5)+others/(gap/3)) +
			parts*(p.trip(Script, 0)/renew+others*asking(p)/(2.5*renew)) +
			(r-float64(f.Contenders))*(f.reading(p)/(gap/2)+f.looking(p)/f.LeaseTTL.Seconds()) +
			r*ranking(p, r)/f.ranksEvery().Seconds(),
		kinds[readings]:      parts * fullReading(p, r) * looks / beat,
		kinds[scans]:         n/page*p.trip(Entries, page)/f.scanEvery(p).Seconds() + parts*counting(p, r)/f.Scan.Seconds(),
		kinds[registrations]: f.Registrations * (p.trip(Register, 1) + moving(p)),
		kinds[lookups]:       f.Lookups * p.trip(Lookup, 1),
		kinds[records]:       f.Records * p.us(Record, 1),
	}
	for what := range us {
		us[what] /= 1e6
	}
	return us
}

func (f Fleet) scanEvery(p Prices) time.Duration {
	once := micros(float64(f.Devices) / float64(f.Partitions) / page * p.trip(Entries, page))
	return max(f.Scan, min(time.Duration(float64(once)/fullScanShare), longestGap))
}

// counting asks for the size of each of r replicas' indexes.
func counting(p Prices, r float64) float64 { return math.Ceil(r/slice)*p.us(Trip, 0) + r*p.us(Left, 0) }

func checking(p Prices, claims float64) float64 {
	return math.Max(1, claims/batch)*p.trip(Check, 0) + claims*p.each(Check)
}

// moving is added if another replica held the device: it is notified, looks, and releases its own.
func moving(p Prices) float64 { return p.us(Tell, 0) + p.trip(Check, 1) + p.trip(Release, 1) }

// ticking reads and writes the witness, the holder, the pause and its own heartbeat.
func ticking(p Prices) float64 { return p.trip(Tick, 0) + 5*p.us(Get, 0) }

// ranking looks at a partition's contenders.
func ranking(p Prices, r float64) float64 {
	return p.trip(Get, 0) + r*p.each(Members) + math.Ceil(r/slice)*p.us(Trip, 0) + r*p.us(Left, 0)
}

func (f Fleet) ranksEvery() time.Duration {
	return (f.TTL - f.Interval) / 2 * time.Duration(max(1, f.Replicas/10))
}

// spared is what a reserve's tick, which only reads, costs beside a contender's.
const spared = 0.4

// reading looks at all partitions every GAP/2, and at the leases once a TTL: a pipeline a master
// each.
func (f Fleet) reading(p Prices) float64 {
	return f.pipelines(p) + float64(f.Partitions)*(spared*p.us(Tick, 0)+5*p.us(Get, 0))
}

func (f Fleet) looking(p Prices) float64 {
	return f.pipelines(p) + float64(f.Partitions)*3*p.us(Get, 0)
}

func (f Fleet) pipelines(p Prices) float64 {
	return float64(min(f.Partitions, max(1, f.Masters))) * p.us(Trip, 0)
}

// share is one partition's: see package partition.
func (f Fleet) share() float64 {
	if f.Partitions == 1 {
		return f.Share
	}
	return math.Max(0.005, math.Min(f.Share, f.Share*3/float64(f.Partitions)))
}

// asking looks at the lease: value, time left, epoch.
func asking(p Prices) float64 { return p.trip(Get, 0) + 2*p.us(Get, 0) }

// fullReading reads the records of r replicas, and the roster.
func fullReading(p Prices, r float64) float64 {
	return math.Ceil(r/page)*p.trip(Script, 0) + r*(p.each(Entries)+p.each(Members))
}

// Masters returns how many keep each below half a core in the steady state, and below 0.8 while all
// entries are restored within one interval: 1, or at least 3, because Redis Cluster has no fewer.
func Masters(p Prices, f Fleet) int {
	enough := func(masters int) bool {
		f.Masters = masters
		return Load(p, f) <= busy*float64(masters) && Load(p, f)+Healing(p, f) <= healing*float64(masters)
	}
	if enough(1) {
		return 1
	}
	n := 3
	for !enough(n) && n < 10_000 {
		n++
	}
	return n
}

// Healing is added to Load for one interval after all entries were lost.
func Healing(p Prices, f Fleet) float64 {
	claims := float64(f.Devices) / float64(f.Replicas) / float64(f.Partitions)
	calls := math.Ceil(claims / batch)
	each := calls*(p.trip(Check, 0)+p.trip(Heal, 0)) + claims*(p.each(Check)+p.each(Heal))
	return float64(f.Replicas) * float64(f.Partitions) * each / 1e6 / f.Interval.Seconds()
}

// Memory returns the size of all keys in bytes.
func Memory(p Prices, f Fleet) float64 {
	n, pairs := float64(f.Devices), float64(f.Replicas)*float64(f.Partitions)
	indexed := p.Bytes[IndexBytes]
	if n/pairs <= intsMost {
		indexed = p.Bytes[IntsBytes]
	}
	return n*(p.Bytes[EntryBytes]+indexed) + pairs*p.Bytes[BeatBytes] + math.Min(n, pairs)*p.Bytes[IndexKeyBytes]
}

// Blocked returns how long a master stalls while one partition's slot is moved away.
func Blocked(p Prices, f Fleet) time.Duration {
	return micros(p.us(Move, float64(f.Devices)/float64(f.Partitions)))
}

func micros(us float64) time.Duration { return time.Duration(us * float64(time.Microsecond)) }

func sum(m map[string]float64) (total float64) {
	for _, v := range m {
		total += v
	}
	return total
}
