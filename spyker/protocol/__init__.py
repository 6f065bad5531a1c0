"""The kernel that algorithms are written against: servers and clients as pure state machines.

A node never sleeps, reads a clock, opens a socket or draws an unseeded random number. Its methods take an event and
return actions. A driver, either the emulator or a process on a network, has four duties:

1. Build the servers of an algorithm (:data:`spyker.algorithms.builtin.ALGORITHMS`) and one
   :class:`~spyker.protocol.client.Client` per client, then perform the actions of every server's ``start()``.
2. Pass each message that arrives to its receiver's ``handle(sender, message)``, one at a time, in the order in which
   the messages of each link were sent.
3. Perform the returned actions in order: send a message, train a model, record a fact, requeue messages, start a
   timer. A sent message is never modified afterwards, so it may be shared instead of copied.
4. When a training is done, call the client's ``trained(weights)``; when a timer expires, call the server's
   ``expire(timer)``. Perform the returned actions.

A driver that gives up on a client passes a ``Leave`` to the client's server. To survive a crash, a driver stores
``state()`` between two messages and passes it to ``restore()`` of a new server in place of ``start()``.

Read :mod:`~spyker.protocol.messages` first, then :mod:`~spyker.algorithms.spyker`.
:mod:`~spyker.protocol.codec` explains how messages are declared, and :class:`~spyker.protocol.server.Server` how
algorithms are.
"""
