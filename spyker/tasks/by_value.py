"""What a program holds and other processes need: it travels together with the code that they could not import, such as
that of a notebook's cells. It goes from a program to the workers that it started, and never to or from a disk or a
stranger: what is unpickled here is the caller's own.
"""

from __future__ import annotations

import pickle
from typing import Any

import cloudpickle

from spyker.errors import UsageError


class ByValue:
    """A function or an object, in a form that can be pickled. It is unpacked where it is first asked for."""

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
        """The same as bytes."""
        if self._packed is None:
            try:
                self._packed = cloudpickle.dumps(self._value)
            except UsageError:
                raise
            except Exception as error:
                raise UsageError(
                    "task",
                    f"{self._value!r:.60} cannot be sent to worker processes ({error})",
                    "Give a function that makes it there, or train without workers",
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
