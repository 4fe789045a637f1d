"""The rollback of dead writers, and the repair of the metadata table, without a write: what each write does as it
begins."""

from __future__ import annotations

from dataclasses import dataclass

from lakebed.model import Action
from lakebed.operations.context import WriteContext
from lakebed.operations.rollback import dead_writes
from lakebed.services.driver import Service, ServiceState
from lakebed.services.service import ServiceTransaction
from lakebed.wording import Printed


@dataclass(frozen=True, repr=False)
class FinishedWrites(Printed):
    """The work done before any service: writes of dead writers that were rolled back, and partitions of the metadata
    table that were built."""

    rolled_back: tuple[str, ...] = ()
    built: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"rollback of {', '.join(self.rolled_back)}, whose writers are dead"] if self.rolled_back else []
        return "\n".join([*lines, *([f"built {', '.join(self.built)}"] if self.built else [])]) or "nothing to finish"


class DeadWriters(Service[FinishedWrites]):
    """The service that rolls back the writes of dead writers, as every write does when it begins."""

    name = "rollback"
    title = "rollback"

    def due(self, state: ServiceState) -> str | None:
        dead = dead_writes(state.context.storage, state.timeline)
        return f"the writers of {', '.join(i.time for i in dead)} are dead" if dead else None

    def is_done_by_writes(self, state: ServiceState) -> bool:
        return True

    def serve(self, state: ServiceState) -> FinishedWrites:
        return finish_interrupted(state.context)

    def has_changed(self, outcome: FinishedWrites) -> bool:
        return bool(outcome.rolled_back)


def finish_interrupted(context: WriteContext) -> FinishedWrites:
    """Roll back dead writers, and repair the metadata table, as a write does when it begins."""
    before = set(context.config.metadata_partitions)
    with ServiceTransaction(context, Action.COMMIT, "SERVICES") as tx, tx.begin():
        tx.prepare_metadata()
    return FinishedWrites(tuple(tx.rolled_back), tuple(sorted({*tx.config.metadata_partitions} - before)))
