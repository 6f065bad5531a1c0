"""The paper's tables and figures, one file each; a new item is a file and a line here."""

from __future__ import annotations

from spyker.experiments.item import Item
from spyker.experiments.items.accuracy import CIFAR10, MNIST, WIKITEXT2
from spyker.experiments.items.bandwidth import BANDWIDTH
from spyker.experiments.items.decay import DECAY
from spyker.experiments.items.imbalance import IMBALANCE
from spyker.experiments.items.latency import LATENCY
from spyker.experiments.items.queues import QUEUES
from spyker.experiments.items.readings import READINGS, SENSITIVITY
from spyker.experiments.items.scalability import SCALABILITY, SCALABILITY_EACH
from spyker.experiments.items.tuned import TUNED, TUNED_CIFAR10, TUNED_WIKITEXT2, TUNING
from spyker.experiments.items.update_density import UPDATE_DENSITY

# In the order in which they are run and told: first what the paper is about, and what takes long runs to decide.
PAPER = (
    LATENCY,
    SCALABILITY,
    SCALABILITY_EACH,
    CIFAR10,
    MNIST,
    WIKITEXT2,
    IMBALANCE,
    DECAY,
    QUEUES,
    UPDATE_DENSITY,
    BANDWIDTH,
)
OURS = (READINGS, SENSITIVITY, TUNING, TUNED, TUNED_CIFAR10, TUNED_WIKITEXT2)
ITEMS: dict[str, Item] = {item.name: item for item in PAPER + OURS}
