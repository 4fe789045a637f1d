"""Bounded caches that all reads of the process share: footers of base files with the key ranges of their row groups,
and the keys of row groups that were read before, in eight bytes a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.format.base_file import Footer, column_chunks, read_footer
from lakebed.format.bounded_cache import BoundedCache
from lakebed.format.hashes import java_hash
from lakebed.format.row_addresses import RowAddresses
from lakebed.format.row_groups.pages import PagedFile
from lakebed.model import RECORD_KEY
from lakebed.sharing import once

if TYPE_CHECKING:
    from lakebed.format.bloom import BloomFilter
    from lakebed.storage.base import Storage

_MAX_BYTES = 64 << 20
_POSITIONS_BYTES = 64 << 20
# A footer takes more in memory than in the file, also by the places of its pages; a filter is cached decoded, in
# addition to its text.
_IN_MEMORY = 8
# Java orders texts by UTF-16 units; from this one on that is not the order of UTF-8.
_SURROGATES = 0xD800


@dataclass(frozen=True)
class KeyFooter:
    """A footer with its file's size, in the form that a search for keys needs."""

    footer: Footer
    size: int
    """Bytes of the file."""

    @property
    def metadata(self) -> Any:
        """The footer as pyarrow's `FileMetaData`, to open the file with."""
        return self.footer.metadata

    @once
    def ranges(self) -> list[tuple[str, str] | None]:
        """The smallest and the largest record key of each row group; None for a row group without them."""
        footer = self.footer
        ranges = key_ranges(footer.metadata)
        if footer.row_groups == 1 and ranges == [None]:  # a format without statistics, with the range of its keys
            return [_in_utf8_order(footer.key_range)]
        return ranges

    @once
    def bloom(self) -> BloomFilter | None:
        """The file's bloom filter; None if it does not have one, or one that accepts every key."""
        bloom_filter = self.footer.bloom()
        return bloom_filter if bloom_filter is not None and not bloom_filter.holds_everything else None

    @once
    def addresses(self) -> RowAddresses | None:
        """The row addresses of the file's keys; None if the file does not have them."""
        footer = self.footer
        return RowAddresses.of(footer.key_values, footer.path, footer.rows, self.size)

    @once
    def pages(self) -> PagedFile | None:
        """The positions of the file's pages; None if its rows cannot be read by pages. Raises `ValueError` for a footer
        that contradicts itself."""
        footer = self.footer
        return PagedFile.of(footer.encoded, footer.before, self.size, footer.metadata) if footer.encoded else None

    @property
    def nbytes(self) -> int:
        """About how many bytes the footer takes in memory."""
        return _IN_MEMORY * self.footer.metadata.serialized_size + len(self.footer.before)


def _in_utf8_order(key_range: tuple[str, str] | None) -> tuple[str, str] | None:
    """The range of a file's keys, which is in Java's order of texts, for comparisons in the order of UTF-8; None if
    they may differ: where a limit has a character of those that Java orders in another way."""
    return key_range if key_range is not None and max(map(ord, "".join(key_range)), default=0) < _SURROGATES else None


def key_ranges(metadata: Any) -> list[tuple[str, str] | None]:
    """The smallest and the largest record key of each row group by Parquet's metadata; None for a row group without
    them."""
    return column_ranges(metadata, RECORD_KEY)


def column_ranges(metadata: Any, name: str) -> list[tuple[str, str] | None]:
    """The smallest and the largest value of a text column in each row group; None for a row group without them."""
    chunks = column_chunks(metadata, name)
    return [_range(chunk.statistics) for chunk in chunks] if chunks else [None] * metadata.num_row_groups


def _range(statistics: Any) -> tuple[str, str] | None:
    if statistics is None or not statistics.has_min_max:
        return None
    low, high = statistics.min, statistics.max
    return (low, high) if isinstance(low, str) and isinstance(high, str) else None


class FooterCache(BoundedCache[KeyFooter]):
    """A cache of the footers used last, up to `max_bytes` of memory, by URL and size. Several threads may use it."""

    def __init__(self, max_bytes: int = _MAX_BYTES, name: str = "") -> None:
        super().__init__(max_bytes, name)

    def read(self, storage: Storage, path: str, size: int) -> KeyFooter:
        """The footer of a base file, from the cache or otherwise from the file. Raises `CorruptFile` if the file is not
        of the format that its name shows."""
        key = storage.url(path), size
        footer = self.get(key)
        if footer is None:
            footer = KeyFooter(read_footer(storage, path, size, encoded=True), size)
            self.put(key, footer)
        return footer


FOOTERS = FooterCache(name="footers")


# Rows of eight million keys, about.
Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class KeyPositions:
    """The rows of a row group by the hashes of their keys: hash in the upper, row number in the lower half, sorted.

    >>> held = KeyPositions.of(pa.array(["a", "b", "a"]))
    >>> held.rows(pa.array(["a", "nobody"])).tolist()
    [0, 2]
    """

    packed: Hashes

    @classmethod
    def of(cls, keys: pa.Array) -> KeyPositions:
        packed = _upper(keys) | np.arange(len(keys), dtype=np.uint64)
        packed.sort()
        return cls(packed)

    @property
    def nbytes(self) -> int:
        return self.packed.nbytes

    def rows(self, keys: pa.Array) -> npt.NDArray[np.int64]:
        """The rows (ascending) that may have one of the keys: all rows that have one, and rarely a row with another
        key."""
        searched = np.unique(_upper(keys))
        starts = np.searchsorted(self.packed, searched, "left")
        counts = np.searchsorted(self.packed, searched | np.uint64(0xFFFFFFFF), "right") - starts
        at = np.repeat(starts - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        return np.sort((self.packed[at] & np.uint64(0xFFFFFFFF)).astype(np.int64))


def _upper(keys: pa.Array) -> Hashes:
    return java_hash(keys).view(np.uint32).astype(np.uint64) << np.uint64(32)


POSITIONS = BoundedCache[KeyPositions](_POSITIONS_BYTES)
"""By a file's URL and size and the number of the row group."""
