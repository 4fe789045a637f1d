"""The metadata table's own services, in the order in which Hudi runs them."""

from __future__ import annotations

from lakebed.metadata.store.archival import run_archival
from lakebed.metadata.store.cleaning import run_cleaning
from lakebed.metadata.store.compaction import finish_compactions, run_compaction
from lakebed.metadata.store.creation import drop_unfinished
from lakebed.metadata.store.log_compaction import run_log_compaction, undo_log_compactions
from lakebed.metadata.store.resharding import undo_dead_replaces
from lakebed.metadata.store.shard_growth import run_resharding
from lakebed.metadata.store.store import MetadataStore


def run_services(store: MetadataStore) -> list[str]:
    """Finish what writers that died left, clean, re-shard, compact, archive; gives a line about each."""
    done = [*finish_services(store), *run_cleaning(store)]
    # a re-sharded index needs no compaction, and version 6 has the instant of this one in front of the other's
    done += run_resharding(store)
    done += run_compaction(store) or run_log_compaction(store)
    return [*done, *run_archival(store)]


def finish_services(store: MetadataStore) -> list[str]:
    """Finish or undo what writers that died left half done; gives a line about each."""
    undo_dead_replaces(store)
    drop_unfinished(store)
    undo_log_compactions(store)
    return finish_compactions(store)
