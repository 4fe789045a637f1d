"""Servers that tests of several files use, started once for each file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conftest import unavailable

from .kafka_broker import Kafka
from .postgres_server import Postgres
from .service import ServiceError


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    """A running PostgreSQL."""
    try:
        started = Postgres().start()
    except ServiceError as error:
        unavailable(str(error))
    yield started
    started.stop()


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """The address of a running Kafka broker."""
    try:
        broker = Kafka().start()
    except ServiceError as error:
        unavailable(str(error))
    yield broker.info["bootstrap"]
    broker.stop()
