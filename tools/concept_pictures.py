"""The pictures of the pages about concepts, as SVG that is readable on light and dark pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

_GREY, _BLUE, _RED, _GREEN, _PURPLE = "#808080", "#2b7bd9", "#d9542b", "#3a9d5d", "#8a5bc7"


@dataclass
class _Drawing:
    """Shapes of a picture that is `width` units wide."""

    title: str
    height: int
    width: int = 640
    parts: list[str] = field(default_factory=list[str])

    def text(
        self, x: float, y: float, text: str, colour: str = _GREY, *, anchor: str = "start", size: int = 12
    ) -> None:
        place = f'x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-size="{size}"'
        self.parts.append(f'<text {place} fill="{colour}">{escape(text)}</text>')

    def box(
        self, at: tuple[float, float, float, float], colour: str, *, is_open: bool = True, dash: bool = False
    ) -> None:
        """A rectangle (x, y, width, height); `is_open` shades it."""
        x, y, width, height = at
        shade = 0.16 if is_open else 0
        dashes = ' stroke-dasharray="4 3"' if dash else ""
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4" fill="{colour}" '
            f'fill-opacity="{shade:g}" stroke="{colour}"{dashes}/>'
        )

    def label(self, at: tuple[float, float, float, float], text: str, colour: str, *, is_open: bool = True) -> None:
        """A box with a text in its middle."""
        x, y, width, height = at
        self.box(at, colour, is_open=is_open)
        self.text(x + width / 2, y + height / 2 + 4, text, colour, anchor="middle")

    def line(self, points: Sequence[tuple[float, float]], colour: str = _GREY, *, dash: bool = False) -> None:
        dashes = ' stroke-dasharray="4 3"' if dash else ""
        path = "L".join(f"{x:g} {y:g}" for x, y in points)
        self.parts.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="1.5"{dashes}/>')

    def arrow(self, start: tuple[float, float], end: tuple[float, float], colour: str = _GREY) -> None:
        """A line to the right with a head at its end."""
        x, y = end
        self.line([start, (x - 3, y)], colour)
        self.parts.append(f'<path d="M{x:g} {y:g}L{x - 8:g} {y - 4:g}L{x - 8:g} {y + 4:g}Z" fill="{colour}"/>')

    def svg(self) -> str:
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" width="{self.width}" '
            f'height="{self.height}" font-family="sans-serif" font-size="12">'
        )
        return "\n".join([head, f"<title>{escape(self.title)}</title>", *self.parts, "</svg>", ""])


def timeline_picture() -> str:
    """Instants from requested to completed, and what a reader sees at a time."""
    drawing = _Drawing("Instants on the timeline of a table", 248)
    lanes = [
        ("commit", _BLUE, [(110, 170, "A"), (200, 390, "B"), (420, None, "D")]),
        ("commit", _BLUE, [(300, 350, "C")]),
        ("compaction", _PURPLE, [(400, 560, "E")]),
        ("clean", _GREEN, [(570, 600, "F")]),
    ]
    for lane, (name, colour, bars) in enumerate(lanes):
        y = 30 + lane * 40
        drawing.text(10, y + 15, name, colour)
        for start, end, letter in bars:
            stop = 620 if end is None else end
            drawing.box((start, y, stop - start, 22), colour, dash=end is None)
            drawing.text(start + 6, y + 15, letter, colour)
            if end is not None:
                drawing.parts.append(f'<circle cx="{end}" cy="{y + 11}" r="5" fill="{colour}"/>')
    drawing.line([(100, 198), (622, 198)])
    drawing.text(622, 214, "time", anchor="end")
    drawing.line([(450, 20), (450, 200)], _RED, dash=True)
    drawing.text(450, 14, "a read begins here", _RED, anchor="middle")
    drawing.text(100, 222, "left end: requested    dot: completed    dashed: never completed so far")
    drawing.text(100, 240, "The read sees the commits A, B and C. D and E are pending: it sees nothing of them.", _RED)
    return drawing.svg()


def file_group_picture() -> str:
    """Partition paths, file groups and the slices of one of them."""
    drawing = _Drawing("From a table to the slices of a file group", 300, 680)
    drawing.label((10, 120, 90, 36), "trips", _GREY)
    drawing.text(55, 172, "table", anchor="middle")
    for y, name in ((60, "city=oslo"), (180, "city=rome")):
        drawing.label((140, y, 100, 36), name, _GREEN)
        drawing.arrow((100, 138), (140, y + 18))
    drawing.text(190, 232, "partition paths", anchor="middle")
    for y, name, origin in ((30, "group 1", 78), (92, "group 2", 78), (180, "group 3", 198)):
        drawing.label((280, y, 90, 32), name, _BLUE)
        drawing.arrow((240, origin), (280, y + 16))
    drawing.text(325, 232, "file groups", anchor="middle")
    drawing.line([(370, 46), (396, 22)], _BLUE, dash=True)
    drawing.line([(370, 46), (396, 250)], _BLUE, dash=True)
    slices = [
        (20, "slice of commit A, cleaned later", _GREY, ["base A", "log B", "log C"]),
        (140, "slice of compaction E, read now", _RED, ["base E", "log G"]),
    ]
    for y, title, colour, files in slices:
        drawing.box((400, y, 270, 90), colour, is_open=False)
        drawing.text(410, y + 18, title, colour)
        for n, file in enumerate(files):
            drawing.label((410 + n * 84, y + 34, 76, 40), file, _PURPLE if "log" in file else colour)
    drawing.arrow((622, 110), (622, 128), _GREY)
    drawing.text(612, 126, "compaction merges base and logs", anchor="end")
    drawing.text(400, 252, "base: Parquet, all rows of the group at its time")
    drawing.text(400, 270, "log: rows and deletes since (merge-on-read)")
    drawing.text(10, 292, "A key belongs to one file group of its partition path, for as long as it is stored.")
    return drawing.svg()


@dataclass(frozen=True)
class _File:
    """A data file of an index picture: what the index knows of it, and what a write reads of it before it writes."""

    name: str
    known: str
    read: str
    colour: str


_KEYS = ("t2", "t9")
_KEY_ROWS = (70, 130)
_FILE_ROWS = (24, 80, 136, 192)


def _index(title: str, middle: Sequence[str], files: Sequence[_File], way: Sequence[tuple[int, int]], end: str) -> str:
    """Keys on the left, what finds them in the middle, files on the right. `way` joins keys and files by number."""
    drawing = _Drawing(title, 282, 680)
    drawing.text(55, 22, "rows of an upsert", anchor="middle")
    for key, y in zip(_KEYS, _KEY_ROWS, strict=True):
        drawing.label((20, y, 70, 30), key, _BLUE)
        drawing.arrow((90, y + 15), (150, y + 15), _BLUE)
    drawing.box((150, 40, 170, 150), _PURPLE)
    for n, text in enumerate(middle):
        drawing.text(235, 66 + n * 19, text, _PURPLE, anchor="middle", size=13 if n == 0 else 12)
    for key, file in way:
        y = _FILE_ROWS[file] + 20
        drawing.arrow((320, _KEY_ROWS[key] + 15), (400, y), _BLUE)
    for file, y in zip(files, _FILE_ROWS, strict=True):
        is_open = bool(file.read)
        drawing.label((400, y, 76, 40), file.name, file.colour, is_open=is_open)
        drawing.text(486, y + 16, file.known, _GREY)
        drawing.text(486, y + 33, file.read or "not opened", file.colour if is_open else _GREY)
    drawing.text(20, 268, end, _RED)
    return drawing.svg()


def bucket_picture() -> str:
    """A hash of the key is the number of the file group."""
    known = {1: "the file group of t9", 3: "the file group of t2"}
    files = [_File(f"bucket {n}", known.get(n, ""), "", _GREY) for n in range(4)]
    return _index(
        "Bucket index: the file group follows from the key",
        ["hash(key) mod 4", "", "t2 -> 3", "t9 -> 1"],
        files,
        [(0, 3), (1, 1)],
        "Nothing is read to find a key, at any size of the table.",
    )


def record_picture() -> str:
    """The record index maps each key to its file group."""
    files = [_File(f"file {n}", "the file group of t2" if n == 1 else "", "", _GREY) for n in range(1, 5)]
    return _index(
        "Record index: the metadata table has the file group of each key",
        ["record index", "", "t1 -> file 4", "t2 -> file 1", "t3 -> file 3", "t9: not stored"],
        files,
        [(0, 0)],
        "Read: the blocks of the index that can hold t2 and t9. Data files: none.",
    )


def bloom_picture() -> str:
    """Key ranges and bloom filters rule out files."""
    files = [
        _File("file 1", "t1 to t4, filter: maybe", "its key column is read", _GREEN),
        _File("file 2", "t1 to t3, filter: no", "", _GREY),
        _File("file 3", "t4 to t7: out of range", "", _GREY),
        _File("file 4", "t5 to t9, filter: maybe", "its key column is read", _GREEN),
    ]
    return _index(
        "Bloom index: key ranges and filters rule out files",
        ["key ranges", "and bloom filters", "", "of every file in", "the partition paths", "of the rows"],
        files,
        [(0, 0), (1, 3)],
        "Read: one footer a file, or the metadata table; the keys of files that may hold one.",
    )


def simple_picture() -> str:
    """The key columns of all files are read."""
    files = [_File(f"file {n}", "", "its key column is read", _GREEN) for n in range(1, 5)]
    return _index(
        "Simple index: the key columns of all files are compared",
        ["comparison", "", "of all keys in", "the partition paths", "of the rows"],
        files,
        [(key, file) for key in range(2) for file in range(4)],
        "Read: the key column of every file of these partition paths.",
    )


def consistent_picture() -> str:
    """A split of one bucket on the ring of hash values."""
    drawing = _Drawing("Consistent hashing: one bucket is split, the others stay", 170)
    before = [("A", 0, 25), ("B", 25, 50), ("C", 50, 100)]
    after = [("A", 0, 25), ("B", 25, 50), ("C1", 50, 75), ("C2", 75, 100)]
    for y, title, buckets in ((40, "before", before), (110, "after t.maintenance.cluster()", after)):
        drawing.text(20, y - 8, title)
        for name, start, end in buckets:
            colour = _RED if name.startswith("C") else _BLUE
            drawing.label((20 + start * 5.9, y, (end - start) * 5.9 - 4, 30), name, colour)
    drawing.text(20, 160, "hash 0")
    drawing.text(610, 160, "greatest hash", anchor="end")
    return drawing.svg()


def postgres_picture() -> str:
    """From a database to tables."""
    drawing = _Drawing("From Postgres to tables", 120, 680)
    steps = [
        ("Postgres", "rides", _BLUE),
        ("Debezium", "reads the log", _GREY),
        ("lakebed", "one commit a batch", _PURPLE),
        ("rides", "the current rows", _GREEN),
        ("revenue", "what follows from them", _GREEN),
    ]
    for n, (name, what, colour) in enumerate(steps):
        x = 10 + n * 136
        drawing.label((x, 30, 100, 40), name, colour)
        drawing.text(x + 50, 92, what, anchor="middle")
        if n:
            drawing.arrow((x - 36, 50), (x, 50), colour)
    return drawing.svg()


def slice_picture() -> str:
    """A merge-on-read file slice: its files, and the rows that a read makes of them."""
    drawing = _Drawing("A merge-on-read file slice and what a read makes of it", 262, 680)
    blocks = [
        ("base file", "10:00", ["a 1", "b 1", "c 1"], _BLUE),
        ("log file 1", "10:05", ["b 2", "d 1"], _PURPLE),
        ("log file 2", "10:10", ["delete a"], _RED),
        ("log file 3", "10:15", ["c 0 (late)"], _PURPLE),
    ]
    for n, (name, time, rows, colour) in enumerate(blocks):
        x = 10 + n * 128
        drawing.box((x, 30, 116, 130), colour)
        drawing.text(x + 58, 50, name, colour, anchor="middle", size=13)
        drawing.text(x + 58, 68, f"commit {time}", anchor="middle")
        for at, row in enumerate(rows):
            drawing.text(x + 58, 94 + at * 20, row, colour, anchor="middle")
    drawing.arrow((508, 95), (546, 95), _GREEN)
    drawing.box((546, 30, 124, 130), _GREEN)
    drawing.text(608, 50, "a read", _GREEN, anchor="middle", size=13)
    for at, row in enumerate(["b 2", "c 1", "d 1"]):
        drawing.text(608, 94 + at * 20, row, _GREEN, anchor="middle")
    drawing.text(10, 188, "letter: record key    number: ordering value")
    drawing.text(
        10,
        210,
        "Of the rows of a key the one with the greatest ordering value wins: c 0 came late and changes nothing.",
        _RED,
    )
    drawing.text(
        10, 230, "a is deleted, d is new. A read of the base file alone (read optimized) gives a 1, b 1, c 1.", _RED
    )
    drawing.text(10, 250, "Compaction writes b 2, c 1, d 1 into the base file of the next slice.", _RED)
    return drawing.svg()


def metadata_picture() -> str:
    """The partitions of the metadata table, and who reads each."""
    drawing = _Drawing("The partitions of the metadata table", 244, 680)
    drawing.text(10, 24, "partition", size=13)
    drawing.text(170, 24, "one record for", size=13)
    drawing.text(490, 24, "asked by", size=13)
    lines = [
        ("files", "each partition path: names and sizes of its files", "every read and write", _BLUE),
        ("column_stats", "each column of each file: its range of values", "filtered reads", _GREEN),
        ("partition_stats", "each column of each partition path", "filtered reads", _GREEN),
        ("record_index", "each record key: its file group", "upserts, deletes, get", _PURPLE),
        ("secondary_index_...", "each value of a column: the keys that have it", "filters on the column", _PURPLE),
        ("bloom_filters", "each base file: the bloom filter of its keys", "the bloom index", _RED),
    ]
    for n, (name, what, who, colour) in enumerate(lines):
        y = 36 + n * 32
        drawing.label((10, y, 140, 24), name, colour)
        drawing.text(170, y + 16, what)
        drawing.text(490, y + 16, who, colour)
    drawing.text(
        10,
        240,
        "It is a merge-on-read table itself: HFiles as base files, log files with HFile blocks, a timeline of its own.",
    )
    return drawing.svg()


def index_files_picture() -> str:
    """What each index keeps on disk."""
    drawing = _Drawing("What each index keeps on disk", 246, 680)
    drawing.text(10, 24, "index", size=13)
    drawing.text(150, 24, "where it is", size=13)
    lines = [
        ("bucket", "the first 8 digits of a file id are the bucket: 00000003-7bb4-...", _BLUE),
        ("consistent", ".hoodie/.bucket_index/consistent_hashing_metadata/: the ring of each partition path", _BLUE),
        ("record", ".hoodie/metadata/record_index/: an HFile entry for each key", _PURPLE),
        ("bloom", "the footer of each base file: least and greatest key, bloom filter", _GREEN),
        ("simple", "nothing of its own: the key column of the base files", _GREY),
        ("hbase", "a table in HBase, outside of the folder: a row for each key", _RED),
    ]
    for n, (name, where, colour) in enumerate(lines):
        y = 36 + n * 32
        drawing.label((10, y, 120, 24), name, colour)
        drawing.text(150, y + 16, where)
    drawing.text(10, 240, "hoodie.properties names the index of the table; a change of the index is a commit.")
    return drawing.svg()


def commit_picture() -> str:
    """The files that one commit creates, in order, and what a crash between them leaves."""
    drawing = _Drawing("The files of one commit, in the order in which they are created", 240, 680)
    steps = [
        ("lock", "table lock", _RED),
        ("requested", "instant is claimed", _BLUE),
        ("inflight", "plan of the write", _BLUE),
        ("data files", "each has a marker", _PURPLE),
        ("metadata", "its own commit", _GREEN),
        ("completed", "rows are visible", _BLUE),
    ]
    for n, (name, what, colour) in enumerate(steps):
        x = 6 + n * 113
        drawing.label((x, 60, 84, 40), name, colour, is_open=n == 5)
        drawing.text(x + 42, 120, what, anchor="middle", size=10)
        if n:
            drawing.arrow((x - 29, 80), (x, 80), colour)
    drawing.line([(6, 46), (203, 46)], _RED)
    drawing.text(104, 40, "first lock: dead writers are rolled back", _RED, anchor="middle", size=10)
    drawing.line([(458, 46), (655, 46)], _RED)
    drawing.text(556, 40, "second lock: conflicts are checked", _RED, anchor="middle", size=10)
    drawing.line([(571, 136), (571, 210)], _RED, dash=True)
    drawing.text(560, 160, "a crash here: the commit never was.", anchor="end")
    drawing.text(560, 180, "Readers ignore its files, also those in the metadata table,", anchor="end")
    drawing.text(560, 200, "and the next writer deletes what markers name.", anchor="end")
    drawing.text(582, 160, "a crash here:")
    drawing.text(582, 180, "all rows are")
    drawing.text(582, 200, "there, for good.")
    drawing.text(10, 234, "The completed file is created once, by one request that fails where the file exists.", _RED)
    return drawing.svg()


PICTURES = {
    "timeline.svg": timeline_picture,
    "file_groups.svg": file_group_picture,
    "index_bucket.svg": bucket_picture,
    "index_consistent.svg": consistent_picture,
    "index_record.svg": record_picture,
    "index_bloom.svg": bloom_picture,
    "index_simple.svg": simple_picture,
    "slice.svg": slice_picture,
    "metadata_table.svg": metadata_picture,
    "index_files.svg": index_files_picture,
    "commit.svg": commit_picture,
    "postgres_cdc.svg": postgres_picture,
}
