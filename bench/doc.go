// Package bench measures what Rollcall costs, on a real Redis of its own. One run measures side by
// side the floor (the cheapest way to do the same work, without any safety), the peers (what one
// might do instead) and ours, so that its ratios hold on any machine, however slow or busy.
// BENCHMARKS.md says how to read them.
//
// The package holds nothing but tests. Without arguments they try every scenario out at a small
// size, so that what measures stays as true as what is measured:
//
//	go test ./bench/
//	go test ./bench/ -run '^TestMeasure$' -v -timeout 60m -args -size=default -out=../docs
//	go test ./bench/ -run '^$' -bench . -benchmem -count 10
package bench
