"""The heart: every algorithm as a pure state machine.

A node never sleeps, reads a clock, opens a socket or draws a random number that it was not given. It is told what
happened and answers with what is to be done. Whoever drives it, the emulated world or a process on a network, has
four duties:

1. Build the servers of an algorithm (:data:`spyker.algorithms.builtin.ALGORITHMS`) and one
   :class:`~spyker.protocol.client.Client` per client, then perform the actions of every server's ``start()``.
2. Hand each message that arrives to its receiver's ``handle(sender, message)``, one at a time, in the order in which
   the messages of each link were sent.
3. Perform the actions that come back, in their order: send this message, train this model, write down this fact,
   serve these messages again, start this timer. What was sent is never written to afterwards, so a message may be
   shared, not copied.
4. When a training that a client asked for is done, call the client's ``trained(weights)``, and when a timer has run
   out, its server's ``expire(timer)``; perform what they answer.

A driver that gives a client up tells its server so with a ``Leave``. One that wants to survive its own death keeps what
``state()`` says between two messages and hands it to ``restore()`` of a fresh server, in place of ``start()``.

Read :mod:`~spyker.protocol.messages` first, then :mod:`~spyker.algorithms.spyker`. What the declaration of a message
says is :mod:`~spyker.protocol.codec`, and what an algorithm says about itself :class:`~spyker.protocol.server.Server`.
"""
