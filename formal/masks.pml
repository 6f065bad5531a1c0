/* Secure aggregation: what a helper opens, for a home server that may ask for anything.

   Three clients send two updates each. The home server, honest or not, asks for any set of updates, in any order and as
   often as it likes; crashes of the home server add nothing to that. The helper opens a set if it has enough clients and
   each update is later than all that it has opened of this client. The marks, and the answer, are on its disk before
   the answer leaves. The helper may crash at any time: what was not saved is gone, and an answer on the disk is sent
   again. The home server subtracts the masks of an answer once, also if it arrives again or the home server crashes.

   Flaws: THRESHOLD_OFF_BY_ONE, NO_MARKS, ANSWERS_UNSAVED, TAKEN_TWICE. */

#define CLIENTS 3
#define UPDATES 6 /* update 2k + t is training t of client k */
#define NOTHING 255
#ifdef THRESHOLD_OFF_BY_ONE
#define NEEDED 1
#else
#define NEEDED 2
#endif
#define HAS(set, u) (((set) >> (u)) & 1)
#define SERIAL(set, k) (HAS(set, 2 * (k) + 1) -> 2 : HAS(set, 2 * (k)))
#define FIRST(set, k) (HAS(set, 2 * (k)) -> 1 : 2 * HAS(set, 2 * (k) + 1))
#define THERE(set, k) (SERIAL(set, k) > 0)
#ifdef NO_MARKS
#define IS_NEW(set, k) true
#else
#define IS_NEW(set, k) (!THERE(set, k) || FIRST(set, k) > marks[k])
#endif
#ifdef TAKEN_TWICE
#define WAITS true
#else
#define WAITS (waits == 1)
#endif

byte marks[CLIENTS], disk[CLIENTS];
byte answer = NOTHING, saved = NOTHING; /* the last set that was opened, in memory and on the disk */
byte opened[UPDATES];                   /* ghost: the set that an update was opened with, as the home server has seen it */
byte waits, disk_waits;                 /* whether an honest home server waits for an answer: in memory, on its disk */
byte requests;

inline check(set) {
  if
  :: THERE(set, 0) + THERE(set, 1) + THERE(set, 2) >= NEEDED && IS_NEW(set, 0) && IS_NEW(set, 1) && IS_NEW(set, 2) ->
     answer = set;
     if :: THERE(set, 0) -> marks[0] = SERIAL(set, 0) :: else fi;
     if :: THERE(set, 1) -> marks[1] = SERIAL(set, 1) :: else fi;
     if :: THERE(set, 2) -> marks[2] = SERIAL(set, 2) :: else fi
  :: else
  fi
}

inline see(set) { /* the home server learns a sum */
  byte u = 0;
  assert(THERE(set, 0) + THERE(set, 1) + THERE(set, 2) >= 2);
  do
  :: u < UPDATES ->
     if
     :: HAS(set, u) -> assert(opened[u] == 0 || opened[u] == set); opened[u] = set
     :: else
     fi;
     u++
  :: else -> break
  od;
  u = 0
}

active proctype Helper() {
  byte set;
  do
  :: atomic { /* a request, whatever the home server likes */
       requests < 3 && answer == saved -> requests++;
       select(set : 1 .. 63);
       check(set);
       set = 0
     }
  :: atomic { answer != saved -> saved = answer; disk[0] = marks[0]; disk[1] = marks[1]; disk[2] = marks[2] }
#ifdef ANSWERS_UNSAVED
  :: d_step { answer != NOTHING -> see(answer) }
#else
  :: d_step { saved != NOTHING -> see(saved) }
#endif
  :: atomic { /* a crash */
       answer = saved; marks[0] = disk[0]; marks[1] = disk[1]; marks[2] = disk[2]
     }
  od
}

active proctype Home() { /* one request of an honest home server, whose answer may arrive again and again */
  byte times, disk_times; /* ghost: how often the sum is in the model */
  bit asked;
  do
  :: atomic { !asked -> asked = 1; waits = 1; disk_waits = 1 }
  :: atomic { asked && WAITS && times < 3 -> times++; waits = 0 }
  :: atomic { asked && waits != disk_waits -> disk_waits = waits; disk_times = times }
  :: atomic { asked -> waits = disk_waits; times = disk_times }
  :: assert(times <= 1)
  od
}
