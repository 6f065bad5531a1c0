"""Exit codes: 0 success, 1 failure, 2 bad input and nothing changed, 3 fenced: do not restart, 130 Ctrl-C."""

FAILED, BAD_INPUT, FENCED, INTERRUPTED = 1, 2, 3, 130
