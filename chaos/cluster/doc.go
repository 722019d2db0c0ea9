// Package cluster breaks Redis Clusters and Redis behind Sentinel, on which real replicas keep one
// partition, and judges what became of it by the append-only files of all nodes. It consists of
// tests; README.md says how to run, to read and to add one.
package cluster
