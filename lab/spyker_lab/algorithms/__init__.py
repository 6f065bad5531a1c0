"""Algorithms that only the race uses, one file each. ``pyproject.toml`` registers them as entry points."""

from spyker_lab.algorithms.asyncfeded import AsyncFedED
from spyker_lab.algorithms.fadas import FADAS
from spyker_lab.algorithms.fedasyncm import FedAsyncM
from spyker_lab.algorithms.fedavgm import FedAvgM
from spyker_lab.algorithms.hierfavgm import HierFAVGM

RIVALS = (FADAS, AsyncFedED, FedAsyncM, FedAvgM, HierFAVGM)
