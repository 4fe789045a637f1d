"""`lakebed create`, `describe`, `list-tables`, `drop`, `load`, `convert`, `clone`, `configure`; and `lakebed timeline`,
`files`."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Any

import typer

import lakebed
from lakebed.cli.command import DryRun, Message, Metadata, WriteOptions, ask_first, open_table, show_result
from lakebed.cli.hints import as_commands
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
    show_dropped,
    show_facts,
    show_newest,
    show_records,
    show_rows,
    working,
)
from lakebed.errors import InvalidOption, LakebedError
from lakebed.wording import count_text


def describe(uri: Uri, output: Output = Form.TABLE, storage_option: StorageOptions = None) -> None:
    """Show what the table is, its columns, and which of its features lakebed reads and writes."""
    table = open_table(uri, storage_option)
    fields: dict[str, Any] = _facts(table)
    features = [
        {"feature": f.name, "read": f.read, "write": f.write, "why": as_commands(f"{f.why}; {f.hint}") if f.why else ""}
        for f in table.features
    ]
    if output.is_for_programs:
        show_facts(fields | {"features": features, "properties": dict(table.properties)}, output)
        return
    for feature in features:
        support = f"read {feature['read']}, write {feature['write']}"
        fields[feature["feature"]] = f"{support}: {feature['why']}" if feature["why"] else support
    show_facts(_for_people(fields), output)


Key = Annotated[
    list[str] | None,
    typer.Option(metavar="A,B", help="The record key columns, separated by commas. Without any, keys are generated."),
]
PartitionBy = Annotated[
    list[str] | None, typer.Option(metavar="A,B", help="The partition columns, separated by commas.")
]
Ordering = Annotated[
    list[str] | None,
    typer.Option(
        metavar="A,B", help="The columns that say which of two rows with one key is newer, separated by commas."
    ),
]
Kind = Annotated[
    str,
    typer.Option("--type", help="cow (updates rewrite files) or mor (updates go to log files and are merged later)."),
]
IndexName = Annotated[str, typer.Option(help="bucket, record, [global_]bloom, [global_]simple or auto.")]
Buckets = Annotated[
    int,
    typer.Option(help="How many buckets each partition has under a bucket index; 0: chosen by the size of the data."),
]
HashFields = Annotated[
    list[str] | None,
    typer.Option(
        metavar="A,B", help="The key columns that decide the bucket of a row, separated by commas; by default all."
    ),
]
Merge = Annotated[
    str | None,
    typer.Option(
        help="Which of two rows with one key is kept: event_time (by --ordering) or commit_time (the later write)."
    ),
]
Sort = Annotated[
    str | None, typer.Option(help="key: each file has its rows in the order of their keys; none: as they came.")
]
TableVersion = Annotated[int, typer.Option(help="The version of Hudi's table format: 9, 8 or 6.")]
Properties = Annotated[
    list[str] | None,
    typer.Option(
        "--property",
        metavar="KEY=VALUE",
        help="A property of the table, e.g. hoodie.table.name=trips; give it once for each.",
    ),
]


def create(
    uri: Uri,
    schema_from: Annotated[
        str,
        typer.Option(help="Data files that have the columns: a file, folder or glob of Parquet, CSV, JSON or Arrow."),
    ],
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    read: Reading = None,
    key: Key = None,
    partition_by: PartitionBy = None,
    ordering: Ordering = None,
    kind: Kind = "cow",
    index: IndexName = "auto",
    buckets: Buckets = 0,
    hash_fields: HashFields = None,
    merge: Merge = None,
    sort: Sort = None,
    table_version: TableVersion = 9,
    prop: Properties = None,
    allow_existing: Annotated[
        bool,
        typer.Option("--allow-existing", help="Make the table in a folder that holds other files, too; they stay."),
    ] = False,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Make an empty table with the columns of data files."""
    options = _create_options(
        locals(), key=key, partition_by=partition_by, ordering=ordering, hash_fields=hash_fields, prop=prop
    )
    table = lakebed.create(
        uri, data_files(schema_from, delimiter, encoding, read=read), allow_existing=allow_existing, **options
    )
    _show_new(table, output)


def load(
    uri: Uri,
    file: Annotated[
        str,
        typer.Argument(
            help="Data files: a file, folder or glob (path or URI) of Parquet, CSV, TSV, JSON or Arrow.",
            show_default=False,
        ),
    ],
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    read: Reading = None,
    partitioning: PartitioningOption = Partitioning.HIVE,
    key: Key = None,
    partition_by: PartitionBy = None,
    ordering: Ordering = None,
    kind: Kind = "cow",
    index: IndexName = "auto",
    buckets: Buckets = 0,
    hash_fields: HashFields = None,
    merge: Merge = None,
    sort: Sort = None,
    table_version: TableVersion = 9,
    prop: Properties = None,
    message: Message = None,
    metadata: Metadata = None,
    option: WriteOptions = None,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Make a table and load the rows of data files into it."""
    options = _create_options(
        locals(), key=key, partition_by=partition_by, ordering=ordering, hash_fields=hash_fields, prop=prop
    )
    files = data_files(file, delimiter, encoding, partitioning, read)
    with working(f"loading {file}"):
        table = lakebed.load(
            uri,
            files,
            message=message,
            metadata=pairs(metadata, "--metadata"),
            options=pairs(option, "--option"),
            **options,
        )
    _show_new(table, output)


def convert(
    source: Annotated[
        str, typer.Argument(help="A Delta Lake or Iceberg table, or a folder of data files.", show_default=False)
    ],
    uri: Annotated[str, typer.Argument(help="The new table: a path or a URI.", show_default=False)],
    key: Key = None,
    partition_by: PartitionBy = None,
    ordering: Ordering = None,
    kind: Kind = "cow",
    index: IndexName = "auto",
    buckets: Buckets = 0,
    hash_fields: HashFields = None,
    merge: Merge = None,
    sort: Sort = None,
    table_version: TableVersion = 9,
    prop: Properties = None,
    in_place: Annotated[
        bool, typer.Option("--in-place", help="Leave the Parquet files where they are: the table needs them unchanged.")
    ] = False,
    source_option: Annotated[
        list[str] | None,
        typer.Option(
            "--source-option", metavar="KEY=VALUE", help="A setting of the source's storage; give it once for each."
        ),
    ] = None,
    message: Message = None,
    metadata: Metadata = None,
    option: WriteOptions = None,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Make a new table from a Delta Lake or Iceberg table, or from data files: a copy, or with --in-place a table over
    their Parquet files. Its partition columns are those of the source unless --partition-by names others."""
    options = _create_options(
        locals(), key=key, partition_by=partition_by, ordering=ordering, hash_fields=hash_fields, prop=prop
    )
    with working(f"converting {source}"):
        table = lakebed.convert(
            source,
            uri,
            in_place=in_place,
            source_options=pairs(source_option, "--source-option"),
            message=message,
            metadata=pairs(metadata, "--metadata"),
            options=pairs(option, "--option"),
            **options,
        )
    _show_new(table, output)


def clone(
    uri: Uri,
    target: Annotated[str, typer.Argument(help="The new table: a path or a URI.", show_default=False)],
    deep: Annotated[
        bool, typer.Option("--deep", help="Copy the rows. Without it the clone reads the files of the table.")
    ] = False,
    message: Message = None,
    metadata: Metadata = None,
    option: WriteOptions = None,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Make a table with the rows that another one has now. Writes to either never touch the other. Without --deep no
    row is copied, and a savepoint of the table keeps the files that the clone reads."""
    table = open_table(uri, storage_option)
    with working(f"cloning {uri}"):
        new = table.clone(
            target,
            deep=deep,
            message=message,
            metadata=pairs(metadata, "--metadata"),
            options=pairs(option, "--option"),
        )
    _show_new(new, output)


def _create_options(
    parameters: Mapping[str, Any], *, prop: list[str] | None, **fields: list[str] | None
) -> dict[str, Any]:
    """The arguments of `lakebed.create` for the parameters of a command."""
    plain = {name: parameters[name] for name in ("index", "merge", "sort", "table_version")}
    return {
        **plain,
        **{name: names(texts) for name, texts in fields.items()},
        "type": parameters["kind"],
        "buckets": parameters["buckets"] or None,
        "properties": pairs(prop, "--property"),
        "storage_options": pairs(parameters["storage_option"], "--storage-option"),
    }


def _show_new(table: lakebed.Table, output: Form) -> None:
    facts = _facts(table)
    if table.loaded is not None:
        facts["rows"] = table.loaded.inserted
    show_facts(facts if output.is_for_programs else _for_people(facts), output)


def list_tables(
    folder: Annotated[str, typer.Argument(help="A folder: a path or a URI.", show_default=False)],
    depth: Annotated[int, typer.Option(metavar="N", min=0, help="How many levels of folders below it to search.")] = 3,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """List the tables in a folder: version, type, key, partition columns and newest instant."""
    storage_options = pairs(storage_option, "--storage-option")
    with working("searching"):
        rows = [
            _in_list(uri, storage_options)
            for uri in lakebed.list_tables(folder, depth=depth, storage_options=storage_options)
        ]
    show_records(rows, ["location", "version", "type", "key", "partitions", "newest_instant", "note"], output)


def _in_list(uri: str, storage_options: dict[str, str]) -> dict[str, Any]:
    """The row of a table in a list; for a table that cannot be opened the note has the reason."""
    try:
        table = lakebed.open(uri, storage_options=storage_options)
        last = table.timeline.last
    except LakebedError as error:
        return {"location": uri, "note": error.message}
    return {"location": uri, **_kind_and_fields(table.properties), "newest_instant": last.time if last else None}


def _kind_and_fields(stored: Mapping[str, str]) -> dict[str, Any]:
    return {
        "version": int(stored.get("hoodie.table.version", "0")),
        "type": stored.get("hoodie.table.type", ""),
        "key": names([stored.get("hoodie.table.recordkey.fields", "")]) or [],
        "partitions": names([stored.get("hoodie.table.partition.fields", "")]) or [],
    }


def drop(
    uri: Uri,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    missing_ok: Annotated[bool, typer.Option("--missing-ok", help="No error where there is no table.")] = False,
    dry_run: DryRun = False,
    option: WriteOptions = None,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Delete a table with all its rows and its history. Other files in its folder stay, and are listed."""
    storage_options = pairs(storage_option, "--storage-option")
    if missing_ok and not lakebed.list_tables(uri, storage_options=storage_options, depth=0):
        dropped, left = False, []
    else:
        if not (yes or dry_run):
            ask_first(f"delete {uri} with all its rows and its history?", "delete the table")
        with working("dropping"):
            options = pairs(option, "--option")
            left = lakebed.drop(uri, dry_run=dry_run, options=options, storage_options=storage_options)
        dropped = not dry_run
    if output.is_for_programs:
        show_facts({"location": uri, "dropped": dropped, "left": left}, output)
        return
    outcome = "dropped" if dropped else "would drop" if dry_run else "there is no table at"
    show_dropped(f"{outcome} {uri}", left)


def _facts(table: lakebed.Table) -> dict[str, Any]:
    import pyarrow.compute as pc

    stored = table.properties
    files = table.files.to_arrow()
    last = table.timeline.last
    ordering = stored.get("hoodie.table.ordering.fields") or stored.get("hoodie.table.precombine.field") or ""
    return {
        "table": table.name,
        "location": table.uri,
        **_kind_and_fields(stored),
        "ordering": names([ordering]) or [],
        "merge": stored.merge_mode,
        "index": as_commands(table.indexes.index.explain()),
        **({"chosen": as_commands(reason)} if (reason := table.indexes.reason) else {}),
        "sort": stored.get("lakebed.sort", "none"),
        "newest_instant": last.time if last else None,
        "file_groups": len(files),
        "bytes": pc.sum(files.column("bytes")).as_py() or 0,
        "columns": [f"{field.name} {field.type}" for field in table.schema],
    }


def _for_people(facts: dict[str, Any]) -> dict[str, Any]:
    """The facts for display, with a word for those that the table does not have."""
    none = {"key": "generated", "partitions": "none", "ordering": "none", "newest_instant": "none"}
    return facts | {name: word for name, word in none.items() if not facts[name]}


timeline_app = typer.Typer(help="The table's instants.", no_args_is_help=True)
files_app = typer.Typer(help="The table's file slices.", no_args_is_help=True)


@timeline_app.command("show")
def show_timeline(
    uri: Uri,
    limit: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Print the N newest; 0 prints all. Default: 20 in a table, all in JSON and CSV."
        ),
    ] = None,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """List the instants of the active timeline, oldest first."""
    show_newest(open_table(uri, storage_option).timeline.to_arrow(), limit, output, "instant")


@files_app.command("show")
def show_files(
    uri: Uri,
    partition: Annotated[str | None, typer.Option(help="Only this partition path.")] = None,
    limit: Annotated[
        int | None,
        typer.Option(metavar="N", help="Print at most N; 0 prints all. Default: 20 in a table, all in JSON and CSV."),
    ] = None,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """List the latest file slices: file group, base file, size, log files."""
    import pyarrow.compute as pc

    files = open_table(uri, storage_option).files.to_arrow()
    if partition is not None:
        paths = pc.unique(files.column("partition")).to_pylist()
        if partition not in paths:
            near = get_close_matches(partition, paths, n=1)
            raise InvalidOption(
                f"the table has no files in the partition path {partition!r}",
                hint=f"did you mean {near[0]!r}?" if near else "`lakebed files show URI` shows those of all",
                context={"partition": partition},
            )
        files = files.filter(pc.equal(files.column("partition"), partition))
    max_slices = row_limit(limit, output)
    show_rows(files.slice(0, max_slices) if max_slices else files, output)
    if 0 < max_slices < len(files):
        print_cut(f"{max_slices} of {count_text(len(files), 'file slice')}", output)


@files_app.command("skew")
def show_skew(uri: Uri, output: Output = Form.TABLE, storage_option: StorageOptions = None) -> None:
    """List the sizes of the buckets, the largest first; 3 GB is the advised limit."""
    show_rows(open_table(uri, storage_option).files.skew().to_arrow(), output)


def configure(
    uri: Uri,
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="A setting, e.g. hoodie.compact.inline=false.")
    ] = None,
    remove: Annotated[
        list[str] | None,
        typer.Option(
            "--remove",
            metavar="KEY",
            help="A setting to remove, so that its default holds again; give it once for each.",
        ),
    ] = None,
    dry_run: DryRun = False,
    option: WriteOptions = None,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Change the settings that the table stores."""
    changes: dict[str, str | None] = {**pairs(settings, "KEY=VALUE"), **dict.fromkeys(remove or [])}
    if not changes:
        raise typer.BadParameter("name a setting to change or to remove", param_hint="KEY=VALUE")
    table = open_table(uri, storage_option)
    show_result(table.configure(changes, dry_run=dry_run, options=pairs(option, "--option")), output)
