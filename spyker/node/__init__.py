"""One server process, without I/O: what it decides, and nothing of how that is carried out.

Between the protocol's server, which trusts its messages and never dies, and a world where connections break and
processes are killed stands a :class:`~spyker.node.node.Node`. It knows who was given which task, takes each answer
once, says what a checkpoint must hold and what another server may be told before it is saved, gives up who has been
away too long, and refuses whom it must. It is told events and answers with effects, which are data
(:mod:`~spyker.node.effects`). Whoever drives it, with real sockets, threads and disks or with emulated ones, has these
duties:

1. Tell it, one at a time, what happens: a client or a server came or went, a message arrived, a timer ran out, a
   checkpoint is on the disk or could not be written. Who somebody is, the world verifies; whether they agree, the node.
2. While something waits in its queue, have it served: ``finish(compute())``. ``compute`` may run in a thread, since
   the node does not touch its server between the two; events may go on. How heavy it is, ``work()`` says.
3. After each of these, carry out what ``take()`` returns, in its order.
4. Save before you send: hand a message to another server only when ``next_for(peer)`` offers it, which it does once a
   checkpoint that holds it was reported as saved.
5. After a crash, make a new node and ``resume()`` it from the last checkpoint that was saved, in place of ``begin()``.

:mod:`~spyker.node.membership` knows the other servers: who they are (:mod:`~spyker.node.paxos`), and who is within
reach (:mod:`~spyker.node.failure_detector`). :mod:`~spyker.node.task_tokens` is the memory of tasks,
:mod:`~spyker.node.outbox` that of messages between servers, and :mod:`~spyker.node.pending_update` the client's side:
what a client process keeps until its answer is known to have arrived.
"""
