"""Where training runs: in this process, in worker processes of this machine, or on a Ray cluster."""
