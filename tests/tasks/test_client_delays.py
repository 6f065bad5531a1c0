"""How fast clients are: drawn once per client, from the seed alone."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spyker.config.scenario import load
from spyker.tasks.client_delays import delays


@settings(max_examples=20, deadline=None)
@given(median=st.floats(1, 1000), ratio=st.sampled_from([1.0, 2.0, 10.0, 100.0]), seed=st.integers(0, 1000))
def test_log_normal_delays_have_the_median_and_the_ratio_that_were_asked_for(
    median: float, ratio: float, seed: int
) -> None:
    asked: dict[str, object] = {"training.delay-ms": {"median": median, "ratio": ratio}, "seed": seed}
    drawn = np.array(delays(load(None, asked, clients=20_000)))
    low, middle, high = np.percentile(drawn, [5, 50, 95])
    assert middle == pytest.approx(median / 1000, rel=0.05)
    assert high / low == pytest.approx(ratio, rel=0.15)
    assert drawn.min() > 0


@pytest.mark.parametrize("name", ["paper", "uneven"])
def test_delays_follow_from_the_seed_and_not_from_the_algorithm(name: str) -> None:
    def drawn(algorithm: str, seed: int) -> list[float]:
        return delays(load(None, {"training.delay-ms": name, "algorithm": algorithm, "seed": seed}))

    assert drawn("spyker", 1) == drawn("fedavg", 1) != drawn("spyker", 2)
