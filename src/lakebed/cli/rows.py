"""Commands on rows: read, look up, write, delete, and the plans of all of these."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import lakebed
from lakebed.cli.command import (
    DryRun,
    Message,
    Metadata,
    WriteOptions,
    ask_first,
    open_table,
    show_result,
    table_command,
)
from lakebed.cli.consumers import Following
from lakebed.cli.hints import as_commands
from lakebed.cli.keys import KeyFields, Keys, key_texts
from lakebed.cli.output import (
    Delimiter,
    Encoding,
    Form,
    Output,
    Partitioning,
    PartitioningOption,
    Reading,
    StorageOptions,
    Uri,
    data_files,
    names,
    pairs,
    print_cut,
    row_limit,
    show_facts,
    show_rows,
    show_text,
    working,
)
from lakebed.errors import ErasureIncomplete, InvalidOption
from lakebed.wording import count_text

if TYPE_CHECKING:
    import pyarrow as pa

    from lakebed.read.scan import Results


class QueryType(StrEnum):
    """The queries of `--query`."""

    SNAPSHOT = "snapshot"
    READ_OPTIMIZED = "read_optimized"


class MetricName(StrEnum):
    """The metrics of `--metric`."""

    COSINE = "cosine"
    L2 = "l2"
    DOT_PRODUCT = "dot_product"


class Scope(StrEnum):
    """The rows that `insert-overwrite` replaces: those of the partitions, or of the table."""

    PARTITIONS = "partitions"
    TABLE = "table"


Where = Annotated[str | None, typer.Option(help="A SQL condition, e.g. \"city = 'Oslo' and fare > 10\".")]
Columns = Annotated[list[str] | None, typer.Option(metavar="A,B", help="Columns to show, separated by commas.")]
AsOf = Annotated[
    str | None,
    typer.Option(
        help="The table as it was then: an instant, a time, a date, the number of a version or the name of a savepoint."
    ),
]
Query = Annotated[
    QueryType,
    typer.Option(help="snapshot: the rows as they are; read_optimized: base files only, without newer log files."),
]
Limit = Annotated[
    int | None,
    typer.Option(metavar="N", help="Print at most N rows; 0 prints all. Default: 20 in a table, all in JSON and CSV."),
]
DataFile = Annotated[
    str,
    typer.Argument(
        help="Data files: a file, folder or glob (path or URI) of Parquet, CSV, TSV, JSON or Arrow.", show_default=False
    ),
]
Retries = Annotated[
    int | None,
    typer.Option(
        "--retries", metavar="N", min=0, help="How often to run it again if it loses a conflict with another write."
    ),
]


# Exit code of a lookup of a key that the table does not hold.
NOT_THERE = 20


def _first(scan: Results, limit: int) -> tuple[pa.Table, bool]:
    """The first rows of a scan, and whether there are more; no more batches are read than needed."""
    import pyarrow as pa

    if not limit:
        return scan.to_arrow(), False
    batches: list[pa.RecordBatch] = []
    missing = limit + 1
    for batch in scan.to_batches():
        batches.append(batch.slice(0, missing))
        missing -= batches[-1].num_rows
        if missing <= 0:
            break
    return pa.Table.from_batches(batches, scan.schema).slice(0, limit), missing <= 0


def _show_some(results: Results, limit: int | None, output: Form) -> bool:
    """Print the rows, all or the first, and report on standard error if there are more."""
    max_rows = row_limit(limit, output)
    with working("reading"):
        rows, cut = _first(results, max_rows)
    show_rows(rows, output)
    if cut:
        print_cut(f"the first {count_text(max_rows, 'row')}", output)
    return cut


def scan(
    uri: Uri,
    where: Where = None,
    columns: Columns = None,
    limit: Limit = None,
    as_of: AsOf = None,
    query: Query = QueryType.SNAPSHOT,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Print rows of the table."""
    rows = open_table(uri, storage_option).scan(columns=names(columns), where=where, as_of=as_of, query=query.value)
    _show_some(rows, limit, output)


def search(
    uri: Uri,
    vector: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="The query: a NumPy or JSON file with a vector, or a matrix for a batch; or a JSON list of numbers.",
        ),
    ] = None,
    text: Annotated[
        str | None, typer.Option(metavar="WORDS", help="The query: words; with --vector the ranks of both are fused.")
    ] = None,
    count: Annotated[int, typer.Option("-k", "--count", metavar="K", min=1, help="How many rows.")] = 10,
    column: Annotated[str | None, typer.Option(help="The vector column; needed where there are several.")] = None,
    text_column: Annotated[str | None, typer.Option(help="The column of texts; needed if there are several.")] = None,
    metric: Annotated[MetricName, typer.Option(help="The distance: see _hudi_distance.")] = MetricName.COSINE,
    where: Where = None,
    max_distance: Annotated[float | None, typer.Option(help="Leave out rows that are farther away.")] = None,
    columns: Columns = None,
    as_of: AsOf = None,
    exact: Annotated[bool, typer.Option("--exact", help="Read all rows, without an index.")] = False,
    probes: Annotated[int | None, typer.Option(metavar="N", min=1, help="Clusters of the index to look at.")] = None,
    rerank: Annotated[int | None, typer.Option(metavar="N", min=1, help="Rows to compare for each query.")] = None,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Print the rows whose vectors are nearest to a vector, or whose texts match words best, with their scores."""
    table, query = open_table(uri, storage_option), None if vector is None else _query_of(vector)
    with working("searching"):
        nearest = table.search(
            query,
            count,
            column,
            metric.value,
            text=text,
            text_column=text_column,
            where=where,
            max_distance=max_distance,
            columns=names(columns),
            as_of=as_of,
            exact=exact,
            probes=probes,
            rerank=rerank,
        ).to_arrow()
    show_rows(nearest, output)


def _query_of(text: str) -> Any:
    """The vector or matrix of `--vector`. Raises `InvalidOption` for a text or a file that cannot be read."""
    import numpy as np

    try:
        if text.lstrip().startswith("["):
            return json.loads(text)
        if text.endswith(".json"):
            return json.loads(Path(text).read_text())
        return np.load(Path(text), allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InvalidOption(
            f"--vector {text}: {error}",
            hint="give a file that numpy.save wrote, a JSON file, or a list such as '[0.5, 1]'",
        ) from None


def count(
    uri: Uri,
    where: Where = None,
    as_of: AsOf = None,
    query: Query = QueryType.SNAPSHOT,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Count the rows of the table."""
    with working("counting"):
        rows = open_table(uri, storage_option).scan(where=where, as_of=as_of, query=query.value).count()
    if output.is_for_programs:
        show_facts({"rows": rows}, output)
    else:
        typer.echo(str(rows))


def get(
    uri: Uri,
    keys: Keys = None,
    key: KeyFields = None,
    columns: Columns = None,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Look rows up by record key, through the table's index. The exit code is 20 if the table lacks one of the keys."""
    table = open_table(uri, storage_option)
    texts = key_texts(table, keys, key)
    rows = table.get(lakebed.KeyText(texts, typed=True), columns=names(columns))
    show_rows(rows, output)
    # of several keys one may have two rows and another none
    _require([] if len(texts) == 1 and rows.num_rows else _missing(table, texts))


def locate(
    uri: Uri,
    keys: Keys = None,
    key: KeyFields = None,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Find where record keys are stored: partition path, file group, instant. The exit code is 20 if the table lacks
    one of the keys."""
    table = open_table(uri, storage_option)
    texts = key_texts(table, keys, key)
    show_rows(table.locate(lakebed.KeyText(texts, typed=True)), output)
    _require(_missing(table, texts))


def _missing(table: lakebed.Table, keys: list[str]) -> list[str]:
    is_stored = table.exists(lakebed.KeyText(keys, typed=True)).to_pylist()
    return [key for key, exists in zip(keys, is_stored, strict=True) if not exists]


def _require(missing: list[str]) -> None:
    if missing:
        typer.echo(f"the table has no {', '.join(missing)}", err=True)
        raise typer.Exit(NOT_THERE)


Start = Annotated[str, typer.Option(help="A checkpoint or instant (exclusive); 000: from the beginning.")]
End = Annotated[str | None, typer.Option(help="A checkpoint or instant (inclusive).")]


def changes(
    uri: Uri,
    start: Start = "000",
    end: End = None,
    columns: Columns = None,
    where: Where = None,
    limit: Limit = None,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Print the rows written since a checkpoint.

    The checkpoint to start the next call with is printed on standard error; if --limit left rows out, that is the same
    --start again. `lakebed consume` remembers it in the table.
    """
    changed_rows = open_table(uri, storage_option).changes(start, end, columns=names(columns), where=where)
    cut = _show_some(changed_rows, limit, output)
    # a checkpoint covers all rows before it: if some were not printed, the next read begins where this one did
    typer.echo(f"next --start {start if cut else changed_rows.end}", err=True)


def cdc(
    uri: Uri,
    start: Start = "000",
    end: End = None,
    columns: Annotated[
        list[str] | None, typer.Option(metavar="A,B", help="Columns of the images, separated by commas.")
    ] = None,
    limit: Limit = None,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Print inserts, updates and deletes since a checkpoint, with the rows before and after.

    The checkpoint to start the next call with is printed on standard error; if --limit left changes out, that is the
    same --start again.
    """
    images = "rows" if output in (Form.JSON, Form.NDJSON) else "json"
    row_changes = open_table(uri, storage_option).cdc(start, end, columns=names(columns), images=images)
    cut = _show_some(row_changes, limit, output)
    typer.echo(f"next --start {start if cut else row_changes.end}", err=True)


def consume(
    uri: Uri,
    name: Annotated[str, typer.Argument(help="The consumer's name.", show_default=False)],
    cdc: Annotated[
        bool, typer.Option("--cdc", help="Print inserts, updates and deletes, with the rows before and after.")
    ] = False,
    start: Annotated[
        str, typer.Option(help="Where a new consumer begins: earliest, latest, a checkpoint, an instant or a time.")
    ] = "earliest",
    max_commits: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Read at most N commits at a time.")
    ] = None,
    columns: Columns = None,
    where: Where = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Wait for further commits, until the command is stopped.")
    ] = False,
    interval: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", min=0.0, help="With --follow: how long to wait before it looks for new commits again."
        ),
    ] = 1.0,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Print the rows written since a named consumer read last.

    The table remembers the consumer's position. It moves only after all rows are printed.
    """
    step = interval if follow else None
    batches = Following(name, cdc, start, names(columns), where, max_commits, output, step)
    batches.run(open_table(uri, storage_option))


@table_command("upserting {file}")
def upsert(
    table: lakebed.Table,
    options: dict[str, str],
    file: DataFile,
    partial: Annotated[
        bool, typer.Option("--partial", help="The data have only some of the columns; the others stay as stored.")
    ] = False,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    read: Reading = None,
    partitioning: PartitioningOption = Partitioning.HIVE,
    retries: Retries = None,
    message: Message = None,
    metadata: Metadata = None,
) -> lakebed.WriteResult:
    """Update the rows whose keys are stored, insert the others."""
    rows = data_files(file, delimiter, encoding, partitioning, read)
    return table.upsert(
        rows, partial=partial, retries=retries, message=message, metadata=pairs(metadata, "--metadata"), options=options
    )


@table_command("inserting {file}")
def insert(
    table: lakebed.Table,
    options: dict[str, str],
    file: DataFile,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    read: Reading = None,
    partitioning: PartitioningOption = Partitioning.HIVE,
    retries: Retries = None,
    message: Message = None,
    metadata: Metadata = None,
) -> lakebed.WriteResult:
    """Insert rows without looking their keys up; a stored key is then stored twice."""
    return table.insert(
        data_files(file, delimiter, encoding, partitioning, read),
        retries=retries,
        message=message,
        metadata=pairs(metadata, "--metadata"),
        options=options,
    )


@table_command("loading {file}")
def bulk_insert(
    table: lakebed.Table,
    options: dict[str, str],
    file: DataFile,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    read: Reading = None,
    partitioning: PartitioningOption = Partitioning.HIVE,
    retries: Retries = None,
    message: Message = None,
    metadata: Metadata = None,
) -> lakebed.WriteResult:
    """Load many rows into new files, without looking their keys up."""
    return table.bulk_insert(
        data_files(file, delimiter, encoding, partitioning, read),
        retries=retries,
        message=message,
        metadata=pairs(metadata, "--metadata"),
        options=options,
    )


@table_command("writing {file}")
def insert_overwrite(
    table: lakebed.Table,
    options: dict[str, str],
    file: DataFile,
    scope: Annotated[
        Scope, typer.Option(help="Replace the rows of the partitions that the new rows belong to, or of the table.")
    ] = Scope.PARTITIONS,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    read: Reading = None,
    partitioning: PartitioningOption = Partitioning.HIVE,
    retries: Retries = None,
    message: Message = None,
    metadata: Metadata = None,
) -> lakebed.WriteResult:
    """Replace all rows of the partitions that the new rows belong to, or of the table."""
    rows = data_files(file, delimiter, encoding, partitioning, read)
    return table.insert_overwrite(
        rows, scope.value, retries=retries, message=message, metadata=pairs(metadata, "--metadata"), options=options
    )


@table_command("deleting partitions")
def delete_partitions(
    table: lakebed.Table,
    options: dict[str, str],
    partitions: Annotated[
        list[str], typer.Argument(metavar="PATH", help="Partition paths; * stands for any text.", show_default=False)
    ],
    dry_run: DryRun = False,
    retries: Retries = None,
    message: Message = None,
    metadata: Metadata = None,
) -> lakebed.WriteResult:
    """Delete all rows of partitions."""
    return table.delete_partitions(
        partitions,
        dry_run=dry_run,
        retries=retries,
        message=message,
        metadata=pairs(metadata, "--metadata"),
        options=options,
    )


def delete(
    uri: Uri,
    keys: Keys = None,
    key: KeyFields = None,
    where: Annotated[str | None, typer.Option(help="A SQL condition: all rows that fulfil it.")] = None,
    dry_run: DryRun = False,
    retries: Retries = None,
    message: Message = None,
    metadata: Metadata = None,
    option: WriteOptions = None,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Delete rows by record key or by condition. The exit code is 20 if the table lacks one of the keys."""
    if bool(keys or key) == bool(where):
        raise typer.BadParameter("give either record keys or --where", param_hint="--where")
    table = open_table(uri, storage_option)
    texts = [] if where else key_texts(table, keys, key)
    with working("deleting"):
        record_keys = lakebed.KeyText(texts, typed=True) if texts else None
        missing = _missing(table, texts) if texts else []
        options = pairs(option, "--option")
        result = table.delete(
            record_keys,
            where=where or None,
            dry_run=dry_run,
            retries=retries,
            message=message,
            metadata=pairs(metadata, "--metadata"),
            options=options,
        )
    show_result(result, output)
    _require(missing)


def erase(
    uri: Uri,
    key: KeyFields = None,
    keys_from: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="Keys in a file: .txt, a key a line; or Parquet, CSV, TSV or JSON with the key columns.",
        ),
    ] = None,
    where: Annotated[str | None, typer.Option(help="A SQL condition: all rows that fulfil it.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dry_run: DryRun = False,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    read: Reading = None,
    message: Message = None,
    metadata: Metadata = None,
    option: WriteOptions = None,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Delete rows for good, with all their earlier versions, and check that no file still holds them. The exit code is
    15 if one does, 20 if one of the keys was in no file."""
    if sum(map(bool, (key, keys_from, where))) != 1:
        raise typer.BadParameter("give one of --key, --keys-from and --where", param_hint="--key")
    table = open_table(uri, storage_option)
    keys: Any = lakebed.KeyText(key_texts(table, None, key), typed=True) if key else None
    if keys_from is not None and keys_from.suffix.lower() == ".txt":
        lines = keys_from.read_text(encoding="utf-8").splitlines()
        keys = lakebed.KeyText([line for line in lines if line], typed=True)
    elif keys_from is not None:
        keys = data_files(str(keys_from), delimiter, encoding, Partitioning.HIVE, read)
    if not (yes or dry_run):
        ask_first(f"erase these rows of {uri} for good, and all earlier views of the table?", "erase the rows")
    with working("erasing"):
        options = pairs(option, "--option")
        try:
            report = table.erase(
                keys,
                where=where or None,
                dry_run=dry_run,
                message=message,
                metadata=pairs(metadata, "--metadata"),
                options=options,
            )
        except ErasureIncomplete as error:
            show_result(error.report, output)
            raise
    show_result(report, output)
    if not where and any(done.missing for done in report.tables):
        raise typer.Exit(NOT_THERE)


def explain(
    uri: Uri,
    file: Annotated[
        str | None,
        typer.Argument(help="Data files to upsert; without FILE the plan is that of a scan.", show_default=False),
    ] = None,
    where: Where = None,
    columns: Columns = None,
    as_of: AsOf = None,
    files: Annotated[
        int,
        typer.Option(
            "--files",
            metavar="N",
            min=0,
            help="How many files a scan's plan names, of those read and of those ruled out.",
        ),
    ] = 0,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    read: Reading = None,
    option: WriteOptions = None,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Show the plan of an upsert of data files, or of a scan. Nothing is written."""
    table = open_table(uri, storage_option)
    if file is not None:
        with working("planning"):
            plan = table.explain(
                upsert=data_files(file, delimiter, encoding, read=read), options=pairs(option, "--option")
            )
        show_result(plan, output)
        return
    plan = as_commands(table.scan(columns=names(columns), where=where, as_of=as_of).explain(files=files))
    show_text(plan, output)
