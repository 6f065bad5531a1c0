"""All algorithms that are installed here, by name: the built-in ones, and those of the lab."""

from spyker.config.algorithms import NAMES, find_algorithm
from spyker.protocol.server import Server

ALGORITHMS: dict[str, type[Server]] = {name: find_algorithm(name) for name in NAMES.known()}
