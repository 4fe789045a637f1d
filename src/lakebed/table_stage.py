"""`OpenedStage`: what a `StagedTable` reads and writes through. Its write is not committed, its views show it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn, TypeVar

from lakebed import lineage
from lakebed.errors import InvalidOption, UnsupportedFeature
from lakebed.opened_table import OpenedTable
from lakebed.operations import hudi_job
from lakebed.operations.context import WriteContext
from lakebed.operations.once import Once
from lakebed.operations.result import WriteResult
from lakebed.operations.stage import Stage
from lakebed.progress import display
from lakebed.read.origin import source_of
from lakebed.services.due import run_due_services
from lakebed.slices.snapshot import Snapshot

T = TypeVar("T")


class OpenedStage(OpenedTable):
    """A table that was opened for a stage: its writes are not committed, and its views show them."""

    def __init__(self, table: OpenedTable) -> None:
        super().__init__(table.storage, table.config, table.spark, table.reads)
        self.stage = Stage()
        self.result: WriteResult | None = None
        self._context: WriteContext | None = None
        # the source of its rows, its options and its name, for the events of OpenLineage
        self._write: tuple[str | None, Mapping[str, Any] | None, str] = None, None, ""

    def write(
        self,
        verb: Callable[[WriteContext, Any], WriteResult],
        data: Any,
        options: Mapping[str, Any] | None,
        name: str,
        retries: int | None = None,
        progress: bool = True,
        once: Once | None = None,
    ) -> WriteResult:
        """Run a write up to its commit, with its retries after conflicts until then. Returns its result as far as it is
        known, without a checkpoint."""
        self.check_open()
        if self.stage.has_write or self.result is not None:
            raise InvalidOption(
                f"this stage has a write already, and a stage is one write: {name} would be the second",
                hint="Commit it and open another stage, or give all rows to one call: an upsert of all of them, or a"
                " merge with a clause for each kind of change.",
                context={"second": name},
            )
        begins = self._begins(data, hudi_job.with_retries(retries, options), name)
        self._write = source_of(data), options, name
        staged = partial(replace, stage=self.stage)
        with display(enabled=progress):
            self._context, self.result = hudi_job.run_again(
                lambda: staged(begins.context()), verb, data=data, name=name, once=once
            )
        self.config = begins.config
        return self.result

    def snapshot(self, as_of: str | None = None, *, looks_up: bool = False, for_keys: bool = False) -> Snapshot:
        """The newest view of the table with the write of the stage, or the view of the table as of an instant."""
        table = super().snapshot(as_of, looks_up=looks_up, for_keys=for_keys)
        return table if as_of is not None else self.stage.view(table)

    def before(self) -> Snapshot:
        """The newest view of the table without the write of the stage."""
        return super().snapshot(looks_up=True)

    def committed(
        self, serve: Callable[[], T], options: Mapping[str, Any] | None, *, preview: bool = False, progress: bool = True
    ) -> NoReturn:
        """Raises `UnsupportedFeature`: a stage runs no service."""
        raise NotStaged("a service")

    def commit(self) -> WriteResult:
        """Commit the write, run the services that it makes due, and return its result."""
        self.check_open()
        if self.result is None or self._context is None:
            raise InvalidOption(
                "this stage has no write to commit",
                hint="write first, for example staged.upsert(rows); without a write, leave the block without a commit",
            )
        if not self.stage.has_write:  # the table has the batch of `once` already
            self.stage.discard()
            return self.result
        done = self.reported(self.stage.commit, *self._write) if lineage.is_active() else self.stage.commit()
        # what the verb has counted beside the files, such as the keys that a delete was given
        counted = replace(self.result, checkpoint=done.checkpoint, seconds=done.seconds, duplicates=done.duplicates)
        self.result = run_due_services(replace(self._context, stage=None), counted, spark=self.spark)
        return self.result

    def check_open(self) -> None:
        """Raise `InvalidOption` if the stage was committed, or left."""
        if self.stage.has_ended:
            raise InvalidOption(
                "this stage has ended: its write is committed, or was rolled back",
                hint="Begin another stage of the table.",
            )


class NotStaged(UnsupportedFeature, AttributeError):
    """The error for a service, a setting or a method that a stage lacks. For `hasattr` it is a missing attribute."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} is no part of a stage",
            hint="Commit the stage, or leave it, and call it on the table.",
            context={"feature": "stage", "name": name},
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.context["name"],)
