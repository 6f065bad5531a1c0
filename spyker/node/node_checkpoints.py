"""When a node takes a checkpoint, and what is in it."""

from __future__ import annotations

from spyker.node.effects import SaveCheckpoint, TellSaved
from spyker.node.events import CheckpointFailed, CheckpointRequested, CheckpointSaved
from spyker.node.inbox import RETRY
from spyker.node.node_state import NodeState
from spyker.protocol.messages import StartTimer
from spyker.protocol.state import pack

CLIENTS_PER_UPDATE = 2  # a checkpoint has numbers of every client, so its cost per update must not grow with them


class NodeCheckpoints(NodeState):
    """The checkpoints of a :class:`~spyker.node.node.Node`."""

    def _on_checkpoint_requested(self, event: CheckpointRequested) -> None:
        self._save_changes()

    def _save_changes(self) -> None:
        if self._changed:
            self._save_at_once()

    def _save_at_once(self) -> None:
        self._changed = self._wanted = True
        self._save_if_wanted()

    def _save_if_wanted(self) -> None:
        """Take a checkpoint if it is time for one, no other is being written, and no message is being handled."""
        if self._unsaved >= max(self.options.checkpoint_updates, len(self._sessions) // CLIENTS_PER_UPDATE):
            self._wanted = True
        possible = self._marks is None and not (self._failed or self._inbox.handling or self._peers.stopped)
        if self._wanted and possible:
            self._save()

    def _save(self) -> None:
        server = self._server
        assert server is not None
        self._wanted, self._changed, self._unsaved = False, False, 0
        self._marks = server.version, self._peers.begin_checkpoint()
        self._task_tokens.begin_checkpoint()
        state = server.state()
        vectors = dict(state.vectors)
        numbers = {
            "id": self.id,
            "server": state.numbers,
            "vectors": list(state.vectors),
            "clients": self._task_tokens.numbers(),
            **self._peers.numbers(vectors),
            "requeued": pack(self._inbox.requeued, "requeued", vectors),
            "timers": dict(self._timers),
        }
        self._effects.append(SaveCheckpoint(numbers, vectors))

    def _on_checkpoint_saved(self, event: CheckpointSaved) -> None:
        assert self._marks is not None
        (self._saved_version, marks), self._marks = self._marks, None
        self._peers.checkpoint_saved(marks)
        self._tell_saved()
        self._save_if_wanted()

    def _tell_saved(self) -> None:
        """Tell clients with many unsaved updates, which may wait for this; the others learn it with their next task."""
        for k, unsaved in self._task_tokens.checkpoint_saved().items():
            tasks, session = self._task_tokens.entry(k), self._sessions.get(k)
            if session is not None and unsaved >= self._client_unsaved:
                self._effects.append(TellSaved(session, tasks.saved))
            self._wanted |= tasks.unsaved >= self._client_unsaved

    def _on_checkpoint_failed(self, event: CheckpointFailed) -> None:
        """Retry after a while, not at once: a full disk stays full for some time."""
        if self._marks is not None:
            self._peers.checkpoint_failed(self._marks[1])
        self._marks, self._changed, self._failed = None, True, True
        self._effects.append(StartTimer(RETRY, self.options.save_retry))
