"""The privacy ledger of a client: which trainings it has booked, and whether its budget allows one more.

A client *books* a training, forces the ledger to disk, and only then trains. So after a crash at any point it has
booked at least what it has spent: a crash may waste budget, and never hides any.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, replace

from spyker.privacy.accounting import Booking, Mechanism, epsilon_of

FORMAT = 1


class LedgerError(ValueError):
    """A ledger that is damaged."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What a client may spend."""

    delta: float
    epsilon: float | None = None
    trainings: int | None = None


@dataclass(frozen=True, slots=True)
class Ledger:
    """The booked trainings of one client. A new booking makes a new ledger."""

    client: int
    budget: Budget
    bookings: tuple[Booking, ...] = ()

    @property
    def booked(self) -> int:
        """Number of booked trainings."""
        return sum(booking.trainings for booking in self.bookings)

    @property
    def epsilon(self) -> float:
        """ε of the booked trainings."""
        return epsilon_of(self.bookings, self.budget.delta)

    def book(self, mechanism: Mechanism, trainings: int = 1) -> Ledger:
        """Return the ledger with further trainings."""
        *earlier, last = self.bookings or (Booking(mechanism, 0),)
        if last.mechanism == mechanism:
            return replace(self, bookings=(*earlier, Booking(mechanism, last.trainings + trainings)))
        return replace(self, bookings=(*self.bookings, Booking(mechanism, trainings)))

    def at_least(self, booked: int, mechanism: Mechanism) -> Ledger:
        """Return the ledger with at least this many trainings, as a server remembers them, or with a spent budget.

        The missing ones are booked with the present mechanism. What a server says may be absurd; so they are booked in
        growing steps, until no further training is allowed.
        """
        ledger = self
        while ledger.booked < booked and ledger.refusal(mechanism) is None:
            ledger = ledger.book(mechanism, min(booked - ledger.booked, max(1, ledger.booked)))
        return ledger

    def refusal(self, mechanism: Mechanism) -> str | None:
        """Return why one more training is not allowed; ``None`` if it is."""
        budget, after = self.budget, self.book(mechanism)
        if budget.trainings is not None and after.booked > budget.trainings:
            return f"all {budget.trainings:,} planned trainings are booked"
        if budget.epsilon is not None and after.epsilon > budget.epsilon:
            return (
                f"after {self.booked:,} trainings ε is {self.epsilon:.3f}, and one more would exceed {budget.epsilon:g}"
            )
        return None

    @property
    def spent(self) -> str | None:
        """Why no further training like the last one is allowed; ``None`` if one is, or if none is booked yet."""
        return self.refusal(self.bookings[-1].mechanism) if self.bookings else None

    def to_text(self) -> str:
        """Return the content of a file: one line of JSON and its checksum."""
        budget = self.budget
        about = {
            "format": FORMAT,
            "client": self.client,
            "delta": budget.delta,
            "epsilon": budget.epsilon,
            "trainings": budget.trainings,
            "bookings": [[*booking.mechanism, booking.trainings] for booking in self.bookings],
        }
        line = json.dumps(about, allow_nan=False)
        return f"{line}\n{zlib.crc32(line.encode())}\n"


def from_text(text: str) -> Ledger:
    """Read the content of a file.

    Raises:
        LedgerError: the file is damaged, or of another version.

    """
    try:
        line, checksum, *rest = text.split("\n")
        if rest != [""] or zlib.crc32(line.encode()) != int(checksum):
            raise ValueError("it is not as it was written")
        about = json.loads(line)
        if about["format"] != FORMAT:
            raise ValueError(f"it has format {about['format']}, and this version of Spyker reads {FORMAT}")
        bookings = [
            Booking(Mechanism(float(noise), float(rate), int(steps)), int(trainings))
            for noise, rate, steps, trainings in about["bookings"]
        ]
        budget = Budget(about["delta"], about["epsilon"], about["trainings"])
        return Ledger(int(about["client"]), budget, tuple(bookings))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise LedgerError(str(error)) from None
