"""The metadata table's own services, in the order in which Hudi runs them."""

from __future__ import annotations

from lakebed.metadata.archival import run_archival
from lakebed.metadata.cleaning import run_cleaning
from lakebed.metadata.compaction import finish_compactions, run_compaction
from lakebed.metadata.creation import drop_unfinished
from lakebed.metadata.log_compaction import run_log_compaction, undo_log_compactions
from lakebed.metadata.own_table import OwnTable
from lakebed.metadata.resharding import undo_dead_replaces
from lakebed.metadata.shard_growth import run_resharding


def run_services(own: OwnTable) -> list[str]:
    """Finish what writers that died left, clean, re-shard, compact, archive; says what was done."""
    undo_dead_replaces(own)
    drop_unfinished(own)
    undo_log_compactions(own)
    done = [*finish_compactions(own), *run_cleaning(own)]
    # a re-sharded index needs no compaction, and version 6 has the instant of this one in front of the other's
    done += run_resharding(own)
    done += run_compaction(own) or run_log_compaction(own)
    return [*done, *run_archival(own)]
