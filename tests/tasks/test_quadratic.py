import numpy as np
import pytest

from spyker.config.scenario import Training
from spyker.errors import UsageError
from spyker.tasks.built_in.quadratic import Options, Quadratic


def test_training_goes_towards_the_optimum_by_hand() -> None:
    # W = (1, 0), c = (0.5, -1), η = 0.5, T = 2: c + 0.25 (W - c) = (0.5 + 0.125, -1 + 0.25)
    task = Quadratic(Options(optima=((0.5, -1.0),)), 1, 1, Training(epochs=2))
    assert task.train(0, np.array([1, 0], np.float32), 0.5, 0).tolist() == [0.625, -0.75]


def test_the_proximal_term_is_gradient_descent_with_a_pull() -> None:
    task = Quadratic(Options(optima=((3.0,),)), 1, 1, Training(epochs=3, proximal=0.5))
    w = received = 1.0
    for _ in range(3):
        w -= 0.1 * ((w - 3.0) + 0.5 * (w - received))
    assert task.train(0, np.array([1], np.float32), 0.1, 0)[0] == pytest.approx(w, rel=1e-6)


def test_everybody_starts_from_zero_and_the_optima_follow_from_the_seed() -> None:
    one, same, other = (Quadratic(Options(), 10, seed, Training()) for seed in (1, 1, 2))
    assert not one.initial().any()
    assert np.array_equal(one.optima, same.optima)
    assert not np.array_equal(one.optima, other.optima)
    assert one.initial().dtype == one.optima.dtype == np.float32


def test_the_score_is_the_part_of_the_way_to_the_mean_optimum() -> None:
    # The mean of (2, 0) and (0, 2) is (1, 1); half of the way there is (0.5, 0.5).
    task = Quadratic(Options(optima=((2.0, 0.0), (0.0, 2.0))), 2, 1, Training())
    assert task.evaluate(np.array([0.5, 0.5], np.float32)) == pytest.approx(0.5)
    assert task.evaluate(np.array([1, 1], np.float32)) == 1
    assert task.evaluate(np.array([9, 9], np.float32)) == 0


@pytest.mark.parametrize("optima", [((1.0,),), ((1.0,), (1.0, 2.0)), ((), ())])
def test_optima_that_do_not_fit_are_refused(optima: tuple[tuple[float, ...], ...]) -> None:
    with pytest.raises(UsageError, match=r"task\.optima"):
        Quadratic(Options(optima=optima), 2, 1, Training())


def test_another_optimiser_than_plain_sgd_is_refused() -> None:
    with pytest.raises(UsageError, match=r"training\.optimiser"):
        Quadratic(Options(), 2, 1, Training(optimiser="adam"))
