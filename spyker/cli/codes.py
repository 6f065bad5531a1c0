"""Exit codes. 0 is done; with 2 nothing was changed; with 3 a server must not go on, and need not be started again."""

FAILED, BAD_INPUT, MUST_NOT_GO_ON, INTERRUPTED = 1, 2, 3, 130
