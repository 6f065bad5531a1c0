"""The real world: drives the protocol's nodes as processes on a network, with files to restart from.

Read :mod:`~spyker.deploy.host` first: it is what one server process does with one message. Around it stand

- the borders: :mod:`~spyker.deploy.attend` (clients), :mod:`~spyker.deploy.peers` and :mod:`~spyker.deploy.reception`
  (other servers) turn streams into messages and refuse what is wrong with them;
- the ledger: :mod:`~spyker.deploy.tasks`, who was given which task and what may come back;
- the memory: :mod:`~spyker.deploy.state` and :mod:`~spyker.deploy.checkpoints`, what a restart goes on from;
- the wire: :mod:`~spyker.deploy.frames`, ``spyker.proto`` and :mod:`~spyker.deploy.channels`.

:mod:`~spyker.deploy.serve` is a whole server process, :mod:`~spyker.deploy.join` a client process, and
:mod:`~spyker.deploy.up` a deployment on one machine.
"""
