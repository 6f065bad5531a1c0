"""Exit codes. 0 is done; with 2 nothing was changed."""

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130
