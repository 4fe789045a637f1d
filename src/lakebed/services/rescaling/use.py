"""Another index for a table that has rows: what it takes is done, or refused, before anything changes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lakebed.errors import IndexInconsistent, InvalidOption, UnsupportedFeature
from lakebed.index.base import Index
from lakebed.index.registry import make_index
from lakebed.metadata.kinds.index_names import IndexName
from lakebed.metadata.kinds.key_indexes import KeyIndexes
from lakebed.metadata.layout import RECORD_INDEX
from lakebed.operations.context import WriteContext
from lakebed.operations.index_rules import check_new_indexes
from lakebed.services.rescaling.plan import RescalePlan
from lakebed.services.rescaling.run import Rescaled, admit_change, change_index, differ, plan_change
from lakebed.slices.snapshot import Snapshot
from lakebed.upkeep.record_index import repeated_keys

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class IndexChoice:
    """An index by its name, and what belongs to it."""

    name: str | Index
    buckets: int | None = None
    fields: tuple[str, ...] = ()
    update_partition_path: bool | None = None
    partition_buckets: str | None = None


def use_index(context: WriteContext, choice: IndexChoice, *, dry_run: bool = False) -> Rescaled:
    """Make an index that of the table; see `IndexesView.use`. With `dry_run` only say what that takes."""
    snapshot, old = context.opened, context.index
    new = make_index(
        choice.name,
        key_fields=context.config.key_fields,
        buckets=choice.buckets,
        fields=choice.fields,
        update_partition_path=choice.update_partition_path,
        partition_buckets=choice.partition_buckets,
    )
    _refuse_unmovable(old, new, snapshot)
    admit_change(context, new, "rescale")
    _refuse_unknown_places(context, new)
    missing = missing_indexes(snapshot, new)
    check_new_indexes(missing, snapshot.config, snapshot.schema, new)
    widens = new.is_global and not old.is_global and bool(context.config.partition_fields)
    notes = ["keys are checked: none may stand in two partition paths"] if widens else []
    if new.key_hash is None:
        notes.append("files stay as they are; what the index reads in them is there, or comes with their next rewrite")
    plan = replace(
        plan_change(context, snapshot, new), builds=tuple(name.partition for name in missing), notes=tuple(notes)
    )
    if dict(new.settings()) == snapshot.index_settings:
        return Rescaled(RescalePlan(old.explain(), new.explain()))
    if dry_run:
        if widens:
            refuse_repeated(snapshot)
        return Rescaled(plan)
    return change_index(context, new, "rescale", check=refuse_repeated if widens else None, plan=plan)


def missing_indexes(snapshot: Snapshot, new: Index) -> list[IndexName]:
    """The indexes of the metadata table that are to be built for this one. Refuses one that is there in another
    form."""
    config = snapshot.config
    wanted = new.metadata_indexes
    there = [name for name in wanted if name.partition in config.metadata_partitions]
    for name in there:
        if name.partition == RECORD_INDEX and KeyIndexes.of(snapshot.storage, config).partitioned != name.partitioned:
            kinds = ("one for each partition path", "one for the whole table")
            has, asks = kinds if not name.partitioned else kinds[::-1]
            raise InvalidOption(
                f"table {config.name!r} has a record index, {has}, and writes would need {asks}",
                hint="Take it off first: t.indexes.drop('record_index'), after t.indexes.use('simple') where writes go"
                " by it.",
                context={"index": RECORD_INDEX},
            )
    return [name for name in wanted if name not in there]


def refuse_repeated(snapshot: Snapshot) -> None:
    """Raise `IndexInconsistent` where a key stands in two places of the table: no index of the whole table has it."""
    files = Snapshot(snapshot.storage, snapshot.config, snapshot.timeline, use_metadata=False)
    twice = repeated_keys(files, everywhere=True)
    if not twice.num_rows:
        return
    some = [f"{row['key']!r} in {row['partition']}" for row in twice.slice(0, _SHOWN).to_pylist()]
    more = f" and {twice.num_rows - _SHOWN} more" if twice.num_rows > _SHOWN else ""
    raise IndexInconsistent(
        f"{twice.num_rows} record key(s) of table {snapshot.config.name!r} stand in several places, and under the index"
        f" a key has one: {'; '.join(some)}{more}",
        hint="Delete the copies that are too many, or take an index that keeps keys unique within partition paths.",
        context={"keys": twice.num_rows, "record_key": twice["key"][0].as_py()},
    )


def _refuse_unmovable(old: Index, new: Index, snapshot: Snapshot) -> None:
    """An index whose rows cannot be moved may come where all of them lie right already; it never goes."""
    stay = new.key_hash is not None and not any(
        differ(old.key_hash, new.key_hash, path) for path in ("", *snapshot.partitions())
    )
    for index, fits in ((old, False), (new, stay)):
        if not index.rows_can_move and not fits and dict(old.settings()) != dict(new.settings()):
            raise UnsupportedFeature(
                f"the rows of a table cannot be moved to the index {new.name!r} from {old.name!r}: {index.name!r} is"
                " that of a table from its first write on",
                hint="Make a new table with the index that you want and write the rows of this one to it. Only"
                " bucket_groups can follow a bucket index: with the same buckets= and fields=, one count everywhere.",
                context={"feature": f"index {index.name} on a table with rows"},
            )


def _refuse_unknown_places(context: WriteContext, new: Index) -> None:
    if new.keeps_places and context.opened.commits:
        raise UnsupportedFeature(
            f"the index {new.name!r} keeps the places of keys by itself, and knows none of the rows that the table has",
            hint="Make a new table with it and write the rows of this one to that.",
            context={"feature": f"index {new.name} on a table with rows"},
        )
