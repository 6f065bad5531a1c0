"""How we read the paper where it leaves things open. The items ``readings`` and ``sensitivity`` try other readings."""

from __future__ import annotations

READING: dict[str, dict[str, object]] = {
    "mnist": {"task.partition": "iid"},
    "cifar10": {"task.partition": "iid"},
    "wikitext2": {},
    "digits": {"task.partition": "iid"},
    "quadratic": {},
}
OPEN = """The paper does not say which of its experiments have data that is not IID, how many images and epochs a
client trains, where the single server stands, or whether the accuracy that it plots is that of one server, the mean
of the servers or the average of their models. Here data is IID, the single server stands in Hongkong, and the headline
is the mean of the servers, because no server ever holds the average of their models."""
SEARCH = """What is searched for is the 61 %. For the 38 % with uniform latencies `latency` has two readings of
“uniform”, and for the 1.21 × with 200 clients there are two readings of what a client has when there are more of them:
`scalability` and `scalability-each`."""
