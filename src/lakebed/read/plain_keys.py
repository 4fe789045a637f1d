"""Which file slices hold no key that Hudi's parser can misread: their buckets follow from the hash fields alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakebed.expressions.plain_keys import says_plain
from lakebed.format.footer_cache import FOOTERS
from lakebed.model import BaseFile, FileSlice, has_completion_times
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.parallel import once, parallel_map
from lakebed.timeline.plain_keys import CoveredSlices

# Footers that are read to know of files of which no commit tells.
MOST_FOOTERS = 64
_READERS = 16


@dataclass(frozen=True)
class PlainSlices:
    """Asks the newest commit that tells of key texts, and the footers of the files that it does not know.

    `fields` are the key fields with free text that are not hashed.
    """

    snapshot: Snapshot
    fields: tuple[str, ...]

    def among(self, slices: Sequence[FileSlice]) -> list[bool]:
        """For each file slice of the view whether none of its keys can be misread."""
        covered = self._covered
        if covered is None:
            return [False] * len(slices)
        found = [covered.has(one) for one in slices]
        rest = [
            (at, one.base_file)
            for at, one in enumerate(slices)
            if not found[at] and one.base_file is not None and covered.has_logs(one.log_files)
        ]
        if len(rest) <= MOST_FOOTERS:
            for (at, _), says in zip(rest, parallel_map(self._says, [file for _, file in rest], _READERS), strict=True):
                found[at] = says
        return found

    @once
    def _covered(self) -> CoveredSlices | None:
        snapshot = self.snapshot
        by_name = has_completion_times(snapshot.config.version) and snapshot.index_settings.get("type") == "bucket"
        return CoveredSlices.of(snapshot.timeline, snapshot.commits, self.fields, logs_by_name=by_name)

    def _says(self, base: BaseFile) -> bool:
        footer = FOOTERS.read(self.snapshot.storage, base.path, base.size).footer
        return says_plain(footer.key_values, self.fields)
