// Package failpoint lets a process of the chaos suite stop, kill or delay itself at points that a
// signal from outside would never hit. In every other build [Hit] is empty, and the compiler
// removes it.
//
// Built with the tag failpoints, a process looks for orders in the folder named by the environment
// variable [Folder]; each process has its own. An order is a file named after a point, put there by
// renaming. It contains the action for the point's next hit:
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

// Folder is the environment variable that names the folder of orders.
const Folder = "ROLLCALL_FAILPOINTS"

// A Name is the name of a point, and of its order's file.
type Name string

// The points, in the order in which a leader passes them, then an owner.
const (
	// lease: taken on the server, its epoch not yet drawn
	Acquiring Name = "acquiring"
	// guard: about to open a term in the log, past all checks of this process
	Opening Name = "opening"
	// lease: trusted for long enough to renew, but the renewal is not yet sent
	Renewing Name = "renewing"
	// janitor: an owner was judged dead, and its batch is about to be sent
	AfterJudging Name = "after-judging"
	// guard: about to send a batch, past all checks of this process
	BeforeScript Name = "before-script"
	// janitor: a batch is known to be done, but not yet counted anywhere
	AfterReply Name = "after-reply"
	// registry: a page of the own index was read, but not yet processed
	Reconciling Name = "reconciling"
	// registry: entries were read for comparison with claims, but not yet processed
	Comparing Name = "comparing"
	// gateway: a registration did not land in time, and its device is not yet answered
	UnansweredRegister Name = "unanswered-register"
	// availability: mitras are condemned in Redis, and about to be set offline in the source
	Condemned Name = "condemned"
	// availability: they are offline in the source, with their marks, but not yet committed
	Confirmed Name = "confirmed"
	// availability: that is committed, but not yet known to Redis
	Flipped Name = "flipped"
	// availability: a writer's change is committed, but not yet known to Redis
	Applying Name = "applying"
)
