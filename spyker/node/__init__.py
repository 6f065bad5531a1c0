'''One server process without I/O: events in, effects out, both plain data.

A :class:`~spyker.node.node.Node` stands between the protocol's server, which trusts its messages and never crashes, and
a world where connections break and processes are killed. It issues tasks and applies each update at most once, decides
what a checkpoint holds and which messages may be sent, detects failures, and takes part in votes on the membership. It
has no sockets, threads, files or clocks. A *driver* has them: :class:`~spyker.net.driver.Driver` real ones,
:class:`~spyker.sim.sim_process.SimProcess` simulated ones. A driver has four duties:

1. Pass every event (:mod:`~spyker.node.events`) to ``step``, one at a time, stamped with its clock. The driver
   authenticates clients and servers; the node decides whether their options agree.
2. Carry out the effects (:mod:`~spyker.node.effects`) that ``step`` returns, in their order.
3. While the node is ``ready``, let it handle a message: ``HandleNext``, then ``compute()``, which may run in a thread
   while other events go on, then ``Handled``.
4. Persist before sending: send a message to another server only when ``next_for`` returns it, which it does once the
   driver has reported a checkpoint that holds it as saved.

The loop of a driver without threads, for one server and one client that trains in no time::

    def run(node, timers, train):
        """Run until the node has nothing left to do, and return the last checkpoint."""
        events, checkpoint = deque([Start(now=0.0), ClientConnected(0, "session", 10, now=0.0)]), None
        while events:
            effects = node.step(events.popleft())
            while node.ready:
                effects += node.step(HandleNext(now=0.0))
                effects += node.step(Handled(node.compute(), now=0.0))
            for effect in effects:
                match effect:
                    case SendTask(session, token, message) if (update := train(message)) is not None:
                        number = node.verify_token(0, token).number
                        events.append(UpdateReceived(0, number, update, now=0.0))
                    case SaveCheckpoint():
                        checkpoint = effect  # a real driver writes it to disk first
                        events.append(CheckpointSaved(now=0.0))
                    case StartTimer(timer, seconds):
                        timers[timer] = seconds  # when it expires: TimerFired(timer, now=...)
        return checkpoint

After a crash, the driver makes a new node and passes ``Resume`` with the last saved checkpoint in place of ``Start``.

:mod:`~spyker.node.peers` and :mod:`~spyker.node.membership` know the other servers: the members
(:mod:`~spyker.node.paxos`), and which of them respond (:mod:`~spyker.node.failure_detector`).
:mod:`~spyker.node.task_tokens` remembers tasks and :mod:`~spyker.node.outbox` messages to other servers.
:mod:`~spyker.node.pending_updates` is the client's side: what a client keeps until its server has saved it.
'''
