/* The privacy ledger: a client books a training, has the ledger on its disk, and only then trains.

   The client, or a copy of its folder, may crash at any time, and a backup of the folder may be put in its place. The
   server remembers the highest count that came with an update, rejects updates whose count is not higher, and tells
   a client that connects. Two processes, the second of them a copy, share one identity and a budget of three trainings.

   Asserted: a folder that nobody has tampered with has booked at least what was trained from it; and updates that were
   accepted are never more than what the server knows to be booked, nor than the budget.

   Flaws: TRAINS_UNSAVED, NO_MEMORY, SAME_COUNT_ACCEPTED. */

#define BUDGET 3

byte seen;     /* the server's memory */
byte accepted; /* ghost: updates that the server has accepted */
byte tampered; /* ghost: how often a backup was restored, or the folder copied */
byte disk[2], backup;
bit began[2];

proctype Client(bit me) {
  byte booked, trained, update; /* in memory; ghost: trainings in all its lives; the count of a finished update */
  byte training; /* the count of the training that goes on */
  do
  :: atomic { /* it starts, or starts again after a crash, and connects */
       booked = disk[me];
       training = 0;
       update = 0;
       if :: seen > booked -> booked = seen; disk[me] = seen :: else fi
     }
  :: atomic { !training && !update && booked == disk[me] && booked < BUDGET -> booked++ }
  :: atomic { !training && !update && booked > disk[me] ->
#ifdef TRAINS_UNSAVED
       training = booked; trained++;
#else
       disk[me] = booked; training = booked; trained++;
#endif
       assert(tampered || disk[me] >= trained)
     }
#ifdef TRAINS_UNSAVED
  :: atomic { training && booked > disk[me] -> disk[me] = booked }
#endif
  :: atomic { training -> update = training; training = 0 }
  :: atomic { /* the update arrives */
       update ->
       if
#ifdef NO_MEMORY
       :: accepted < 9 -> accepted++; seen = update
#else
#ifdef SAME_COUNT_ACCEPTED
       :: update >= seen && accepted < 9 -> accepted++; seen = update
#else
       :: update > seen -> accepted++; seen = update
#endif
       :: else
#endif
       fi;
       update = 0
     }
  :: atomic { tampered < 2 && !me -> backup = disk[0]; tampered < 2 }
  :: atomic { tampered < 2 && !me && backup < disk[0] -> disk[0] = backup; booked = backup; tampered++; training = 0 }
  :: atomic { tampered < 2 && !me && !began[1] -> began[1] = 1; disk[1] = disk[0]; tampered++; run Client(1) }
  :: d_step { assert(accepted <= seen && accepted <= BUDGET) }
  od
}

init { run Client(0) }
