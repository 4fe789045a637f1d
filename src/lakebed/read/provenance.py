"""Who wrote a file: what lakebed wrote into the metadata table for its own files can be relied on further."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lakebed.filters.ranges import Bools
from lakebed.model import WRITER_ID
from lakebed.timeline.timeline import Timeline


def written_by_lakebed(timeline: Timeline, instants: Sequence[str]) -> Bools:
    """For files of these instants whether lakebed wrote them; not those of archived commits."""
    by_time = {i.time: i for i in timeline.commits}
    ours = {
        time: time in by_time and WRITER_ID in timeline.commit_metadata(by_time[time]).extra for time in set(instants)
    }
    return np.array([ours[time] for time in instants], np.bool_)
