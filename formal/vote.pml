/* One vote among three servers on what follows an epoch: spyker/node/paxos.py, as a model.
 *
 * Checked in every reachable state: two ballots never decide on two lists; and nothing is decided that a majority of the
 * voters has not promised to vote on, which is what formal/epochs.pml builds on.
 *
 * Each server may hold ROUNDS ballots, with a list of its own. Promises and votes arrive in any order, or never;
 * requests are heard at any later time, again and again, or never. Servers crash and come back from their disks, CRASHES
 * times. Not covered: more servers, more ballots; servers that lie; disks that forget.
 *
 * Broken on purpose, to see it fail: -DMAJORITY_OFF_BY_ONE, -DPROMISES_FORGOTTEN.
 */
#ifndef ROUNDS
#define ROUNDS 1
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#define N 3
#define BALLOTS (N * ROUNDS)	/* ballot b is number b + 1, of server b % N */
#define COUNT(m) (((m) & 1) + (((m) >> 1) & 1) + (((m) >> 2) & 1))
#ifdef MAJORITY_OFF_BY_ONE
#define MAJORITY(m) (2 * COUNT(m) + 1 >= N)
#else
#define MAJORITY(m) (2 * COUNT(m) > N)
#endif

bool up[N];
byte promised[N], voted[N], voted_for[N];	/* on disk; a list is known by the ballot that proposed it first */
byte holds[N];		/* the ballot that a server holds, + 1, as long as it does not crash */
bool asked[BALLOTS];	/* for promises */
byte accept[BALLOTS];	/* the list that votes are asked for, + 1 */
byte promises[BALLOTS], votes[BALLOTS];	/* by whom */
byte told[BALLOTS * N], told_of[BALLOTS * N];	/* what a promise says: the ballot voted in, and for what */
byte decided, crashes, i, best, list;

inline hold(b) {
	asked[b] = 1;
	holds[b % N] = b + 1
}

inline promise(p, b) {
	promised[p] = b + 1;
	promises[b] = promises[b] | (1 << p);
	if
	:: accept[b] == 0 -> told[b * N + p] = voted[p]; told_of[b * N + p] = voted_for[p]
	:: else
	fi
}

inline ask_for_votes(b, arrived) {
	best = 0; list = b + 1;
	for (i : 0 .. N - 1) {
		if
		:: ((arrived) & (1 << i)) && told[b * N + i] > best -> best = told[b * N + i]; list = told_of[b * N + i]
		:: else
		fi
	}
	accept[b] = list;
	for (i : 0 .. N - 1) { told[b * N + i] = 0; told_of[b * N + i] = 0 }	/* of no use any more */
	best = 0; list = 0; i = 0
}

inline vote(p, b) {
	promised[p] = b + 1; voted[p] = b + 1; voted_for[p] = accept[b];
	votes[b] = votes[b] | (1 << p)
}

inline decide(b) {
	assert(decided == 0 || decided == accept[b]);
	assert(MAJORITY(promises[b]));
	decided = accept[b];
	holds[b % N] = 0
}

inline restart(p) {
	up[p] = 1;
#ifdef PROMISES_FORGOTTEN
	promised[p] = 0; voted[p] = 0; voted_for[p] = 0
#endif
}

#define HOLDS(b) (up[b % N] && holds[b % N] == b + 1)
#define ASK(b, arrived) \
	:: d_step { HOLDS(b) && accept[b] == 0 && (promises[b] & (arrived)) == (arrived) && MAJORITY(arrived) -> \
		ask_for_votes(b, arrived) }
#define WITH(p, b) \
	:: d_step { up[p] && asked[b] && b + 1 > promised[p] -> promise(p, b) } \
	:: d_step { up[p] && accept[b] && b + 1 >= promised[p] && voted[p] != b + 1 -> vote(p, b) }
#define BALLOT(b) \
	:: d_step { up[b % N] && !asked[b] && promised[b % N] <= b -> hold(b) } \
	ASK(b, 1) ASK(b, 2) ASK(b, 4) ASK(b, 3) ASK(b, 5) ASK(b, 6) ASK(b, 7) \
	:: d_step { HOLDS(b) && MAJORITY(votes[b]) -> decide(b) } \
	WITH(0, b) WITH(1, b) WITH(2, b)
#define SERVER(p) \
	:: d_step { up[p] && crashes < CRASHES -> up[p] = 0; holds[p] = 0; crashes++ } \
	:: d_step { !up[p] -> restart(p) }

active proctype world() {
	d_step { up[0] = 1; up[1] = 1; up[2] = 1 }
end:	do
	BALLOT(0)
	BALLOT(1)
	BALLOT(2)
#if ROUNDS > 1
	BALLOT(3)
#endif
	SERVER(0)
	SERVER(1)
	SERVER(2)
	od
}
