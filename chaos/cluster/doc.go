// Package cluster breaks Redis Clusters and Redis under Sentinel on which real replicas keep one
// partition or more, and judges the outcome by the append-only files of all nodes, also of a
// replaced master. It consists of tests; ../README.md explains how to run one, and package chaos
// how to read it.
//
//   - An entry is evicted only if its owner was killed before, or did not run for about as long as
//     a heartbeat lasts.
//   - An eviction equals its record. No entry is deleted without a record, except by its owner, and
//     never one whose socket is open.
//   - Only in SentinelSplit, actions of the replaced master are not judged.
//   - At rest registry, indexes and roster are what the replicas hold, and the total is the sum of
//     the log's records. A row in which nothing of a killed replica was swept fails.
//
// bus_test.go leads the Cluster's bus through links in the test's process, which needs Linux
// (bind-source-addr), and no root.
package cluster
