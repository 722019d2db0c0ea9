// Package failpoint lets a process of the chaos suite stop, kill or delay itself at points that a
// signal from outside would never hit. In every other build [Hit] is empty.
//
// Built with the tag failpoints, a process looks for orders in its own [Folder]. An order is a file
// named after a point, put there by renaming, with the action for the point's next hit:
//
//	stop        SIGSTOP to itself; it continues after a SIGCONT
//	kill        SIGKILL to itself
//	wait 200ms  only the goroutine waits
//
// and optionally the number of the hit, counted from now: "stop 3" lets two pass. Exactly one hit
// takes an order: it increments the number in <name>.hits, renames the order to <name>.taken and
// acts. When it continues it writes <name>.woken.
//
// This package reads the environment itself because the points are in libraries, and a setting for
// them would become part of the shipped program.
package failpoint

// Folder names the variable of the orders' folder.
const Folder = "ROLLCALL_FAILPOINTS"

// Name is that of a point, and of its order's file.
type Name string

// In the order in which a leader passes them, then an owner.
const (
	// lease: taken on the server, its epoch not yet drawn
	Acquiring Name = "acquiring"
	// guard: about to open a term in the log, past this process' checks
	Opening Name = "opening"
	// lease: trusted for long enough to renew, not yet renewed
	Renewing Name = "renewing"
	// janitor: an owner was judged dead, and its batch is about to be sent
	AfterJudging Name = "after-judging"
	// guard: about to send a batch, past this process' checks
	BeforeScript Name = "before-script"
	// janitor: a batch is known to be done, but not yet counted anywhere
	AfterReply Name = "after-reply"
	// registry: a page of the own index is read, not processed
	Reconciling Name = "reconciling"
	// registry: entries are read for comparison, not processed
	Comparing Name = "comparing"
	// gateway: a registration did not land in time, and its device has no answer yet
	UnansweredRegister Name = "unanswered-register"
	// availability: silent mitras are offline in the source, but not yet committed
	Confirmed Name = "confirmed"
	// availability: committed, but not yet known to Redis
	Flipped Name = "flipped"
	// availability: a writer's change is committed, but not yet known to Redis
	Applying Name = "applying"
)
