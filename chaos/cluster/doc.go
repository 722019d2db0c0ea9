// Package cluster breaks Redis Clusters and Redis under Sentinel on which real replicas keep one
// partition, and judges the outcome by the append-only files of all nodes. It consists of tests;
// README.md explains how to run, read and add one.
package cluster
