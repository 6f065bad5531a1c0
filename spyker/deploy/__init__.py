"""The real world: drives the protocol's nodes as processes on a network, with files to restart from.

What a process decides stands in :mod:`spyker.host`; here are the sockets, threads and disks for it.

A server process, :mod:`~spyker.deploy.serve`:

- :mod:`~spyker.deploy.driver` carries out what the host decides; begin there;
- :mod:`~spyker.deploy.client_port` and :mod:`~spyker.deploy.peer_port` are its borders to clients and to other servers,
  which turn streams into messages and refuse what is wrong with them; :mod:`~spyker.deploy.peer_link` calls the others;
- :mod:`~spyker.deploy.checkpoints` and :mod:`~spyker.deploy.identity` are what a restart goes on from.

A client process, :mod:`~spyker.deploy.client_process`:

- :mod:`~spyker.deploy.client_link` connects one client, :mod:`~spyker.deploy.nearest` to the nearest server;
- :mod:`~spyker.deploy.training_thread` trains for all of them.

Both sides: ``spyker.proto``, :mod:`~spyker.deploy.frames` and :mod:`~spyker.deploy.wire` (what is said),
:mod:`~spyker.deploy.channels`, :mod:`~spyker.deploy.streams` and :mod:`~spyker.deploy.backoff` (over which connection,
how that ends, and when to try again), :mod:`~spyker.deploy.certificates` (who is who) and :mod:`~spyker.deploy.log`.

:mod:`~spyker.deploy.up` is a deployment on one machine; :mod:`~spyker.deploy.issuing` makes certificates and
credentials, and :mod:`~spyker.deploy.export` and :mod:`~spyker.deploy.left_models` models for others.
"""
