"""Hand-written kernels for small convolutional networks: ``training.kernel = "native"``.

A client's training is a few dozen operations on small tensors, and a general library spends most of its time around
them. ``kernels.c`` does a whole training in one call; ``shapes.py`` says which models it can train, ``compiling.py``
compiles it when it is first needed, and ``kernel.py`` calls it.
"""
