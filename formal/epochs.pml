/* Membership epochs, leases and the token, for three servers: spyker/node/{paxos,failure_detector,membership}.py, as a model.
 *
 * Checked, in every reachable state:
 *   - at most one process has a token that it may use;
 * and, from every reachable state: if faults end there, with at most one process still dead or cut off and a majority of
 * the voters within reach, then there will be a token that can be used. (Once faults have ended there is one way on, and
 * it is short; so this is an assertion, and needs no temporal logic.)
 *
 * Processes 0, 1 and 2 are the servers at first; process 3 is put in the place of server V, which is lost with its
 * disk, or merely cut off and believed to be lost. One process may crash and come back from its disk, at any time.
 * Words may be lost and late: whatever was said once may be heard at any later time, or never. So a partition, also one
 * in one direction only, is nothing but words that are not heard while it lasts.
 *
 * A vote is two steps here: voters promise, one by one, and when a majority has, one list is decided, whatever was meant
 * by whoever has promised. That there is one list is shown by formal/vote.pml.
 *
 * Time is not modelled, but what follows from it is: when somebody has waited out the leases after adopting a list, no
 * lease is left that was granted before by those who had stopped granting by then. And a lease lasts as long as it can.
 *
 * With -DFULL, nobody is replaced; instead the disk of one server takes nothing for a while. What the server then learns is in
 * its memory only, and is gone if it crashes (others do not crash then): it makes no promise and passes no token on, and a token that it is given stays
 * with the sender. It may use its token, as it may in the code for a while: whether that is safe does not depend on when it
 * stops. And if faults end there, the others have a token without it.
 *
 * Not covered: more than three servers, one replacement and one crash; more than PRE epochs and PASSES passes of a token
 * before faults end; servers
 * that lie; disks that forget; clocks that run apart by more than the wait allows for; and whether reasons for a vote are
 * good ones (here everybody agrees to everything, which is more than the code permits). The models were written by hand
 * beside the code: that the code does what they do is the subject of `make chaos`.
 *
 * Broken on purpose, to see it fail: -DMAJORITY_OFF_BY_ONE, -DNO_WAIT, -DNO_EPOCH_CHECK, -DNO_LEASES, -DNO_RENEWAL;
 * with -DFULL: -DTOLD_UNSAVED, -DHOLDER_KEEPS_TOKEN.
 */
#ifndef V
#define V 0		/* whose place is taken by process 3; server 0 has the token at first */
#endif
#ifndef PRE
#define PRE 2		/* epochs that may begin while things go wrong */
#endif
#ifndef PASSES
#define PASSES 1	/* how often a token is passed on while things go wrong */
#endif
#define P 4		/* processes */
#ifdef FULL
#define REPLACES 0
#define ABLE(p) (stuck != (p) + 1)
#define SAVED(p) (ABLE(p) -> epoch[p] : disk_epoch)	/* the epoch that it falls back to in a crash */
#else
#define REPLACES 1
#define ABLE(p) 1
#define SAVED(p) epoch[p]
#endif
#define EPOCHS (PRE + 3)

#define OLD 0		/* the entry of server V: as at first, vacant, or process 3 */
#define VACANT 1
#define NEW 2
#define VIEW(entry, leader) ((entry) * 4 + (leader) + 1)	/* a list, in one number; 0 is none */
#define ENTRY(view) (((view) - 1) / 4)
#define LEADER(view) (((view) - 1) % 4)

#define IN(entry, p) (((p) == V && (entry) == OLD) || ((p) == 3 && (entry) == NEW) || ((p) != V && (p) != 3))
#define COUNT(entry, m) ((IN(entry, 0) && ((m) & 1)) + (IN(entry, 1) && ((m) & 2)) + \
			 (IN(entry, 2) && ((m) & 4)) + (IN(entry, 3) && ((m) & 8)))
#ifdef MAJORITY_OFF_BY_ONE
#define MAJORITY(entry, m) (2 * COUNT(entry, m) + 1 >= COUNT(entry, 15))
#else
#define MAJORITY(entry, m) (2 * COUNT(entry, m) > COUNT(entry, 15))
#endif

byte epoch[P];		/* on the disk of each process, but for the last two */
byte view[P];
bool promised[P];
bool token[P];
bool up[P];
bool ripe[P];		/* it has waited out the leases of earlier epochs */
byte passed[P * P];	/* the epoch of a token on its way, + 1; it is on its sender's disk until it has arrived */
byte promises[EPOCHS];	/* who has promised to vote on what follows an epoch */
byte decided[EPOCHS];	/* the lists */
int leases;		/* (epoch, process): it grants no more, and leases that it gave may be left */
int before[P];		/* those that there were when a process began to wait */
bool crashed, lost;
#ifdef FULL
byte stuck;		/* whose disk takes nothing, + 1; and what it holds */
byte disk_epoch, disk_view, taken;	/* taken: by whom tokens were sent that are in memory only */
bool disk_promised, disk_token, filled;
#endif
byte passes;
byte away, i, j, m, found, newest, able;	/* of no meaning between two steps */

#define LEASE(e, p) (1 << ((e) * P + (p)))
#define LENDS(p, j) ((j) == (p) || (epoch[j] == epoch[p] && up[j] && !promised[j]) || (leases & LEASE(epoch[p], j)))
#define LENDERS(p) (LENDS(p, 0) + 2 * LENDS(p, 1) + 4 * LENDS(p, 2) + 8 * LENDS(p, 3))
#define MEMBER(p) (view[p] && IN(ENTRY(view[p]), p))
#ifdef NO_LEASES
#define MAY_LEAD(p) (up[p] && MEMBER(p))
#else
#define MAY_LEAD(p) (up[p] && !promised[p] && ripe[p] && MEMBER(p) && MAJORITY(ENTRY(view[p]), LENDERS(p)))
#endif
#define EFFECTIVE(p) (token[p] && MAY_LEAD(p))
#define ONE_TOKEN assert(EFFECTIVE(0) + EFFECTIVE(1) + EFFECTIVE(2) + EFFECTIVE(3) <= 1)
#define MAY_COME_BACK(p) (crashed && !up[p] && MEMBER(p) && !(p == V && lost))

inline grant_no_more(p) {
	if
	:: up[p] && !promised[p] && view[p] -> leases = leases | LEASE(epoch[p], p)
	:: else
	fi
}

inline wait_from_now(p) {
	ripe[p] = 0;
	before[p] = leases;
#ifdef NO_WAIT
	ripe[p] = 1; before[p] = 0
#endif
}

/* Process p learns of the list of an epoch. Whoever is not in it stops. */
inline adopt(p, e) {
	grant_no_more(p);
	epoch[p] = e;
	view[p] = decided[epoch[p]];
	promised[p] = 0;
	wait_from_now(p);
	token[p] = (LEADER(view[p]) == p);
	if
	:: !MEMBER(p) -> up[p] = 0; token[p] = 0; ripe[p] = 0; before[p] = 0
	:: else
	fi
}

/* What is known of an epoch is of no use once nobody is left in it: forget it, so that there are fewer states. */
inline tidy() {
	m = EPOCHS;
	for (i : 0 .. 3) {
		if
		:: view[i] && (up[i] || MAY_COME_BACK(i)) && SAVED(i) < m -> m = SAVED(i)
		:: else
		fi
	}
	for (i : 0 .. 3) {
		for (j : 0 .. EPOCHS - 1) {
			if
			:: j < m ->
				promises[j] = 0;
				leases = leases & ~LEASE(j, i);
				before[0] = before[0] & ~LEASE(j, i); before[1] = before[1] & ~LEASE(j, i);
				before[2] = before[2] & ~LEASE(j, i); before[3] = before[3] & ~LEASE(j, i)
			:: else
			fi
		}
	}
	m = 0; i = 0; j = 0
}

inline promise(p) {
	grant_no_more(p);
	promised[p] = 1;
	promises[epoch[p]] = promises[epoch[p]] | (1 << p)
}

inline decide(p, entry) {
	decided[epoch[p] + 1] = VIEW(entry, p);
	adopt(p, epoch[p] + 1);
	tidy()
}

inline receive_token(p, q) {
#ifdef NO_EPOCH_CHECK
	token[p] = 1;
#else
	token[p] = token[p] || (passed[q * P + p] == epoch[p] + 1);
#endif
#ifdef FULL
	if
	:: ABLE(p) -> passed[q * P + p] = 0
	:: else -> taken = taken | (1 << q)
	fi
#else
	passed[q * P + p] = 0
#endif
}

#ifdef FULL
inline fill(p) {
	stuck = p + 1; filled = 1;
	disk_epoch = epoch[p]; disk_view = view[p]; disk_promised = promised[p]; disk_token = token[p]
}

inline make_room() {
	for (i : 0 .. 2) {
		if
		:: taken & (1 << i) -> passed[i * P + stuck - 1] = 0
		:: else
		fi
	}
	stuck = 0; i = 0;
	disk_epoch = 0; disk_view = 0; disk_promised = 0; disk_token = 0; taken = 0
}
#endif

inline crash(p) {
	grant_no_more(p);
	up[p] = 0; ripe[p] = 0; before[p] = 0;
#ifdef FULL
	if
	:: !ABLE(p) ->	/* what is not on its disk has never been; it comes back when there is room */
		epoch[p] = disk_epoch; view[p] = disk_view; promised[p] = disk_promised; token[p] = disk_token;
		taken = 0;
		make_room()
	:: else
	fi
#endif
}

inline restart(p) {
	up[p] = 1;
	wait_from_now(p);
	if
	:: epoch[p] == 0 -> ripe[p] = 1; before[p] = 0	/* there was no lease before the first epoch */
	:: else
	fi
}

/* What process p may do: promise; have a new token decided, a vacancy (somebody wants it) or the arrival of process 3;
 * hear what was decided; have waited out the leases that were granted before it began to wait; crash and come back. */
#define MAY_DECIDE(p) (up[p] && MEMBER(p) && epoch[p] < PRE && decided[epoch[p] + 1] == 0 && \
		       MAJORITY(ENTRY(view[p]), promises[epoch[p]]))
#ifdef TOLD_UNSAVED
#define MAY_PROMISE(p) 1
#else
#define MAY_PROMISE(p) ABLE(p)
#endif
#define PROCESS(p) \
	:: d_step { up[p] && MEMBER(p) && !promised[p] && MAY_PROMISE(p) && epoch[p] < PRE -> promise(p); ONE_TOKEN } \
	:: d_step { MAY_DECIDE(p) -> decide(p, ENTRY(view[p])); ONE_TOKEN } \
	:: d_step { REPLACES && MAY_DECIDE(p) && ENTRY(view[p]) == OLD && p != V -> decide(p, VACANT); ONE_TOKEN } \
	:: d_step { MAY_DECIDE(p) && ENTRY(view[p]) == VACANT -> decide(p, NEW); ONE_TOKEN } \
	:: d_step { up[p] && view[p] && epoch[p] < PRE && decided[epoch[p] + 1] -> adopt(p, epoch[p] + 1); tidy(); ONE_TOKEN } \
	:: d_step { up[p] && view[p] && !ripe[p] -> leases = leases & ~before[p]; before[p] = 0; ripe[p] = 1; ONE_TOKEN } \
	WITH(p, 0) WITH(p, 1) WITH(p, 2) WITH(p, 3)
#define WITH(p, q) \
	:: d_step { token[p] && up[p] && ABLE(p) && p != q && IN(ENTRY(view[p]), q) && passes < PASSES -> \
		token[p] = 0; passed[p * P + q] = epoch[p] + 1; passes++ } \
	:: d_step { up[p] && view[p] && up[q] && !TAKEN(p, q) && passed[q * P + p] && passed[q * P + p] <= epoch[p] + 1 -> \
		receive_token(p, q); ONE_TOKEN }
#ifdef FULL
#define MAY_CRASH(p) (!ABLE(p))	/* that others crash is covered without -DFULL */
#define TAKEN(p, q) (!ABLE(p) && (taken & (1 << (q))))
#define SERVER(p) CRASHES(p) \
	:: d_step { !filled && up[p] -> fill(p) } \
	:: d_step { stuck == p + 1 -> make_room() }
#else
#define MAY_CRASH(p) 1
#define TAKEN(p, q) 0
#define SERVER(p) CRASHES(p)
#endif
#define CRASHES(p) \
	:: d_step { !crashed && up[p] && MAY_CRASH(p) -> crash(p); crashed = 1 } \
	:: d_step { MAY_COME_BACK(p) -> restart(p); ONE_TOKEN }
/* Process 3 begins when a list names it. */
#define ARRIVAL(e) :: d_step { !view[3] && decided[e] && ENTRY(decided[e]) == NEW -> adopt(3, e); ONE_TOKEN }

#define THERE(p) (up[p] && view[p] && (p) != away)
#define REACHABLE (THERE(0) + 2 * THERE(1) + 4 * THERE(2) + 8 * THERE(3))
#define GRANTING(p) (THERE(p) && epoch[p] == newest && !promised[p])
#define GRANTED (GRANTING(0) + 2 * GRANTING(1) + 4 * GRANTING(2) + 8 * GRANTING(3))
#define USABLE(p) (token[p] && GRANTING(p) && MAJORITY(ENTRY(view[p]), GRANTED))

/* Nothing goes wrong any more, but that one process may be away for good: everybody else is back, hears of everything,
 * and asks for a new token if there is none, or for the end of a vote that keeps a majority from granting. */
inline recover(who) {
	away = who;
	for (i : 0 .. 2) {
		if
		:: i != away && MAY_COME_BACK(i) -> restart(i)
		:: else
		fi
	}
	able = 0; m = 1;
	do
	:: able || !m -> break
	:: !able && m ->
		newest = 0;
		for (i : 0 .. 3) {
			if
			:: THERE(i) && epoch[i] > newest -> newest = epoch[i]
			:: else
			fi
		}
		for (i : 0 .. 3) {
			if
			:: up[i] && i != away && (epoch[i] < newest || !view[i]) && decided[newest] &&
			   (view[i] || ENTRY(decided[newest]) == NEW) -> adopt(i, newest)
			:: else
			fi
		}
		found = P;	/* somebody of the newest list, who speaks for it */
		for (i : 0 .. 3) {
			for (j : 0 .. 3) {	/* a token on its way arrives */
				if
				:: THERE(i) && THERE(j) && passed[i * P + j] == newest + 1 && epoch[j] == newest ->
					passed[i * P + j] = 0; token[j] = 1
				:: else
				fi
			}
			if
			:: THERE(i) && epoch[i] == newest -> found = i
			:: else
			fi
		}
		m = 0;
		if
		:: found < P -> m = MAJORITY(ENTRY(view[found]), REACHABLE)
		:: else
		fi;
		able = USABLE(0) + USABLE(1) + USABLE(2) + USABLE(3);
		assert(able <= 1);
#ifdef HOLDER_KEEPS_TOKEN
		m = m && !(stuck && token[stuck - 1] && epoch[stuck - 1] == newest);
		assert(able || m);
#endif
		if
		:: m && !able ->
#ifdef NO_RENEWAL
			assert(false);
#endif
			assert(newest < EPOCHS - 1);	/* it never takes more */
			if
			:: decided[newest + 1] == 0 -> decided[newest + 1] = VIEW(ENTRY(view[found]), found)
			:: else		/* before faults ended, by somebody who told nobody */
			fi;
			adopt(found, newest + 1)
		:: else
		fi
	od;
	assert(able || !m);
	forget()	/* so that all ends are one state */
}

inline forget() {
	for (i : 0 .. 3) {
		epoch[i] = 0; view[i] = 0; promised[i] = 0; token[i] = 0; up[i] = 0; ripe[i] = 0; before[i] = 0
	}
	for (i : 0 .. P * P - 1) { passed[i] = 0 }
	for (i : 0 .. EPOCHS - 1) { decided[i] = 0; promises[i] = 0 }
	leases = 0; crashed = 0; lost = 0; passes = 0;
#ifdef FULL
	stuck = 0; disk_epoch = 0; disk_view = 0; taken = 0; disk_promised = 0; disk_token = 0; filled = 0;
#endif
	away = 0; i = 0; j = 0; m = 0; found = 0; newest = 0; able = 0
}

active proctype world() {
	d_step {
		for (i : 0 .. 2) { up[i] = 1; view[i] = VIEW(OLD, 0); ripe[i] = 1 }
		up[3] = 1;
		token[0] = 1;
		decided[0] = VIEW(OLD, 0);
		i = 0
	}
	do
	PROCESS(0)
	PROCESS(1)
	PROCESS(2)
	PROCESS(3)
	SERVER(0)
	SERVER(1)
	SERVER(2)
	ARRIVAL(1)
	ARRIVAL(2)
#if PRE > 2
	ARRIVAL(3)
#endif
#ifdef FULL
	:: d_step { stuck -> recover(stuck - 1) } -> break	/* its disk stays full: the others go on without it */
	:: d_step { !stuck -> recover(P) } -> break
#else
	:: d_step { !lost && up[V] -> crash(V); lost = 1 }
	:: d_step { up[0] -> recover(0) } -> break
	:: d_step { up[1] -> recover(1) } -> break
	:: d_step { up[2] -> recover(2) } -> break
	:: d_step { up[3] && view[3] -> recover(3) } -> break
	:: d_step { recover(P) } -> break	/* nobody is away */
#endif
	od
}
