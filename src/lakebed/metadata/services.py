"""The metadata table's own services, in the order in which Hudi runs them."""

from __future__ import annotations

from lakebed.metadata.archival import run_archival
from lakebed.metadata.cleaning import run_cleaning
from lakebed.metadata.compaction import finish_compactions, run_compaction
from lakebed.metadata.log_compaction import run_log_compaction, undo_log_compactions
from lakebed.metadata.own_table import OwnTable
from lakebed.metadata.resharding import undo_dead_replaces


def run_services(own: OwnTable) -> list[str]:
    """Finish what writers that died left, clean, compact, archive; says what was done."""
    undo_dead_replaces(own)
    undo_log_compactions(own)
    done = [*finish_compactions(own), *run_cleaning(own)]
    done += run_compaction(own) or run_log_compaction(own)
    return [*done, *run_archival(own)]
