// Package search looks at random for events after which the registry is not what it promises to be.
// It runs whole replicas (package partition, with everything below it) on one modelled server, in
// virtual time, plays random steps, and asks an oracle that knows which sockets are open:
//
//   - nothing of a living owner is deleted that beat in time, that the server itself kept from
//     beating, or that fell silent together with most of the fleet before a hold was raised for it;
//   - somebody leads each partition while a replica that may lead reaches the server;
//   - when all is quiet again every open socket is routable, also while sweeping is paused or dry;
//   - then nothing else is left, unless sweeping is paused or dry.
//
// TestSearchOfPoisonedKeys plays the same steps beside somebody who writes any value of any type
// into any key. When all is quiet the keys that the runbook names are deleted, and no others.
//
// Package janitor has a search of its own, of the guard's scripts and the leader's sweeps alone, on
// a real server. It plays several times as many steps, and knows what this one cannot have: clock
// jumps, promotions, fleets with mixed settings.
//
// A seed gives an episode's steps. Replicas draw lots of their own (retries, jitter), so that one
// seed need not end in the same way twice: a seed that is asked for is played several times.
package search
