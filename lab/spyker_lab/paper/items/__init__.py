"""The paper's tables and figures, one file each; a new item is a file and a line here."""

from __future__ import annotations

from spyker_lab.paper.item import Item
from spyker_lab.paper.items.accuracy import CIFAR10, MNIST, WIKITEXT2
from spyker_lab.paper.items.bandwidth import BANDWIDTH
from spyker_lab.paper.items.decay import DECAY
from spyker_lab.paper.items.imbalance import IMBALANCE
from spyker_lab.paper.items.latency import LATENCY
from spyker_lab.paper.items.queues import QUEUES
from spyker_lab.paper.items.readings import READINGS, SENSITIVITY
from spyker_lab.paper.items.scalability import SCALABILITY, SCALABILITY_EACH
from spyker_lab.paper.items.tuned import TUNED, TUNED_CIFAR10, TUNED_WIKITEXT2, TUNING
from spyker_lab.paper.items.update_density import UPDATE_DENSITY

# In the order in which they run and are reported: the paper's main results first, then those that need long runs.
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
