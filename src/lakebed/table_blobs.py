"""`Table.blobs`: the files that the rows of BLOB columns reference, and the files of a folder that no row does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.config.arguments import public_methods_check_arguments
from lakebed.errors import InvalidOption
from lakebed.opened_table import OpenedTable
from lakebed.read.blobs import blob_column, storage_of
from lakebed.read.plan import data_columns
from lakebed.read.scan import Scan
from lakebed.schema.logical_types import is_blob
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.base import parse_uri
from lakebed.table_views import EntriesView

_SCHEMA = pa.schema([("path", pa.string()), ("references", pa.int64()), ("bytes", pa.int64())])


@dataclass(frozen=True, slots=True)
class ReferencedFile:
    """A file that rows reference, or one that none does: its URI, the number of references to it, and its size (None
    for a file that is not in the folder that was listed)."""

    path: str
    references: int
    bytes: int | None


class BlobReferences(EntriesView[ReferencedFile]):
    """Files that blobs reference, and with a folder also its other files: iterable, and printed as a table."""

    def __init__(self, files: Sequence[ReferencedFile], folder: str | None) -> None:
        self._files = files
        self.folder = folder
        """The folder that was listed; None without one."""

    def _entries(self) -> Sequence[ReferencedFile]:
        return self._files

    @property
    def unreferenced(self) -> list[ReferencedFile]:
        """The files of the folder that no row references."""
        return [file for file in self._files if not file.references]

    @property
    def missing(self) -> list[ReferencedFile]:
        """The referenced files in the folder that are not there."""
        inside = "" if self.folder is None else f"{self.folder.rstrip('/')}/"
        return [f for f in self._files if inside and f.bytes is None and f.path.startswith(inside)]

    def to_arrow(self) -> pa.Table:
        """A table with the columns path, references (the number of rows) and bytes (null for a file that was not
        listed), in the order of the paths."""
        columns = [[getattr(file, name) for file in self._files] for name in _SCHEMA.names]
        arrays = [pa.array(values, field.type) for values, field in zip(columns, _SCHEMA, strict=True)]
        return pa.Table.from_arrays(arrays, schema=_SCHEMA)


@public_methods_check_arguments
class BlobsView:
    """The BLOB columns of a table. `references` reports; nothing is deleted."""

    def __init__(self, opened: OpenedTable) -> None:
        self._opened = opened

    @property
    def columns(self) -> list[str]:
        """The names of the table's BLOB columns."""
        return self._opened.steadily(_blob_columns)

    def references(
        self, folder: str | None = None, *, column: str | None = None, as_of: str | None = None
    ) -> BlobReferences:
        """The files that the rows reference, with the number of references to each, and with `folder` the files below
        it that no row references.

        `column` is one BLOB column (None: all). The rows are those of now, or `as_of` an earlier time: a file that no
        row references now may be named by earlier states of the table, which time travel and savepoints read. The
        columns are read in full. Nothing is deleted.

        Raises `InvalidOption` for a column that is no BLOB.

        >>> import lakebed, pyarrow as pa
        >>> schema = pa.schema([("id", pa.int64()), ("pic", lakebed.BLOB)])
        >>> pictures = lakebed.create("memory://docs/references", schema, key="id")
        >>> _ = pictures.upsert([{"id": 1, "pic": lakebed.blob(path="s3://photos/a.jpg")}])
        >>> [(file.path, file.references) for file in pictures.blobs.references()]
        [('s3://photos/a.jpg', 1)]
        """
        opened = self._opened
        view = opened.view(as_of)
        names = _blob_columns(view) if column is None else [blob_column(column, view.schema)]
        counts = _counts(Scan(view, columns=names, reads=opened.reads), names) if names else Counter[str]()
        sizes: dict[str, int] = {}
        if folder is not None:
            storage, prefix, root = storage_of(folder, opened.storage.spec)
            sizes = {f"{root.rstrip('/')}/{file.path}": file.size for file in storage.list(prefix)}
        paths = sorted({*counts, *sizes})
        files = [ReferencedFile(path, counts.get(path, 0), sizes.get(path)) for path in paths]
        return BlobReferences(files, None if folder is None else parse_uri(folder).uri)


def _blob_columns(view: Snapshot) -> list[str]:
    return [field.name for field in data_columns(view) if is_blob(field)]


def _counts(scan: Scan, names: Sequence[str]) -> Counter[str]:
    """The number of references to each file, by its URI."""
    counts: Counter[str] = Counter()
    uris: dict[str, str] = {}
    for batch in scan.to_batches():
        for name in names:
            reference = batch.column(name).flatten()[batch.schema.field(name).type.get_field_index("reference")]
            paths = reference.flatten()[reference.type.get_field_index("external_path")]
            for entry in pc.value_counts(paths.drop_null()).to_pylist():
                path = entry["values"]
                if path not in uris:
                    uris[path] = path
                    with suppress(InvalidOption):  # a path that lakebed cannot open has one spelling
                        uris[path] = parse_uri(path).uri
                counts[uris[path]] += entry["counts"]
    return counts
