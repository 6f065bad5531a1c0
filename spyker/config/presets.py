"""Named settings. A preset speaks where neither the scenario file nor the command line does."""

from __future__ import annotations

from collections.abc import Mapping

PRESETS: dict[str, Mapping[str, Mapping[str, object]]] = {
    "paper": {},
    # Each algorithm's best of eight on held-back MNIST images; docs/reproduction.md has the search.
    "tuned": {
        "spyker": {},
        "sync-spyker": {},
        "fedasync": {},
        "hierfavg": {},
        "fedavg": {},
    },
}
"""By name and algorithm: ``{"section.key": value}``; of training only its rate, so that algorithms share a task."""
