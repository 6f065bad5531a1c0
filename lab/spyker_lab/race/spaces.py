"""The search space of each algorithm: the learning rate, and one to three parameters of its own.

``STARTS`` are the first trials: good settings from the search of the reproduction, or from the algorithm's own paper.
"""

from __future__ import annotations

from collections.abc import Mapping

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from spyker.config.presets import PRESETS
from spyker_lab.paper.item import Settings

RATE = FloatDistribution(0.02, 0.6, log=True)
MIXING = FloatDistribution(0.1, 1.0, log=True)
EXPONENT = FloatDistribution(0.0, 1.0)
FRACTION = CategoricalDistribution((1.0, 0.5, 0.25))
SERVER_RATE = FloatDistribution(0.1, 3.0, log=True)
MOMENTUM = FloatDistribution(0.6, 0.95)
BUFFER = IntDistribution(2, 50, log=True)

SPACES: dict[str, Mapping[str, BaseDistribution]] = {
    "stride": {"training.rate": RATE, "stride.gain": SERVER_RATE, "stride.momentum": MOMENTUM},
    "spyker": {
        "training.rate": RATE,
        "spyker.client-rate": MIXING,
        "spyker.h-inter": FloatDistribution(0.5, 20.0, log=True),
        "spyker.staleness-exponent": EXPONENT,
    },
    "sync-spyker": {
        "training.rate": RATE,
        "spyker.client-rate": MIXING,
        "spyker.h-intra": FloatDistribution(10.0, 400.0, log=True),
        "spyker.staleness-exponent": EXPONENT,
    },
    "fedasync": {
        "training.rate": RATE,
        "fedasync.client-rate": MIXING,
        "fedasync.staleness-exponent": EXPONENT,
    },
    "fedavg": {"training.rate": RATE, "fedavg.fraction": FRACTION},
    "hierfavg": {"training.rate": RATE, "hierfavg.edge-rounds": IntDistribution(1, 8), "hierfavg.fraction": FRACTION},
    "fedavgm": {
        "training.rate": RATE,
        "fedavgm.server-rate": SERVER_RATE,
        "fedavgm.momentum": MOMENTUM,
        "fedavgm.fraction": FRACTION,
    },
    "hierfavgm": {
        "training.rate": RATE,
        "hierfavgm.edge-rounds": IntDistribution(1, 8),
        "hierfavgm.server-rate": SERVER_RATE,
        "hierfavgm.momentum": MOMENTUM,
    },
    "fedbuff": {
        "training.rate": RATE,
        "fedbuff.buffer": BUFFER,
        "fedbuff.server-rate": SERVER_RATE,
        "fedbuff.staleness-exponent": EXPONENT,
    },
    "fedasyncm": {
        "training.rate": RATE,
        "fedasyncm.server-rate": SERVER_RATE,
        "fedasyncm.momentum": MOMENTUM,
        "fedasyncm.staleness-exponent": EXPONENT,
    },
    "asyncfeded": {
        "training.rate": RATE,
        "asyncfeded.server-rate": FloatDistribution(0.01, 1.0, log=True),
        "asyncfeded.epsilon": FloatDistribution(0.1, 10.0, log=True),
    },
    "fadas": {
        "training.rate": RATE,
        "fadas.buffer": BUFFER,
        "fadas.server-rate": FloatDistribution(0.001, 0.1, log=True),
        "fadas.second-moment": CategoricalDistribution((0.99, 0.9, 0.999)),
    },
}
STARTS: dict[str, Settings] = {
    "stride": {"training.rate": 0.2, "stride.gain": 1.0, "stride.momentum": 0.9},
    "spyker": {**PRESETS["tuned"]["spyker"], "spyker.staleness-exponent": 0.5},
    "sync-spyker": {**PRESETS["tuned"]["sync-spyker"], "spyker.staleness-exponent": 0.5},
    "fedasync": PRESETS["tuned"]["fedasync"],
    "fedavg": PRESETS["tuned"]["fedavg"],
    "hierfavg": {**PRESETS["tuned"]["hierfavg"], "hierfavg.fraction": 1.0},
    "fedavgm": {
        "training.rate": 0.1,
        "fedavgm.server-rate": 1.0,
        "fedavgm.momentum": 0.9,
        "fedavgm.fraction": 1.0,
    },
    "hierfavgm": {
        "training.rate": 0.1,
        "hierfavgm.edge-rounds": 4,
        "hierfavgm.server-rate": 1.0,
        "hierfavgm.momentum": 0.9,
    },
    "fedbuff": {
        "training.rate": 0.2,
        "fedbuff.buffer": 10,
        "fedbuff.server-rate": 1.0,
        "fedbuff.staleness-exponent": 0.5,
    },
    "fedasyncm": {
        "training.rate": 0.1,
        "fedasyncm.server-rate": 2.0,
        "fedasyncm.momentum": 0.8,
        "fedasyncm.staleness-exponent": 0.5,
    },
    "asyncfeded": {"training.rate": 0.1, "asyncfeded.server-rate": 0.05, "asyncfeded.epsilon": 1.0},
    "fadas": {
        "training.rate": 0.1,
        "fadas.buffer": 10,
        "fadas.server-rate": 0.03,
        "fadas.second-moment": 0.99,
    },
}
