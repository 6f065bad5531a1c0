"""A callback that tells TensorBoard a run.

It needs TensorBoard (pip install tensorboard), and is used as in
``spyker run --callback tensorboard_callback:TensorBoard=logs`` or ``spyker.run(callbacks=[TensorBoard("logs")])``.
"""

from typing import Any

from torch.utils.tensorboard import SummaryWriter

import spyker


class TensorBoard:
    """Writes the scores of each run into a folder of its own; a step is an update of a client."""

    def __init__(self, folder: str = "logs") -> None:
        self.folder = folder

    def begin(self, scenario: spyker.Scenario) -> None:
        """A run begins."""
        self.writer = SummaryWriter(f"{self.folder}/{scenario.chosen.name}-seed-{scenario.seed}")

    def fact(self, t: float, fact: Any) -> None:
        """Something happened at ``t`` virtual seconds."""
        if fact.kind == "evaluation":
            for name in ("mean", "worst", "best", "averaged"):
                self.writer.add_scalar(f"score/{name}", getattr(fact, name), fact.updates)
            self.writer.add_scalar("run/seconds", t, fact.updates)

    def end(self, run: spyker.Run) -> None:
        """The run is over."""
        self.writer.close()
