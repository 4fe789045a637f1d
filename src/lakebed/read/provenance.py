"""Who wrote a file: what lakebed wrote into the metadata table for its own files can be relied on further."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from lakebed.filters.ranges import Bools
from lakebed.format.file_names import has_exact_ranges
from lakebed.model import WRITER_ID, BaseFile
from lakebed.timeline.timeline import Timeline


def written_by_lakebed(timeline: Timeline, instants: Sequence[str]) -> Bools:
    """For files of these instants whether lakebed wrote them; not those of archived commits."""
    by_time = {i.time: i for i in timeline.commits}
    ours = {
        time: time in by_time and WRITER_ID in timeline.commit_metadata(by_time[time]).extra for time in set(instants)
    }
    return np.array([ours[time] for time in instants], np.bool_)


@dataclass(frozen=True)
class Provenance:
    """Who wrote the base files of a table; `made_by_lakebed` says who made the table."""

    timeline: Timeline
    made_by_lakebed: bool

    def leaving_out_nan(self, files: Iterable[BaseFile]) -> frozenset[str]:
        """The paths of those files whose statistics may leave out NaN: those of lakebed before names told, by the
        commits on the timeline. An archived one is taken for lakebed's where the table is."""
        asked = [file for file in files if not has_exact_ranges(file.write_token)]
        if not asked:
            return frozenset()
        times = {file.instant for file in asked}
        commits = [instant for instant in self.timeline.commits if instant.time in times]
        bodies = self.timeline.commits_metadata(commits)
        ours = {instant.time: WRITER_ID in body.extra for instant, body in zip(commits, bodies, strict=True)}
        return frozenset(file.path for file in asked if ours.get(file.instant, self.made_by_lakebed))
