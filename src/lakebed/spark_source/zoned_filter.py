"""The option `filter` where its answer depends on the session's time zone.

Spark tells a data source nothing of the session when it plans. Its tasks know the zone: what depends on it is evaluated
there, and what does not still prunes files.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext

from lakebed.filters.predicates import And, Node, Opaque, Predicate, combine
from lakebed.filters.sql import parse_filter

_SESSION_ZONE = "spark.sql.session.timeZone"
# Two zones in which no text stands for the same time.
_ZONES = ("UTC", "+09:00")


@dataclass(frozen=True)
class ZonedFilter:
    """A filter to be parsed where the zone is known, with the conditions that hold besides."""

    text: str
    schema: pa.Schema
    nodes: tuple[Node, ...]
    for_every_zone: Node
    """What planning may go by: those parts of the filter that mean the same in every zone."""
    planners_zone: str

    def in_zone(self, zone: str) -> Predicate:
        found = combine(parse_filter(self.text, self.schema, zone=zone), self.nodes)
        assert found is not None
        return found


def zoned_filter(text: str | None, schema: pa.Schema, nodes: Sequence[Node]) -> ZonedFilter | None:
    """The filter, if it means different things in different zones; else None."""
    if text is None:
        return None
    here, there = (parse_filter(text, schema, zone=zone) for zone in _ZONES)
    if here.root == there.root:
        return None
    parts, others = (p.root.parts if isinstance(p.root, And) else (p.root,) for p in (here, there))
    same = tuple(part for part in parts if part in others) if len(parts) == len(others) else ()
    unknown = Opaque(here.columns, "the session's time zone")
    return ZonedFilter(text, schema, tuple(nodes), And((*same, unknown)), machine_zone())


def session_zone(otherwise: str) -> str:
    """The zone of the session that this task works for; Spark passes on only what was set."""
    context = TaskContext.get()
    return (context.getLocalProperty(_SESSION_ZONE) if context is not None else None) or otherwise


def machine_zone() -> str:
    """The zone of this machine, which Spark takes where none is set.

    >>> "" in machine_zone()
    True
    """
    named = os.environ.get("TZ", "").removeprefix(":")
    if named and not named.startswith("/"):
        return named
    _, _, region = os.path.realpath(named or "/etc/localtime").partition("zoneinfo/")
    return region or "UTC"
