"""The names that ``training.kernel`` may have."""

from spyker.config.name_lookup import NameLookup

TORCH = "torch"
NAMES = NameLookup((TORCH,), "spyker.kernels", "module:function")
