// Package bench measures what Rollcall costs, on a real Redis of its own. One run measures the
// floor (the cheapest way to do the same work, without any safety), the peers (the alternatives)
// and ours side by side, so that its ratios hold on any machine, however slow or busy.
// README.md explains how to read them.
//
// The package contains only tests. Without arguments they run every scenario at a small size, so
// that the measuring code stays as correct as the measured:
//
//	go test ./bench/
//	go test ./bench/ -run '^TestMeasure$' -v -timeout 60m -args -size=default
package bench
