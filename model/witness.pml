/* The witness and the guard's judgement: guard/server.lua, settings.lua, witness.lua, tick.lua,
 * guard.lua, registry/beat.lua. docs/reference/model.md lists what is left out and assumed; check runs it.
 *
 * Questions: can the guard delete entries of a living owner? And once faults end: are those of the
 * dead deleted, a GRACE later?
 *
 * One process takes one step after the other, as a Redis server does. Times are ages in ticks that
 * stop growing once nothing reads them, so the state space is finite and no run is cut short.
 *
 * Owner 0 has the settings QUICK, may INFO, and its process never ends. Owner 1 has one of two
 * settings at each start, and may INFO or may not. Both contend for the lease, which changes hands
 * at any time. In one run either the fleet disagrees (-DMIXED=1: no other run), or the server
 * restarts, evicts, is full, moves (-DMIXED=0). With -DTOGETHER both happen in one run.
 *
 * Each define removes one rule. Then spin must find a wrong delete, or lost progress:
 *   NO_RUN_ID              the run id is not compared with the recorded one
 *   NO_CONNECTIONS         nor is the counter of connections
 *   NO_COMMANDS            nor is the counter of commands
 *   NO_EVICTED_KEYS        nor is evicted_keys
 *   NO_REFUSED             nor is the count of clients that were turned away
 *   UNREADABLE_PASSES      a recorded value that may not be read does not hold
 *   NO_GAP                 a tick too long ago does not hold
 *   NO_FUTURE              a tick in the future does not hold
 *   NO_GRACE               a hold ends at once
 *   NO_SETTINGS            two settings do not hold
 *   OWN_GRACE_ONLY         a hold ends after the asker's own grace period
 *   FORGOTTEN_IN_HOLD      the time of a hold counts when two settings are forgotten
 *   BEATS_TELL_NOTHING     an owner's beat does not bring the witness its settings
 *   BEATS_HIDE_BEATS       it does, but the next beat of another owner hides that
 *   TICK_WHEN_FULL         the tick is not refused when memory is full
 *   TICK_WHILE_MOVING      the tick is not refused while the slot moves
 *   NO_SELF_CHECK          a leader does not look for its own heartbeat
 *   NOT_RECORDED           what a tick read is not recorded, and is a hold again at the next
 *   NO_HEARTBEAT           the owner's heartbeat is not looked for
 * These ask something else:
 *   NOTHING_SWEPT          an assertion that fails if anything is ever deleted (it must)
 *   BUSY_AFTER_RESETSTAT   drops the assumption on CONFIG RESETSTAT
 */

#define QUICK 0
#define SLOW 1
#define NONE 2 /* no settings seen yet */
#define TOLD 3 /* a GRACE that is nobody's: an owner with other settings has beaten */

/* QUICK: interval 1, TTL 3. SLOW: interval 3, TTL 9. GAP = (TTL - interval) / 2, GRACE = TTL + 1. */
#define SETTINGS(i) ((i) == 1 && slow)
#define INTERVAL(i) (SETTINGS(i) -> 3 : 1)
#define TTL(i) (SETTINGS(i) -> 9 : 3)
#define GAP(i) (SETTINGS(i) -> 3 : 1)
#define GRACE(i) (SETTINGS(i) -> 10 : 4)
#define MOST_GRACE 10
#define MOST_GAP 3
#ifndef MEMORY
#define MEMORY 1 /* witness.lua has 10 */
#endif
#define LONG (MEMORY * MOST_GRACE + 1)

bool mixed; /* the faults possible in this run */
#ifdef TOGETHER
#define FLEET 1
#define SERVER 1
#else
#define FLEET mixed
#define SERVER (!mixed)
#endif

/* The owners. */
bool alive[2];  /* the process is */
byte age[2];    /* since its last beat that landed; not above its TTL */
bool gone[2];   /* its heartbeat was lost early */
bool missed[2]; /* Redis would have taken a due beat, and none landed since */
bool slow;      /* owner 1: its settings */
bool poor;      /* owner 1: it may not INFO */

#define BEATS(i) (!gone[i] && age[i] < TTL(i)) /* its heartbeat exists */
/* It lives: it beat within its own TTL, or never missed a beat that Redis would have taken. */
#define LIVES(i) (alive[i] && (age[i] < TTL(i) || !missed[i]))
#define MAYINFO(i) (!((i) == 1 && poor))

/* The server. */
#define UP 0
#define DOWN 1   /* it does not answer */
#define FULL 2   /* memory is full */
#define MOVING 3 /* the slot moves; heartbeats are on the other server already */
#define BLIND 4  /* the guard does not see heartbeats */
#define REFUSING 5 /* it turns owner 1 away, and counts that */
byte server = UP;
bool other;     /* its run id is not the recorded one */
bool connections, commands; /* the counter is below the recorded one */
bool evicted;   /* its evicted_keys differs from the recorded one */
bool refused;   /* its count of clients turned away differs from the recorded one */
/* An existing heartbeat is prolonged even if memory is full. */
#define TAKES(i) (server != DOWN && server != MOVING && (server != FULL || BEATS(i)) && !(server == REFUSING && (i) == 1))
#define SEEN(i) (BEATS(i) && server != BLIND)
#ifdef TICK_WHEN_FULL
#define REFUSED_WHEN_FULL 0
#else
#define REFUSED_WHEN_FULL (server == FULL)
#endif
#ifdef TICK_WHILE_MOVING
#define REFUSED_WHILE_MOVING 0
#else
#define REFUSED_WHILE_MOVING (server == MOVING)
#endif

/* The witness: the hash janitor:witness. */
byte since = LONG;
byte last = MOST_GAP + 1; /* as if never */
bool future;              /* last lies in the future */
byte last_gap = NONE, last_grace = NONE;
byte largest;
byte disagreed = LONG;
bool known;               /* run id and counters are recorded */

bool calm; /* faults have ended */

/* Scratch; zero between steps. */
byte need, o;
bool hold;

#define GRACE_OF(s) ((s) >= NONE -> 0 : ((s) == SLOW -> 10 : 4))
#define MAX(a, b) ((a) > (b) -> (a) : (b))
#define MIN(a, b) ((a) < (b) -> (a) : (b))

/* Values that nothing can distinguish any more become one. If all settings seen are QUICK, only
 * they are compared: others are a hold. */
inline settle() {
	if
	:: largest == 4 && last_gap == QUICK && last_grace == QUICK ->
		disagreed = LONG;
		since = (since >= 4 -> LONG : since)
	:: else
	fi
}

#ifdef NO_RUN_ID
#define OTHER 0
#else
#define OTHER other
#endif
#ifdef NO_CONNECTIONS
#define CONNECTIONS 0
#else
#define CONNECTIONS connections
#endif
#ifdef NO_COMMANDS
#define COMMANDS 0
#else
#define COMMANDS commands
#endif
#ifdef NO_EVICTED_KEYS
#define EVICTED 0
#else
#define EVICTED evicted
#endif
#ifdef NO_REFUSED
#define REFUSED 0
#else
#define REFUSED refused
#endif
/* the result of another() in witness.lua */
inline compare(c) {
	if
	:: MAYINFO(c) ->
		hold = !known || OTHER || CONNECTIONS || COMMANDS || EVICTED || REFUSED
	:: else ->
#ifdef UNREADABLE_PASSES
		skip
#else
		hold = known
#endif
	fi
}

/* listen by contender c; leaves need. */
inline listen(c) {
	hold = 0;
	if
#ifndef NO_FUTURE
	:: future -> hold = 1
#endif
#ifndef NO_GAP
	:: !future && last > GAP(c) -> hold = 1
#endif
	:: else -> compare(c)
	fi;
	future = 0;
	largest = MAX(largest, GRACE_OF(last_grace));
	if
	:: last_gap != NONE && last_gap != SETTINGS(c) || last_grace != NONE && last_grace != SETTINGS(c) ->
#ifndef NO_SETTINGS
		hold = 1;
#endif
		disagreed = 0
	:: else
	fi;
	since = (hold -> 0 : since);
	need = GRACE(c);
#ifndef OWN_GRACE_ONLY
	if
#ifdef FORGOTTEN_IN_HOLD
	:: disagreed <= MEMORY * largest -> need = MAX(need, largest)
#else
	:: MIN(disagreed, since) <= MEMORY * largest -> need = MAX(need, largest)
#endif
	:: else
	fi;
#endif
	largest = need;
#ifdef NO_GRACE
	need = 0;
#endif
	last_gap = SETTINGS(c);
	last_grace = SETTINGS(c);
	if
#ifdef NOT_RECORDED
	:: MAYINFO(c) -> known = 1
#else
	:: MAYINFO(c) -> known = 1; other = 0; connections = 0; commands = 0; evicted = 0; refused = 0
#endif
	:: else ->
		skip
	fi;
	last = 0;
	settle();
	hold = 0
}

#define LISTENS (server != DOWN && !REFUSED_WHEN_FULL && !REFUSED_WHILE_MOVING)

inline tick(c) {
	d_step { printf("> owner %d ticks\n", c); listen(c); need = 0 }
}

/* A batch of contender c, who leads now (the lease changes hands at any time), about owner v. */
inline batch(c, v) {
	d_step {
		printf("> owner %d leads and deletes of owner %d\n", c, v);
		listen(c);
		if
		:: since < need -> skip
#ifdef NO_SELF_CHECK
		:: else ->
#else
		:: since >= need && !SEEN(c) -> since = 0
		:: else ->
#endif
			if
#ifndef NO_HEARTBEAT
			:: SEEN(v) -> skip
#endif
			:: else ->
				assert(!LIVES(v)); /* a wrong delete */
#ifdef NOTHING_SWEPT
				assert(false);     /* a delete */
#endif
			fi
		fi;
		need = 0
	}
}

/* Anything longer ago than every GAP in this run is long ago. */
#define LAST_OLDER last = (last + 1 > (FLEET -> MOST_GAP : 1) -> MOST_GAP + 1 : last + 1)

/* settings.lua: a beat sets its GRACE in the witness if another is recorded. */
inline beat(i) {
	age[i] = 0; gone[i] = 0; missed[i] = 0;
#ifndef BEATS_TELL_NOTHING
	if
	:: last_grace != NONE && last_grace != SETTINGS(i) ->
		largest = MAX(MAX(largest, GRACE_OF(last_grace)), GRACE(i));
#ifdef BEATS_HIDE_BEATS
		last_grace = SETTINGS(i);
#else
		last_grace = TOLD;
#endif
		disagreed = 0
	:: else
	fi
#endif
}

/* Its heartbeat is lost early. */
inline vanish(i) {
	if
	:: BEATS(i) -> gone[i] = 1
	:: else
	fi
}

/* evicted_keys restarts: it equals the recorded figure, or not. The refused count equals it. */
inline counted_anew() {
	refused = 0;
	if
	:: known -> if :: evicted = 0 :: evicted = 1; printf("> evicted_keys differs\n") fi
	:: else
	fi
}

#define OLDER(x, most) x = (x < most -> x + 1 : x)

/* A tick of time, into an instant in which the server answers (now) or not. */
inline advance(now) {
	d_step {
		o = 0;
		do
		:: o < 2 ->
			if
			:: TAKES(o) && alive[o] && age[o] >= INTERVAL(o) -> missed[o] = 1
			:: else
			fi;
			OLDER(age[o], TTL(o));
			if
			:: age[o] == TTL(o) -> gone[o] = 0 /* it has expired either way: one state, not two */
			:: else
			fi;
			o++
		:: else -> break
		od;
		o = 0;
		OLDER(since, LONG);
		LAST_OLDER;
		OLDER(disagreed, LONG);
		if
		:: !alive[1] && !BEATS(1) -> slow = 0; gone[1] = 0; age[1] = TTL(1)
		:: else
		fi;
		settle();
		server = now;
		refused = (now == REFUSING && known -> 1 : refused)
	}
}

/* Faults end, and owner 1 is dead: its entries are deleted within the largest GRACE, after one more
 * tick. It resets everything at the end, so that all runs end in one state. */
inline be_calm() {
	o = 0;
	do
	:: listen(0);
		if
		:: since >= need -> break
		:: since < need && o < (FLEET -> MOST_GRACE : 4) -> o++; OLDER(since, LONG); OLDER(disagreed, LONG)
		:: else ->
			assert(calm); /* lost progress: a hold that does not end */
			break
		fi
	od;
	calm = 1; o = 0; need = 0; mixed = 0; slow = 0; poor = 0; server = UP; other = 0; connections = 0;
	commands = 0; evicted = 0; refused = 0; since = 0; last = 0; future = 0; last_gap = 0; last_grace = 0;
	largest = 0; disagreed = 0; known = 0;
	alive[0] = 0; alive[1] = 0; age[0] = 0; age[1] = 0; gone[0] = 0; gone[1] = 0;
	missed[0] = 0; missed[1] = 0
}

/* Time only advances under this assumption: somebody who may INFO ticks within a GRACE of a new
 * witness. */
#define READ (server == DOWN || known || last > MOST_GAP || since < 3)

/* A run begins with no witness, or, for short traces, after owner 0 has ticked for long. */
init {
	atomic {
		alive[0] = 1;
		age[1] = TTL(1);
#ifdef TOGETHER
		mixed = 1;
#elif defined(MIXED)
		mixed = MIXED;
#else
		if :: mixed = 0 :: mixed = 1 fi;
#endif
		if
		:: skip
		:: printf("> owner 0 has ticked for long, as owner 0 and 1 beat\n");
			alive[1] = 1; age[1] = 0;
			last = 0; last_gap = QUICK; last_grace = QUICK; largest = 4; known = 1
		fi
	}
	do
	:: calm -> break
	:: d_step { !calm && server == UP -> printf("> faults end\n"); be_calm() }
	:: !calm ->
	if
	/* Owners. A process that ends leaves its heartbeat behind. */
	:: d_step { TAKES(0) && alive[0] -> printf("> owner 0 beats\n"); beat(0) }
	:: d_step { TAKES(1) && alive[1] -> printf("> owner 1 beats\n"); beat(1) }
	:: d_step { alive[1] -> printf("> owner 1 ends\n"); alive[1] = 0; missed[1] = 0; poor = 0 }
	:: atomic {
			TAKES(1) && !alive[1] ->
			if :: slow = 0 :: FLEET && last_grace != NONE -> slow = 1 fi;
			if :: poor = 0 :: SERVER -> poor = 1 fi;
			if
			:: slow && poor -> printf("> owner 1 starts, slow, without INFO\n")
			:: slow && !poor -> printf("> owner 1 starts, slow\n")
			:: !slow && poor -> printf("> owner 1 starts, without INFO\n")
			:: else -> printf("> owner 1 starts\n")
			fi;
			alive[1] = 1;
			beat(1)
		}

	/* Contenders. */
	:: LISTENS -> tick(0)
	:: LISTENS && alive[1] -> tick(1)
	:: LISTENS && server != MOVING -> batch(0, 1)
	:: LISTENS && server != MOVING && alive[1] -> batch(1, 0)

	/* Redis evicts a heartbeat. */
	:: d_step { server != DOWN && BEATS(0) && SERVER -> printf("> Redis evicts the heartbeat of owner 0\n"); gone[0] = 1; evicted = known }
	:: d_step { server != DOWN && BEATS(1) && SERVER -> printf("> Redis evicts the heartbeat of owner 1\n"); gone[1] = 1; evicted = known }
	/* After the counter has fallen it may reach the recorded figure again. */
	:: d_step { known && evicted && (other || connections || commands) ->
		printf("> evicted_keys is what was recorded\n"); evicted = 0 }
	/* It restarts with its file. */
	:: atomic { known && SERVER -> printf("> Redis restarts\n"); other = 1; counted_anew() }
	/* A replica that lacks the last writes is promoted; its counters are its own. */
	:: atomic {
			known && SERVER -> printf("> a replica is promoted\n");
			other = 1;
			counted_anew();
			if :: LAST_OLDER; printf("> it lacks the last tick\n") :: skip fi;
			if :: BEATS(0) -> gone[0] = 1; printf("> it lacks the heartbeat of owner 0\n") :: skip fi;
			if :: BEATS(1) -> gone[1] = 1; printf("> it lacks the heartbeat of owner 1\n") :: skip fi
		}
	/* CONFIG RESETSTAT: connections or commands, or both, are below the recorded ones. */
	:: atomic {
			server != DOWN && known && SERVER ->
			if
			:: connections = 1; printf("> the counters start anew, commands are as many\n")
			:: commands = 1; printf("> the counters start anew, connections are as many\n")
#ifdef BUSY_AFTER_RESETSTAT
			:: printf("> the counters start anew, commands and connections are as many\n")
#endif
			fi;
			counted_anew()
		}
	/* Its clock jumps: forward by more than a GAP, or back. */
	:: atomic {
			printf("> the clock jumps forward\n");
			last = MOST_GAP + 1; future = 0; disagreed = LONG;
			if
			:: vanish(0)
			:: BEATS(0) -> printf("> the heartbeat of owner 0 outlasts that\n")
			fi;
			if
			:: vanish(1)
			:: BEATS(1) -> printf("> the heartbeat of owner 1 outlasts that\n")
			fi
		}
	:: d_step { last <= MOST_GAP && !future ->
		printf("> the clock jumps back\n"); future = 1; disagreed = (disagreed < LONG -> 0 : disagreed) }
	/* Somebody deletes the witness, in a fleet that agrees. */
	:: d_step {
			server != DOWN && !(alive[1] && slow) && last_gap == QUICK && last_grace == QUICK && largest == 4 ->
			printf("> somebody deletes the witness\n");
			since = LONG; last = MOST_GAP + 1; future = 0; last_gap = NONE; last_grace = NONE;
			largest = 0; disagreed = LONG;
			known = 0; other = 0; connections = 0; commands = 0; evicted = 0; refused = 0
		}
	/* Time. For a whole instant the server is in one state. */
	:: READ -> printf("> a tick of time\n"); advance(UP)
	:: READ -> printf("> a tick of time, Redis does not answer\n"); advance(DOWN)
	:: READ && SERVER -> printf("> a tick of time, memory is full\n"); advance(FULL)
	:: READ && SERVER -> printf("> a tick of time, the slot moves\n"); advance(MOVING)
	:: READ && SERVER -> printf("> a tick of time, heartbeats cannot be seen\n"); advance(BLIND)
	:: READ && SERVER -> printf("> a tick of time, Redis turns owner 1 away\n"); advance(REFUSING)
	:: READ && SERVER && known && server == MOVING ->
		printf("> a tick of time, the slot has moved\n"); other = 1; advance(UP)
	fi
	od
}
