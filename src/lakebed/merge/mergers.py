"""Mergers of the user's own: a function over Arrow that makes one row of two, found by the strategy id of the table."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import InvalidOption, InvalidRecord, UnsupportedFeature
from lakebed.merge.row_differences import rows_differ
from lakebed.plugins import plugins
from lakebed.properties.table_config import TableConfig
from lakebed.schema.plain_arrow import as_numpy

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINTS = "lakebed.mergers"


class Merger(ABC):
    """A user-defined way to merge two rows of one key.

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
        """The merged rows, and flags of the rows that are deletes (None: none is).

        `old` and `new` have the table's columns and the same number of rows; row by row they have the same key, and
        `new` is the later one. The result has the same columns and types, and in the columns of key and partition path
        the values of `old` or of `new`; another one is refused with `InvalidRecord`. It is not called for pairs with a
        delete: a delete removes older rows, and a later row of its key replaces it.
        """
        raise NotImplementedError

    def apply(
        self, old: pa.RecordBatch, new: pa.RecordBatch, fixed: Sequence[str] = ()
    ) -> tuple[pa.RecordBatch, npt.NDArray[np.bool_]]:
        """The rows that `merge` makes of the pairs, and flags of the deletes among them. Raises `InvalidRecord` for
        results of another form, and for a row whose `fixed` fields do not have the values of one of its two rows."""
        rows, deletes = self._merged(old, new)
        if rows.num_rows != new.num_rows or _columns(rows.schema) != _columns(new.schema):
            raise self._refusal(
                f"gave {rows.num_rows} rows of {_schema_text(rows.schema)} for {new.num_rows} pairs"
                f" of rows of {_schema_text(new.schema)}",
                "merge() gives one row for each pair, in the columns and types of the rows that it got",
            )
        if deletes is None:
            flags = np.zeros(rows.num_rows, dtype=bool)
        elif len(deletes) != rows.num_rows or not pa.types.is_boolean(deletes.type):
            raise self._refusal(
                f"gave {len(deletes)} delete flags of type {deletes.type} for {rows.num_rows} rows",
                "merge() gives a boolean for each row, or None",
            )
        else:
            flags = as_numpy(pc.fill_null(deletes, False))
        self._check_fixed(old, new, rows, flags, fixed)
        return rows, flags

    def _merged(self, old: pa.RecordBatch, new: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array | None]:
        """Call `merge` and return its result: the merged batch, and flags of the deleted rows, None if there are no
        deletes. Raises `InvalidRecord` if the result has another form."""
        result: Any = self.merge(old, new)
        parts: tuple[Any, ...] = result if isinstance(result, tuple) else (result,)
        sorts = pa.Array, pa.ChunkedArray, type(None)
        if len(parts) == 2 and isinstance(parts[0], pa.RecordBatch) and isinstance(parts[1], sorts):
            return parts
        types = ", ".join(type(part).__name__ for part in parts)
        raise self._refusal(
            f"gave {f'({types})' if isinstance(result, tuple) else types}, not a record batch and delete flags",
            "merge() gives (rows, deletes): a pyarrow.RecordBatch, and a boolean pyarrow.Array or None",
        )

    def _check_fixed(
        self,
        old: pa.RecordBatch,
        new: pa.RecordBatch,
        rows: pa.RecordBatch,
        deletes: npt.NDArray[np.bool_],
        fixed: Sequence[str],
    ) -> None:
        """Raise `InvalidRecord` if a merged row that is not deleted has values of the key or the partition path that
        neither of its two rows has: no lookup would find it where it is stored."""
        paths = [path for path in (name.split(".") for name in fixed) if path[0] in rows.schema.names]
        names = [".".join(path) for path in paths]
        merged, *old_and_new = (
            pa.RecordBatch.from_arrays([pc.struct_field(values, path) for path in paths], names)
            for values in (batch.to_struct_array() for batch in (rows, old, new))
        )
        differs = rows_differ(merged, old_and_new[0]) & rows_differ(merged, old_and_new[1]) & ~deletes
        if differs.any():
            at = int(np.flatnonzero(differs)[0])
            merged_values, new_values = merged.slice(at, 1).to_pylist()[0], old_and_new[1].slice(at, 1).to_pylist()[0]
            raise self._refusal(
                f"gave a row with {merged_values} for a pair of rows with {new_values}",
                "merge() leaves the columns of the key and of the partition path as they are in one of the two rows",
            )

    def _refusal(self, problem: str, hint: str) -> InvalidRecord:
        name = type(self).__name__
        context = {"merger": name, "strategy_id": self.strategy_id}
        return InvalidRecord(f"the merger {name} {problem}", hint=hint, context=context)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Merger) and other.strategy_id == self.strategy_id

    def __hash__(self) -> int:
        return hash(self.strategy_id)


_registered: dict[str, Merger] = {}


def register(merger: Merger) -> Merger:
    """Register a merger in this process, as an entry point does in every process."""
    identity = _strategy_id(merger)
    _registered[identity] = merger
    return merger


def merger_of(config: TableConfig) -> Merger:
    """The merger of a table in custom merge mode. Raises `UnsupportedFeature` if no merger has the table's strategy
    id."""
    strategy_id = config.merge_strategy.lower()
    merger = _registered.get(strategy_id) or _installed().get(strategy_id)
    if merger is None:
        raise UnsupportedFeature(
            f"table {config.name!r} merges rows by a custom merger"
            + (
                f" of strategy id {strategy_id}, which is not installed here"
                if strategy_id
                else " that it does not name"
            )
            + (f" (payload class {config.payload})" if config.payload else ""),
            hint=f"Install the package that registers it under the entry point group {ENTRY_POINTS!r}: a"
            f" lakebed.Merger whose strategy_id is {strategy_id!r}.",
            context={"feature": "custom merge mode", "strategy_id": strategy_id, "entry_points": ENTRY_POINTS},
        )
    return merger


def merger_named(name: str) -> Merger | None:
    """The merger that an entry point of that name registers; None if there is none."""
    entry_point = next((point for point in plugins(ENTRY_POINTS) if point.name == name), None)
    return None if entry_point is None else _loaded(entry_point)


def _installed() -> dict[str, Merger]:
    """The installed mergers by strategy id; looked up at each call, since packages may be installed meanwhile."""
    return {m.strategy_id.lower(): m for m in map(_loaded, plugins(ENTRY_POINTS))}


def _loaded(point: EntryPoint) -> Merger:
    target = point.load()
    merger = target() if isinstance(target, type) else target
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


def _columns(schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
    """The names and types of a schema's columns, without whether they may hold nulls (the table decides that)."""
    return [(field.name, field.type) for field in schema]


def _schema_text(schema: pa.Schema) -> str:
    return "(" + ", ".join(f"{f.name} {f.type}" for f in schema) + ")"
