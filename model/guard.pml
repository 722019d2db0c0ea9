/* Lease, epoch, fence and the guard's script: lease/epoch.lua, internal/guard/open.lua, guard.lua, fates.go,
 * internal/guard/evict.lua, janitor/batcher.go. README.md lists what is left out; check runs it.
 *
 * Questions: does a term delete anything after a newer one has begun, or anything of an owner
 * that is not dead? Does each process' counter always agree with the log? Is the newest term ever
 * rejected as over while it holds the lease?
 *
 * TERMS terms follow each other, of the same process or different ones. A term may be paused at
 * any time: then it takes no steps, and its requests arrive later. Requests arrive late, twice,
 * or never, and replies are lost. One dead owner has one entry.
 *
 * Each define removes one rule. Then spin must find an assertion that fails:
 *   NO_ASKED_BEFORE  a batch that was done is not recognized when it is asked again
 *   NO_LEASE_TOKEN   the guard does not look at the lease
 *   NO_FENCE         the log takes a record below its newest
 *   NO_OPENING       a term writes no record when it begins
 *   ANY_OPENING      an opening of the same epoch counts as one's own, whoever wrote it
 *   LATE_OPENING     neither the draw nor the opening looks at the lease
 *   NO_REDRAW        a term goes on with an epoch that the log does not take
 *   SAME_DRAW        who draws again forgets what it has met in the log
 *   OWNER_NOT_ASKED  the guard does not look at the owner's heartbeat
 *   OLD_READING      nor whether its record is still what the leader has judged
 *   NOT_JUDGED_AGAIN the body does not look whom an entry names
 *   NO_RIGHTS_CHECK  the body does not look whether its user may delete
 *   FATES_APART      a fate is read from the log first, then from the lease
 */

#ifndef TERMS
#define TERMS 2
#endif
#ifndef BATCHES
#define BATCHES 1            /* of one term */
#endif
#define N (BATCHES + 1)      /* ids of one epoch; <epoch>-0 is its opening */
#define EPOCHS 4             /* no higher one is drawn */
#define ACC(t, n) ((t) * BATCHES + (n) - 1)

/* The server. Terms are numbered from 0; a token is the term's number + 1. */
byte lease;                  /* the token it holds; 0: none */
byte drawn;                  /* the epoch drawn last */
byte newest;                 /* of the log: epoch * N + n */
byte opener[EPOCHS + 1];     /* the token in the record <epoch>-0 */
byte record[(EPOCHS + 1) * N]; /* of a batch: 1 + how many it deleted; 0: none */
bool beats;                  /* the owner's heartbeat exists */
#define GONE 0
#define DEAD 1
#define OTHER 2
byte entry = DEAD;           /* the owner it names */
bool plain;                  /* the owner writes no record */
bool rights = 1;             /* the janitor's user may HDEL */

/* The terms. */
#define UNBORN 0
#define WON 1
#define DREW 2
#define OPEN 3
byte phase[TERMS];
byte epoch[TERMS];
byte met[TERMS];             /* the highest epoch it has met in the log */
bool stale[TERMS];           /* it has to draw again */
byte n[TERMS];               /* batches asked for */
bool over[TERMS];            /* and it knows that */

/* Accounts of batches. */
#define ASKED 1              /* its fate is unknown */
#define REFUSED 2
#define COUNTED 3
#define NEVER 4              /* closed: it never ran, and cannot any more */
byte account[TERMS * BATCHES];
byte sent[TERMS * BATCHES];  /* copies of its request under way */
bool old[TERMS * BATCHES];   /* the owner has another record than when it was first asked */
bool looked[TERMS * BATCHES]; /* FATES_APART: the log had no record of it */

/* Known to the assertions only. */
byte current;                /* the token of the term that opened last while it held the lease */
byte unknown;                /* deletes in the log that no process has counted yet */
bool came_back;              /* the lease did */

/* Scratch; zero between steps. */
byte id, count;
#define DONE 1
#define FENCED 2
#define KEPT 3               /* ALIVE, WAIT, or an error */
byte answer;

/* State that nothing reads any more is reset. */
inline tidy(t, b) {
	if
	:: !sent[ACC(t, b)] && (account[ACC(t, b)] == COUNTED || account[ACC(t, b)] == NEVER) ->
		account[ACC(t, b)] = COUNTED;
		old[ACC(t, b)] = 0;
		record[epoch[t] * N + b] = 0
	:: else
	fi
}

inline draw(t) {
	if
#ifdef SAME_DRAW
	:: drawn < EPOCHS -> drawn = drawn + 1
#else
	:: drawn < EPOCHS && met[t] < EPOCHS -> drawn = (drawn > met[t] -> drawn : met[t]) + 1
#endif
	fi;
	epoch[t] = drawn;
	phase[t] = DREW
}

#ifdef LATE_OPENING
#define OPENER_HOLDS(t) 1
#else
#define OPENER_HOLDS(t) (lease == t + 1)
#endif
#ifdef NO_OPENING
#define OPENED_BEFORE(t) 1
#elif defined(ANY_OPENING)
#define OPENED_BEFORE(t) (opener[epoch[t]] != 0)
#else
#define OPENED_BEFORE(t) (opener[epoch[t]] == t + 1)
#endif

/* open.lua, of term t; the reply may be lost. */
inline opens(t, heard) {
	answer = DONE;
	id = epoch[t] * N;
	if
	:: !OPENER_HOLDS(t) -> answer = FENCED
	:: OPENER_HOLDS(t) && OPENED_BEFORE(t) ->
		current = (opener[epoch[t]] == t + 1 || lease != t + 1 -> current : t + 1) /* it believes so */
	:: OPENER_HOLDS(t) && !OPENED_BEFORE(t) && id <= newest -> answer = KEPT /* STALE */
	:: else -> newest = id; opener[epoch[t]] = t + 1; current = (lease == t + 1 -> t + 1 : current)
	fi;
	if
	:: !heard -> skip
	:: heard && answer == DONE -> phase[t] = OPEN
	:: heard && answer == FENCED -> over[t] = 1
	:: heard && answer == KEPT ->
#ifdef NO_REDRAW
		phase[t] = OPEN; current = t + 1
#else
		assert(!stale[t]);                                /* lost progress: to draw once is enough */
		stale[t] = 1;
		met[t] = newest / N;
		phase[t] = WON
#endif
	fi;
	id = 0; answer = 0
}

#ifdef NO_ASKED_BEFORE
#define ASKED_BEFORE 0
#else
#define ASKED_BEFORE record[id]
#endif
#ifdef NO_LEASE_TOKEN
#define HOLDS(t) 1
#else
#define HOLDS(t) (lease == t + 1)
#endif
#ifdef OWNER_NOT_ASKED
#define SILENT 1
#else
#define SILENT (!beats)
#endif

#ifdef OLD_READING
#define AS_READ(t, b) 1
#else
#define AS_READ(t, b) (!old[ACC(t, b)])
#endif

/* guard.lua with evict.lua: batch b of term t arrives. */
inline arrives(t, b, heard) {
	sent[ACC(t, b)]--;
	id = epoch[t] * N + b;
	count = 0;
	if
	:: ASKED_BEFORE -> answer = DONE; count = record[id] - 1
	:: !ASKED_BEFORE && !HOLDS(t) -> answer = FENCED
	:: !ASKED_BEFORE && HOLDS(t) && !(SILENT && AS_READ(t, b)) -> answer = KEPT /* ALIVE, or WAIT */
	:: !ASKED_BEFORE && HOLDS(t) && SILENT && AS_READ(t, b) ->
		if
#ifndef NO_RIGHTS_CHECK
		:: !rights -> answer = KEPT
#endif
#ifndef NO_FENCE
		:: rights && id <= newest -> answer = FENCED
#endif
		:: else ->
#ifdef NOT_JUDGED_AGAIN
			count = (entry != GONE);
#else
			count = (entry == DEAD);
#endif
			assert(current == t + 1 || !count);       /* a delete after a newer term has begun */
			assert(!count || !beats);                 /* a wrong delete: its owner lives */
			assert(!count || !old[ACC(t, b)]);        /* a wrong delete: a silence that nobody judged */
			assert(!count || entry == DEAD);          /* a wrong delete: another owner has it */
			assert(account[ACC(t, b)] != NEVER || !count); /* a wrong count: it was settled as nothing */
			record[id] = 1 + count;
			newest = (id > newest -> id : newest);
			unknown = unknown + count;
			assert(rights || !count);                 /* a wrong count: recorded, and still there */
			if
			:: count -> entry = GONE
			:: else
			fi;
			answer = DONE
		fi
	fi;
	if
	:: heard && answer == DONE && (account[ACC(t, b)] == ASKED || account[ACC(t, b)] == REFUSED) ->
		account[ACC(t, b)] = COUNTED;
		assert(count <= unknown);                         /* a wrong count: counted twice */
		unknown = unknown - count
	:: heard && answer == FENCED && account[ACC(t, b)] == ASKED ->
		assert(lease != t + 1 || current != t + 1);       /* lost progress: the newest term ends */
		account[ACC(t, b)] = REFUSED;
		over[t] = 1
	:: heard && answer == KEPT && account[ACC(t, b)] == ASKED && rights -> account[ACC(t, b)] = REFUSED
	:: else
	fi;
	tidy(t, b);
	id = 0; count = 0; answer = 0
}

/* fates.go and pending.go. */
#define RECORDED(t, b) (record[epoch[t] * N + (b)])
inline fate(t, b) {
	if
	:: RECORDED(t, b) ->
		account[ACC(t, b)] = COUNTED;
		assert(RECORDED(t, b) - 1 <= unknown);            /* a wrong count: counted twice */
		unknown = unknown - (RECORDED(t, b) - 1)
#ifdef FATES_APART
	:: !RECORDED(t, b) && lease == t + 1 -> looked[ACC(t, b)] = 1
#else
	:: !RECORDED(t, b) && lease != t + 1 -> account[ACC(t, b)] = NEVER
#endif
	:: else
	fi;
	tidy(t, b)
}

inline unsettled(t, b) {
	assert(RECORDED(t, b) < 2);                           /* a wrong count: settled as nothing */
	looked[ACC(t, b)] = 0;
	account[ACC(t, b)] = NEVER
}

/* The possible events of term t. */
#define TERM(t) \
	:: d_step { phase[t] == UNBORN && !lease -> \
		printf("> term %d wins the lease\n", t); phase[t] = WON; lease = t + 1 } \
	:: d_step { phase[t] == WON && OPENER_HOLDS(t) && drawn < EPOCHS && met[t] < EPOCHS -> \
		printf("> term %d draws its epoch\n", t); draw(t) } \
	:: d_step { phase[t] == DREW -> \
		printf("> term %d opens\n", t); opens(t, 1) } \
	:: d_step { phase[t] == DREW -> \
		printf("> term %d opens, the reply is lost\n", t); opens(t, 0) } \
	:: d_step { phase[t] == OPEN && !over[t] && n[t] < BATCHES && entry == DEAD && !beats && \
			(n[t] == 0 || account[ACC(t, n[t])] != ASKED) -> \
		n[t]++; printf("> term %d asks for batch %d\n", t, n[t]); \
		account[ACC(t, n[t])] = ASKED; sent[ACC(t, n[t])] = 1 } \
	:: d_step { n[t] && !over[t] && account[ACC(t, n[t])] == ASKED && sent[ACC(t, n[t])] < 2 -> \
		printf("> term %d asks for batch %d again\n", t, n[t]); sent[ACC(t, n[t])]++ } \
	BATCH(t, 1) SECOND_BATCH(t) \
	:: d_step { phase[t] != UNBORN && !over[t] -> \
		printf("> term %d believes that it is over\n", t); over[t] = 1 }

#define BATCH(t, b) \
	:: d_step { sent[ACC(t, b)] -> \
		printf("> batch %d of term %d arrives\n", b, t); arrives(t, b, 1) } \
	:: d_step { sent[ACC(t, b)] -> \
		printf("> batch %d of term %d arrives, the reply is lost\n", b, t); arrives(t, b, 0) } \
	:: d_step { over[t] && (account[ACC(t, b)] == ASKED || account[ACC(t, b)] == REFUSED) && !looked[ACC(t, b)] -> \
		printf("> term %d looks up what became of batch %d\n", t, b); fate(t, b) } \
	APART(t, b)

#ifdef FATES_APART
#define APART(t, b) \
	:: d_step { looked[ACC(t, b)] && lease != t + 1 -> \
		printf("> term %d finds that its lease is gone, and closes batch %d\n", t, b); \
		unsettled(t, b) }
#else
#define APART(t, b)
#endif

#define BEFORE(t, b) old[ACC(t, b)] = (!plain && (sent[ACC(t, b)] || account[ACC(t, b)] == ASKED));
#if TERMS > 2
#define MORE_BEFORE BEFORE(2, 1)
#elif BATCHES > 1
#define MORE_BEFORE BEFORE(0, 2) BEFORE(1, 2)
#else
#define MORE_BEFORE
#endif
#if BATCHES > 1
#define SECOND_BATCH(t) BATCH(t, 2)
#else
#define SECOND_BATCH(t)
#endif

init {
	/* Rights are fixed for the whole run. */
	atomic {
		if
		:: rights = 1
		:: rights = 0; printf("> the janitor's user may not HDEL\n")
		:: plain = 1; printf("> the owner writes no record\n")
		fi
	}
end:	do
	TERM(0)
	TERM(1)
#if TERMS > 2
	TERM(2)
#endif
	:: d_step { lease -> printf("> the lease ends\n"); lease = 0 }
	/* For example if it is on another server than the log, and a replica that lacks the last writes is
	 * promoted there. */
	:: d_step { !came_back && lease != 1 && current == 2 ->
		printf("> the lease of term 0 comes back\n"); lease = 1; came_back = 1 }
	:: d_step { drawn -> printf("> the epoch drawn last is lost\n"); drawn = 0 }
	:: d_step { !beats -> printf("> the owner comes back and registers\n"); beats = 1; entry = DEAD;
		BEFORE(0, 1) BEFORE(1, 1) MORE_BEFORE }
	:: d_step { beats -> printf("> the owner falls silent\n"); beats = 0 }
	:: d_step { entry != OTHER -> printf("> another owner registers the device\n"); entry = OTHER }
	od
}
