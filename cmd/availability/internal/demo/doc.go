// Package demo shows the program availability at work, with three replicas, a simulated
// workforce, and a PostgreSQL and a Redis or Valkey of its own. Meanwhile it breaks things: apps
// die without a word, the leading replica is killed, Redis is emptied, Postgres is restarted, a
// key is changed by hand. At the end Redis, Postgres and the apps must agree, and nobody may have
// been set offline too soon after an acknowledged heartbeat.
package demo
