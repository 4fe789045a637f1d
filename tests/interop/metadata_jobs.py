"""What lets real Hudi keep a table's metadata table, and lakebed build more of it."""

from __future__ import annotations

from collections.abc import Sequence

from lakebed.config.settings import WriteSettings
from lakebed.metadata.lookups import open_snapshot
from lakebed.metadata_upkeep.maintain import MetadataUpkeep
from lakebed.metadata_upkeep.services import run_services
from lakebed.metadata_upkeep.store import MetadataSettings, MetadataStore
from lakebed.properties.file import load_table_config
from lakebed.storage import open_storage
from lakebed.table import Table
from lakebed.timeline.timeline import load_timeline
from oracle.client import HudiOracle
from support.locks import held

# Options of a job, but for the partitions of the metadata table, which the oracle names as the table has them.
KEEP_METADATA = {
    "hoodie.metadata.enable": "true",
    # without it Hudi 1.2.0 fails where partition statistics are compacted
    "hoodie.embed.timeline.server": "true",
}


def keeping_metadata(table: Table) -> dict[str, str]:
    """Options over those of `hudi_job`: the metadata table stays on, with the partitions that it has."""
    return dict(KEEP_METADATA)


def with_indexes(table: Table, indexes: Sequence[str]) -> None:
    """Make the metadata table now, with these partitions besides those that every table gets."""
    storage = open_storage(table.uri)
    config = load_table_config(storage)
    settings = WriteSettings(metadata=True, metadata_indexes=tuple(indexes))
    MetadataUpkeep(open_snapshot(storage, config), settings, None, held).prepare()


def run_own_services(table: Table, settings: MetadataSettings) -> list[str]:
    """Run the metadata table's own services, by these settings; says what they did."""
    storage = open_storage(table.uri)
    config = load_table_config(storage)
    return run_services(MetadataStore(storage, config, load_timeline(storage, config), settings, lock_is_held=held))


def own_actions(oracle: HudiOracle, table: Table) -> set[str]:
    """The actions that the metadata table's own timeline and archive have completed."""
    instants = oracle.ask("timeline", table=f"{table.uri}/.hoodie/metadata")["instants"]
    return {i["action"] for i in instants if i["state"] == "COMPLETED"}
