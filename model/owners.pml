/* Owners: registry/owner.lua, boot.lua, beat.lua, register.lua, heal.lua, release.lua, goodbye.lua,
 * table.go, dispute.go, reconcile.go. README.md lists what is left out; check runs it.
 *
 * Questions: does the owner that has the device ever lose its entry? Does an entry ever exist
 * without a heartbeat? And once faults end: is the device routable at its owner, and is nothing
 * of the dead left?
 *
 * There is one device. Lives 0 and 1 are two processes with the same instance id, life 1 the
 * newer; life 2 is another owner. The device reconnects at any time, and its former socket stays
 * half open for ever, unless a life closes it: the newest handshake wins. A life may be paused at
 * any time: then it takes no steps, and its heartbeat may expire.
 *
 * Progress is checked as a bounded safety property: faults may end in every state. Then each life
 * does its due work ROUNDS times, the sweeps run once a round, and the model asserts that all is
 * well. That finds a shortest trace, and needs no search for cycles under fairness. The device is
 * routable even if nobody sweeps, and says nothing.
 *
 * An owner whose heartbeat expired is dead for everybody. One whose heartbeat Redis lost is not: its
 * record is fresh, or missing (doubt.pml shows what that is worth).
 *
 * Each define removes one rule. Then spin must find an assertion that fails:
 *   NO_BOOT_TOKEN     a script does not look for a newer life of its instance id
 *   NO_LIFE_FIRST     who writes an entry does not write the heartbeat in the same step
 *   RELEASE_ANY       a release does not look whom the entry names
 *   HEAL_ANY          a heal overwrites the entry of a living instance
 *   NO_TIMES          who is asked gives way, whatever the handshakes' times
 *   LANDING           the time when a registration lands counts as that of its handshake
 *   NOBODY_ASKED      two owners of the device do not talk to each other
 *   NO_HEAL           what Redis lost is not put back
 *   NO_SUCCESSION     an entry that names a dead instance waits for the sweep
 *   OVER_THE_LIVING   it is overwritten whether that instance has a heartbeat or not
 *   OVER_A_RECORD     it is overwritten whatever that instance's record says
 *   NO_HANDING_BACK   what names an owner, and is not held by it, stays
 *   NO_INDEX          a registration does not write the index
 *   NO_FULL_SCAN      the sweeps look at the index only
 */

#ifndef ROUNDS
#define ROUNDS 3
#endif
#define NOBODY 0
#define ID(l) ((l) == 2 -> 2 : 1)
#define L 3

/* Redis. */
byte entry;       /* the id it names */
byte beats[3];    /* by id: life + 1 of the heartbeat's token; 0: none */
bool indexed[3];  /* by id: the index has the device */

/* The lives. */
#define UNBORN 0
#define RUNS 1
#define ENDED 2
byte life[L];
#define REGISTERING 1
#define HELD 2
#define RELEASING 3
byte claim[L];
byte seen[L];     /* the foreign id it has seen in the entry */
byte time[L];     /* rank of its handshake: 3 is the newest */
bool late[L];     /* a registration of it was sent and may still land */

bool robbed[3];   /* by id: Redis lost the heartbeat early, and none has come since */

byte at = L;      /* the life that the device is connected to; L: none */
bool index_lost, calm, unswept;

/* Scratch; zero between steps. */
byte l, round, k;
bool back;

#ifdef NO_BOOT_TOKEN
#define NEWEST(l) 1
#else
#define NEWEST(l) (beats[ID(l)] <= l + 1)
#endif

/* A newer life has begun: it closes its sockets and ends. */
inline ends(l) {
	life[l] = ENDED; claim[l] = 0; seen[l] = 0;
	at = (at == l -> L : at)
}

inline writes(l) {
#ifndef NO_LIFE_FIRST
	beats[ID(l)] = l + 1; robbed[ID(l)] = 0;
#endif
	assert(beats[ID(l)]);                  /* an entry without a heartbeat */
	entry = ID(l)
}

inline lands(l) {
	if
	:: NEWEST(l) ->
		writes(l);
#ifndef NO_INDEX
		indexed[ID(l)] = 1
#endif
	:: else
	fi
}

inline newest(l) {
	k = 0;
	do
	:: k < L -> time[k] = (time[k] > time[l] -> time[k] - 1 : time[k]); k++
	:: else -> break
	od;
	k = 0; time[l] = 3
}

inline register(l) {
	if
	:: NEWEST(l) ->
		lands(l);
#ifdef LANDING
		newest(l);
#endif
		claim[l] = HELD; seen[l] = 0
	:: else -> ends(l)
	fi
}

/* A newer life has it, and has a heartbeat. */
#define NEWER_HAS(l) (at < L && at > l && ID(at) == ID(l) && claim[at] == HELD && beats[ID(l)] == at + 1)

inline release(l) {
	if
	:: NEWEST(l) ->
		if
#ifdef RELEASE_ANY
		:: entry != NOBODY ->
#else
		:: entry == ID(l) ->
#endif
			assert(entry == ID(l));            /* a wrong delete: it is another's */
			assert(!NEWER_HAS(l));             /* a wrong delete: a newer life has it */
			entry = NOBODY
		:: else
		fi;
		indexed[ID(l)] = 0;
		claim[l] = (late[l] -> RELEASING : 0)
	:: else -> ends(l)
	fi
}

/* The entry's instance is dead. With two ids, that is the one that was seen. */
#ifdef OVER_THE_LIVING
#define DEAD(id) (!robbed[id])
#elif defined(OVER_A_RECORD)
#define DEAD(id) (!beats[id])
#else
#define DEAD(id) (!beats[id] && !robbed[id])
#endif

inline heal(l) {
	if
	:: !NEWEST(l) -> ends(l)
	:: NEWEST(l) ->
		if
		:: entry == NOBODY ->
#ifdef NO_HEAL
			skip
#else
			writes(l); indexed[ID(l)] = 1
#endif
		:: entry == ID(l) -> beats[ID(l)] = l + 1; robbed[ID(l)] = 0; indexed[ID(l)] = 1
#ifndef NO_SUCCESSION
		:: entry != NOBODY && entry != ID(l) && seen[l] == entry && DEAD(entry) ->
			assert(at == l || at == L || ID(at) != entry || !beats[entry] && !robbed[entry]); /* theft: its owner lives */
			writes(l); indexed[ID(l)] = 1; seen[l] = 0
#endif
#ifdef HEAL_ANY
		:: entry != NOBODY && entry != ID(l) ->
			assert(at == l);                   /* theft: the device is elsewhere */
			writes(l); indexed[ID(l)] = 1; seen[l] = 0
#endif
		:: else ->
			beats[ID(l)] = l + 1; robbed[ID(l)] = 0; indexed[ID(l)] = 0; seen[l] = entry
		fi
	fi
}

/* Entries of an older life are handed back; the index or a scan of the registry finds them. */
inline hand_back(l) {
#ifndef NO_HANDING_BACK
	if
	:: claim[l] == 0 && (indexed[ID(l)] || entry == ID(l)) -> release(l)
	:: else
	fi
#else
	skip
#endif
}

inline loses(l) {
	assert(at != l);                       /* a living socket is closed: no newer one is there */
	claim[l] = RELEASING; seen[l] = 0
}

#ifdef NO_TIMES
#define OLDER(m, l) 1
#else
#define OLDER(m, l) (time[m] < time[l])
#endif

/* Life l, whose entry names the id of m, asks it; all messages arrive. */
inline ask(l, m) {
	if
	:: life[m] == RUNS && ID(m) == seen[l] && claim[l] == HELD ->
		if
		:: claim[m] == 0 -> hand_back(m)
		:: (claim[m] == HELD || claim[m] == REGISTERING) && OLDER(m, l) -> loses(m)
		:: (claim[m] == HELD || claim[m] == REGISTERING) && !OLDER(m, l) -> loses(l)
		:: else
		fi
	:: else
	fi
}

inline asks(l) {
#ifndef NOBODY_ASKED
	if
	:: life[l] == RUNS && claim[l] == HELD && seen[l] -> ask(l, 0); ask(l, 1); ask(l, 2)
	:: else
	fi
#else
	skip
#endif
}

inline beat(l) {
	if
	:: NEWEST(l) -> beats[ID(l)] = l + 1; robbed[ID(l)] = 0
	:: else -> ends(l)
	fi
}

/* The guard deletes entries of a dead owner, by the index or a full scan. */
inline sweep(id) {
	if
	:: !beats[id] && !robbed[id] ->
		if
#ifndef NO_FULL_SCAN
		:: entry == id && (indexed[id] || index_lost) -> entry = NOBODY
#else
		:: entry == id && indexed[id] -> entry = NOBODY
#endif
		:: else
		fi;
		indexed[id] = 0
	:: else
	fi
}

inline connect(l) {
	at = l; claim[l] = REGISTERING; seen[l] = 0;
	newest(l)
}

/* The due work of life l. */
inline due(l) {
	if
	:: life[l] == RUNS ->
		beat(l);
		if
		:: life[l] == RUNS && claim[l] == REGISTERING -> register(l)
		:: life[l] == RUNS && claim[l] == RELEASING -> release(l)
		:: life[l] == RUNS && claim[l] == HELD -> heal(l); heal(l); asks(l)
		:: life[l] == RUNS && claim[l] == 0 -> hand_back(l)
		:: else
		fi
	:: else
	fi
}

/* Messages under way land, all that run beat, heartbeats of the dead expire. */
inline faults_end() {
	l = 0;
	do
	:: l < L ->
		if
		:: late[l] -> lands(l); late[l] = 0
		:: else
		fi;
		l++
	:: else -> break
	od;
	l = 0;
	/* of two running lives the newer beats last */
	beats[1] = (life[1] == RUNS -> 2 : (life[0] == RUNS -> 1 : 0));
	beats[2] = (life[2] == RUNS -> 3 : 0);
	robbed[1] = 0; robbed[2] = 0
}

/* A half-open socket without a rival stays. */
#define OPEN(l, id) (ID(l) == id && life[l] == RUNS && (claim[l] == HELD || claim[l] == REGISTERING))
#define HOLDS(id) (OPEN(0, id) || OPEN(1, id) || OPEN(2, id))

/* It resets everything at the end, so that all runs end in one state. */
inline be_calm() {
	faults_end();
	do
	:: round < ROUNDS ->
		if
		:: back -> due(2); due(1); due(0)
		:: else -> due(0); due(1); due(2)
		fi;
		if
		:: unswept
		:: else -> sweep(1); sweep(2)
		fi;
		round++
	:: else -> break
	od;
	assert(at == L || entry == ID(at) && beats[ID(at)]); /* lost progress: not routable where it is */
	assert(at < L || unswept || entry == NOBODY || HOLDS(entry)); /* lost progress: an entry of the dead stays */
	calm = 1; round = 0; back = 0; unswept = 0; robbed[1] = 0; robbed[2] = 0; at = 0; entry = 0; index_lost = 0;
	do
	:: l < L ->
		life[l] = 0; claim[l] = 0; seen[l] = 0; time[l] = 0; late[l] = 0; beats[l] = 0; indexed[l] = 0;
		l++
	:: else -> break
	od;
	l = 0
}

#define LIFE(l) \
	:: d_step { life[l] == UNBORN && (l != 1 || life[0] != UNBORN) && !(l == 0 && life[1] != UNBORN) -> \
		printf("> life %d boots\n", l); life[l] = RUNS; beats[ID(l)] = l + 1; robbed[ID(l)] = 0 } \
	:: d_step { life[l] == RUNS && (claim[l] == 0 || claim[l] == HELD) && at != l -> \
		printf("> the device connects to life %d\n", l); connect(l) } \
	:: d_step { life[l] == RUNS && claim[l] == REGISTERING -> \
		printf("> life %d registers\n", l); register(l) } \
	:: d_step { life[l] == RUNS && claim[l] == REGISTERING && !late[l] -> \
		printf("> a registration of life %d is held up\n", l); late[l] = 1 } \
	:: d_step { late[l] -> \
		printf("> the registration of life %d lands\n", l); lands(l); late[l] = 0 } \
	:: d_step { late[l] -> \
		printf("> the registration of life %d is lost\n", l); late[l] = 0 } \
	:: d_step { life[l] == RUNS && (claim[l] == HELD || claim[l] == REGISTERING) -> \
		printf("> the socket at life %d closes\n", l); \
		claim[l] = RELEASING; seen[l] = 0; at = (at == l -> L : at) } \
	:: d_step { life[l] == RUNS && claim[l] == RELEASING -> \
		printf("> life %d releases\n", l); release(l) } \
	:: d_step { life[l] == RUNS && claim[l] == HELD -> \
		printf("> life %d checks its entry\n", l); heal(l) } \
	:: d_step { life[l] == RUNS && claim[l] == HELD && seen[l] -> \
		printf("> life %d asks the owner that it has seen\n", l); asks(l) } \
	:: d_step { life[l] == RUNS && claim[l] == 0 -> \
		printf("> life %d hands back what it does not hold\n", l); hand_back(l) } \
	:: d_step { life[l] == RUNS -> \
		printf("> life %d beats\n", l); beat(l) } \
	:: d_step { life[l] == RUNS && claim[l] == 0 -> \
		printf("> life %d says goodbye\n", l); \
		beats[ID(l)] = (NEWEST(l) && beats[ID(l)] == l + 1 -> 0 : beats[ID(l)]); \
		robbed[ID(l)] = 0; ends(l) } \
	:: d_step { life[l] == RUNS -> printf("> life %d dies\n", l); ends(l) }

#define OWNER(id) \
	:: d_step { beats[id] || robbed[id] -> \
		printf("> the heartbeat of id %d expires\n", id); beats[id] = 0; robbed[id] = 0 } \
	:: d_step { beats[id] -> \
		printf("> Redis loses the heartbeat of id %d\n", id); beats[id] = 0; robbed[id] = 1 } \
	:: d_step { !beats[id] && !robbed[id] && (entry == id || indexed[id]) -> \
		printf("> the leader sweeps id %d\n", id); sweep(id) }

init {
	do
	:: !calm ->
		if
		LIFE(0)
		LIFE(1)
		LIFE(2)
		OWNER(1)
		OWNER(2)
		:: d_step { entry != NOBODY -> printf("> Redis loses the entry\n"); entry = NOBODY }
		:: d_step { indexed[1] || indexed[2] || entry != NOBODY ->
			printf("> Redis loses all\n");
			index_lost = 1; entry = NOBODY; indexed[1] = 0; indexed[2] = 0;
			robbed[1] = (robbed[1] || beats[1]); robbed[2] = (robbed[2] || beats[2]);
			beats[1] = 0; beats[2] = 0 }
		:: d_step { indexed[1] -> printf("> Redis loses the index of id 1\n"); index_lost = 1; indexed[1] = 0 }
		/* Faults end. */
		:: d_step { printf("> faults end, life 0 is first\n"); be_calm() }
		:: d_step { printf("> faults end, life 2 is first\n"); back = 1; be_calm() }
		:: d_step { printf("> faults end, nobody sweeps\n"); unswept = 1; be_calm() }
		fi
	:: calm -> break
	od
}
