"""`Storage`: the few things lakebed asks of a file system or object store, always relative to one root."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, NamedTuple, Protocol

import pyarrow as pa


class FileInfo(NamedTuple):
    """A listed file: path relative to the storage root, size in bytes, modification time in epoch milliseconds."""

    path: str
    size: int
    modified: int


@dataclass(frozen=True, slots=True)
class Versioned:
    """Bytes of a small file with a token that says which version of it was read (for `put_if_match`)."""

    data: bytes
    version: str


@dataclass(frozen=True, slots=True)
class StorageSpec:
    """What an executor needs to open the same storage: a URI and its options. Never printed with the options."""

    uri: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def in_this_process(self) -> bool:
        """Whether the files are in this process's memory, so that no other one sees them."""
        return self.uri.startswith("memory://")


class Upload(BinaryIO):
    """A file being written by `Storage.create`: `close()` makes it durable and visible, `abort()` leaves nothing."""

    def abort(self) -> None:
        raise NotImplementedError


class Storage(Protocol):
    """One table's files. Paths are relative, with `/`; a missing file raises `FileNotFoundError`; anything the
    store refuses raises `StorageError`. A mutation that returned is durable, but where the caller does without
    (`durable=False`): a power cut may take that back, or leave a written file empty."""

    @property
    def spec(self) -> StorageSpec: ...

    def list(self, prefix: str = "", *, recursive: bool = True) -> Iterator[FileInfo]:
        """Files under the folder `prefix` (nothing if there is no such folder). Not recursive: files directly in it."""
        ...

    def list_names(self, prefix: str = "") -> Sequence[str]:
        """Names of the files directly in the folder `prefix`: for a folder of many where size and time say nothing."""
        ...

    def list_folders(self, prefix: str = "") -> Sequence[str]:
        """Names of the folders directly in `prefix`."""
        ...

    def head(self, path: str) -> FileInfo | None: ...

    def read(self, path: str) -> bytes: ...

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """The bytes of each (offset, length), near ones coalesced into one request."""
        ...

    def open_input(self, path: str, size: int | None = None) -> pa.NativeFile:
        """A seekable file for Arrow's Parquet reader, safe to hand to another thread; `size` saves a request."""
        ...

    def read_versioned(self, path: str) -> Versioned: ...

    def write(self, path: str, data: bytes, *, durable: bool = True) -> None:
        """Write or replace a whole small file, atomically. It may be there although this raises: when the answer was
        lost, or it could not be made to last."""
        ...

    def write_same(self, paths: Sequence[str], data: bytes) -> None:
        """Write the same bytes to several files of one folder; none of them may be needed before all are there. Cut
        short, some are."""
        ...

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Create a file. False if one exists already. An answer in doubt raises `StorageError` with context
        `{"doubtful": True}`: the caller reads back."""
        ...

    def put_if_match(self, path: str, data: bytes, version: str | None) -> bool:
        """Replace the file if it still is that version (None: absent). False if it is not. Doubt is as above; context
        `{"busy": True}` says that someone stands in the middle of a replacement, here and in `read_versioned`."""
        ...

    def move(self, path: str, to: str) -> None:
        """Give a file another name, replacing what has it. On an object store a copy comes first: cut short, the file
        is there twice."""
        ...

    def create(self, path: str) -> Upload:
        """Open a new large file for writing; it appears whole at `close()` (an existing one is replaced)."""
        ...

    def delete(self, path: str, *, durable: bool = True) -> bool:
        """Delete a file; False if there was none."""
        ...

    def delete_folder(self, prefix: str, *, durable: bool = True) -> None:
        """Delete everything under the folder, and the folder itself where folders exist."""
        ...

    def make_folder(self, prefix: str) -> None:
        """Make an empty folder, and those above it, where folders exist; one that is there stays."""
        ...

    def url(self, path: str = "") -> str:
        """The path as a URL that Spark (Hadoop) can open."""
        ...
