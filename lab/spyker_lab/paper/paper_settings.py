"""Settings where the paper is ambiguous. The items ``readings`` and ``sensitivity`` try alternatives."""

from __future__ import annotations

READING: dict[str, dict[str, object]] = {
    "mnist": {"task.partition": "iid"},
    "cifar10": {"task.partition": "iid"},
    "wikitext2": {},
    "digits": {"task.partition": "iid"},
    "quadratic": {},
}
OPEN = """The paper does not say which of its experiments have data that is not IID, how many images and epochs a
client trains, where the single server is, or whether the plotted accuracy is that of one server, the mean
of the servers or the average of their models. Here data is IID, the single server is in Hongkong, and the main
score is the mean of the servers, because no server ever has the average of their models."""
SEARCH = """What is searched for is the 61 %. For the 38 % with uniform latencies `latency` has two readings of
“uniform”, and for the 1.21 × with 200 clients there are two readings of what a client has when there are more of them:
`scalability` and `scalability-each`."""
