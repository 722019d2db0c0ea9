/* An exhaustive model of the guard and the witness: guard/server.lua, witness.lua, tick.lua,
 * guard.lua. README.md says what is left out and what is assumed; check runs it.
 *
 * Question: can the guard delete entries of an owner that lives?
 *
 * One process takes one step after the other, as a Redis server does. Times are ages in ticks that
 * stop growing where nothing asks any more, so the state space is finite and no run is cut short.
 *
 * Owner 0: settings QUICK, may INFO, its process never ends. Owner 1: at each start one of the two
 * settings, may INFO or may not. Both contend for the lease. With -DOWNERS=3, owner 2: an older writer,
 * QUICK, which only beats.
 *
 * Each define takes one protection out, and then spin must find a wrong delete:
 *   NO_SERVER_IDENTITY      a restart, a promotion, CONFIG RESETSTAT are not noticed
 *   UNREADABLE_OVERWRITES   who may not INFO erases what was recorded of evictions
 *   OWN_GRACE_ONLY          a hold ends after the asker's own grace period
 *   NO_GAP, NO_EVICTED_KEYS
 * These ask something else:
 *   NOTHING_SWEPT           an assertion that fails if anything is ever deleted (it must)
 *   BUSY_AFTER_RESETSTAT    drops the assumption on CONFIG RESETSTAT (see README.md)
 */

#ifndef OWNERS
#define OWNERS 2
#endif
#define QUICK 0
#define SLOW 1
#define NONE 2 /* no settings seen yet */

/* QUICK: interval 1, TTL 3. SLOW: interval 2, TTL 6. GAP = (TTL - interval) / 2, GRACE = TTL + 1. */
#define SETTINGS(i) ((i) == 1 && slow)
#define INTERVAL(i) (SETTINGS(i) -> 2 : 1)
#define TTL(i) (SETTINGS(i) -> 6 : 3)
#define GAP(i) (SETTINGS(i) -> 2 : 1)
#define GRACE(i) (SETTINGS(i) -> 7 : 4)
#define MOST_GRACE 7
#define MOST_GAP 2
#ifndef MEMORY
#define MEMORY 1 /* witness.lua has 10 */
#endif
#define LONG (MEMORY * MOST_GRACE + 1)

/* The owners. */
bool alive[OWNERS];  /* the process is */
byte age[OWNERS];    /* since its last beat that landed; not above its TTL */
bool gone[OWNERS];   /* its heartbeat went before its time */
bool missed[OWNERS]; /* Redis answered, a beat was due, and none landed since */
bool slow;           /* owner 1: its settings */
bool poor;           /* owner 1: it may not INFO */
byte silence;        /* SLOW owner 1: since its last tick; 0 otherwise */

#define BEATS(i) (!gone[i] && age[i] < TTL(i)) /* its heartbeat exists */
/* It lives: it beat within its own TTL, or never failed to where Redis answered. */
#define LIVES(i) (alive[i] && (age[i] < TTL(i) || !missed[i]))
#define MAYINFO(i) (!((i) == 1 && poor))

/* The server. */
bool up = 1;    /* it answers at this instant */
bool other;     /* its run id is not the recorded one, or a counter is below the recorded one */
bool evicted;   /* its evicted_keys differs from the recorded one */

/* The witness: the hash janitor:witness. */
byte since = LONG;
byte last = MOST_GAP + 1; /* as if never */
byte last_settings = NONE;
byte largest;
byte disagreed = LONG;
bool known;         /* run id and counters are recorded */
bool known_evicted; /* so is evicted_keys */

/* Scratch; zero between steps. */
byte need, o;
bool hold;

#define GRACE_OF(s) ((s) == NONE -> 0 : ((s) == SLOW -> 7 : 4))
#define MAX(a, b) ((a) > (b) -> (a) : (b))
#define MIN(a, b) ((a) < (b) -> (a) : (b))

/* Values between which nothing tells any more become one. Where all settings seen are QUICK, only they
 * are asked for: others are a hold. */
inline settle() {
	if
	:: largest == 4 && last_settings == QUICK ->
		disagreed = LONG;
		if
		:: since >= 4 -> since = LONG
		:: else
		fi
	:: else
	fi
}

/* listen by contender c; leaves need. */
inline listen(c) {
	hold = 0;
	if
#ifndef NO_GAP
	:: last > GAP(c) -> hold = 1
#endif
	:: else ->
		if
		:: MAYINFO(c) ->
#ifdef NO_SERVER_IDENTITY
			hold = known_evicted && evicted
#elif defined(NO_EVICTED_KEYS)
			hold = !known || other
#else
			hold = !known || other || (known_evicted && evicted)
#endif
		:: else ->
#ifdef UNREADABLE_OVERWRITES
			skip
#else
			hold = known
#endif
		fi
	fi;
	largest = MAX(largest, GRACE_OF(last_settings));
	if
	:: last_settings != NONE && last_settings != SETTINGS(c) -> hold = 1; disagreed = 0
	:: else
	fi;
	if
	:: hold -> since = 0
	:: else
	fi;
	need = GRACE(c);
#ifndef OWN_GRACE_ONLY
	if
	:: MIN(disagreed, since) <= MEMORY * largest -> need = MAX(need, largest)
	:: else
	fi;
#endif
	largest = need;
	last_settings = SETTINGS(c);
	if
	:: MAYINFO(c) -> known = 1; known_evicted = 1; other = 0; evicted = 0
	:: else ->
#ifdef UNREADABLE_OVERWRITES
		known_evicted = 0; evicted = 0
#else
		skip
#endif
	fi;
	last = 0;
	settle();
	if
	:: c == 1 -> silence = 0
	:: else
	fi;
	hold = 0
}

inline tick(c) {
	d_step { listen(c); need = 0 }
}

/* A batch of contender c, who leads now (the lease changes hands at any time), about owner v. */
inline batch(c, v) {
	d_step {
		listen(c);
		if
		:: since < need -> skip
		:: since >= need && !BEATS(c) -> since = 0 /* self_check */
		:: else ->
			if
			:: BEATS(v) -> skip
			:: else ->
				assert(!LIVES(v));
#ifdef NOTHING_SWEPT
				assert(false);
#endif
			fi
		fi;
		need = 0
	}
}

inline beat(i) {
	d_step { age[i] = 0; gone[i] = 0; missed[i] = 0 }
}

/* Its heartbeat goes before its time. */
inline vanish(i) {
	if
	:: BEATS(i) -> gone[i] = 1
	:: else
	fi
}

/* Any of the heartbeats vanish. */
inline some_vanish() {
	if :: vanish(0) :: skip fi;
	if :: vanish(1) :: skip fi
#if OWNERS > 2
	; if :: vanish(2) :: skip fi
#endif
}

/* evicted_keys starts anew: it is what was recorded, or differs. */
inline counted_anew() {
	if
	:: known_evicted -> if :: evicted = 0 :: evicted = 1 fi
	:: else
	fi
}

#define OLDER(x, most) x = (x < most -> x + 1 : x)

/* A tick of time, into an instant in which the server answers (now) or not. */
inline advance(now) {
	d_step {
		o = 0;
		do
		:: o < OWNERS ->
			if
			:: up && alive[o] && age[o] >= INTERVAL(o) -> missed[o] = 1
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
		OLDER(last, MOST_GAP + 1);
		OLDER(disagreed, LONG);
		if
		:: alive[1] && slow -> OLDER(silence, MOST_GRACE)
		:: !alive[1] && !BEATS(1) -> slow = 0; gone[1] = 0; age[1] = TTL(1)
		:: else
		fi;
		up = now
	}
}

/* Assumptions without which time does not go on; README.md gives the reasons. */
/* Who beats also ticks, at least once in its own GRACE. */
#define TICKED (!(alive[1] && slow && age[1] == 0) || silence < MOST_GRACE)
/* Somebody who may INFO ticks within a GRACE of a new witness. */
#define READ (!up || known || last > MOST_GAP || since < 3)

init {
	d_step {
		alive[0] = 1;
		age[1] = TTL(1);
#if OWNERS > 2
		age[2] = TTL(2);
#endif
	}
end:	do
	/* Owners. A process that ends leaves its heartbeat behind. */
	:: up && alive[0] -> beat(0)
	:: up && alive[1] -> beat(1)
#if OWNERS > 2
	:: up && alive[2] -> beat(2)
#endif
	:: alive[1] -> d_step { alive[1] = 0; missed[1] = 0; silence = 0; poor = 0 }
#if OWNERS > 2
	:: alive[2] -> d_step { alive[2] = 0; missed[2] = 0 }
#endif
	:: up && !alive[1] -> atomic {
			if :: slow = 0 :: slow = 1 fi;
			if :: poor = 0 :: poor = 1 fi;
			alive[1] = 1;
			silence = (slow -> MOST_GRACE : 0); /* it has to tick at once */
			beat(1)
		}
#if OWNERS > 2
	:: up && !alive[2] -> atomic { alive[2] = 1; beat(2) }
#endif

	/* Contenders. */
	:: up -> tick(0)
	:: up && alive[1] -> tick(1)
	:: up -> batch(0, 1)
#if OWNERS > 2
	:: up -> batch(0, 2)
#endif
	:: up && alive[1] -> batch(1, 0)
#if OWNERS > 2
	:: up && alive[1] -> batch(1, 2)
#endif

	/* Redis evicts a heartbeat. A counter that had fallen may reach the recorded one again. */
	:: atomic {
			up && (BEATS(0) || BEATS(1) || BEATS(OWNERS - 1)) ->
			if
			:: BEATS(0) -> gone[0] = 1
			:: BEATS(1) -> gone[1] = 1
			:: BEATS(OWNERS - 1) -> gone[OWNERS - 1] = 1
			fi;
			if
			:: !known_evicted
			:: known_evicted -> evicted = 1
			:: known_evicted && evicted && other -> evicted = 0
			fi
		}
	/* It restarts with its file. */
	:: atomic { known -> other = 1; counted_anew() }
	/* A replica that lacks the last writes is promoted; its counters are its own. */
	:: atomic {
			known -> other = 1;
			counted_anew();
			if :: OLDER(last, MOST_GAP + 1) :: skip fi;
			some_vanish()
		}
	/* CONFIG RESETSTAT. */
	:: atomic {
			up && known ->
#ifndef BUSY_AFTER_RESETSTAT
			other = 1;
#endif
			counted_anew()
		}
	/* Its clock jumps by more than a GAP, forward or back. */
	:: atomic {
			last = MOST_GAP + 1;
			if :: disagreed = LONG; some_vanish() :: disagreed = 0 fi
		}
	/* Somebody deletes the witness, in a fleet that agrees. */
	:: d_step {
			up && !(alive[1] && slow) && last_settings == QUICK && largest == 4 ->
			since = LONG; last = MOST_GAP + 1; last_settings = NONE; largest = 0; disagreed = LONG;
			known = 0; known_evicted = 0; other = 0; evicted = 0
		}

	/* Time. */
	:: TICKED && READ -> advance(1)
	:: TICKED && READ -> advance(0)
	od
}
