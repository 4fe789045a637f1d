"""`lakebed table`: create and describe."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pyarrow.compute as pc
import typer

import lakebed
from lakebed.cli.files import Delimiter, read_rows
from lakebed.cli.output import Form, Output, StorageOptions, Uri, pairs, show_facts
from lakebed.config.options import stored_merge_mode

app = typer.Typer(help="Create and describe tables.", no_args_is_help=True)


@app.command()
def describe(uri: Uri, output: Output = Form.TABLE, storage_option: StorageOptions = None) -> None:
    """What the table is, what it has, and what lakebed does with that."""
    table = lakebed.open(uri, storage_options=pairs(storage_option, "--storage-option"))
    fields: dict[str, Any] = _facts(table)
    features = [
        {"feature": f.name, "read": f.read, "write": f.write, "why": f"{f.why}; {f.hint}" if f.why else ""}
        for f in table.features
    ]
    if output.is_for_programs:
        show_facts(fields | {"features": features, "properties": dict(table.properties)}, output)
        return
    for feature in features:
        shown = f"read {feature['read']}, write {feature['write']}"
        fields[feature["feature"]] = f"{shown}: {feature['why']}" if feature["why"] else shown
    show_facts(_in_words(fields), output)


@app.command()
def create(
    uri: Uri,
    schema_from: Annotated[
        Path, typer.Option(exists=True, dir_okay=False, help="A Parquet, CSV or JSON-lines file with the columns.")
    ],
    delimiter: Delimiter = None,
    key: Annotated[str, typer.Option(help="Record key fields, separated by commas; none: keys are generated.")] = "",
    partition_by: Annotated[str, typer.Option(help="Partition fields, separated by commas.")] = "",
    ordering: Annotated[str, typer.Option(help="Ordering fields, separated by commas.")] = "",
    kind: Annotated[
        str, typer.Option("--type", help="cow or mor: whether updates rewrite files, or are logged and merged later.")
    ] = "cow",
    index: Annotated[str, typer.Option(help="bucket, record, [global_]bloom, [global_]simple or auto.")] = "auto",
    buckets: Annotated[int, typer.Option(help="Buckets of each partition, for the bucket index.")] = 0,
    hash_fields: Annotated[str, typer.Option(help="Key fields the bucket follows from; none: all.")] = "",
    merge: Annotated[str | None, typer.Option(help="event_time or commit_time.")] = None,
    sort: Annotated[str | None, typer.Option(help="key: rows of a file in the order of their keys; or none.")] = None,
    table_version: Annotated[int, typer.Option(help="9, 8 or 6.")] = 9,
    prop: Annotated[
        list[str] | None, typer.Option("--property", help="KEY=VALUE, e.g. hoodie.table.name=trips.")
    ] = None,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Make an empty table with the columns of a file."""
    table = lakebed.create(
        uri,
        read_rows(schema_from, delimiter=delimiter),
        type=kind,  # pyright: ignore[reportArgumentType]  # create() checks the word
        key=_fields(key),
        partition_by=_fields(partition_by),
        ordering=_fields(ordering),
        index=index,
        buckets=buckets or None,
        hash_fields=_fields(hash_fields),
        merge=merge,
        sort=sort,  # pyright: ignore[reportArgumentType]  # create() checks the word
        table_version=table_version,
        properties=pairs(prop, "--property"),
        storage_options=pairs(storage_option, "--storage-option"),
    )
    facts = _facts(table)
    show_facts(facts if output.is_for_programs else _in_words(facts), output)


def _facts(table: lakebed.Table) -> dict[str, Any]:
    stored = table.properties
    files = table.files.to_arrow()
    last = table.timeline.last
    ordering = stored.get("hoodie.table.ordering.fields") or stored.get("hoodie.table.precombine.field") or ""
    return {
        "table": table.name,
        "location": table.uri,
        "version": int(stored.get("hoodie.table.version", "0")),
        "type": stored.get("hoodie.table.type", ""),
        "key": _fields(stored.get("hoodie.table.recordkey.fields", "")) or [],
        "partitions": _fields(stored.get("hoodie.table.partition.fields", "")) or [],
        "ordering": _fields(ordering) or [],
        "merge": stored_merge_mode(stored) or "",
        "index": table.indexes.index.explain(),
        **({"chosen": reason} if (reason := table.indexes.reason) else {}),
        "sort": stored.get("lakebed.sort", "none"),
        "newest_instant": last.time if last else None,
        "file_groups": len(files),
        "bytes": pc.sum(files.column("bytes")).as_py() or 0,
        "columns": [f"{field.name} {field.type}" for field in table.schema],
    }


def _in_words(facts: dict[str, Any]) -> dict[str, Any]:
    """For people, who are told of what is not there."""
    none = {"key": "generated", "partitions": "none", "ordering": "none", "newest_instant": "none"}
    return facts | {name: word for name, word in none.items() if not facts[name]}


def _fields(text: str) -> list[str] | None:
    return [part.strip() for part in text.split(",") if part.strip()] or None
