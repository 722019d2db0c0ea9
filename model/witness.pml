/* The witness and the guard's judgement: internal/guard/server.lua, settings.lua, witness.lua, tick.lua,
 * guard.lua, registry/beat.lua. README.md lists what is left out and assumed; check runs it.
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
 *   NO_REFUSED             nor is the count of clients that were turned away
 *   UNREADABLE_PASSES      a count on record that may not be read is no doubt
 *   NO_GAP                 a tick too long ago does not hold
 *   NO_FUTURE              a tick in the future does not hold
 *   NO_GRACE               a hold ends at once
 *   NO_SETTINGS            two settings do not hold
 *   BEATS_TELL_NOTHING     an owner's beat does not bring the witness its settings
 *   BEATS_HIDE_BEATS       it does, but the next beat of another owner hides that
 *   TICK_WHEN_FULL         the tick is not refused when memory is full
 *   TICK_WHILE_MOVING      the tick is not refused while the slot moves
 *   NOT_RECORDED           what a tick read is not recorded, and is a hold again at the next
 *   NO_RECORD              an owner without a heartbeat is dead, whatever its record says
 *   NO_OWN_GRACE           the GRACE in the record does not count
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
byte rec[2];    /* since the beat that its record has; not above its TTL */
bool missed[2]; /* Redis would have taken a due beat, and none landed since */
bool slow;      /* owner 1: its settings */
bool poor;      /* owner 1: it may not INFO */

/* It lives: it beat within its own TTL, or never missed a beat that Redis would have taken. */
#define LIVES(i) (alive[i] && (age[i] < TTL(i) || !missed[i]))
#define MAYINFO(i) (!((i) == 1 && poor))

/* The server. */
#define UP 0
#define DOWN 1   /* it does not answer */
#define FULL 2   /* memory is full: it refuses SET */
#define MOVING 3 /* the slot moves; heartbeats are on the other server already */
#define REFUSING 4 /* it turns owner 1 away, and counts that */
byte server = UP;
bool other;     /* its run id is not the recorded one */
bool connections, commands; /* the counter is below the recorded one */
bool refused;   /* its count of clients turned away differs from the recorded one */
#define TAKES(i) (server != DOWN && server != FULL && server != MOVING && !(server == REFUSING && (i) == 1))
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
byte since = MOST_GRACE;
byte last = MOST_GAP + 1; /* as if never */
bool future;              /* last lies in the future */
byte last_gap = NONE, last_grace = NONE;
bool known;               /* run id and counters are recorded */
byte refused_at = 4;      /* clients were turned away; not above QUICK's GRACE */

bool calm; /* faults have ended */

/* Scratch; zero between steps. */
byte o;
bool hold;

/* Ages that nothing can distinguish any more become one. */
inline settle() {
	since = (!FLEET && since >= 4 -> MOST_GRACE : since)
}

#define ANOTHER (other || connections || commands) /* one such event between two ticks is enough */
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
#ifdef NO_REFUSED
#define REFUSED 0
#else
#define REFUSED refused
#endif
/* another() in witness.lua, and what it finds of clients turned away */
inline compare(c) {
	if
	:: MAYINFO(c) ->
		hold = !known || OTHER || CONNECTIONS || COMMANDS;
		refused_at = (REFUSED && known -> 0 : refused_at)
#ifndef UNREADABLE_PASSES
	:: !MAYINFO(c) && known -> refused_at = 0
#endif
	:: else
	fi
}

/* listen by contender c */
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
#ifndef NO_SETTINGS
	hold = hold || last_gap != NONE && last_gap != SETTINGS(c) || last_grace != NONE && last_grace != SETTINGS(c);
#endif
	since = (hold -> 0 : since);
	last_gap = SETTINGS(c);
	last_grace = SETTINGS(c);
	if
#ifdef NOT_RECORDED
	:: MAYINFO(c) -> known = 1
#else
	:: MAYINFO(c) -> known = 1; other = 0; connections = 0; commands = 0; refused = 0
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
	d_step { printf("> owner %d ticks\n", c); listen(c) }
}

/* A batch of contender c, who leads now (the lease changes hands at any time), about owner v. */
inline batch(c, v) {
	d_step {
		printf("> owner %d leads and deletes of owner %d\n", c, v);
		listen(c);
		if
#ifndef NO_GRACE
		:: since < GRACE(c)
#endif
#ifndef NO_RECORD
		:: rec[v] < TTL(v)
#endif
#if !defined(NO_OWN_GRACE) && !defined(NO_GRACE)
		:: since < GRACE(v)
#endif
		:: refused_at < 4
		:: else ->
			assert(!LIVES(v)); /* a wrong delete */
#ifdef NOTHING_SWEPT
			assert(false);     /* a delete */
#endif
		fi
	}
}

/* Anything longer ago than every GAP in this run is long ago. */
#define LAST_OLDER last = (last + 1 > (FLEET -> MOST_GAP : 1) -> MOST_GAP + 1 : last + 1)

/* settings.lua: a beat sets its GRACE in the witness if another is recorded. */
inline beat(i) {
	age[i] = 0; rec[i] = 0; missed[i] = 0;
#ifndef BEATS_TELL_NOTHING
	if
	:: last_grace != NONE && last_grace != SETTINGS(i) ->
#ifdef BEATS_HIDE_BEATS
		last_grace = SETTINGS(i)
#else
		last_grace = TOLD
#endif
	:: else
	fi
#endif
}

/* Its record, and so its heartbeat, is older than a TTL. */
#define LACKS(i) rec[i] = TTL(i)
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
			OLDER(rec[o], TTL(o));
			o++
		:: else -> break
		od;
		o = 0;
		OLDER(since, MOST_GRACE);
		LAST_OLDER;
		OLDER(refused_at, 4);
		if
		:: !alive[1] && age[1] == TTL(1) -> slow = 0; age[1] = TTL(1); rec[1] = TTL(1)
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
		:: since >= GRACE(0) && refused_at == GRACE(0) -> break
		:: else -> OLDER(since, MOST_GRACE); OLDER(refused_at, 4); o++
		:: o > GRACE(0) ->
			assert(calm); /* lost progress: a doubt that does not end */
			break
		fi
	od;
	calm = 1; o = 0; mixed = 0; slow = 0; poor = 0; server = UP; other = 0; connections = 0;
	commands = 0; refused = 0; refused_at = 0; since = 0; last = 0; future = 0; last_gap = 0; last_grace = 0;
	known = 0;
	alive[0] = 0; alive[1] = 0; age[0] = 0; age[1] = 0; rec[0] = 0; rec[1] = 0;
	missed[0] = 0; missed[1] = 0
}

/* Time only advances under this assumption: somebody who may INFO ticks within a GRACE of a new
 * witness. */
#define READ (server == DOWN || known || last > MOST_GAP || since < 3)

/* A run begins with no witness, or, for short traces, after owner 0 has ticked for long. */
init {
	atomic {
		alive[0] = 1;
		age[1] = TTL(1); rec[1] = TTL(1);
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
			alive[1] = 1; age[1] = 0; rec[1] = 0;
			last = 0; last_gap = QUICK; last_grace = QUICK; known = 1
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

	/* It restarts with its file. */
	:: atomic { known && SERVER && !ANOTHER -> printf("> Redis restarts\n"); other = 1; refused = 0 }
	/* A replica that lacks the last writes is promoted; its counters are its own. */
	:: atomic {
			known && SERVER && !other -> printf("> a replica is promoted\n");
			other = 1; connections = 0; commands = 0; refused = 0;
			if :: LAST_OLDER; printf("> it lacks the last tick\n") :: skip fi;
			if :: LACKS(0); printf("> it lacks the last beats of owner 0\n") :: skip fi;
			if :: LACKS(1); printf("> it lacks the last beats of owner 1\n") :: skip fi
		}
	/* CONFIG RESETSTAT: connections or commands, or both, are below the recorded ones. */
	:: atomic {
			server != DOWN && known && SERVER && !ANOTHER ->
			if
			:: connections = 1; printf("> the counters start anew, commands are as many\n")
			:: commands = 1; printf("> the counters start anew, connections are as many\n")
#ifdef BUSY_AFTER_RESETSTAT
			:: printf("> the counters start anew, commands and connections are as many\n")
#endif
			fi;
			refused = 0
		}
	/* Its clock jumps: forward by more than a GAP, or back. */
	:: atomic {
			printf("> the clock jumps forward\n");
			last = MOST_GAP + 1; future = 0;
			if :: LACKS(0) :: rec[0] < TTL(0) -> printf("> the heartbeat of owner 0 outlasts that\n") fi;
			if :: LACKS(1) :: rec[1] < TTL(1) -> printf("> the heartbeat of owner 1 outlasts that\n") fi
		}
	:: d_step { last <= MOST_GAP && !future -> printf("> the clock jumps back\n"); future = 1 }
	/* Somebody deletes the witness, in a fleet that agrees. */
	:: d_step {
			server != DOWN && !(alive[1] && slow) && last_gap == QUICK && last_grace == QUICK ->
			printf("> somebody deletes the witness\n");
			since = MOST_GRACE; last = MOST_GAP + 1; future = 0; last_gap = NONE; last_grace = NONE;
			known = 0; other = 0; connections = 0; commands = 0; refused = 0; refused_at = 4
		}
	/* Time. For a whole instant the server is in one state. */
	:: READ -> printf("> a tick of time\n"); advance(UP)
	:: READ -> printf("> a tick of time, Redis does not answer\n"); advance(DOWN)
	:: READ && SERVER -> printf("> a tick of time, memory is full\n"); advance(FULL)
	:: READ && SERVER -> printf("> a tick of time, the slot moves\n"); advance(MOVING)
	:: READ && SERVER -> printf("> a tick of time, Redis turns owner 1 away\n"); advance(REFUSING)
	:: READ && SERVER && known && server == MOVING ->
		printf("> a tick of time, the slot has moved\n"); other = 1; advance(UP)
	fi
	od
}
