// Package demo shows the program availability at work: three replicas of it, a
// simulated workforce, a PostgreSQL and a Redis or Valkey of its own. It breaks things meanwhile:
// apps die without a word, the leading replica is killed, Redis is emptied, Postgres is restarted,
// a key is changed by hand. At the end Redis, Postgres and the apps have to agree, and nobody may
// have been set offline too soon after a heartbeat that was acknowledged.
package demo
