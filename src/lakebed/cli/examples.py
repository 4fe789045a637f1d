"""An example or two for each command, as `--help` and the documentation show them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, cast

import typer
from typer.models import CommandInfo

from lakebed.cli.command import Command, unread_function

if TYPE_CHECKING:
    from typer.core import TyperCommand

# The table of the examples is the folder `trips`: key id, partition column city, merge-on-read, with a record index.
# `riders` has a record index for each partition path, `visits` the key id, day and a bucket index, `texts` a vector of
# two elements and texts in `body`.
# `tests/unit/cli/test_examples.py` runs them.
EXAMPLES = {
    "create": (
        "create trips --schema-from rows.parquet --key id --partition-by city,day --ordering ts",
        "create trips --schema-from rows.csv --key id --type mor --index bucket --buckets 8",
    ),
    "describe": ("describe trips", "describe s3://lake/trips --storage-option region=eu-west-1"),
    "list-tables": ("list-tables s3://lake --depth 2",),
    "drop": ("drop trips --dry-run", "drop trips --yes"),
    "timeline show": ("timeline show trips --limit 5",),
    "search": (
        "search texts --vector '[0.5, 1]' -k 3",
        "search texts --text 'black cat' --text-column body -k 3",
        "search texts --vector query.npy --metric l2 --where \"city = 'oslo'\" --columns id",
    ),
    "files show": ("files show trips --partition oslo",),
    "files skew": ("files skew trips",),
    "indexes list": ("indexes list trips",),
    "indexes create": (
        "indexes create trips city",
        "indexes create trips by_day --column ts --function date_format --function-option format=yyyy-MM-dd",
    ),
    "indexes build": ("indexes build trips",),
    "indexes rebuild": ("indexes rebuild texts vector_index_at",),
    "indexes drop": ("indexes drop trips column_stats",),
    "indexes use": ("indexes use trips bucket --buckets 16 --hash-fields id",),
    "indexes adopt": ("indexes adopt visits bucket --buckets 2 --hash-fields id,day",),
    "indexes reshard": (
        "indexes reshard trips record_index --file-groups 8",
        "indexes reshard riders record_index --partition oslo=4",
    ),
    "indexes skew": ("indexes skew trips record_index --shards",),
    "indexes verify": ("indexes verify trips",),
    "indexes repair": ("indexes repair trips record_index",),
    "inspect": ("inspect trips", "inspect trips s3://lake/riders --port 0 --open"),
    "serve": ("serve --warehouse s3://lake/warehouse", "serve --address 0.0.0.0 --token-file token --port 8181"),
    "columns list": ("columns list trips", "columns list trips --output json"),
    "columns add": ("columns add trips discount 'decimal(8,2)' --after fare --comment 'in euro'",),
    "columns set-default": ("columns set-default trips fare 0", "columns set-default trips city \"'unknown'\""),
    "columns drop-default": ("columns drop-default trips fare",),
    "columns drop": ("columns drop trips tip",),
    "columns rename": ("columns rename trips fare price",),
    "columns widen": ("columns widen trips stops bigint",),
    "columns comment": ("columns comment trips fare 'in euro'",),
    "columns move": ("columns move trips ts --after id",),
    "checks list": ("checks list trips", "checks list trips --output json"),
    "checks add": (
        "checks add trips positive 'fare >= 0'",
        "checks add trips plausible 'fare < 1000' --on-failure quarantine",
        "checks add trips some 'count(*) > 0' --on table",
    ),
    "checks require": ("checks require trips city",),
    "checks drop": ("checks drop trips positive",),
    "checks run": ("checks run trips", "checks run trips positive --output json"),
    "checks rejects": ("checks rejects trips --limit 10",),
    "consumers list": ("consumers list trips",),
    "consumers move": ("consumers move trips daily 20260131120000000", "consumers move trips daily latest"),
    "consumers delete": ("consumers delete trips daily",),
    "maintenance run": (
        "maintenance run trips s3://lake/people --interval 30 --metrics-port 9090",
        "maintenance run trips --once",
    ),
    "warehouse list": ("warehouse list --warehouse s3://lake/warehouse", "warehouse list sales --output json"),
    "warehouse databases": ("warehouse databases --output json",),
    "warehouse create-database": ("warehouse create-database sales --allow-existing",),
    "warehouse rename": ("warehouse rename sales.orders sales.purchases",),
    "options list": ("options list --contains clean --verdict implemented",),
    "options show": ("options show hoodie.index.type",),
    "options check": ("options check job.properties", "options check job.properties --ignore-sync"),
    "scan": (
        "scan trips --where \"city = 'oslo' and fare > 10\" --columns id,fare",
        "scan trips --as-of 2026-01-31 --output ndjson",
    ),
    "count": ("count trips --where \"city = 'oslo'\"",),
    "get": ("get trips t1 t2", "get visits id:t2,day:2026-01-01", "get visits --key id=t2 --key day=2026-01-01"),
    "locate": ("locate trips t1",),
    "changes": ("changes trips --start 20260131120000000 --output ndjson",),
    "consume": ("consume trips daily --max-commits 10", "consume trips daily --cdc --follow --output ndjson"),
    "cdc": ("cdc trips --start 20260131120000000 --output json",),
    "load": (
        "load trips rows.parquet --key id --partition-by city,day",
        "load trips rows.csv --key id --ordering ts --type mor --index bucket --buckets 8",
    ),
    "clone": ("clone trips trial", "clone s3://lake/trips s3://lake/trips_copy --deep"),
    "convert": (
        "convert s3://lake/delta/trips trips --key id",
        "convert folder/ trips --key id --partition-by city",
        "convert folder/ trips --key id --in-place",
    ),
    "ingest": ("ingest rides.toml", "ingest rides.toml --once --output json", "ingest jobs.toml --job rides"),
    "upsert": ("upsert trips new.csv --delimiter ';'", "upsert trips rows.json --partial"),
    "insert": ("insert trips rows.json",),
    "bulk-insert": ("bulk-insert trips rows.parquet",),
    "insert-overwrite": ("insert-overwrite trips rows.parquet", "insert-overwrite trips rows.parquet --scope table"),
    "delete": ("delete trips t1 t2", "delete trips --where \"city = 'oslo'\" --dry-run"),
    "delete-partitions": ("delete-partitions trips 'os*' --dry-run",),
    "erase": ("erase trips --key t1 --key t2 --dry-run", "erase trips --keys-from keys.txt --yes"),
    "explain": ("explain trips rows.parquet", "explain trips --where \"city = 'oslo'\""),
    "sql": (
        'sql "select city, count(*) from trips group by city" --table trips=s3://lake/trips',
        "sql \"select * from './trips' where id = :id\" --arg id=t1 --output json",
    ),
    "merge": (
        "merge riders rows.parquet",
        "merge trips rows.csv --on id --when 'MATCHED AND s.fare IS NULL THEN DELETE'",
    ),
    "update": ("update trips --set 'fare=fare * 1.1' --where \"city = 'oslo'\"",),
    "maintenance compact": ("maintenance compact trips --when-due", "maintenance compact trips --plan-only"),
    "maintenance cluster": ("maintenance cluster trips --sort-columns city,fare --layout hilbert",),
    "maintenance merge-small-files": ("maintenance merge-small-files trips --min-files 4",),
    "maintenance clean": (
        "maintenance clean trips --dry-run",
        "maintenance clean trips --option hoodie.clean.commits.retained=3",
    ),
    "maintenance archive": ("maintenance archive trips --dry-run",),
    "maintenance expire-partitions": ("maintenance expire-partitions trips --days 30 --dry-run",),
    "savepoints list": ("savepoints list trips",),
    "savepoints create": ("savepoints create trips --name before-migration",),
    "savepoints delete": ("savepoints delete trips 20260131120000000",),
    "restore": ("restore trips 20260131120000000 --dry-run",),
    "catalogs list": ("catalogs list trips",),
    "catalogs register": ("catalogs register s3://lake/trips hive://metastore:9083 shop.trips",),
    "catalogs publish": ("catalogs publish trips delta", "catalogs publish trips iceberg --fresh"),
    "catalogs find": ("catalogs find glue://eu-west-1/shop/trips",),
    "rollback": ("rollback trips 20260131120000000",),
    "versions": ("versions trips --limit 5",),
    "history": ("history trips t1",),
    "diff": ("diff trips 1 2", "diff trips before-migration --output ndjson"),
    "undo": ("undo trips --dry-run", "undo trips --yes"),
    "configure": ("configure trips hoodie.compact.inline=false", "configure trips --remove hoodie.compact.inline"),
    "maintenance doctor": ("maintenance doctor trips", "maintenance doctor s3://lake/trips --read-only --output json"),
    "maintenance repair": ("maintenance repair trips --dry-run", "maintenance repair trips --part orphans,metadata"),
    "maintenance upgrade": ("maintenance upgrade trips --to 9 --dry-run",),
    "maintenance downgrade": ("maintenance downgrade trips --to 6 --dry-run",),
    "maintenance rescale": ("maintenance rescale visits --buckets 16 --dry-run",),
    "indexes advise": (
        "indexes advise trips --batch rows.parquet",
        "indexes advise rows.parquet --key id --partition-by city,day",
    ),
}


# Where the part of a help text ends that lists of commands show.
_HEADLINE_END = re.compile(r"[.:;](?:\s|$)|\n\n")


def add_examples(app: typer.Typer) -> None:
    """Add the examples to the help of each command of `app`, without types of Python in it. Commands read their
    parameters on demand (`Command`)."""
    for name, command in _commands(app, ""):
        function = command.callback
        assert function is not None
        lines = [f"  lakebed {example}" for example in EXAMPLES.get(name, ())]
        command.cls = cast("type[TyperCommand]", partial(Command, function))
        command.callback = unread_function(function)
        if function.__doc__:
            command.short_help = _HEADLINE_END.split(function.__doc__.replace("\n    ", " "), maxsplit=1)[0] + "."
        command.epilog = "\n".join(["\b", "Examples:", *lines])


def _commands(app: typer.Typer, prefix: str) -> Iterator[tuple[str, CommandInfo]]:
    for command in app.registered_commands:
        name = command.name or (command.callback.__name__.replace("_", "-") if command.callback else "")
        yield prefix + name, command
    for group in app.registered_groups:
        if group.typer_instance is not None:
            yield from _commands(group.typer_instance, f"{prefix}{group.name} ")
