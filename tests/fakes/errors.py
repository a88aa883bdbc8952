"""Errors as users' code may raise them."""


class NoText(Exception):
    """An error that can't be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no str")


class NoTextNorTravel(NoText):
    """Nor can it be pickled."""

    def __init__(self) -> None:
        self.holds = lambda: None
