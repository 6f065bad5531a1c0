"""Deployment: server and client processes on a network, with checkpoints.

:mod:`spyker.node` decides what a process does; this package provides its sockets, threads and files.

A server process, :mod:`~spyker.net.server_process`, made of :mod:`~spyker.net.server_parts`:

- :mod:`~spyker.net.driver` carries out the node's effects; start reading there.
- :mod:`~spyker.net.client_port` and :mod:`~spyker.net.peer_port` accept the streams of clients and of other servers,
  and validate their messages. :mod:`~spyker.net.peer_link` connects to other servers.
- :mod:`~spyker.net.ports` opens the ports; :mod:`~spyker.net.front` distributes the connections of a shared port.
- :mod:`~spyker.net.checkpoints` and :mod:`~spyker.net.identity` store the state that a restart resumes from.

A client process, :mod:`~spyker.net.client_process`:

- :mod:`~spyker.net.client_link` connects one client, to the server that :mod:`~spyker.net.nearest_server` selects
  among :mod:`~spyker.net.known_servers`.
- :mod:`~spyker.net.transports` selects gRPC or WebSocket, and the HTTP proxy.
- :mod:`~spyker.net.training_thread` trains for all clients of the process.

Both sides use ``spyker.proto``, :mod:`~spyker.net.frames` and :mod:`~spyker.net.wire` for the encoding;
:mod:`~spyker.net.channels`, :mod:`~spyker.net.websocket_stream`, :mod:`~spyker.net.streams` and
:mod:`~spyker.net.backoff` for connections;
:mod:`~spyker.net.certificates` for authentication; and :mod:`~spyker.net.json_log`.

:mod:`~spyker.net.local_cluster` runs a deployment on one machine. :mod:`~spyker.net.certificate_issuing` creates
certificates, :mod:`~spyker.net.federation_folder` the folders of a federation. :mod:`~spyker.net.model_export` and
:mod:`~spyker.net.checkpoint_models` export models.
"""

import os

# gRPC's C++ core prints each failure to standard error, between the JSON lines of the log, which reports them anyway.
# To debug gRPC, set the variable.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
