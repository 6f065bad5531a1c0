"""Allowed names of ``training.kernel``."""

from spyker.config.name_lookup import NameLookup

TORCH = "torch"
NAMES = NameLookup((TORCH,), "spyker.kernels", "module:function")
