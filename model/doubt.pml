/* What a silence proves: package internal/guard/doubt, guard.lua's step 4, registry/owner.lua's records.
 * README.md lists what is left out and assumed; check runs it.
 *
 * Question: may entries be deleted that a user was promised to keep, or kept that should go?
 *
 * The oracle knows the truth (who runs, who reaches Redis, who was hit within two ticks) and none
 * of the rule's terms. It promises:
 *   able     the entries of an owner that can beat are never deleted
 *   most     nor, for a GRACE, those of one that fell silent with most of those hit with it
 *   refused  nor, for FAR, those of one that Redis itself turns away
 *   kept     the dead go within FAR and a GRACE of Redis being heard
 *   theft    an entry of one that can beat is not taken over as one of the dead
 *   lone     who alone of those that hold dies goes after a TTL; who says goodbye at once
 *
 * Owners beat at each tick. They are cut off, mended, killed, say goodbye, join, gain and lose all
 * sockets at any time. Nobody need lead: a leader remembers nothing. In a run of its own Redis does
 * not answer, or nobody listens (OUTAGES=1), or it turns clients away (REFUSALS=1). With WAVES only
 * holders are cut off, and nobody dies. EVENTS bounds what happens in one run.
 *
 * Each define removes one clause. Then spin must find a broken promise:
 *   NO_HELD      Redis need not be heard for a GRACE
 *   NO_KEY       a missing heartbeat proves silence, though the record is fresh
 *   NO_MOST      nobody looks at the others
 *   NO_DUE       only who was silent for a TTL counts as off, not who is overdue
 *   NO_BACK      who is back counts as never off
 *   NO_IDLE      idle owners count
 *   IDLE_FIRST   who was off does not count if it holds nothing now
 *   NO_BORN      who came later counts
 *   NO_HOLD      an idle owner that gains its first socket does not count as come later
 *   NO_PRUNE     a record goes with the last entry
 *   NO_LONG_DEAD who fell long before still counts as off
 *   NO_END       the doubt about most does not end
 *   NO_BYE       who said goodbye is judged as if silent
 *   NO_LEFT      who said goodbye counts as off
 *   TAKES_AT_ONCE an entry of the dead is taken over as soon as Redis is heard
 *   NO_REFUSED   turning clients away is no doubt
 *   NO_FAR       that doubt does not end
 * These ask something else:
 *   NOTHING_SWEPT an assertion that fails if anything is ever deleted (it must)
 *   REACH_AGAIN   fails if most fall a second time, soon after they were back (it must)
 *   REACH_IDLE    fails if most of the holders fall, which are half of all (it must)
 *   REACH_LEFT    fails if most that are left fall, soon after others said goodbye (it must)
 */

#ifndef OWNERS
#define OWNERS 2
#endif
#ifndef EVENTS
#define EVENTS 0 /* as many as there may be in a run; 0: no bound */
#endif
#ifdef WAVES /* cuts of holders alone */
#define DEATHS 0
#else
#define DEATHS 1
#endif
#ifndef OUTAGES
#define OUTAGES 0
#endif
#ifndef REFUSALS
#define REFUSALS 0
#endif
/* INTERVAL 1 */
#define DUE 2
#define TTL 3
#define GRACE 3
#define FAR 6 /* 10 GRACE in the code */
#define BOUND (REFUSALS -> FAR + GRACE : 2 * GRACE)
#define MOST (TTL + BOUND) /* ages stop here */

/* The truth. */
#define CUT 1
#define REFUSED 2
bool runs[OWNERS];
byte off[OWNERS];      /* why it does not reach Redis */
bool sock[OWNERS];     /* it holds a claim */
byte silent[OWNERS];   /* since its last beat */
bool down;             /* Redis does not answer */
bool protected[OWNERS];/* it fell with most, less than a GRACE ago */
byte base, rest;       /* the last wave, as bits: the able holders, the others that hold */
byte hit, mended;      /* whom it has off, who is back */
bool most;             /* it hit most of base at once */
byte open;             /* ticks for which it goes on */
bool quiet = 1;        /* nothing happened to anybody */
byte lone;             /* 1 + who died, and nothing else happened */
byte events;           /* so far */
byte again;            /* REACH_AGAIN: since most fell */

/* Redis. */
#define IDLE 0
#define HOLDS 1
#define BYE 2
bool entries[OWNERS];
bool rec[OWNERS];      /* the record exists */
byte state[OWNERS];
byte last[OWNERS];
byte back[OWNERS];     /* bits: whose back is later than its last */
byte born[OWNERS];     /* bits: whose born is no earlier */
byte since = BOUND + DUE;
byte refused_at = GRACE;

/* Scratch; zero between steps. */
byte o, y, n, all;
bool go;

#define ABLE(i) (runs[i] && !off[i] && !down)
#define BIT(i) (1 << (i))
#define HAS(set, i) (((set) >> (i)) & 1)
#define ADD(set, i) set = set | BIT(i)
#define DROP(set, i) set = set & ~BIT(i)
#define MIN(a, b) ((a) < (b) -> (a) : (b))
#define EVERY(v, body) v = 0; do :: v < OWNERS -> body; v++ :: else -> break od; v = 0
#define EACH(body) EVERY(o, body)
#define IF(c, body) if :: c -> body :: else fi
#define QUIET(x) MIN(last[x] - TTL, since)

#ifdef NO_DUE
#define SILENT(x, y) (last[y] > TTL)
#else
#define SILENT(x, y) (last[y] >= DUE || last[y] + DUE > last[x])
#endif
#ifdef NO_BACK
#define WAS_OFF(x, y) 0
#else
#define WAS_OFF(x, y) HAS(back[x], y)
#endif
#ifdef NO_IDLE
#define MISSED_BY_NOBODY(y) 0
#else
#define MISSED_BY_NOBODY(y) (state[y] == IDLE)
#endif
#ifdef IDLE_FIRST
#define NO_WITNESS(x, y) MISSED_BY_NOBODY(y)
#else
#define NO_WITNESS(x, y) (MISSED_BY_NOBODY(y) && !WAS_OFF(x, y))
#endif
#ifdef NO_BORN
#define LATER(x, y) 0
#else
#define LATER(x, y) HAS(born[x], y)
#endif
#ifdef NO_LEFT
#define LEFT(y) 0
#else
#define LEFT(y) (state[y] == BYE)
#endif
#ifdef NO_LONG_DEAD
#define LONG_DEAD(x, y) 0
#else
#define LONG_DEAD(x, y) (MIN(last[y], since + TTL - DUE) > MIN(last[x], since + TTL) + GRACE)
#endif

/* together: n of all. */
inline together(x) {
	n = 0; all = 0; y = 0;
	do
	:: y < OWNERS ->
		if
		:: !rec[y] || y != x && NO_WITNESS(x, y)
		:: else ->
			if
			:: WAS_OFF(x, y) -> n++; all++
			:: !WAS_OFF(x, y) && (LEFT(y) || LATER(x, y) && !SILENT(x, y) && y != x)
			:: !WAS_OFF(x, y) && !LEFT(y) && SILENT(x, y) ->
				if
				:: LONG_DEAD(x, y)
				:: else -> n++; all++
				fi
			:: else -> all++
			fi
		fi;
		y++
	:: else -> break
	od;
	y = 0
}

inline verdict(x) {
	together(x);
	if
#ifndef NO_HELD
	:: since < GRACE -> go = 0
#define HEARD (since >= GRACE)
#else
#define HEARD 1
#endif
#ifndef NO_BYE
	:: HEARD && state[x] == BYE -> go = 1
#endif
#ifndef NO_KEY
	:: HEARD && state[x] != BYE && last[x] < TTL -> go = 0
#endif
	:: else ->
		go = 1;
#ifndef NO_REFUSED
#ifdef NO_FAR
		IF(refused_at < GRACE, go = 0);
#else
		IF((last[x] < TTL || QUIET(x) < FAR) && refused_at < GRACE, go = 0);
#endif
#endif
#ifndef NO_MOST
#ifdef NO_END
		IF(n >= 2 && 2 * n > all, go = 0);
#else
		IF((last[x] < TTL || QUIET(x) < GRACE) && n >= 2 && 2 * n > all, go = 0);
#endif
#endif
	fi;
	n = 0; all = 0
}

/* proves: a record of a life, with a state. */
inline proves(i, st) {
	if
#ifdef NO_HOLD
	:: !rec[i] -> EVERY(y, ADD(born[y], i))
	:: rec[i] && last[i] >= TTL - 1 -> EVERY(y, ADD(back[y], i))
#else
	:: !rec[i] || state[i] != HOLDS -> EVERY(y, ADD(born[y], i))
	:: rec[i] && state[i] == HOLDS && last[i] >= TTL - 1 -> EVERY(y, ADD(back[y], i))
#endif
	:: else
	fi;
	rec[i] = 1; state[i] = st; last[i] = 0; back[i] = 0; born[i] = 0
}

inline beat(i) {
	entries[i] = sock[i];
	proves(i, (sock[i] -> HOLDS : IDLE));
	silent[i] = 0; protected[i] = 0;
	IF(HAS(hit, i), DROP(hit, i); ADD(mended, i))
}

inline forget(i) {
	rec[i] = 0; state[i] = 0; last[i] = 0; back[i] = 0; born[i] = 0; silent[i] = 0;
	DROP(base, i); DROP(rest, i); DROP(hit, i); DROP(mended, i);
	EVERY(y, DROP(back[y], i); DROP(born[y], i))
}

inline sweep(x) {
	assert(!ABLE(x));                       /* able: a wrong delete of an owner that can beat */
	assert(!runs[x] || !protected[x]);      /* most: a wrong delete of one that fell with most */
	assert(off[x] != REFUSED || silent[x] >= TTL + FAR); /* refused: a wrong delete of one that is turned away */
#ifdef NOTHING_SWEPT
	assert(false);                          /* a delete */
#endif
	entries[x] = 0;
	IF(!runs[x], back[x] = 0; born[x] = 0);
#ifdef NO_PRUNE
	IF(!runs[x], forget(x));
#endif
	go = 0
}

inline trouble() { quiet = 0; lone = 0 }

/* strike: owner i is hit, by the wave of this tick if there is one. */
inline strike(i) {
	IF(!open && !hit && sock[i], open = 2; base = 0; rest = 0; mended = 0; most = 0);
	IF(open, EACH(
		IF(sock[o] && ABLE(o) && silent[o] < DUE, ADD(base, o));
		IF(sock[o] && runs[o] && !HAS(base, o), ADD(rest, o))));
	IF(open && sock[i] && HAS(base, i) && !HAS(mended, i),
		ADD(hit, i);
		EACH(n = n + HAS(hit, o); all = all + HAS(base, o));
		most = most || 2 * n > all;
		n = 0; all = 0)
}

inline die(i) {
	IF(sock[i], lone = (quiet -> i + 1 : 0); quiet = 0);
	strike(i);
	runs[i] = 0; off[i] = 0; sock[i] = 0; protected[i] = 0;
}

inline leave(i, leftovers) {
	state[i] = BYE; runs[i] = 0; sock[i] = 0; silent[i] = TTL;
	entries[i] = entries[i] && leftovers;
	DROP(base, i); DROP(rest, i); DROP(hit, i); DROP(mended, i);
	back[i] = 0; born[i] = 0;
#ifdef NO_PRUNE
	IF(!entries[i], forget(i));
#endif
}

#ifdef REACH_IDLE
#define BESIDES(y) (state[y] == IDLE)
#elif defined(REACH_LEFT)
#define BESIDES(y) (state[y] == BYE && last[y] < TTL)
#else
#define BESIDES(y) 0
#endif
#ifdef REACH_AGAIN
#define REACHED (again >= TTL && again <= 2 * GRACE)
#else
#define REACHED (2 * n <= all)
#endif

/* fell: i has been silent for a TTL. */
inline fell(i) {
	n = 0; all = 0; y = 0;
	do
	:: y < OWNERS ->
		n = n + (HAS(base, y) && HAS(hit, y));
		all = all + (HAS(base, y) || HAS(rest, y) && silent[y] < DUE);
		y++
	:: else -> break
	od;
	y = 0;
	protected[i] = runs[i] && HAS(base, i) && HAS(hit, i) && most && n >= 2 && 2 * n > all;
	EVERY(y, all = all + (rec[y] && BESIDES(y)));
	assert(!protected[i] || !REACHED);      /* most fall: the history is reached */
#ifdef REACH_AGAIN
	again = (protected[i] && (!again || again >= TTL) -> 1 : again);
#endif
	n = 0; all = 0
}

#ifdef TAKES_AT_ONCE
#define TAKES(x) (rec[x] && !down && (state[x] == BYE || last[x] >= TTL))
#else
#define TAKES(x) (rec[x] && !down && since >= DUE && (state[x] == BYE || last[x] >= TTL))
#endif

/* What should go, and what may not be taken over, at each tick. */
inline promised(i) {
	IF(rec[i], verdict(i));
	assert(!entries[i] || runs[i] || since < BOUND || silent[i] < MOST || go); /* kept: an entry of the dead stays */
	assert(!entries[i] || lone != i + 1 || silent[i] < TTL || since < GRACE || go); /* lone: an entry of one that died alone stays */
	assert(!entries[i] || state[i] != BYE || since < GRACE || go); /* bye: an entry of one that said goodbye stays */
	assert(!TAKES(i) || !ABLE(i));          /* theft: its owner can beat */
	go = 0
}

#define UP 0
#define DOWN 1
#define UNHEARD 2

inline advance(how) {
	IF(how, trouble());
	since = (how || down -> 0 : MIN(since + 1, BOUND + DUE));
	EACH(IF(rec[o], silent[o] = MIN(silent[o] + 1, MOST); last[o] = MIN(last[o] + 1, MOST)));
	/* After an outage they beat a tick later. */
	IF(how != DOWN, EACH(IF(ABLE(o), beat(o))));
	down = (how == DOWN);
	refused_at = MIN(refused_at + 1, GRACE);
	EACH(IF(runs[o] && off[o] == REFUSED && !down, refused_at = 0));
#ifdef REACH_AGAIN
	again = (again && again <= 2 * GRACE -> again + 1 : 0);
#endif
	open = (open -> open - 1 : 0);
	EACH(IF(rec[o] && state[o] != BYE && silent[o] == TTL, fell(o));
		IF(silent[o] >= TTL + GRACE, protected[o] = 0));
	/* The wave is over when all of it have fallen, or are back. */
	EACH(n = n + (HAS(hit, o) && silent[o] < TTL));
	IF(!n, base = 0; rest = 0; hit = 0; mended = 0; most = 0);
	n = 0;
	do
	:: o < OWNERS -> promised(o); o++
	:: else -> o = 0; break
	od;
	IF(lone && !entries[lone - 1] && silent[lone - 1] > TTL, lone = 0; quiet = 1);
	/* prune */
	EACH(IF(rec[o] && !runs[o] && !entries[o] && last[o] >= TTL + 2 * GRACE && since >= 2 * GRACE + DUE, forget(o)))
}

#define MORE (!EVENTS || events < EVENTS)
#define COUNT events = (EVENTS -> events + 1 : 0)

#define OWNER(i) \
	:: d_step { ABLE(i) && (DEATHS || sock[i]) && MORE -> COUNT; printf("> owner %d is cut off\n", i); IF(sock[i], trouble()); strike(i); off[i] = CUT } \
	:: d_step { runs[i] && off[i] && !down -> printf("> owner %d is mended, and beats\n", i); off[i] = 0; beat(i) } \
	:: d_step { DEATHS && runs[i] && !off[i] && MORE -> COUNT; printf("> owner %d dies\n", i); die(i) } \
	:: d_step { ABLE(i) && !silent[i] && MORE -> COUNT; printf("> owner %d says goodbye\n", i); leave(i, 0) } \
	:: d_step { DEATHS && ABLE(i) && !silent[i] && sock[i] && MORE -> COUNT; printf("> owner %d says goodbye, and leaves an entry\n", i); leave(i, 1) } \
	:: d_step { ABLE(i) && !sock[i] && MORE -> COUNT; printf("> a device connects to owner %d\n", i); sock[i] = 1; beat(i) } \
	:: d_step { ABLE(i) && sock[i] && MORE -> COUNT; printf("> the devices of owner %d leave\n", i); sock[i] = 0; beat(i) } \
	:: d_step { !rec[i] && !down && MORE -> COUNT; printf("> owner %d joins\n", i); runs[i] = 1; beat(i) } \
	:: d_step { entries[i] && !down -> verdict(i); IF(go, printf("> owner %d is swept\n", i); sweep(i)) }

#define TURNS_AWAY(i) \
	:: d_step { ABLE(i) && MORE -> COUNT; printf("> Redis turns owner %d away\n", i); \
		trouble(); off[i] = REFUSED; refused_at = 0 }

init {
	atomic {
		do
		:: o < OWNERS ->
			if
			:: o < 3 || sock[o - 1] -> rec[o] = 1; runs[o] = 1; sock[o] = 1; entries[o] = 1; state[o] = HOLDS; printf("> owner %d holds\n", o)
			:: o > 1 && rec[o - 1] -> rec[o] = 1; runs[o] = 1; printf("> owner %d is idle\n", o)
			:: o > 1
			fi;
			o++
		:: else -> o = 0; break
		od
	}
end:	do
	OWNER(0)
	OWNER(1)
#if OWNERS > 2
	OWNER(2)
#endif
#if OWNERS > 3
	OWNER(3)
#endif
	:: d_step { printf("> a tick of time\n"); advance(UP) }
#if REFUSALS
	TURNS_AWAY(0)
	TURNS_AWAY(1)
	:: d_step { refused_at && !down -> printf("> Redis turns a stranger away\n"); trouble(); refused_at = 0 }
#endif
#if OUTAGES
	:: d_step { MORE -> COUNT; printf("> a tick of time, Redis does not answer\n"); advance(DOWN) }
	:: d_step { MORE -> COUNT; printf("> a tick of time, nobody listens\n"); advance(UNHEARD) }
#endif
	od
}
