"""The tables that a module's function `filled` makes: one for each test, and one that its refused statements share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import lakebed


@pytest.fixture
def t(request: pytest.FixtureRequest) -> Iterator[lakebed.Table]:
    yield from request.module.filled(request.node.originalname)


@pytest.fixture(scope="module")
def unchanged(request: pytest.FixtureRequest) -> Iterator[lakebed.Table]:
    """A table for tests whose statements are all refused."""
    yield from request.module.filled("unchanged")
