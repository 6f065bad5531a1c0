"""Which server a client connects to."""

import pytest

from spyker.net.nearest_server import clearly_nearer


@pytest.mark.parametrize(
    ("there", "here", "moves"),
    [
        (0.01, 0.1, True),
        (0.08, 0.1, False),  # measurements vary
        (0.0002, 0.0009, False),  # servers on one machine or in one data centre are equally near
        (0.001, 0.008, True),
    ],
)
def test_a_client_leaves_its_server_only_for_one_that_is_clearly_nearer(there: float, here: float, moves: bool) -> None:
    assert clearly_nearer(there, here) is moves
