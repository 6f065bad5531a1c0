"""The real world: drives the protocol's nodes as processes on a network, with files to restart from."""
