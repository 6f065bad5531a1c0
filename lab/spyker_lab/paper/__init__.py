"""The tables and figures of Spyker's paper, one small declarative file each, over one runner."""
