"""Four kinds of failure, four classes: definite, unknown, the user's mistake, ours (see `runs.md`, "Words")."""


class DefiniteError(Exception):
    """The operation did not take effect, for certain; it is recorded as `fail`.

    `kind` is a short stable word such as `cas-mismatch`, `not-found`, `refused`; the message is for people.
    """

    def __init__(self, kind: str, message: str = "") -> None:
        super().__init__(message or kind)
        self.kind = kind


class IndefiniteError(Exception):
    """The operation may or may not have taken effect; it is recorded as `info` (a timeout is never `fail`)."""

    def __init__(self, kind: str, message: str = "") -> None:
        super().__init__(message or kind)
        self.kind = kind


class UserError(Exception):
    """The user asked for something impossible or gave unreadable input.

    The message is one sentence that says what is wrong and what to do; the command line exits with 254.
    """


class HarnessError(Exception):
    """The harness itself failed (SSH, Docker, disk, a bug of ours); never turned into a verdict; exit code 255."""
