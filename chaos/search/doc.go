// Package search plays random events, looking for one after which the registry breaks its
// promises. It runs whole replicas (package partition, with everything below it) on one modelled
// server, in virtual time, plays random steps, and asks an oracle that knows which sockets are
// open:
//
//   - nothing of a living owner is deleted while it can reach the server or beat in time; nothing
//     for ten GRACE while the server itself turns it away; nothing for a GRACE if the same fault
//     had several off, and most of them still were when it fell silent;
//   - each partition has a leader while a replica that may lead reaches the server;
//   - when all is quiet again every open socket is routable, and unless somebody deleted keys none
//     is without an entry for three intervals. Sweeping may be paused or dry, unless somebody
//     destroyed the record of the dead instance that an entry names;
//   - of two sockets of a device the newest handshake wins: no replica closes the newest one,
//     unless that does not answer a ping;
//   - then nothing else is left, unless sweeping is paused or dry: also while a stranger's logins
//     are refused.
//
// The oracle has the true state of this world and none of the code's terms; see oracle_test.go.
//
// TestSearchOfPoisonedKeys plays the same steps beside somebody who writes values of any type
// into any key. When all is quiet it deletes the keys that the runbook names, and no others.
//
// Package doubt has a search of its own, for the rule alone. It plays many times as many steps, and
// includes what this one cannot have: clock jumps, fleets with mixed settings, owners that write no
// records.
//
// A seed determines an episode's steps. Replicas make random choices of their own (retries,
// jitter), so one seed need not always end in the same way; a seed given explicitly is played
// several times.
package search
