"""The read and write matrix: which features of a table lakebed reads, which it writes, which it refuses by name.

One row a feature. A row decides by the table's properties and a few facts whether the table has the feature; a read
or a write asks all rows before it touches anything. To add a feature: one row here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal

from lakebed.config.option_table import KEY_GENERATORS, payload_class, simple_name
from lakebed.errors import UnsupportedFeature
from lakebed.properties.file import SUPPORTED_VERSIONS
from lakebed.properties.table_config import MODE_STRATEGIES, PAYLOAD, TableConfig

Verdict = Literal["yes", "no", "some"]

SCHEMA_FOLDER = ".hoodie/.schema"
BUCKET_FOLDER = ".hoodie/.bucket_index"
METADATA_FOLDER = ".hoodie/metadata"
# They go by files and instants, whatever rows and keys there are.
_TAKES_BACK = ("rollback", "restore")
_TIDIES = ("clean", "archive")


@dataclass(frozen=True, slots=True)
class TableFacts:
    """Facts that are not in a table's properties: they come from its folders or its timeline."""

    metadata_table: bool = False
    schema_history: bool = False
    partition_buckets: bool = False
    consistent_buckets: bool = False
    pending_restore: str = ""
    operations: bool = False

    @classmethod
    def from_paths(cls, paths: Iterable[str]) -> TableFacts:
        """The facts that files show; `paths` are relative to the table and may be all files below SCHEMA_FOLDER,
        BUCKET_FOLDER and METADATA_FOLDER, or any of each.

        >>> TableFacts.from_paths([".hoodie/.schema/20240101000000000.schemacommit"]).schema_history
        True
        """
        metadata = history = by_partition = consistent = False
        for path in paths:
            metadata = metadata or path.startswith(METADATA_FOLDER + "/")
            history = history or (path.startswith(SCHEMA_FOLDER + "/") and path.endswith("schemacommit"))
            by_partition = by_partition or path.startswith(f"{BUCKET_FOLDER}/partition_bucket_index_meta/")
            consistent = consistent or path.startswith(f"{BUCKET_FOLDER}/consistent_hashing_metadata/")
        return cls(
            metadata_table=metadata,
            schema_history=history,
            partition_buckets=by_partition,
            consistent_buckets=consistent,
        )


@dataclass(frozen=True, slots=True)
class Feature:
    """One row of the matrix of features.

    `present` is whether a table has it. `read` or `write` "some" means only what `reads` (query types) or
    `writes` (operations) names. `why` is the message of a refusal, `hint` what to do.
    """

    name: str
    present: Callable[[TableConfig, TableFacts], bool] = field(repr=False)
    read: Verdict
    write: Verdict
    why: str = ""
    hint: str = ""
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()


def _is(name: str, *values: object, other: bool = False) -> Callable[[TableConfig, TableFacts], bool]:
    """Whether a setting is one of `values`; with `other` whether it is none of them."""
    return lambda config, _: (getattr(config, name) in values) is not other


def _has(name: str) -> Callable[[TableConfig, TableFacts], bool]:
    return lambda config, _: bool(getattr(config, name))


def _fact(name: str) -> Callable[[TableConfig, TableFacts], bool]:
    return lambda _, facts: bool(getattr(facts, name))


def _property(key: str, default: str, value: str, *, other: bool = False) -> Callable[[TableConfig, TableFacts], bool]:
    """Whether a property, which is `default` if it is missing, has this value in any case; with `other` another one."""
    return lambda config, _: (config.properties.get(key, default).lower() == value) is not other


def _orc_of(table_type: str) -> Callable[[TableConfig, TableFacts], bool]:
    return lambda config, _: config.base_format == "ORC" and config.table_type == table_type


def _nested_ordering(config: TableConfig, _: TableFacts) -> bool:
    return "." in "".join(config.ordering_fields) and config.merge_mode == "event_time"


def _custom_payload(config: TableConfig, _: TableFacts) -> bool:
    """Whether the table has a Java payload class of the user's own; a merger is named by its strategy id."""
    if config.merge_mode != "custom" or config.merge_strategy not in ("", *MODE_STRATEGIES):
        return False
    payload = config.properties.get(PAYLOAD, "")
    return bool(payload) and payload_class(payload) is None


# They write no base file.
_NEEDS_NO_FILE = ("delete_partition", "alter_columns")
_ORC_HINT = (
    "write its rows to a new table with Parquet base files: t2 = lakebed.create(uri, t.schema, ...), then"
    " t2.bulk_insert(t.scan().to_arrow())"
)
_READ_ONLY = "write to it with the engine that made it; lakebed reads it"

_FORMATS = (
    Feature(
        "HFile base files",
        _is("base_format", "HFILE"),
        "no",
        "no",
        "has HFile base files, which Hudi cannot read by SQL either",
        "write its rows to a new table, with the job that made them",
    ),
    Feature(
        "base files of another format",
        _is("base_format", "PARQUET", "ORC", "LANCE", "HFILE", other=True),
        "no",
        "no",
        "has base files of a format that lakebed does not read (it reads Parquet, ORC and Lance)",
        "use real Hudi",
    ),
    Feature(
        "base files of several formats",
        _property("hoodie.table.multiple.base.file.formats.enable", "false", "true"),
        "no",
        "no",
        "may have base files of several formats (hoodie.table.multiple.base.file.formats.enable)",
        "use real Hudi",
    ),
)
FEATURES: tuple[Feature, ...] = (
    Feature(
        "another table version",
        _is("version", *SUPPORTED_VERSIONS, other=True),
        "no",
        "no",
        "is of a table version that lakebed does not know (it knows 6, 8 and 9)",
        "upgrade or downgrade the table with real Hudi",
    ),
    Feature(
        "foreign table format",
        _property("hoodie.table.format", "native", "native", other=True),
        "no",
        "no",
        "keeps its timeline in a foreign table format (hoodie.table.format)",
        "use the engine of that format",
    ),
    *_FORMATS,
    Feature("Lance base files", _is("base_format", "LANCE"), "yes", "yes"),
    Feature(
        "ORC base files (copy-on-write)",
        _orc_of("cow"),
        "yes",
        "some",
        "has ORC base files, which are read and not written, and a copy-on-write table is written by rewriting them",
        _ORC_HINT,
        writes=(*_TAKES_BACK, *_TIDIES, *_NEEDS_NO_FILE),
    ),
    Feature(
        "ORC base files (merge-on-read)",
        _orc_of("mor"),
        "yes",
        "some",
        "has ORC base files, which are read and not written: rows go to log files",
        _ORC_HINT,
        writes=("upsert", "insert", "delete", *_TAKES_BACK, *_TIDIES, *_NEEDS_NO_FILE),
    ),
    Feature(
        "bootstrap (metadata only)",
        lambda config, _: bool(config.properties.get("hoodie.bootstrap.base.path", "").strip()),
        "yes",
        "yes",
    ),
    Feature(
        "metadata table",
        lambda config, f: bool(config.metadata_partitions) or f.metadata_table,
        "yes",
        "yes",
    ),
    Feature(
        "change logging (CDC)",
        _is("cdc_enabled", True),
        "yes",
        "yes",
    ),
    Feature(
        "schema history (schema on read)",
        _fact("schema_history"),
        "yes",
        "yes",
    ),
    Feature(
        "bucket counts by partition",
        _fact("partition_buckets"),
        "yes",
        "yes",
    ),
    Feature(
        "consistent-hashing buckets",
        _fact("consistent_buckets"),
        "yes",
        "yes",
    ),
    Feature(
        "partial updates",
        _has("partial_update_mode"),
        "yes",
        "yes",
    ),
    Feature(
        "custom merge mode or payload",
        lambda config, f: config.merge_mode == "custom" and not _custom_payload(config, f),
        "yes",
        "yes",
    ),
    Feature(
        "payload class of the user's own",
        _custom_payload,
        "yes",
        "no",
        "merges rows by a Java class of its own",
        _READ_ONLY,
    ),
    Feature("ordering by a field inside a struct", _nested_ordering, "yes", "yes"),
    Feature(
        "key generator of another kind",
        _is("key_generator", *KEY_GENERATORS.values(), other=True),
        "yes",
        "no",
        "makes its keys by a Java class or in a way that lakebed does not know",
        _READ_ONLY,
    ),
    Feature(
        "unfinished restore",
        _fact("pending_restore"),
        "yes",
        "some",
        "has an unfinished restore on its timeline",
        "finish it first: t.restore() or `lakebed restore URI`; what another process runs is left to it",
        writes=("restore",),
    ),
    Feature(
        "merge-on-read",
        _is("table_type", "mor"),
        "yes",
        "yes",
    ),
    Feature(
        "no meta fields",
        _is("populate_meta_fields", False),
        "yes",
        "some",
        "has no meta fields (hoodie.populate.meta.fields=false), so stored rows cannot be found again",
        "only insert and bulk_insert write to it",
        writes=("insert", "bulk_insert", *_TAKES_BACK, *_TIDIES),
    ),
    Feature("generated keys", _is("key_fields", ()), "yes", "yes"),
    Feature(
        "partition columns left out of files",
        _is("drop_partition_columns", True),
        "yes",
        "yes",
    ),
    Feature(
        "delete field and marker",
        _has("delete_field"),
        "yes",
        "yes",
    ),
    Feature("column of operations (_hoodie_operation)", _fact("operations"), "yes", "yes"),
    Feature("timeline in local time", _is("timezone", "LOCAL"), "yes", "yes"),
)


def features_of(config: TableConfig, facts: TableFacts) -> tuple[Feature, ...]:
    """The rows of the matrix that a table has."""
    return tuple(f for f in FEATURES if f.present(config, facts))


def check_read(config: TableConfig, facts: TableFacts, query: str = "snapshot") -> None:
    """Raise `UnsupportedFeature` if the table has a feature that this query (snapshot, read_optimized, incremental)
    cannot read correctly."""
    for feature in FEATURES:
        if feature.read != "yes" and query not in feature.reads and feature.present(config, facts):
            raise _refusal(feature, config, facts, f"a {query} read of it is refused")


def check_formats(config: TableConfig) -> None:
    """Raise `UnsupportedFeature` for a table whose base files are of a format that is not read."""
    for feature in _FORMATS:
        if feature.present(config, TableFacts()):
            raise _refusal(feature, config, TableFacts(), "it is not opened")


def check_write(config: TableConfig, facts: TableFacts, operation: str) -> None:
    """Raise `UnsupportedFeature` if the table has a feature that this operation (upsert, insert, ...) would damage, and
    if the package that writes its base files is not installed. Call it before anything is written."""
    for feature in FEATURES:
        if feature.write != "yes" and operation not in feature.writes and feature.present(config, facts):
            raise _refusal(feature, config, facts, f"{operation} is refused")
    if config.base_format == "LANCE":
        from lakebed.format.lance_file import require_lance

        require_lance()


def _refusal(feature: Feature, config: TableConfig, facts: TableFacts, consequence: str) -> UnsupportedFeature:
    properties = config.properties
    name = properties.get("hoodie.table.name", "")
    detail = {
        "another table version": properties.get("hoodie.table.version", ""),
        "payload class of the user's own": simple_name(properties.get("hoodie.compaction.payload.class", "")),
        "metadata table": properties.get("hoodie.table.metadata.partitions", ""),
        "unfinished restore": facts.pending_restore,
    }.get(feature.name, "")
    redacted = f" ({detail})" if detail else ""
    return UnsupportedFeature(
        f"table {name or '(unnamed)'} {feature.why}{redacted}: {consequence}",
        hint=feature.hint,
        context={"feature": feature.name, "table": name},
    )
