// Package failpoint has the points at which a process of the chaos suite stops itself, kills itself
// or waits: where a signal from outside would never hit. In every other build they are nothing:
// [Hit] is empty, and the compiler leaves it out.
//
// Built with the tag failpoints, a process looks for orders in the folder that the environment
// variable [Folder] names. Every process has one of its own. An order is a file with a point's
// name, put there by renaming, which says what is to be done at the point's next hit:
//
//	stop        SIGSTOP to itself; it goes on after a SIGCONT
//	kill        SIGKILL to itself
//	wait 200ms  only the goroutine waits
//
// and, if a number follows, at which hit from now on: "stop 3" lets two pass. Exactly one hit takes
// an order. It adds one to the number in <name>.hits, renames the order to <name>.taken and acts.
// When it has gone on it writes <name>.woken.
//
// Elsewhere only cmd/ingest reads the environment. This package does so itself because the points
// are in libraries, and because a setting for them would have to be part of the shipped program.
package failpoint

// Folder is the environment variable that names the folder of orders.
const Folder = "ROLLCALL_FAILPOINTS"

// A Name is a point's, and its order's file.
type Name string

// The points, in the order in which a leader comes by, then an owner.
const (
	// lease: it is taken on the server, its epoch not yet drawn
	Acquiring Name = "acquiring"
	// guard: a term goes to be opened in the log, past every check of this process
	Opening Name = "opening"
	// lease: trust was found enough for a renewal that is not yet sent
	Renewing Name = "renewing"
	// janitor: an owner was judged dead, and a batch of it is about to be asked for
	AfterJudging Name = "after-judging"
	// guard: a batch goes to the server, past every check of this process
	BeforeScript Name = "before-script"
	// janitor: a batch is known to be done, and not yet counted anywhere
	AfterReply Name = "after-reply"
	// registry: a page of the own index was read, nothing made of it yet
	Reconciling Name = "reconciling"
	// registry: entries were read to be compared with claims, nothing made of them yet
	Comparing Name = "comparing"
	// gateway: a registration did not land in time, its device is not yet answered
	UnansweredRegister Name = "unanswered-register"
	// availability: mitras are condemned in Redis, and about to be set offline in the source
	Condemned Name = "condemned"
	// availability: in the source they are offline, and the marks stand; not yet committed
	Confirmed Name = "confirmed"
	// availability: that is committed, and Redis does not know it yet
	Flipped Name = "flipped"
	// availability: a writer's change is committed, and Redis does not know it yet
	Applying Name = "applying"
)
