"""The real world: drives the protocol's nodes as processes on a network, with files to restart from.

What a process decides stands in :mod:`spyker.node`; here are the sockets, threads and disks for it.

A server process, :mod:`~spyker.net.server_process`:

- :mod:`~spyker.net.driver` carries out what the node decides; begin there;
- :mod:`~spyker.net.client_port` and :mod:`~spyker.net.peer_port` are its borders to clients and to other servers,
  which turn streams into messages and refuse what is wrong with them; :mod:`~spyker.net.peer_link` calls the others;
- :mod:`~spyker.net.ports` opens the ports, :mod:`~spyker.net.front` stands before one that several listeners share;
- :mod:`~spyker.net.checkpoints` and :mod:`~spyker.net.identity` are what a restart goes on from.

A client process, :mod:`~spyker.net.client_process`:

- :mod:`~spyker.net.client_link` connects one client, :mod:`~spyker.net.nearest_server` to the nearest server;
- :mod:`~spyker.net.transports` chooses gRPC or WebSocket, directly or through a proxy;
- :mod:`~spyker.net.training_thread` trains for all of them.

Both sides: ``spyker.proto``, :mod:`~spyker.net.frames` and :mod:`~spyker.net.wire` (what is said),
:mod:`~spyker.net.channels`, :mod:`~spyker.net.websocket_stream`, :mod:`~spyker.net.streams` and
:mod:`~spyker.net.backoff` (over which connection,
how that ends, and when to try again), :mod:`~spyker.net.certificates` (who is who) and :mod:`~spyker.net.json_log`.

:mod:`~spyker.net.local_cluster` is a deployment on one machine; :mod:`~spyker.net.certificate_issuing` makes
certificates and credentials, and :mod:`~spyker.net.model_export` and :mod:`~spyker.net.checkpoint_models` models for
others.
"""

import os

# gRPC's C++ core knows nothing of Python's logging and repeats each failure on standard error, among the JSON lines of
# the log, which says all of it in our own words. Whoever looks for a fault in gRPC sets the variable.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
