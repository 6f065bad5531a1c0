"""Training for the clients of a process."""

import asyncio

import numpy as np
import pytest
from measuring_task import make
from remembering_task import Remembering

from spyker.config.scenario import Training
from spyker.errors import TaskError
from spyker.net.training_thread import TrainingThread
from spyker.protocol.messages import Train


def order(step: int) -> Train:
    return Train(np.zeros(3, np.float32), 0.1, step)


def test_a_client_finds_what_its_last_training_left() -> None:
    async def scene() -> None:
        training = TrainingThread(Remembering(0))
        await training.train(0, order(0))
        again, other = await asyncio.gather(training.train(0, order(1)), training.train(1, order(0)))
        assert (again.examples, again.metrics) == (10, {"count": 2.0})
        assert (other.examples, other.metrics) == (11, {"count": 1.0}), "clients have their own"

    asyncio.run(scene())


def test_a_training_that_nobody_wants_leaves_its_client_as_it_was() -> None:
    async def scene() -> None:
        training = TrainingThread(Remembering(0), delays=[60.0])
        unwanted = asyncio.create_task(training.train(0, order(0)))
        await asyncio.wait((unwanted,), timeout=0.2)  # it is trained, and being paced
        unwanted.cancel()
        await asyncio.wait((unwanted,))
        assert unwanted.cancelled()
        training.delays = None
        assert (await training.train(0, order(0))).metrics == {"count": 1.0}

    asyncio.run(scene())


def test_a_training_that_ran_away_says_in_which_step_at_which_rate_and_norm() -> None:
    task = make(2, 1, Training(), broken=1)
    with pytest.raises(TaskError, match=r"training number 4 .* at the rate 0\.1, .* norm was 2: an input in its"):
        asyncio.run(TrainingThread(task).train(1, Train(np.full(6, 2 / 6**0.5, np.float32), 0.1, 4)))
