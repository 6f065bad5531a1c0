"""How we read the paper where it leaves things open. The item ``readings`` shows what other readings would give."""

from __future__ import annotations

READING: dict[str, dict[str, object]] = {"mnist": {}, "cifar10": {}, "wikitext2": {}, "quadratic": {}, "digits": {}}
REASONS = ""
