"""`lakebed indexes`: the indexes of a table, and which one fits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import lakebed
from lakebed.cli.command import DryRun, WriteOptions, open_table, show_result, table_command
from lakebed.cli.hints import as_commands
from lakebed.cli.output import Form, Output, StorageOptions, Uri, data_files, names, pairs, show_rows, working

if TYPE_CHECKING:
    from lakebed.services.build_index import IndexingResult
    from lakebed.services.change_index import Rescaled
    from lakebed.services.verify import Verification

Only = Annotated[str | None, typer.Argument(help="Only this index, as `lakebed indexes list` shows it.")]
HashFields = Annotated[
    list[str] | None,
    typer.Option(metavar="A,B", help="The key columns that decide the bucket, separated by commas."),
]
PartitionBuckets = Annotated[
    str | None, typer.Option(help="Numbers of buckets by partition path: 'regex,count;regex,count'.")
]
app = typer.Typer(help="The indexes of a table.", no_args_is_help=True)
Name = Annotated[
    str,
    typer.Argument(
        help="record_index, bloom_filters, column_stats, partition_stats, a column, or with --column a new name."
    ),
]


@app.command("list")
def list_all(uri: Uri, output: Output = Form.TABLE, storage_option: StorageOptions = None) -> None:
    """List the indexes in the metadata table: kind, columns, file groups, bytes."""
    show_rows(open_table(uri, storage_option).indexes.to_arrow(), output)


@app.command()
def create(
    uri: Uri,
    name: Name,
    partitioned: Annotated[
        bool | None,
        typer.Option("--partitioned/--global", help="A record index for each partition, or one for the table."),
    ] = None,
    groups: Annotated[
        int, typer.Option(help="How many file groups a record or secondary index has; 0: as Hudi estimates.")
    ] = 0,
    column: Annotated[
        str | None, typer.Option(help="The column of an expression index, which is then called by the given name.")
    ] = None,
    function: Annotated[
        str | None, typer.Option(help="The function of an expression index: date_format, lower, ...")
    ] = None,
    function_option: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A setting of the function, e.g. format=yyyy-MM-dd.")
    ] = None,
    kind: Annotated[
        str, typer.Option(help="What an expression index stores: column_stats or bloom_filters.")
    ] = "column_stats",
    wait: Annotated[
        bool,
        typer.Option(
            "--wait/--no-wait", help="Build it now, or only plan it for `lakebed indexes build` or a service."
        ),
    ] = True,
    option: WriteOptions = None,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Build an index from the table's files."""
    indexes = open_table(uri, storage_option).indexes
    settings, options = pairs(function_option, "--function-option"), pairs(option, "--option")
    with working(f"building {name}" if wait else f"planning {name}"):
        plan = indexes.create(
            name,
            partitioned=partitioned,
            groups=groups or None,
            column=column,
            function=function,
            function_options=settings,
            kind=kind,
            wait=wait,
            options=options,
        )
    if plan is None:
        show_rows(indexes.to_arrow(), output)
    else:
        show_result(plan, output)


@app.command()
@table_command("building indexes")
def build(table: lakebed.Table, options: dict[str, str]) -> IndexingResult:
    """Build the planned indexes; other processes may write meanwhile."""
    return table.indexes.build(options=options)


@app.command()
def rebuild(
    uri: Uri,
    name: Annotated[str, typer.Argument(help="A vector index or text index, as `lakebed indexes list` shows it.")],
    option: WriteOptions = None,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Build a vector index or text index again; other processes may write and search meanwhile."""
    indexes = open_table(uri, storage_option).indexes
    with working("building an index again"):
        indexes.rebuild(name, options=pairs(option, "--option"))
    show_rows(indexes.to_arrow(), output)


@app.command()
def drop(
    uri: Uri,
    name: Annotated[str, typer.Argument(help="An index, as `lakebed indexes list` shows it.")],
    option: WriteOptions = None,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Drop an index of the metadata table."""
    indexes = open_table(uri, storage_option).indexes
    indexes.drop(name, options=pairs(option, "--option"))
    show_rows(indexes.to_arrow(), output)


@app.command()
@table_command("changing the index")
def use(
    table: lakebed.Table,
    options: dict[str, str],
    name: Annotated[str, typer.Argument(help="bucket, record, bloom, simple, global_simple, ...")],
    buckets: Annotated[int | None, typer.Option(help="How many buckets a bucket index has in each partition.")] = None,
    hash_fields: HashFields = None,
    partition_buckets: PartitionBuckets = None,
    update_partition_path: Annotated[
        bool | None,
        typer.Option(help="Under a global index: whether rows move when their partition changes."),
    ] = None,
    dry_run: DryRun = False,
) -> Rescaled:
    """Change the index by which writes find stored rows; the table may have rows."""
    return table.indexes.use(
        name,
        buckets=buckets,
        hash_fields=names(hash_fields) or (),
        update_partition_path=update_partition_path,
        partition_buckets=partition_buckets,
        dry_run=dry_run,
        options=options,
    )


@app.command()
def adopt(
    uri: Uri,
    name: Annotated[str, typer.Argument(help="bucket, record, bloom, simple, global_simple, ...")],
    buckets: Annotated[int | None, typer.Option(help="How many buckets a bucket index has in each partition.")] = None,
    hash_fields: HashFields = None,
    partition_buckets: PartitionBuckets = None,
    option: WriteOptions = None,
    storage_option: StorageOptions = None,
) -> None:
    """Record which index a table of another writer has. The stored keys are checked first."""
    indexes = open_table(uri, storage_option).indexes
    with working("checking stored keys"):
        index = indexes.adopt(
            name,
            buckets=buckets,
            hash_fields=names(hash_fields) or (),
            partition_buckets=partition_buckets or "",
            options=pairs(option, "--option"),
        )
    typer.echo(f"writes go by the index {index.name} from now on")


@app.command()
def reshard(
    uri: Uri,
    name: Annotated[
        str,
        typer.Argument(
            help="record_index, a column with a secondary index, or an index as `lakebed indexes list` shows it."
        ),
    ],
    file_groups: Annotated[
        int, typer.Option(help="The new number of file groups; with a partitioned index, for each partition.")
    ] = 0,
    partition: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH=NUMBER", help="The number for one partition of a partitioned index; give it once for each."
        ),
    ] = None,
    option: WriteOptions = None,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Change the number of file groups of a record or secondary index, and show how many entries each then has."""
    if bool(file_groups) == bool(partition):
        raise typer.BadParameter("give --file-groups or --partition", param_hint="--file-groups")
    indexes = open_table(uri, storage_option).indexes
    with working(f"re-sharding {name}"):
        numbers = _numbers(partition) if partition else file_groups
        indexes.reshard(name, numbers, options=pairs(option, "--option"))
    show_rows(indexes.skew(name).to_arrow(), output)


@app.command()
def skew(
    uri: Uri,
    name: Only = None,
    shards: Annotated[bool, typer.Option("--shards", help="Print a line for each file group.")] = False,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Show how evenly record and secondary indexes are spread over their file groups."""
    report = open_table(uri, storage_option).indexes.skew(name)
    show_rows(report.shards if shards else report.to_arrow(), output)


@app.command()
def verify(uri: Uri, name: Only = None, output: Output = Form.TABLE, storage_option: StorageOptions = None) -> None:
    """Compare the indexes, or one, with the table's files and rows. The exit code is 1 if they differ."""
    with working("verifying"):
        report = open_table(uri, storage_option).indexes.verify(name)
    _show(report, output)
    if not report.ok:
        raise typer.Exit(1)


@app.command()
def repair(
    uri: Uri,
    name: Only = None,
    option: WriteOptions = None,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Verify the indexes, correct the records that differ, and show the differences."""
    with working("repairing"):
        report = open_table(uri, storage_option).indexes.repair(name, options=pairs(option, "--option"))
    _show(report, output)


def _numbers(texts: list[str]) -> dict[str, int]:
    """The numbers by partition path; a path may have `=` in it."""
    numbers: dict[str, int] = {}
    for text in texts:
        path, separator, number = text.rpartition("=")
        if not separator or not number.strip().isdigit():
            raise typer.BadParameter(f"{text!r} is not PATH=NUMBER", param_hint="--partition")
        numbers[path] = int(number)
    return numbers


def _show(verification: Verification, output: Form) -> None:
    if output is Form.TABLE:
        typer.echo(repr(verification))
    else:
        show_rows(verification.differences.drop_columns(["key", "entry"]), output)


@app.command()
def advise(
    target: Annotated[str, typer.Argument(help="A table; or with --key, data files.", show_default=False)],
    batch: Annotated[str | None, typer.Option(help="Data files with the rows of one typical write.")] = None,
    batch_rows: Annotated[int, typer.Option(metavar="N", help="Instead of --batch: a typical write has N rows.")] = 0,
    key: Annotated[
        list[str] | None,
        typer.Option(metavar="A,B", help="The key columns of the data files, separated by commas."),
    ] = None,
    partition_by: Annotated[
        list[str] | None,
        typer.Option(metavar="A,B", help="The partition columns of the data files, separated by commas."),
    ] = None,
    expected_rows: Annotated[
        int, typer.Option(metavar="N", help="How many rows the table will have, if the data files are a part of them.")
    ] = 0,
    deletes: Annotated[bool, typer.Option("--deletes", help="A typical write deletes keys.")] = False,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Rank the indexes by what a typical write costs: to find its keys, to write, to read. Nothing is written."""
    written = data_files(batch) if batch is not None else batch_rows or None
    if key:
        advice = lakebed.indexes.advise(
            data_files(target),
            key=names(key),
            partition_by=names(partition_by),
            batch=written,
            expected_rows=expected_rows or None,
            deletes=deletes,
        )
    else:
        if Path(target).is_file():
            raise typer.BadParameter("name the key columns of these data files", param_hint="--key")
        advice = open_table(target, storage_option).indexes.advise(written, deletes=deletes)
    if output is Form.JSON:
        show_rows(advice.to_arrow(), output)
    else:
        typer.echo(as_commands(str(advice)))
