"""The regression grid of the default algorithm: ``python -m benchmarks.grid``, or ``make grid``.

Stride must learn wherever FedAvg or HierFAVG learns with the same data, learning rate and optimiser. The grid samples
cells from six axes (clients per region, partition, images per client, epochs, optimiser and rate, model), runs the
three algorithms in each with the same seed, and compares the mean score over the last quarter of the run.
"""
