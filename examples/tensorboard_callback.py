"""A callback that writes a run's scores for TensorBoard.

It needs TensorBoard (pip install tensorboard). Use it with
``spyker run --callback tensorboard_callback:TensorBoard=logs`` or ``spyker.run(callbacks=[TensorBoard("logs")])``.
"""

from typing import Any

from torch.utils.tensorboard import SummaryWriter

import spyker


class TensorBoard:
    """Writes the scores of each run into its own folder; a step is a client update."""

    def __init__(self, folder: str = "logs") -> None:
        self.folder = folder

    def begin(self, scenario: spyker.Scenario) -> None:
        """Open the log of a run."""
        self.writer = SummaryWriter(f"{self.folder}/{scenario.chosen.name}-seed-{scenario.seed}")

    def fact(self, t: float, fact: Any) -> None:
        """Write an evaluation; ``t`` is in virtual seconds."""
        if fact.kind == "evaluation":
            for name in ("mean", "worst", "best", "averaged"):
                self.writer.add_scalar(f"score/{name}", getattr(fact, name), fact.updates)
            self.writer.add_scalar("run/seconds", t, fact.updates)

    def end(self, run: spyker.Run) -> None:
        """Close the log."""
        self.writer.close()
