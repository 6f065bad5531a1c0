"""Detection of training settings beyond plain SGD."""

from __future__ import annotations

from spyker.config.scenario import Training


def beyond_sgd(training: Training) -> str | None:
    """Return the first key of ``[training]`` that needs more than plain SGD, or ``None``."""
    if training.optimiser.lower() != "sgd":
        return "optimiser"
    asked = {
        "optimiser-options": training.optimiser_options,
        "keep-optimiser": training.keep_optimiser,
        "schedule": training.schedule,
        "schedule-options": training.schedule_options,
        "clip-norm": training.clip_norm,
        "report-loss": training.report_loss,
        "accumulate": training.accumulate not in (None, 1),
        "autocast": training.autocast,
        "personal": training.personal,
    }
    return next((key for key, value in asked.items() if value), None)
