"""Named presets. A preset provides values for keys that neither the scenario file nor the command line sets."""

from __future__ import annotations

from collections.abc import Mapping

PRESETS: dict[str, Mapping[str, Mapping[str, object]]] = {
    "paper": {},
    # Each algorithm's best of eight candidates on held-out MNIST images; spyker reproduce tuning runs the search.
    "tuned": {
        "spyker": {"training.rate": 0.3, "spyker.client-rate": 0.6, "spyker.h-inter": 1.0},
        "sync-spyker": {"training.rate": 0.3, "spyker.client-rate": 0.6, "spyker.h-intra": 100.0},
        "fedasync": {"training.rate": 0.3, "fedasync.client-rate": 0.3, "fedasync.staleness-exponent": 0.5},
        "hierfavg": {"training.rate": 0.2, "hierfavg.edge-rounds": 4},
        "fedavg": {"training.rate": 0.2, "fedavg.fraction": 0.5},
    },
}
"""Values ``{"section.key": value}`` by preset and algorithm; of ``[training]`` only the rate differs."""
