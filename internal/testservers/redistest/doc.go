// Package redistest gives tests the Redis they need.
//
//   - [Start]: the test's own redis-server, to stop, kill, restart and fill. [StartNamed] takes
//     another version or make than the one that all tests run on.
//   - [Shared]: one real server for the whole test binary. A test owns only the keys under its
//     [Prefix] there.
//   - [StartCluster]: the test's own Redis Cluster of such servers.
//   - [StartSentinels]: Sentinels that watch such a server.
//   - [CLI]: the redis-cli of the server that all tests run on.
//   - [Worlds]: one suite, two servers. A script that passes only on miniredis has not been tested;
//     one that passes only on Redis cannot run embedded.
//   - [Fake]: miniredis inside a testing/synctest bubble, where a day of expiring keys takes
//     milliseconds.
//
// Packages that use it need a TestMain that calls [Main].
//
// The server, 7.0 or newer, comes from REDIS_SERVER, the PATH, or .cache/redis below the module's
// root, where "make redis" puts it. A missing server fails a test; it never skips one.
//
// This package only touches servers that report the process id that it started. On Linux the kernel
// kills them when the test binary dies, however that happens.
package redistest
