"""Pickling by value: functions and objects together with code that other processes cannot import, such as a notebook's.

Values are sent only from a program to the workers that it started, never to or from a disk or another party, so
unpickling them is safe.
"""

from __future__ import annotations

import pickle
from typing import Any

import cloudpickle

from spyker.errors import UsageError


class ByValue:
    """A picklable wrapper of a function or an object, unpickled on first access."""

    def __init__(self, value: Any) -> None:
        self._value: Any = value
        self._packed: bytes | None = None

    @property
    def value(self) -> Any:
        """The function or object."""
        if self._value is None and self._packed is not None:
            self._value = pickle.loads(self._packed)
        return self._value

    def packed(self) -> bytes:
        """The pickled function or object."""
        if self._packed is None:
            try:
                self._packed = cloudpickle.dumps(self._value)
            except UsageError:
                raise
            except Exception as error:
                raise UsageError(
                    "task",
                    f"{self._value!r:.60} cannot be sent to worker processes ({error})",
                    "Give a factory function, or train without workers (--workers 0)",
                ) from error
        return self._packed

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByValue) and (self.value is other.value or self.packed() == other.packed())

    def __hash__(self) -> int:
        return hash(self.packed())

    def __getstate__(self) -> bytes:
        return self.packed()

    def __setstate__(self, packed: bytes) -> None:
        self._value, self._packed = None, packed
