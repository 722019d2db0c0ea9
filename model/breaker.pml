/* An exhaustive model of the mass-failure breaker: janitor/breaker.go, owners.go,
 * registry/internal/sweeps, guard/hold.lua, forget.lua. docs/reference/model.md lists
 * what is left out and assumed; check runs it.
 *
 * Question: can entries be deleted while more than half of the owners fell silent within a TTL or
 * are overdue, without a hold of reason mass_failure for that?
 *
 * One owner, the leader, never falls silent. OWNERS others do and come back. Terms change at any
 * time. Each run chooses whether a reverse index and a roster exist, and which owners have
 * entries.
 *
 * Each define removes one protection, and then spin must find a wrong delete:
 *   NO_BREAKER       owners are never counted
 *   FORGET_AT_ONCE   an owner without an index is taken off the roster as soon as it is silent
 *   NOT_OVERDUE      owners that are overdue do not count
 *   OLD_READINGS     the breaker decides by the last look, not by one after the death
 *   NOBODY_MET       a new leader's first full scan reports no owner to the breaker
 * These ask something else:
 *   NOTHING_SWEPT    an assertion that fails if anything is ever deleted (it must)
 *   OLD_LATER_SCANS  counts owners off the roster that no scan has met silent, too (see docs/reference/model.md)
 */

#ifndef OWNERS
#define OWNERS 2
#endif
#define TTL 2
#define GRACE 3
#define NEVER 6 /* 2 * GRACE: the breaker's pause between two holds */

bool roster_kept, index_kept;

/* The owners, and Redis. Ages stop at TTL. */
bool beats[OWNERS];   /* its heartbeat exists */
byte silent[OWNERS];  /* for how long not; 0 while it does */
bool overdue[OWNERS]; /* its heartbeat exists, but the owner beats no more */
bool listed[OWNERS];  /* on the roster */
bool entries[OWNERS]; /* some name it; the index, if kept, has the same */
byte hold = NEVER;    /* since the last hold of reason mass_failure; others are not modelled */

/* The term: the tracker and the watch. */
#define UNKNOWN 0
#define ALIVE 1
#define FALLEN 2
byte seen[OWNERS];
byte from[OWNERS];  /* ALIVE: since when */
byte fell[OWNERS];  /* FALLEN: since when */
bool late[OWNERS];  /* ALIVE, and overdue when it was last asked for */
bool whole;         /* a full scan has met every owner */
bool bare[OWNERS]; /* silent, and a full scan of this term met no entry of it */

/* The full scan under way: the next page; each page is one owner's. */
#define IDLE 255
byte page = IDLE;
bool second;         /* the second walk, for those that the first one left */
bool later[OWNERS];
bool clean[OWNERS];  /* silent before the scan began, no entry met so far */

/* Known to the assertion only. */
bool known[OWNERS];  /* this term saw it alive since its return, or met it in its first full scan */
bool found[OWNERS];  /* a scan of this term met it, knowing it silent */
bool swept[OWNERS];  /* none of it is left, and the breaker was asked for that */

/* Scratch; zero between steps. */
byte o, n, all;
bool ok;

#define EACH(body) o = 0; do :: o < OWNERS -> body; o++ :: else -> break od; o = 0

/* judged: what any look finds out about owner i. */
inline judged(i) {
	known[i] = known[i] || beats[i];
	late[i] = beats[i] && overdue[i];
	if
	:: seen[i] != ALIVE && beats[i] -> seen[i] = ALIVE; from[i] = 0; fell[i] = 0; clean[i] = 0
	:: seen[i] == ALIVE && !beats[i] -> seen[i] = FALLEN; fell[i] = 0; from[i] = 0
	:: else
	fi
}

/* A look at the whole roster, and at the others that live. */
inline look() {
	EACH(if
	:: listed[o] || seen[o] == ALIVE -> judged(o)
	:: else
	fi;
	bare[o] = bare[o] && listed[o] && !beats[o])
}

/* permit asks the breaker. ok: it allows the batch. */
inline permit() {
#ifdef OLD_READINGS
	EACH(if
	:: seen[o] == ALIVE && !beats[o] -> seen[o] = FALLEN; fell[o] = 0; from[o] = 0; late[o] = 0
	:: else
	fi);
#else
	look();
#endif
	n = 0; all = 1; /* the leader lives */
	EACH(if
	:: seen[o] == FALLEN -> n++; all++
#ifndef NOT_OVERDUE
	:: seen[o] == ALIVE && late[o] -> n++; all++
#endif
	:: seen[o] == ALIVE && from[o] == TTL && !late[o] -> all++
#ifdef NOT_OVERDUE
	:: seen[o] == ALIVE && from[o] == TTL && late[o] -> all++
#endif
	:: else
	fi);
	ok = 1;
	if
#ifndef NO_BREAKER
	:: n >= 2 && 2 * n > all && hold == NEVER -> hold = 0; ok = 0
#endif
	:: else
	fi;
	n = 0; all = 0
}

/* The assertion at each delete, from the owners themselves and not from the tracker. */
inline believable() {
	n = 0; all = 1;
	EACH(if
	:: beats[o] ->
		all++;
		n = n + (overdue[o] && (roster_kept || known[o]))
	:: !beats[o] && silent[o] < TTL && !swept[o] ->
		all++;
#ifdef OLD_LATER_SCANS
		n++
#else
		n = n + (roster_kept || found[o])
#endif
	/* Silent for longer than this term knows; without a roster, since a page of the scan met it
	 * alive. */
	:: !beats[o] && !(silent[o] < TTL && !swept[o]) && (seen[o] == FALLEN || !roster_kept && seen[o] == ALIVE) -> all++
	:: else
	fi);
	assert(!(n >= 2 && 2 * n > all && hold == NEVER)); /* a delete of more than half, without a hold */
#ifdef NOTHING_SWEPT
	assert(false); /* a delete */
#endif
	n = 0; all = 0
}

/* A batch about owner i: the breaker, then the guard. ok: not held. */
inline batch(i) {
	permit();
	ok = ok && hold >= GRACE;
	if
	:: ok && !beats[i] && entries[i] ->
		believable();
		entries[i] = 0;
		swept[i] = !listed[i]
	:: else
	fi
}

inline forget(i) {
	if
	:: !beats[i] && !(index_kept && entries[i]) -> listed[i] = 0; bare[i] = 0
	:: else
	fi
}

/* A new term: the roster is read, and each instance on it counts as alive a TTL ago. */
inline begin() {
	d_step {
		printf("> a term begins\n");
		EACH(seen[o] = (listed[o] -> ALIVE : UNKNOWN);
		from[o] = (listed[o] -> TTL : 0);
		fell[o] = 0; late[o] = 0; bare[o] = 0; later[o] = 0; clean[o] = 0; found[o] = 0; known[o] = 0);
		whole = 0; page = IDLE; second = 0;
		look()
	}
}

inline stop() {
	page = IDLE; second = 0;
	EACH(later[o] = 0; clean[o] = 0)
}

/* The quick way, at a silent owner i of the roster. */
inline quick(i) {
	d_step {
		printf("> the quick way comes to owner %d\n", i);
#ifdef FORGET_AT_ONCE
		ok = !(index_kept && entries[i]);
#else
		ok = 0;
#endif
		if
		:: ok -> forget(i)
		:: !ok && hold >= GRACE && index_kept && entries[i] ->
			batch(i);
			if
			:: ok ->
				permit();
				if
				:: ok -> forget(i); swept[i] = !listed[i]
				:: else
				fi
			:: else
			fi
		:: !ok && hold >= GRACE && !(index_kept && entries[i]) && bare[i] ->
			permit();
			if
			:: ok -> forget(i); swept[i] = !listed[i] && !entries[i]
			:: else
			fi
		:: else
		fi;
		ok = 0
	}
}

/* One page of the full scan. */
inline walk() {
	d_step {
		printf("> the full scan comes to owner %d\n", page);
		ok = 1;
		if
		:: entries[page] && !second ->
			clean[page] = 0;
			known[page] = known[page] || (seen[page] == UNKNOWN && !whole);
#ifndef NOBODY_MET
			if
			:: seen[page] == UNKNOWN && !whole -> seen[page] = ALIVE; from[page] = TTL
			:: else
			fi;
#endif
			judged(page);
			found[page] = !beats[page] && known[page];
			if
			:: !beats[page] && !listed[page] -> later[page] = 1
			:: !beats[page] && listed[page] -> batch(page)
			:: else
			fi
		:: entries[page] && second && later[page] ->
			judged(page);
			if
			:: !beats[page] -> batch(page)
			:: else
			fi
		:: else
		fi;
		if
		:: !ok -> stop()
		:: ok && page + 1 < OWNERS -> page++
		:: ok && page + 1 == OWNERS && !second ->
			whole = 1;
			EACH(bare[o] = bare[o] || (clean[o] && listed[o] && !beats[o]); clean[o] = 0);
			page = 0; second = 1
		:: else -> stop()
		fi;
		ok = 0
	}
}

/* A tick of time. The leader looks more often than that. */
inline advance() {
	d_step {
		printf("> a tick of time\n");
		look();
		EACH(if
		:: !beats[o] && silent[o] < TTL -> silent[o]++
		:: else
		fi;
		if
		:: seen[o] == ALIVE && from[o] < TTL -> from[o]++
		:: seen[o] == FALLEN && fell[o] + 1 < TTL -> fell[o]++
		:: seen[o] == FALLEN && fell[o] + 1 >= TTL -> seen[o] = UNKNOWN; fell[o] = 0 /* prune */
		:: else
		fi);
		if
		:: hold < NEVER -> hold++
		:: else
		fi
	}
}

/* Owner i falls silent. */
inline fall(i) {
	d_step { printf("> owner %d falls silent\n", i); beats[i] = 0; silent[i] = 0; overdue[i] = 0 }
}

/* The others that were cut off at the same time: their heartbeats end later. */
inline lag(i) {
	d_step { printf("> owner %d is overdue\n", i); overdue[i] = 1 }
}

/* It comes back, with old entries, new ones or none. */
inline back(i) {
	atomic {
		beats[i] = 1; silent[i] = 0; overdue[i] = 0; swept[i] = 0; found[i] = 0; known[i] = 0; listed[i] = roster_kept; bare[i] = 0;
		if
		:: entries[i] = 1; printf("> owner %d beats, and has entries\n", i)
		:: printf("> owner %d beats\n", i)
		fi
	}
}

byte i;

init {
	atomic {
		if
		:: roster_kept = 1;
			if
			:: index_kept = 1; printf("> there are a roster and indexes\n")
			:: printf("> there is a roster, and no index\n")
			fi
		:: printf("> there is no roster\n")
		fi;
		do
		:: i < OWNERS -> back(i); i++
		:: else -> i = 0; break
		od;
		begin()
	}
end:	do
	:: atomic {
			if :: i = 0 :: i = 1 :: i = OWNERS - 1 fi;
			if
			:: beats[i] && (seen[i] == ALIVE || !roster_kept) -> fall(i)
			:: beats[i] && !overdue[i] && (seen[i] == ALIVE || !roster_kept) -> lag(i)
			:: !beats[i] -> back(i)
			:: !beats[i] && listed[i] && seen[i] == FALLEN -> quick(i)
			:: !beats[i] && listed[i] && seen[i] == UNKNOWN -> quick(i)
			:: else
			fi;
			i = 0
		}
	:: begin()
	:: page == IDLE && hold >= GRACE -> d_step {
			printf("> a full scan begins\n");
			look();
			EACH(clean[o] = listed[o] && !beats[o]);
			page = 0
		}
	:: page != IDLE -> walk()
	:: advance()
	od
}
