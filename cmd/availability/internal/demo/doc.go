// Package demo shows the program availability at work, on servers of its own with a simulated
// workforce. Apps die without a word, the leader is killed, Redis is emptied, Postgres is
// restarted. At the end Redis, Postgres and the apps must agree, and nobody may have been set
// offline too soon after an acknowledged heartbeat.
package demo
