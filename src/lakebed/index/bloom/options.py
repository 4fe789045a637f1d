"""How a bloom index looks keys up, as a job may tell it."""

from __future__ import annotations

from dataclasses import dataclass

from lakebed.config.settings import IndexSettings


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """`use_metadata` None: ranges and filters come from the metadata table where that costs less than reading footers.
    `prune_by_ranges` False asks the filters of all files. A task gets no more than `keys_per_task` keys of a file."""

    prune_by_ranges: bool = True
    use_metadata: bool | None = None
    keys_per_task: int = 2_000_000

    @classmethod
    def of(cls, settings: IndexSettings) -> SearchOptions:
        """Those that a job's options name."""
        return cls(
            settings.prune_by_ranges,
            settings.use_metadata,
            settings.keys_per_bucket or cls().keys_per_task,
        )
