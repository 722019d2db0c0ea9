// Scale calculates what a fleet would cost its Redis servers, from measured prices: see
// docs/scale.md.
//
//	make scale ARGS="-devices=100000000 -replicas=10000"
//	make scale ARGS=-table
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/bench/internal/scale"
)

func main() {
	var f scale.Fleet
	file := flag.String("prices", "bench/prices.json", "as make bench ARGS=\"-only=prices -out=FOLDER\" measured them")
	table := flag.Bool("table", false, "the table of docs/scale.md instead: fleets of four sizes, all else as the flags say")
	deaths := flag.Int("deaths", 1, "replicas that die at the same time")
	flag.IntVar(&f.Devices, "devices", 1_000_000, "entries of the registry")
	flag.IntVar(&f.Replicas, "replicas", 0, "that hold them (0: one for each 10,000 devices)")
	flag.IntVar(&f.Partitions, "partitions", 0, "of the registry (0: a power of two, 100,000 entries each at most)")
	flag.IntVar(&f.Masters, "masters", 0, "of the Cluster (0: as many as keep each below half a core; 1 or at least 3)")
	flag.IntVar(&f.Contenders, "contenders", 0, "for each partition's lease (0: 3)")
	flag.DurationVar(&f.Interval, "interval", 30*time.Second, "HEARTBEAT_INTERVAL; a heartbeat lasts three")
	flag.DurationVar(&f.Scan, "scan", time.Minute, "JANITOR_INTERVAL")
	flag.Float64Var(&f.Share, "share", 0.25, "JANITOR_REDIS_SHARE")
	flag.Float64Var(&f.Registrations, "registrations", 0, "a second, each also a release by the former owner (0: each device once an hour)")
	flag.Float64Var(&f.Lookups, "lookups", 0, "a second")
	flag.Float64Var(&f.Records, "records", 0, "of telemetry, a second, on the same servers")
	flag.Parse()

	prices, err := scale.ReadPrices(*file)
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
	if *table {
		printTable(prices, f, *deaths)
		return
	}
	printOne(prices, filled(prices, f), *deaths)
}

func filled(p scale.Prices, f scale.Fleet) scale.Fleet {
	if f.Replicas == 0 {
		f.Replicas = max(3, f.Devices/10_000)
	}
	if f.Registrations == 0 {
		f.Registrations = float64(f.Devices) / 3600
	}
	return f.WithDefaults(p)
}

type outcome struct {
	steady, death, flush scale.Result
	watched              time.Duration
}

func play(p scale.Prices, f scale.Fleet, deaths int) outcome {
	o := outcome{watched: max(f.Scan, 2*f.Interval)}
	o.steady = scale.Simulate(p, f, scale.Scenario{For: o.watched})
	o.death = scale.Simulate(p, f, scale.Scenario{Deaths: deaths})
	o.flush = scale.Simulate(p, f, scale.Scenario{Flush: true})
	return o
}

func printOne(p scale.Prices, f scale.Fleet, deaths int) {
	o := play(p, f, deaths)
	fmt.Printf("prices       %s, a GET in a pipeline %.2f µs\n", p.Server, p.Floor)
	fmt.Printf("fleet        %s devices on %s replicas, %.0f registrations/s, beats every %s\n",
		short(float64(f.Devices)), short(float64(f.Replicas)), f.Registrations, f.Interval)
	fmt.Printf("servers      %d partitions of %s entries on %d masters, %d contenders a partition\n",
		f.Partitions, short(float64(f.Devices)/float64(f.Partitions)), f.Masters, f.Contenders)
	fmt.Printf("Redis CPU    %.1f %% of a core on the busiest master, %.2f cores in all\n",
		percent(o.steady.Busiest(), o.watched), o.steady.Total().Seconds()/o.watched.Seconds())
	for _, what := range sorted(o.steady.By) {
		fmt.Printf("             %5.1f %%  %s\n", 100*o.steady.By[what].Seconds()/o.steady.Total().Seconds(), what)
	}
	fmt.Printf("             one call waited for its turn for %s\n", brief(o.steady.Waited))
	fmt.Printf("memory       %s, %s a master\n", bytes(scale.Memory(p, f)), bytes(scale.Memory(p, f)/float64(f.Masters)))
	fmt.Printf("a death      %d of %d replicas: last entry gone %s after their heartbeats' end, %s at most after the death\n",
		deaths, f.Replicas, brief(o.death.Took), brief(f.TTL+o.death.Took))
	fmt.Printf("FLUSHALL     all entries back after %s, the busiest master at %.0f %% meanwhile; one call waited %s%s\n",
		brief(o.flush.Took), percent(o.flush.Busiest(), o.flush.Took), brief(o.flush.Waited), late(o.flush))
	fmt.Printf("slot moved   its master stands still for %s\n", brief(scale.Blocked(p, f)))
}

func printTable(p scale.Prices, f scale.Fleet, deaths int) {
	rows := [][]string{
		{"devices"}, {"replicas"}, {"registrations a second"}, {"partitions"}, {"masters"}, {"Redis CPU, busiest master"},
		{"mostly for"}, {"memory, all masters"}, {"last entry gone, after the heartbeat's end"}, {"all back after a `FLUSHALL`"},
		{"longest wait of a call meanwhile"}, {"a slot's move blocks its master"},
	}
	for _, devices := range []int{10_000, 1_000_000, 10_000_000, 100_000_000} {
		one := f
		one.Devices, one.Replicas = devices, 0
		one = filled(p, one)
		o := play(p, one, deaths)
		dearest := sorted(o.steady.By)[0]
		for i, cell := range []string{
			short(float64(devices)), short(float64(one.Replicas)), fmt.Sprintf("%.0f", one.Registrations),
			fmt.Sprint(one.Partitions), fmt.Sprint(one.Masters), fmt.Sprintf("%.1f %%", percent(o.steady.Busiest(), o.watched)),
			fmt.Sprintf("%s, %.0f %%", dearest, 100*o.steady.By[dearest].Seconds()/o.steady.Total().Seconds()),
			bytes(scale.Memory(p, one)), brief(o.death.Took), brief(o.flush.Took), brief(o.flush.Waited) + late(o.flush),
			brief(scale.Blocked(p, one)),
		} {
			rows[i] = append(rows[i], cell)
		}
	}
	for i, row := range rows {
		fmt.Printf("| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			fmt.Println("|---|---|---|---|---|")
		}
	}
}

func late(r scale.Result) string {
	if r.Late == 0 {
		return ""
	}
	return fmt.Sprintf(", %d calls too long", r.Late)
}

func sorted(by map[string]time.Duration) []string {
	var names []string
	for name := range by {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return int(by[b] - by[a]) })
	return names
}

func percent(part, of time.Duration) float64 { return 100 * part.Seconds() / of.Seconds() }

// brief formats a duration with about three digits.
func brief(d time.Duration) string {
	switch {
	case d >= time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(100 * time.Microsecond).String()
	}
	return d.Round(time.Microsecond).String()
}

func short(n float64) string {
	switch {
	case n >= 1e6:
		return fmt.Sprintf("%.4g M", n/1e6)
	case n >= 1e3:
		return fmt.Sprintf("%.4g k", n/1e3)
	}
	return fmt.Sprintf("%.4g", n)
}

func bytes(n float64) string {
	if n >= 1e9 {
		return fmt.Sprintf("%.1f GB", n/1e9)
	}
	return fmt.Sprintf("%.1f MB", n/1e6)
}
