"""`lakebed.run_services`: one process that keeps many tables in shape, and shares them with others like it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lakebed.config.arguments import checks_arguments
from lakebed.config.options import resolve_options
from lakebed.errors import InvalidOption
from lakebed.services.running.event import ServiceEvent
from lakebed.services.running.table import ServedTable


@checks_arguments
def run_services(
    tables: str | Sequence[str],
    *,
    once: bool = False,
    interval: float = 60.0,
    dry_run: bool = False,
    options: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, str] | None = None,
    spark: Any | None = None,
    stop: threading.Event | None = None,
) -> Iterator[ServiceEvent]:
    """Run what is due on each of these tables, one after another, and look again every `interval` seconds; gives what
    happens as it happens, and works only while it is asked for more.

    What is due the settings of each table say, or `options` in their place: cleaning, archival, compaction, log
    compaction, clustering, expiry of partitions, indexes that wait to be built, writes of dead writers. Several such
    processes share the tables: who runs services on one has a lease on it, which goes when that process does. Writers
    go on beside it. A service that fails is told, and tried again later; the others go on.

    With `once` it ends when nothing more is due; with `dry_run` it only tells what is. After `stop` was set the service
    that runs is done to its end, and no other begun.

    >>> import lakebed, pyarrow as pa
    >>> rows = pa.table({"id": [1], "ts": [1]})
    >>> settings = {"hoodie.clean.automatic": False, "hoodie.clean.commits.retained": 1}
    >>> t = lakebed.create("memory://docs/served", rows, key="id", index="bucket", buckets=1, properties=settings)
    >>> for n in range(3): _ = t.upsert(rows)
    >>> for event in lakebed.run_services([t.uri], once=True): print(event)
    memory://docs/served: clean is due: what only commits before ... see
    memory://docs/served: clean ...: 1 file in 1 partition deleted, what ... and later commits see is kept (... s)
    """
    resolve_options(options)
    uris = [tables] if isinstance(tables, str) else list(dict.fromkeys(tables))
    if not uris:
        raise InvalidOption("there are no tables to run services on", hint="name one or more")
    if interval < 0:
        raise InvalidOption(f"an interval of {interval:g} seconds", hint="give 0 or more")
    ended = stop or threading.Event()
    served = [
        ServedTable(uri, options or {}, storage_options, spark, ended.is_set, not once and not dry_run) for uri in uris
    ]
    if dry_run:
        return (event for one in served for event in one.due())
    return _turns(served, ended, None if once else interval)


def _turns(served: Sequence[ServedTable], stop: threading.Event, interval: float | None) -> Iterator[ServiceEvent]:
    while True:
        for one in served:
            if not stop.is_set():
                yield from one.turn()
        if stop.is_set():
            yield ServiceEvent("stopped")
            return
        if interval is None:
            return
        yield ServiceEvent("waiting", seconds=interval)
        stop.wait(interval)
