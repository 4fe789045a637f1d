"""Mergers of the user's own: a function over Arrow that makes one row of two, found by the strategy id of the table."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from importlib.metadata import EntryPoint, entry_points
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import InvalidOption, InvalidRecord, UnsupportedFeature
from lakebed.properties.table_config import TableConfig

ENTRY_POINTS = "lakebed.mergers"


class Merger(ABC):
    """A way to merge two rows of one key, in a class of your own.

    Register the subclass (or an object of it) under the entry point group `lakebed.mergers`. `strategy_id` is a UUID
    that you make once and never change: tables record it (`hoodie.record.merge.strategy.id`), and readers find the
    merger by it. A merger is sent to the tasks of a Spark job: it pickles, and its package is installed where they run.

    >>> import lakebed, pyarrow as pa, pyarrow.compute as pc
    >>> class Highest(lakebed.Merger):
    ...     strategy_id = "f3a6c2de-5d0b-4b0e-9c39-6a4f0c1f7a10"
    ...
    ...     def merge(self, old, new):
    ...         highest = pc.max_element_wise(old["fare"], new["fare"])
    ...         return new.set_column(new.schema.get_field_index("fare"), "fare", highest), None
    >>> old, new = (pa.RecordBatch.from_pydict({"id": [1], "fare": [fare]}) for fare in (9.5, 7.0))
    >>> Highest().merge(old, new)[0].to_pylist()
    [{'id': 1, 'fare': 9.5}]
    """

    strategy_id: ClassVar[str]

    @abstractmethod
    def merge(self, old: pa.RecordBatch, new: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array | None]:
        """The merged rows, and which of them are deletes (None: none).

        `old` and `new` have the table's columns and the same number of rows; row by row they have the same key, and
        `new` is the later one. The result has the same columns, types and keys. It is not called for pairs with a
        delete: a delete removes older rows, and a later row of its key replaces it.
        """
        raise NotImplementedError

    def apply(self, old: pa.RecordBatch, new: pa.RecordBatch) -> tuple[pa.RecordBatch, npt.NDArray[np.bool_]]:
        """`merge`, with what it gives checked."""
        name = type(self).__name__
        rows, deletes = self.merge(old, new)
        if rows.num_rows != new.num_rows or not rows.schema.remove_metadata().equals(new.schema.remove_metadata()):
            raise InvalidRecord(
                f"the merger {name} gave {rows.num_rows} rows of {_schema_text(rows.schema)} for {new.num_rows} pairs"
                f" of rows of {_schema_text(new.schema)}",
                hint="merge() gives one row for each pair, in the columns and types of the rows that it got",
                context={"merger": name, "strategy_id": self.strategy_id},
            )
        if deletes is None:
            return rows, np.zeros(rows.num_rows, dtype=bool)
        if len(deletes) != rows.num_rows or not pa.types.is_boolean(deletes.type):
            raise InvalidRecord(
                f"the merger {name} gave {len(deletes)} delete flags of type {deletes.type} for {rows.num_rows} rows",
                hint="merge() gives a boolean for each row, or None",
                context={"merger": name, "strategy_id": self.strategy_id},
            )
        return rows, pc.fill_null(deletes, False).to_numpy(zero_copy_only=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Merger) and other.strategy_id == self.strategy_id

    def __hash__(self) -> int:
        return hash(self.strategy_id)


_registered: dict[str, Merger] = {}


def register(merger: Merger) -> Merger:
    """Make a merger known in this process, as an entry point does in every process."""
    identity = _strategy_id(merger)
    _registered[identity] = merger
    return merger


def merger_of(config: TableConfig) -> Merger:
    """The merger of a table in custom merge mode. Raises `UnsupportedFeature` where none has its strategy id."""
    wanted = config.merge_strategy.lower()
    found = _registered.get(wanted) or _installed().get(wanted)
    if found is None:
        raise UnsupportedFeature(
            f"table {config.name!r} merges rows by a custom merger"
            + (f" of strategy id {wanted}, which is not installed here" if wanted else " that it does not name")
            + (f" (payload class {config.payload})" if config.payload else ""),
            hint=f"Install the package that registers it under the entry point group {ENTRY_POINTS!r}: a"
            f" lakebed.Merger whose strategy_id is {wanted!r}.",
            context={"feature": "custom merge mode", "strategy_id": wanted, "entry_points": ENTRY_POINTS},
        )
    return found


def merger_named(name: str) -> Merger | None:
    """The merger that an entry point of that name registers, or None."""
    found = next((point for point in entry_points(group=ENTRY_POINTS) if point.name == name), None)
    return None if found is None else _loaded(found)


def _installed() -> dict[str, Merger]:
    """Looked up each time, since packages can be installed while a process runs; few are, and few tables ask."""
    return {m.strategy_id.lower(): m for m in map(_loaded, entry_points(group=ENTRY_POINTS))}


def _loaded(point: EntryPoint) -> Merger:
    found = point.load()
    merger = found() if isinstance(found, type) else found
    if not isinstance(merger, Merger):
        raise InvalidOption(
            f"the entry point {point.name!r} of {ENTRY_POINTS} is {point.value}, which is no lakebed.Merger",
            hint="Register a subclass of lakebed.Merger, or an object of one.",
            context={"entry_point": point.name},
        )
    _strategy_id(merger)
    return merger


def _strategy_id(merger: Merger) -> str:
    identity = getattr(merger, "strategy_id", "")
    try:
        return str(uuid.UUID(identity))
    except (ValueError, AttributeError, TypeError):
        raise InvalidOption(
            f"the merger {type(merger).__name__} has the strategy id {identity!r}, which is no UUID",
            hint="Make one with uuid.uuid4() and write it into the class: strategy_id = '...'.",
            context={"merger": type(merger).__name__},
        ) from None


def _schema_text(schema: pa.Schema) -> str:
    return "(" + ", ".join(f"{f.name} {f.type}" for f in schema) + ")"
