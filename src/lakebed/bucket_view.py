"""`Table.files.skew()`: how large the buckets are, as a table and as a picture."""

from __future__ import annotations

import html
from collections.abc import Sequence

import pyarrow as pa

from lakebed.format.file_names import bucket_of_file_id
from lakebed.index.bucket_counts import ADVISED_BYTES
from lakebed.model import FileSlice
from lakebed.operations.result import size_text
from lakebed.table_views import View, arrow_html

_SCHEMA = pa.schema(
    [
        ("partition", pa.string()),
        ("bucket", pa.int32()),
        ("file_id", pa.string()),
        ("bytes", pa.int64()),
        ("log_bytes", pa.int64()),
        ("of_mean", pa.float64()),
        ("of_advised", pa.float64()),
    ]
)
# The picture's bars, in its own units.
_MOST_BARS, _WIDTH, _HEIGHT, _ROOM = 400, 720, 160, 24


class BucketSkewView(View):
    """How large each bucket is (for a table without buckets: each file group), the largest first; prints as a table,
    and in a notebook as a picture, too."""

    def __init__(self, slices: Sequence[FileSlice]) -> None:
        self._slices = slices

    def to_arrow(self) -> pa.Table:
        """Columns: partition, bucket (null for a file group of none), file_id, bytes (log files among them), log_bytes,
        of_mean (the bytes over the mean of all) and of_advised (over the 3 GB that a bucket is advised to have)."""
        mean = sum(one.size for one in self._slices) / max(1, len(self._slices))
        found = sorted(self._slices, key=lambda one: (-one.size, one.partition, one.file_id))
        columns = [
            [one.partition for one in found],
            [bucket_of_file_id(one.file_id) for one in found],
            [one.file_id for one in found],
            [one.size for one in found],
            [one.size - (one.base_file.size if one.base_file else 0) for one in found],
            [round(one.size / mean, 3) if mean else 0.0 for one in found],
            [round(one.size / ADVISED_BYTES, 6) for one in found],
        ]
        arrays = [pa.array(values, field.type) for values, field in zip(columns, _SCHEMA, strict=True)]
        return pa.Table.from_arrays(arrays, schema=_SCHEMA)

    def plot(self) -> str:
        """The sizes as an SVG picture: a bar for each bucket in the order of partition path and number, red beyond
        what is advised, and a line for the mean."""
        found = sorted(self._slices, key=lambda one: (one.partition, one.file_id))[:_MOST_BARS]
        sizes = [one.size for one in found]
        most, width = max(sizes, default=1) or 1, _WIDTH / max(1, len(found))
        bars = "".join(
            f'<rect x="{at * width:.1f}" y="{_HEIGHT - size / most * _HEIGHT:.1f}" width="{max(0.5, width * 0.85):.1f}"'
            f' height="{size / most * _HEIGHT:.1f}" fill="{"#c0392b" if size > ADVISED_BYTES else "#4878a8"}">'
            f"<title>{html.escape(one.label)}: {size_text(size)}</title></rect>"
            for at, (one, size) in enumerate(zip(found, sizes, strict=True))
        )
        mean = sum(sizes) / max(1, len(sizes))
        y = _HEIGHT - mean / most * _HEIGHT
        cut = f", the first {_MOST_BARS} of {len(self._slices)}" if len(self._slices) > _MOST_BARS else ""
        text = f"{len(self._slices)} file groups, mean {size_text(mean)}, largest {size_text(most)}{cut}"
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT + _ROOM}" width="{_WIDTH}"'
            f' role="img" aria-label="{text}">{bars}<line x1="0" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#888"'
            f' stroke-dasharray="4"/><text x="0" y="{_HEIGHT + _ROOM - 8}" font-size="12">{text}</text></svg>'
        )

    def _repr_html_(self) -> str:
        return self.plot() + arrow_html(self.to_arrow())
