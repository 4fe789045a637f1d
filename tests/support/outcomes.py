"""What became of damaged inputs. A fuzz test whose inputs are all refused, or all decoded, shows nothing."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from lakebed.errors import CorruptFile


class Outcomes:
    """How many inputs were decoded and how many were refused.

    >>> outcomes = Outcomes()
    >>> with outcomes.counted():
    ...     raise CorruptFile("no file of ours")
    >>> outcomes.decoded, outcomes.refused
    (0, 1)
    """

    def __init__(self) -> None:
        self.decoded = 0
        self.refused = 0

    @contextmanager
    def counted(self, refusals: tuple[type[Exception], ...] = (CorruptFile,)) -> Generator[None]:
        """One input: refused where one of these errors is raised, else decoded."""
        try:
            yield
        except refusals:
            self.refused += 1
        else:
            self.decoded += 1

    def assert_both(self, least: int = 1) -> None:
        assert self.decoded >= least, f"only {self.decoded} inputs were decoded, {self.refused} were refused"
        assert self.refused >= least, f"only {self.refused} inputs were refused, {self.decoded} were decoded"
