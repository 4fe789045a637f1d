"""Publication of a table as lists of other formats: on request, and after each commit where the table asks for it.

A list has a consumer of the table, `published-delta` or `published-iceberg`: its position is the commit that the list
shows. So cleaning retains the files that an outdated list names for `lakebed.consumers.max_lag` seconds, as for readers
of changes, and the table's consumers show the lag of each list.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypedDict

from lakebed.config.option_table import LIST_FORMATS
from lakebed.config.options import resolve_options, service_settings
from lakebed.config.settings import PublishSettings, WriteSettings
from lakebed.errors import CommitConflict, InvalidOption, LakebedError
from lakebed.metadata.lookups import open_snapshot
from lakebed.properties.file import load_table_config
from lakebed.services.consumers import start_consumer
from lakebed.services.driver import Service, ServiceState
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.base import Storage
from lakebed.timeline.consumers import ConsumerFiles
from lakebed.timeline.timeline import completed_at
from lakebed.wording import Printed, count_text

# Every write imports this module, and few tables are published: the publishers are imported where they are used.
if TYPE_CHECKING:
    from lakebed.publish.foreign import ListFormat
    from lakebed.publish.publication import PublishResult

_log = logging.getLogger("lakebed")


@dataclass(frozen=True, repr=False)
class Published(Printed):
    """The publications of a table, one per format."""

    results: tuple[PublishResult, ...] = ()

    def __str__(self) -> str:
        return "\n".join(map(str, self.results))


class Publishing(Service[Published]):
    """The service that publishes the table in the formats that its setting `lakebed.publish` names."""

    name = "publish"
    title = "publication"
    after_write = ("publish.formats",)

    def due(self, state: ServiceState) -> str | None:
        commits = state.commits
        newest = max((completed_at(i) for i in commits), default="")
        files = ConsumerFiles(state.context.storage)
        for name in state.settings.publish.formats:
            consumer = files.find(consumer_of(name))
            if consumer is None or consumer.position != newest:
                return f"the {name} list does not show the last commit"
        return None

    def serve(self, state: ServiceState) -> Published:
        return publish_all(state.context.storage, state.settings.publish, state.context.settings)

    def has_changed(self, outcome: Published) -> bool:
        return any(result.published for result in outcome.results)


@cache
def list_formats() -> Mapping[str, ListFormat]:
    """The formats as which a table can be published, by the names of `LIST_FORMATS`."""
    from lakebed.publish.delta import DeltaFormat
    from lakebed.publish.iceberg import IcebergFormat

    return {form.name: form for form in (DeltaFormat(), IcebergFormat())}


def consumer_of(form: str) -> str:
    """The name of the consumer that stands for the list of a format.

    >>> consumer_of("delta")
    'published-delta'
    """
    return f"published-{form}"


def publish_table(
    storage: Storage, form: str, settings: WriteSettings, requested: PublishSettings | None = None
) -> PublishResult:
    """Extend the list of a format to the table's last commit, and record its position in the table, under the lock that
    `settings` configure. `requested` are the settings of the list; None: those of the table.

    Raises `InvalidOption` for a name that is no format's, and what `publication.publish` raises.
    """
    from lakebed.publish.publication import publish

    if form not in LIST_FORMATS:
        raise InvalidOption(
            f"there is no format {form!r} to publish a table as",
            hint=f"It is one of {', '.join(LIST_FORMATS)}.",
            context={"option": "format", "value": form, "expected": [*LIST_FORMATS]},
        )
    options = _options_of(form, requested or _table_settings(storage))
    result, position = publish(storage, partial(_opened, storage), list_formats()[form], **options)
    _note_position(storage, consumer_of(form), position.completed, settings)
    return result


def publish_on_request(
    storage: Storage, form: str, options: Mapping[str, Any] | None, *, fresh: bool | None = None
) -> PublishResult:
    """`publish_table` with the options of a call, which count before the table's settings; `fresh` counts before
    both."""
    resolved = resolve_options(options)
    requested = _table_settings(storage, resolved.explicit)
    if fresh is not None:
        requested = replace(requested, fresh=fresh, fresh_delta=fresh)
    return publish_table(storage, form, resolved.write, requested)


def newest_metadata(storage: Storage) -> tuple[str, bytes] | None:
    """The path of the newest metadata file of the table's Iceberg list, and its content; None if there is no list.
    Raises `ForeignChange` for a list with versions of others."""
    from lakebed.publish.iceberg import IcebergFormat

    form = IcebergFormat()
    listed = form.newest(storage)
    return None if listed is None else form.metadata_file(listed)


def list_files(storage: Storage, formats: Iterable[str] = ()) -> list[str]:
    """The paths of the files of the table's published lists (of these formats; none given: of all), except of lists
    with versions of others."""
    files: list[str] = []
    for form in [list_formats()[name] for name in formats or list_formats()]:
        with suppress(LakebedError):
            if form.newest(storage) is not None:
                names = storage.list_names(form.folder)
                files += [f"{form.folder}/{name}" for name in names if form.is_list_file(name)]
    return files


def published_formats(storage: Storage) -> Mapping[str, str]:
    """The folder of each published list of the table, by its format; whichever program wrote it."""
    return {form.name: form.folder for form in list_formats().values() if storage.list_names(form.folder)}


def publish_alone(storage: Storage, form: str, settings: WriteSettings) -> str:
    """Publish, and delete all versions of the list except the newest; returns a line of text about it. Raises the
    errors of `publish_table`."""
    from lakebed.publish.publication import forget_earlier

    options = _options_of(form, _table_settings(storage))
    result, position, deleted = forget_earlier(storage, partial(_opened, storage), list_formats()[form], **options)
    _note_position(storage, consumer_of(form), position.completed, settings)
    return (
        f"{form} list: {count_text(deleted, 'file')} of versions before {result.instant or 'the first commit'} deleted"
    )


def _table_settings(storage: Storage, explicit: Mapping[str, str] | None = None) -> PublishSettings:
    """The table's settings of publication, with the options of a call before them."""
    return service_settings(explicit or {}, load_table_config(storage).properties).publish


class _ListOptions(TypedDict):
    fresh: bool | None
    vectors: bool


def _options_of(form: str, settings: PublishSettings) -> _ListOptions:
    return {"fresh": settings.is_fresh(form), "vectors": settings.masks == "vectors"}


def _opened(storage: Storage) -> Snapshot:
    return open_snapshot(storage, load_table_config(storage))


def published_columns(storage: Storage, form: str) -> tuple[str, ...] | None:
    """The partition columns of the table's list in a format; None if there is no such list."""
    listed = list_formats()[form].newest(storage)
    return None if listed is None else listed.partition_columns


def publish_all(storage: Storage, requested: PublishSettings, settings: WriteSettings) -> Published:
    """Publish in each of the requested formats. A failure does not stop the other formats. The first error is raised at
    the end, with the command to run."""
    results: list[PublishResult] = []
    failed: LakebedError | None = None
    for form in requested.formats:
        try:
            results.append(publish_table(storage, form, settings, requested))
        except LakebedError as error:
            again = (
                f"The next commit publishes again, and so does `lakebed catalogs publish {storage.spec.uri} {form}`."
            )
            failed = failed or type(error)(f"{form}: {error.message}", f"{error.hint} {again}".strip(), error.context)
    if failed is not None:
        raise failed
    return Published(tuple(results))


def publish_after_service(storage: Storage, requested: PublishSettings, settings: WriteSettings) -> None:
    """Publish the changes of a service or a restore. Errors are only logged, and the next commit publishes again."""
    try:
        publish_all(storage, requested, settings)
    except Exception as error:
        _log.warning("the table %s was changed; publication after it failed: %s", storage.spec.uri, error)


def _note_position(storage: Storage, name: str, position: str, settings: WriteSettings) -> None:
    """Move the consumer of a list to a position. Another publisher may do the same: its position is also one of the
    list."""
    files = ConsumerFiles(storage)
    try:
        consumer = files.find(name)
        if consumer is None:
            start_consumer(storage, name, position, settings, every_commit=True)
        elif consumer.position != position:
            files.move(consumer, position)
    except (CommitConflict, InvalidOption) as error:
        if files.find(name) is None:  # no other process has created it: the lock could not be taken
            raise
        _log.info("the position of %s was noted by another process: %s", name, error)
