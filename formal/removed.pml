/* A removed server that keeps talking: spyker/node/{paxos,view_proofs,membership}.py, as a model.
 *
 * Servers 0, 1 and 2 vote on the list of epoch 1. Servers 0 and 1 are honest; one of them proposes to remove server 2
 * (ballot 1). Server 2 does what it likes with its own key, from the beginning and after its removal: it claims lists,
 * shows whatever others have signed to anybody at any time, hides it, lies about its own votes, and proposes a list
 * without server 0 in a higher ballot (ballot 2). In epoch 1, server 0 or 1 may have another list decided (epoch 2).
 * Messages may be lost and late: whatever was signed once may be shown at any later time, or never.
 *
 * Checked, in every reachable state:
 *   - the list without server 2 and the list without server 0 are never both decided;
 *   - an honest server stops only if a list without it was decided by votes that include the other honest server;
 *   - a list of epoch 2 is adopted only if both voters of epoch 1 have signed it: server 2 is none of them;
 *   - no server goes back to an earlier epoch.
 *
 * Not covered: more servers and ballots than these, and two servers that lie together. That a signature cannot be
 * forged is assumed.
 *
 * Broken on purpose, to see it fail: -DNO_SIGNATURES (lists are believed), -DNO_PROMISES (voters are not shown the
 * promises of a majority), -DTARGET_COUNTS (a server votes on its own removal), -DFORMER_VOTERS_COUNT, -DREPLAYS.
 */
#define GONE 1		/* the list of epoch 1 without server 2 */
#define EVIL 2		/* the one without server 0 */

byte epoch[2], view[2];	/* of the honest servers: on their disks */
byte promised[2];	/* the ballot */
byte voted[2];		/* the list that each has voted for last, in epoch 0 */
byte last[2];		/* the highest epoch that each has been in */
bool stopped[2];
byte gone, evil, next;	/* who has signed: the lists of epoch 1, in ballots 1 and 2, and that of epoch 2 */
byte free2, bound2;	/* who has signed a promise for ballot 2 that reports no vote, and one that reports a vote for GONE */
byte asked;		/* who has signed a promise for ballot 1; nobody has voted before */
bool was_gone, was_evil;

#define BIT(p) (1 << (p))
#define COUNT(m) (((m) & 1) + (((m) >> 1) & 1) + (((m) >> 2) & 1))
#ifdef TARGET_COUNTS
#define DECIDES(m, target) (COUNT(m) >= 2)
#else
#define DECIDES(m, target) (COUNT((m) & ~BIT(target)) >= 2)
#endif
#ifdef NO_SIGNATURES
#define GONE_PROVEN true
#define EVIL_PROVEN true
#else
#define GONE_PROVEN DECIDES(gone, 2)
#define EVIL_PROVEN DECIDES(evil, 0)
#endif
#ifdef FORMER_VOTERS_COUNT
#define NEXT_PROVEN (COUNT(next) >= 2)
#else
#define NEXT_PROVEN ((next & 3) == 3)
#endif
#ifdef NO_PROMISES
#define EVIL_JUSTIFIED true
#else
/* Two promises, of which server 2 makes one up; and none of them reports a vote for something else. */
#define EVIL_JUSTIFIED (free2)
#endif

#define ONE_LIST \
	was_gone = was_gone || DECIDES(gone, 2); \
	was_evil = was_evil || DECIDES(evil, 0); \
	assert(!(was_gone && was_evil))

#define HONEST(p) \
	:: d_step { !stopped[p] && epoch[p] == 0 && promised[p] == 0 -> promised[p] = 1; asked = asked | BIT(p) } \
	:: d_step { !stopped[p] && epoch[p] == 0 && promised[p] <= 1 && COUNT(asked | 4) >= 2 -> \
		promised[p] = 1; voted[p] = GONE; gone = gone | BIT(p); ONE_LIST } \
	:: d_step { !stopped[p] && epoch[p] == 0 && promised[p] <= 1 -> promised[p] = 2; \
		if \
		:: voted[p] == 0 -> free2 = free2 | BIT(p) \
		:: else -> bound2 = bound2 | BIT(p) \
		fi } \
	:: d_step { !stopped[p] && epoch[p] == 0 && promised[p] <= 2 && EVIL_JUSTIFIED -> \
		promised[p] = 2; voted[p] = EVIL; evil = evil | BIT(p); ONE_LIST } \
	:: d_step { !stopped[p] && epoch[p] == 0 && GONE_PROVEN -> epoch[p] = 1; view[p] = GONE } \
	:: d_step { !stopped[p] && epoch[p] == 0 && EVIL_PROVEN -> epoch[p] = 1; view[p] = EVIL; stopped[p] = (p == 0); \
		assert(!stopped[p] || (evil & 2)) } \
	:: d_step { !stopped[p] && epoch[p] == 1 && view[p] == GONE -> next = next | BIT(p) } \
	:: d_step { !stopped[p] && epoch[p] <= 1 && view[p] != EVIL && (epoch[p] == 1 || GONE_PROVEN) && NEXT_PROVEN -> \
		epoch[p] = 2; last[p] = 2; view[p] = GONE; assert((next & 3) == 3) } \
	REPLAY(p)
#ifdef REPLAYS
#define REPLAY(p) :: d_step { !stopped[p] && GONE_PROVEN -> epoch[p] = 1; view[p] = GONE; assert(epoch[p] >= last[p]) }
#else
#define REPLAY(p)
#endif

active proctype world() {
	do
	HONEST(0)
	HONEST(1)
	/* Server 2 signs everything. */
	:: d_step { !(gone & 4) -> gone = gone | 4; ONE_LIST }
	:: d_step { !(evil & 4) -> evil = evil | 4; ONE_LIST }
	:: d_step { !(next & 4) -> next = next | 4 }
	:: break
	od
}
