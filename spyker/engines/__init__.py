"""Engines that run training: in this process, in worker processes of this machine, or on a Ray cluster."""
