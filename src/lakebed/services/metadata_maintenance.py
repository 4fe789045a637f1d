"""The maintenance of the metadata table: it is compacted, cleaned, and archived, and its indexes grow. A write leaves
that to this service, which runs after it, or in the process that maintains tables."""

from __future__ import annotations

from dataclasses import dataclass

from lakebed.model import Action, has_completion_times
from lakebed.operations.context import WriteContext
from lakebed.services.driver import Service, ServiceState
from lakebed.services.service import ServiceTransaction
from lakebed.wording import Printed, count_text


@dataclass(frozen=True, repr=False)
class MaintainedMetadata(Printed):
    """The work done in the metadata table, a text for each step."""

    steps: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"metadata table: {', '.join(self.steps)}" if self.steps else "nothing to do in the metadata table"


class MetadataMaintenance(Service[MaintainedMetadata]):
    """The service that compacts the metadata table when it has enough delta commits, and cleans and archives it
    then."""

    name = "metadata"
    title = "maintenance of the metadata table"
    after_write = ("compaction.services",)

    def due(self, state: ServiceState) -> str | None:
        config, settings = state.context.config, state.context.settings
        if not has_completion_times(config.version) and state.timeline.pending:
            return None  # a pending writer of version 6 will log to the present file slices
        commits = state.metadata_commits
        if commits >= settings.metadata_compact_after:
            return f"the metadata table has {count_text(commits, 'delta commit')} since its last compaction"
        logs = settings.metadata_log_compaction and commits >= settings.metadata_log_compact_after
        return "logs of the metadata table can be merged" if logs else None

    def serve(self, state: ServiceState) -> MaintainedMetadata:
        return maintain_metadata(state.context)

    def has_changed(self, outcome: MaintainedMetadata) -> bool:
        return bool(outcome.steps)


def maintain_metadata(context: WriteContext) -> MaintainedMetadata:
    """Do what is due in the metadata table, under the table lock. A run that dies is finished by the next writer."""
    with ServiceTransaction(context, Action.COMMIT, "SERVICES") as tx, tx.begin():
        tx.prepare_metadata()
        return MaintainedMetadata(tuple(tx.metadata_upkeep(tx.timeline).maintain()))
