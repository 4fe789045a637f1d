"""All indexes in the order of what a workload costs under each: a small model that explains every figure.

Which index fits a table that is to be made: a pure function of a few numbers, which gives its reason.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, exp
from typing import Literal

import pyarrow as pa

from lakebed.index.bucket_counts import ADVISED_BYTES
from lakebed.index.costs import STORED_KEY, Batch, record_cost, simple_cost
from lakebed.wording import Printed

MIB = 1 << 20
# A base file is filled to about this size.
_FULL = 120 * MIB
# A partition's buckets start out at a quarter of the gigabyte they may grow to.
_BUCKET = 256 * MIB
_MAX_BUCKETS = 4096
# CPU seconds, in one process; bench/advisor.py measures what the model is worth.
_COMMIT = 0.06
_GROUP = 7.0e-3
_ROW = 1.1e-6
_NEW_ROW = 1.5e-6
_HASHED_KEY = 2.0e-7
_INDEX_COMMIT = 0.05
_INDEXED_KEY = 3.0e-6
# A key looked for in a file by its filter, opening one with its footer, a key that goes into one, and one that is read
# and written with a file that is rewritten.
_PROBE = 2.0e-7
_FILTER = 3.6e-3
_FILTER_BUILT = 6.0e-7
_FILTER_WRITTEN = 3.5e-3
_FALSE = 1.0e-3
_SEARCHED_FILE = 1.5e-3
# A ring that is read, and a key placed on it; a file of a bucket with several that is asked for keys, and such a key.
_RING = 1.0e-3
_RING_KEY = 2.0e-7
_LOOKED_INTO = 7.5e-3
_LOOKED_FOR = 3.5e-6
# Seconds on the clock, since the time is a server's: to ask HBase for a key, to put one there, and what either takes
# for few keys. By bench/hbase.py: gets of 10,000 and 100,000 keys, puts of 5,000 and 50,000.
_REMOTE_GET = 2.1e-5
_REMOTE_PUT = 3.1e-5
_REMOTE = 0.02


@dataclass(frozen=True, slots=True)
class Workload:
    """The size of a table and of a typical write to it.

    `touched` are the partition paths that a batch falls into, `touched_rows` the rows stored there; `known` is the
    share of a batch's keys that the table holds. `grows`: new keys are greater than old ones. `largest` is the largest
    partition's share of the rows. `unique`: a key exists once in the whole table. `deletes`: the batch is of keys
    alone, whose partition paths are unknown. `served`: an HBase server is at hand. `sources` are the sources of
    figures."""

    rows: int
    row_bytes: float
    partitions: int
    batch: int
    touched: int
    touched_rows: int
    known: float
    grows: bool = False
    largest: float = 1.0
    unique: bool = False
    deletes: bool = False
    mor: bool = False
    served: bool = False
    sources: tuple[str, ...] = ()

    @property
    def size(self) -> float:
        """The bytes of the table."""
        return self.rows * self.row_bytes

    @property
    def files(self) -> int:
        """The number of base files that the rows fill."""
        return max(self.partitions, ceil(self.size / _FULL))

    @property
    def touched_files(self) -> int:
        return max(self.touched, ceil(self.touched_rows * self.row_bytes / _FULL))

    @property
    def updates(self) -> int:
        return round(self.batch * self.known)

    @property
    def inserts(self) -> int:
        return 0 if self.deletes else self.batch - self.updates


@dataclass(frozen=True, slots=True)
class Candidate:
    """The costs of an index: CPU seconds to find the keys of a batch and to write the batch, bytes written per incoming
    byte, and file groups that a lookup of one key opens. `words` explain each."""

    index: str
    tagging: float
    writing: float
    write_amplification: float
    read_amplification: float
    words: tuple[str, ...]
    settings: Mapping[str, int] = field(default_factory=dict[str, int])
    obstacle: str = ""
    """Why the index does not fit the table; empty where it fits."""

    @property
    def fits(self) -> bool:
        """Whether the table is as the index wants it."""
        return not self.obstacle

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the index does not fit, if it does not, then what explains the figures."""
        return (f"does not fit: {self.obstacle}", *self.words) if self.obstacle else self.words

    @property
    def seconds(self) -> float:
        """CPU seconds of tagging and writing together."""
        return self.tagging + self.writing


@dataclass(frozen=True, repr=False)
class Ranking(Printed):
    """Indexes, the cheapest first. Prints as a table with a reason for each figure."""

    workload: Workload
    candidates: tuple[Candidate, ...]

    @property
    def best(self) -> Candidate:
        return self.candidates[0]

    def to_arrow(self) -> pa.Table:
        """A table with the columns index, settings, seconds, tagging, writing, write_amplification, read_amplification,
        fits, why."""
        rows = [
            {
                "index": c.index,
                "settings": ", ".join(f"{k}={v}" for k, v in c.settings.items()),
                "seconds": round(c.seconds, 4),
                "tagging": round(c.tagging, 4),
                "writing": round(c.writing, 4),
                "write_amplification": round(c.write_amplification, 1),
                "read_amplification": round(c.read_amplification, 1),
                "fits": c.fits,
                "why": "; ".join(c.reasons),
            }
            for c in self.candidates
        ]
        return pa.Table.from_pylist(rows)

    def __str__(self) -> str:
        w = self.workload
        lines = [
            f"{w.rows:,} rows of {w.row_bytes:.0f} bytes in {max(1, w.partitions):,} partitions; a batch of"
            f" {w.batch:,} rows touches {w.touched:,} of them, {w.known:.0%} of its keys are known",
            *(f"  {sources}" for sources in w.sources),
            f"{'index':20} {'CPU-s':>8} {'tagging':>8} {'writing':>8} {'write amp.':>10} {'read amp.':>10}",
        ]
        for c in self.candidates:
            name = c.index + "".join(f" ({k} {v})" for k, v in c.settings.items())
            lines.append(
                f"{name:20} {c.seconds:8.3f} {c.tagging:8.3f} {c.writing:8.3f} {c.write_amplification:10.1f}"
                f" {c.read_amplification:10.1f}{'' if c.fits else '  (does not fit)'}"
            )
            lines += [f"    {word}" for word in c.reasons]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        names = ("index", "CPU-s", "tagging", "writing", "write amplification", "read amplification", "why")
        head = "".join(f"<th>{name}</th>" for name in names)
        body = "".join(
            "<tr>"
            + "".join(
                f"<td>{html.escape(str(value))}</td>"
                for value in (
                    c.index + "".join(f" ({k} {v})" for k, v in c.settings.items()),
                    f"{c.seconds:.3f}",
                    f"{c.tagging:.3f}",
                    f"{c.writing:.3f}",
                    f"{c.write_amplification:.1f}",
                    f"{c.read_amplification:.1f}",
                    "; ".join(c.reasons),
                )
            )
            + "</tr>"
            for c in self.candidates
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def rank(workload: Workload, names: Sequence[str]) -> Ranking:
    """The named indexes in the order of their costs; those that do not fit the keys are last.

    >>> little = Workload(rows=1000, row_bytes=50, partitions=0, batch=10, touched=1, touched_rows=1000, known=1.0)
    >>> rank(little, ["bucket", "hbase", "simple"]).candidates[-1].index
    'hbase'
    """
    candidates = [_COSTS[name](workload) for name in names if name in _COSTS]
    return Ranking(workload, tuple(sorted(candidates, key=lambda c: (not c.fits, c.seconds, names.index(c.index)))))


def bucket_count(partition_bytes: float) -> int:
    """The number of buckets for a partition of this size: a power of two, with at most 256 MB in each at the start.

    >>> bucket_count(10 * MIB), bucket_count(3000 * MIB)
    (1, 16)
    """
    buckets = 1
    while buckets * _BUCKET < partition_bytes and buckets < _MAX_BUCKETS:
        buckets *= 2
    return buckets


def _hit(groups: float, keys: float) -> float:
    """The expected number of groups, of `groups`, that `keys` random keys are in."""
    return groups * (1 - exp(-keys / groups)) if groups else 0.0


def _written(w: Workload, groups: float, rows: float, indexed: float = 0.0) -> tuple[float, float, str]:
    """The CPU seconds, the amplification and the explanation of writing a batch that rewrites `groups` file groups with
    `rows` rows in all."""
    batch_bytes = max(1.0, w.batch * w.row_bytes)
    if w.mor:
        seconds = _COMMIT + groups * _GROUP + w.batch * _NEW_ROW + indexed
        return seconds, 1.0, f"writing: {groups:.0f} log files of the batch's own rows"
    seconds = _COMMIT + groups * _GROUP + rows * _ROW + w.inserts * _NEW_ROW + indexed
    bytes_ = rows * w.row_bytes + w.inserts * w.row_bytes
    description = f"writing: {groups:.0f} file groups of {rows:,.0f} rows are rewritten"
    return seconds, bytes_ / batch_bytes, description


def _of_files(w: Workload) -> tuple[float, float]:
    """The number of file groups that a batch rewrites if its rows go to files in the order of the rows, and the number
    of rows in these file groups: the files of existing keys, and a small file per partition path for new rows."""
    if w.deletes:
        groups = _hit(w.files, w.updates)
        return groups, groups * w.rows / max(1, w.files)
    groups = max(_hit(w.touched_files, w.updates), min(w.touched, w.inserts))
    return groups, min(w.touched_rows, groups * w.touched_rows / max(1, w.touched_files))


def _bucket(w: Workload) -> Candidate:
    partitions = max(1, w.partitions)
    buckets = bucket_count(w.size / partitions)
    groups = _hit(w.touched * buckets, w.batch) if not w.deletes else _hit(partitions * buckets, w.updates)
    stored = w.rows if w.deletes else w.touched_rows
    rows = groups * stored / max(1, (partitions if w.deletes else w.touched) * buckets)
    tagging, description = w.batch * _HASHED_KEY, "tagging: a hash of the key, no file is read"
    if w.deletes:
        searched = partitions * min(buckets, w.batch)
        tagging += searched * _SEARCHED_FILE
        description = (
            f"tagging: keys without partition paths are looked for in their buckets of {partitions:,} partitions"
        )
    seconds, amplification, written = _written(w, groups, rows)
    reads = 1 if not w.deletes else partitions
    skew = ""
    if w.partitions > 1 and w.largest * partitions > 4 and w.size * w.largest > 1024 * MIB * buckets:
        skew = (
            f"the largest partition has {w.largest:.0%} of the rows, so its buckets hold"
            f" {w.size * w.largest / buckets / MIB:,.0f} MB each"
        )
    reading = "reading: a key is in one file of its partition; joins and group-bys by key need no shuffle"
    words = [description, written, reading, _bucket_sizes(w, buckets), *([skew] if skew else [])]
    return Candidate("bucket", tagging, seconds, amplification, reads, tuple(words), {"buckets": buckets})


def _bucket_sizes(w: Workload, buckets: int) -> str:
    """The number and the size of the files of a bucket index, and whether they are more than is advised."""
    partitions = max(1, w.partitions)
    size = w.size / partitions / buckets
    text = f"files: {partitions * buckets:,} buckets of about {_text(size)}"
    return f"{text}; {_beyond_buckets(size)}" if size > ADVISED_BYTES else text


def _beyond_buckets(size: float) -> str:
    """The advice for a table whose buckets would have this size, which is more than is advised."""
    return (
        f"more than the {_text(ADVISED_BYTES)} advised, since {_MAX_BUCKETS:,} buckets of a partition are the most that"
        f" are chosen: partition the table, give more buckets ({_needed(size):,}), or take bucket_groups, whose files"
        f" stay at {_text(_FULL)}"
    )


def _needed(size: float) -> int:
    """The number of buckets, a power of two, in which those of this size at the most number would be as advised."""
    buckets = _MAX_BUCKETS
    while size > ADVISED_BYTES:
        buckets, size = buckets * 2, size / 2
    return buckets


def _file_sizes(w: Workload) -> str:
    """The number and the size of base files that are filled to the file size."""
    return f"files: {w.files:,} of about {_text(min(_FULL, w.size / max(1, w.files)))}"


def _simple(w: Workload, *, everywhere: bool = False) -> Candidate:
    everywhere = everywhere or w.deletes
    files, rows = (w.files, w.rows) if everywhere else (w.touched_files, w.touched_rows)
    tagging = simple_cost(Batch(w.batch, files, rows))
    where = "of the whole table" if everywhere else f"of the {w.touched:,} partitions touched"
    seconds, amplification, written = _written(w, *_of_files(w))
    descriptions = (
        f"tagging: the keys of {files:,} files {where} are read, {rows:,} rows",
        written,
        "reading: a key may be in any file that statistics do not rule out",
        _file_sizes(w),
    )
    return Candidate(
        "simple", tagging, seconds, amplification, max(1, w.touched_files / max(1, w.touched)), descriptions
    )


def _global_simple(w: Workload) -> Candidate:
    simple = _simple(w, everywhere=True)
    return Candidate(
        "global_simple",
        simple.tagging,
        simple.writing,
        simple.write_amplification,
        w.files,
        simple.words,
        obstacle=_of_keys(w),
    )


def _of_keys(w: Workload) -> str:
    """Why an index of the keys of the whole table does not fit; empty where it does."""
    if w.unique:
        return ""
    return "it has one place for each key of the table, and a key may have rows in several partition paths"


def _record(w: Workload) -> Candidate:
    tagging = record_cost(Batch(w.batch, w.files, w.rows))
    changed = w.updates if w.deletes else w.inserts
    upkeep = _INDEX_COMMIT + changed * _INDEXED_KEY
    seconds, amplification, written = _written(w, *_of_files(w), upkeep)
    descriptions = (
        f"tagging: {w.batch:,} keys are looked up in an index of {w.rows:,} entries",
        f"{written}; {changed:,} entries of the index change",
        "reading: one lookup in the index names the file of a key",
        _file_sizes(w),
    )
    return Candidate("record", tagging, seconds, amplification, 1, descriptions, obstacle=_of_keys(w))


def _bloom(w: Workload, *, everywhere: bool = False) -> Candidate:
    everywhere = everywhere or w.deletes
    files, rows = (w.files, w.rows) if everywhere else (w.touched_files, w.touched_rows)
    # keys that grow are in few files' ranges, others in all
    ranges = max(1.0, files * 0.1) if w.grows else float(files)
    probes = w.batch * ranges / max(1, max(1, w.partitions if everywhere else w.touched))
    hit = _hit(ranges, w.updates + probes * _FALSE)
    tagging = files * _FILTER + probes * _PROBE + hit * rows / max(1, files) * STORED_KEY + 0.02
    groups, rewritten = _of_files(w)
    filters = 0.0 if w.mor else groups * _FILTER_WRITTEN
    seconds, amplification, written = _written(w, groups, rewritten, filters + w.inserts * _FILTER_BUILT)
    descriptions = (
        f"tagging: key ranges leave {ranges:.0f} of {files:,} files, {probes:,.0f} probes of filters leave"
        f" {hit:.0f} whose keys are read",
        f"{written}, each with a filter",
        "reading: ranges and filters rule out most files for a key",
        _file_sizes(w),
    )
    name = "global_bloom" if everywhere and not w.deletes else "bloom"
    return Candidate(name, tagging, seconds, amplification, max(1.0, ranges / max(1, w.touched)), descriptions)


def _global_bloom(w: Workload) -> Candidate:
    bloom = _bloom(w, everywhere=True)
    figures = bloom.tagging, bloom.writing, bloom.write_amplification, bloom.read_amplification
    return Candidate("global_bloom", *figures, bloom.words, obstacle=_of_keys(w))


def _consistent(w: Workload) -> Candidate:
    """The cost of consistent hashing: like a bucket index whose buckets stay within their size, plus rewrites by
    splits."""
    bucket = _bucket(w)
    rings = max(1, w.partitions) if w.deletes else w.touched
    tagging = bucket.tagging + w.batch * _RING_KEY + rings * _RING
    split = w.inserts * _ROW
    grown = w.inserts / max(1, w.batch)
    descriptions = (
        f"{bucket.words[0]}; the rings of {rings:,} partitions are read",
        f"{bucket.words[1]}; a bucket that has doubled is split: {w.inserts:,} new rows are written once more by then",
        "reading: a key is in one file of its partition",
        bucket.words[3],
    )
    figures = tagging, bucket.writing + split, bucket.write_amplification + grown, bucket.read_amplification
    obstacle = "" if w.mor else "its buckets are split and merged by clustering, for merge-on-read tables alone"
    return Candidate("consistent", *figures, descriptions, bucket.settings, obstacle)


def _bucket_groups(w: Workload) -> Candidate:
    """The cost of bucket groups: keys are looked up in their bucket; files stay within the file size, so fewer rows are
    rewritten if a bucket has several."""
    bucket = _bucket(w)
    buckets = bucket.settings["buckets"]
    partitions = max(1, w.partitions if w.deletes else w.touched)
    stored = w.rows if w.deletes else w.touched_rows
    files_per_bucket = max(1, ceil(stored * w.row_bytes / partitions / buckets / _FULL))
    met = _hit(partitions * buckets, w.batch * (partitions if w.deletes else 1))
    searched = met * files_per_bucket
    opened = _SEARCHED_FILE if w.deletes else _LOOKED_INTO
    groups = min(searched, _hit(partitions * buckets * files_per_bucket, w.updates) + min(met, w.inserts))
    rows = groups * stored / max(1, partitions * buckets * files_per_bucket)
    tagging = w.batch * _HASHED_KEY + searched * opened + w.batch * _LOOKED_FOR
    filters = 0.0 if w.mor else groups * _FILTER_WRITTEN + w.inserts * _FILTER_BUILT
    seconds, amplification, written = _written(w, groups, rows, filters)
    descriptions = (
        f"tagging: a hash of the key, then {searched:,.0f} files of the buckets are asked for the keys",
        f"{written}, each with a filter",
        f"reading: a key is in one of {files_per_bucket:,} files of its bucket, which ranges and filters select",
        f"{_file_sizes(w)}, in {buckets:,} buckets a partition",
    )
    return Candidate(
        "bucket_groups",
        tagging,
        seconds,
        amplification,
        bucket.read_amplification * files_per_bucket,
        descriptions,
        bucket.settings,
    )


def _hbase(w: Workload) -> Candidate:
    tagging = _REMOTE + w.batch * _REMOTE_GET
    sources = w.updates if w.deletes else w.inserts
    seconds, amplification, written = _written(w, *_of_files(w), _REMOTE + sources * _REMOTE_PUT)
    descriptions = (
        f"tagging: {w.batch:,} keys are asked of a server, which has to run and be reached",
        written,
        "reading: a lookup asks the server, too",
        _file_sizes(w),
    )
    obstacle = _of_keys(w) or ("" if w.served else "the table names no HBase server")
    return Candidate("hbase", tagging, seconds, amplification, 1, descriptions, obstacle=obstacle)


_COSTS: dict[str, Callable[[Workload], Candidate]] = {
    "bucket": _bucket,
    "simple": _simple,
    "global_simple": _global_simple,
    "record": _record,
    "bloom": _bloom,
    "global_bloom": _global_bloom,
    "consistent": _consistent,
    "bucket_groups": _bucket_groups,
    "hbase": _hbase,
}


# A table of this size is one or two base files: there is nothing to find.
_SMALL = 128 * MIB
# The indexes that "auto" may take: they need no server, and every table can have them.
AUTO = ("bucket", "simple", "record")


@dataclass(frozen=True, slots=True)
class TableProfile:
    """The properties of a table that does not exist yet. None means unknown.

    `rows` and `row_bytes` (bytes of a row in a base file) describe the expected size; `partitions` is the number of
    partition paths (0: not partitioned); `keys_grow`: new keys are greater than old ones and old ones are
    seldom written again (event ids, time-ordered ids); `unique_keys` that a key exists once in the whole table;
    `batch` is the usual number of rows of an upsert.
    """

    rows: int | None = None
    row_bytes: float | None = None
    partitions: int | None = None
    keys_grow: bool = False
    unique_keys: bool = False
    batch: int | None = None
    has_key: bool = True
    table_type: Literal["cow", "mor"] = "cow"


@dataclass(frozen=True, slots=True)
class Advice:
    """The name of the index to use, its arguments for `make_index`, and one sentence with the reason."""

    index: str
    why: str
    settings: Mapping[str, int] = field(default_factory=dict)


def advise(profile: TableProfile, buckets: int | None = None, fields: Sequence[str] = ()) -> Advice:
    """The index for `index="auto"`. A number of `buckets`, or the `fields` to hash, ask for a bucket index.

    >>> advise(TableProfile(rows=100_000_000, row_bytes=100, partitions=0)).settings
    {'buckets': 64}
    """
    if buckets or fields:
        options = f"{buckets} buckets were" if buckets else f"the fields to hash ({', '.join(fields)}) were"
        return Advice("bucket", f"bucket: {options} given", {"buckets": buckets} if buckets else {})
    if not profile.has_key:
        return Advice("simple", "simple: keys are generated, so no write ever looks one up")
    if profile.rows is None or profile.row_bytes is None:
        return Advice(
            "simple",
            "simple: the size of the table is not known; t.indexes.advise(batch) is more exact once it has rows",
        )
    size = profile.rows * profile.row_bytes
    if size <= _SMALL:
        return Advice("simple", f"simple: about {_text(size)} in all, which is a base file or two to look through")
    if profile.partitions is None:
        return Advice(
            "simple",
            f"simple: about {_text(size)} in partition paths whose number is not known;"
            " t.indexes.advise(batch) is more exact once it has rows",
        )
    if profile.batch is not None:
        return _by_costs(profile, profile.rows, profile.row_bytes, profile.batch)
    partitions = max(1, profile.partitions)
    share = size / partitions
    if share <= _SMALL:
        return Advice(
            "simple",
            f"simple: about {_text(share)} in each of {partitions} partitions, too little to split into buckets",
        )
    if profile.keys_grow and partitions > 1:
        return Advice(
            "simple",
            "simple: new keys in new partitions, so a write looks only through the few partitions it touches",
        )
    buckets = bucket_count(share)
    scope = f"in each of {partitions} partitions" if partitions > 1 else "in all"
    per_bucket = share / buckets
    room = (
        f"with room to grow to {_text(ADVISED_BYTES)} each"
        if per_bucket <= ADVISED_BYTES
        else _beyond_buckets(per_bucket)
    )
    return Advice(
        "bucket",
        f"bucket: about {_text(share)} {scope} make {buckets} buckets of {_text(per_bucket)}, {room}, and no write has"
        " to look keys up",
        {"buckets": buckets},
    )


def _by_costs(profile: TableProfile, rows: int, row_bytes: float, batch: int) -> Advice:
    """The cheapest of all indexes for batches of this size that are spread over as many partitions as possible."""
    partitions = max(1, profile.partitions or 0)
    touched = min(2, partitions) if profile.keys_grow else min(batch, partitions)
    workload = Workload(
        rows=rows,
        row_bytes=row_bytes,
        partitions=profile.partitions or 0,
        batch=batch,
        touched=touched,
        touched_rows=rows * touched // partitions,
        known=0.0 if profile.keys_grow else 1.0,
        grows=profile.keys_grow,
        unique=profile.unique_keys,
        mor=profile.table_type == "mor",
    )
    first, second, *_ = rank(workload, AUTO).candidates
    why = (
        f"{first.index}: upserts of {batch:,} rows that touch {touched:,} of {partitions:,} partitions take about"
        f" {first.seconds:.2g} s, under {second.index} {second.seconds:.2g} s; {first.words[0]}"
    )
    return Advice(first.index, why, first.settings)


def _text(size: float) -> str:
    gigabytes = size / (1024 * MIB)
    if gigabytes >= 1024:
        return f"{gigabytes / 1024:,.1f} TB"
    return f"{gigabytes:.1f} GB" if gigabytes >= 1 else f"{max(1, round(size / MIB))} MB"
