// Package redistest gives tests the Redis they need: a process of the real
// server, the in-process imitation, or the same cases on both.
//
//   - [Start]: a redis-server of the test's own, to be stopped, killed,
//     restarted and filled up as the test likes. [StartNamed] takes another
//     version or make than the one that all tests run on.
//   - [Shared]: one real server for the whole test binary. A test owns the keys
//     under its [Prefix] there and nothing else.
//   - [StartCluster]: a Redis Cluster of the test's own, of such servers.
//   - [StartSentinels]: Sentinels that watch such a server.
//   - [CLI]: the redis-cli of the server that all tests run on.
//   - [Worlds]: one suite, two servers. A script that passes only on miniredis
//     has not been tested, one that passes only on Redis cannot run embedded.
//   - [Fake]: miniredis inside a testing/synctest bubble, where a day of
//     expiring keys takes milliseconds.
//
// A package that uses it has a TestMain that calls [Main], which stops the
// shared server and fails the package when goroutines are left.
//
// The server is found by the environment's REDIS_SERVER, else as redis-server
// on the PATH, else in .cache/redis below the module's root, where "make redis"
// puts it. It has to be 7.0 or newer. A missing server fails a test, it never
// skips one.
//
// No server is ever touched that this package did not start: it listens on
// 127.0.0.1 only, a server that answers must name the process id that was
// started, and it is ended by that process. On Linux the kernel kills it when
// the test binary dies, however that happens.
package redistest
