"""`Storage`: the few things lakebed asks of a file system or object store, always relative to one root; the errors
that every storage raises in the same words; and URIs, taken apart and written in one way.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, Literal, NamedTuple, Protocol

import pyarrow as pa

from lakebed.errors import CorruptFile, InvalidOption, StorageError

Durable = bool | Literal["later"]
"""What a power cut may do to a file that was written. True: nothing after the call has returned. "later": it may undo
the file, but then also all that this process changed in the table after it, except empty files that are "later" too.
False: it may undo the file, or leave it empty. Storages without this distinction make every file durable at once."""


class FileInfo(NamedTuple):
    """A listed file: path relative to the storage root, size in bytes, modification time in epoch milliseconds."""

    path: str
    size: int
    modified: int


@dataclass(frozen=True, slots=True)
class Versioned:
    """The bytes of a small file with a token of the version that was read (for `put_if_match`)."""

    data: bytes
    version: str


@dataclass(frozen=True, slots=True)
class StorageSpec:
    """The data that an executor needs to open the same storage: a URI and its options. It is never printed with the
    options."""

    uri: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def in_this_process(self) -> bool:
        """Whether the files are in this process's memory, so that no other process can read them."""
        return self.uri.startswith("memory://")


class Upload(BinaryIO):
    """A file being written by `Storage.create`: `close()` makes it durable and visible, `abort()` removes it."""

    def abort(self) -> None:
        raise NotImplementedError


class Storage(Protocol):
    """The files of one table. Paths are relative, with `/`; a missing file raises `FileNotFoundError`; a request that
    the store refuses raises `StorageError`. A mutation is durable when it returns, unless the caller asks for less (see
    `Durable`)."""

    @property
    def spec(self) -> StorageSpec: ...

    def list(self, prefix: str = "", *, recursive: bool = True) -> Iterator[FileInfo]:
        """The files under the folder `prefix` (none if there is no such folder), or without `recursive` the files
        directly in it."""
        ...

    def list_names(self, prefix: str = "") -> Sequence[str]:
        """The names of the files directly in the folder `prefix`, for folders of many files whose size and time are not
        needed."""
        ...

    def list_folders(self, prefix: str = "") -> Sequence[str]:
        """The names of the folders directly in `prefix`."""
        ...

    def head(self, path: str) -> FileInfo | None: ...

    def read(self, path: str) -> bytes: ...

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """The bytes of each (offset, length); nearby ranges share one request."""
        ...

    def open_input(self, path: str, size: int | None = None) -> pa.NativeFile:
        """A seekable file for Arrow's Parquet reader, safe to hand to another thread; `size` saves a request."""
        ...

    def read_versioned(self, path: str) -> Versioned: ...

    def write(self, path: str, data: bytes, *, durable: Durable = True) -> None:
        """Write or replace a small file atomically. The file may exist although this raises: the answer was lost, or
        the file could not be made durable."""
        ...

    def write_same(self, paths: Sequence[str], data: bytes) -> None:
        """Write the same bytes to several files of one folder. If interrupted, some of them exist, so no file may be
        needed before all exist. They are durable "later"."""
        ...

    def put_if_absent(self, path: str, data: bytes, *, durable: Durable = True) -> bool:
        """Create a file. Returns False if one exists already. An uncertain answer raises `StorageError` with context
        `{"doubtful": True}`: the caller reads back."""
        ...

    def put_if_match(self, path: str, data: bytes, version: str | None, *, durable: bool = True) -> bool:
        """Replace the file if it still has that version (None: absent); otherwise return False. An uncertain answer
        raises as in `put_if_absent`. Here and in `read_versioned` context `{"busy": True}` means that another process
        is in the middle of a replacement. Without `durable`, only `read_versioned` never sees half of a replacement."""
        ...

    def move(self, path: str, to: str) -> None:
        """Rename a file, replacing a file that has the new name. An object store copies it first: if interrupted, both
        names exist."""
        ...

    def create(self, path: str) -> Upload:
        """Open a new large file for writing; it becomes visible, complete, at `close()` (an existing one is
        replaced)."""
        ...

    def delete(self, path: str, *, durable: bool = True) -> bool:
        """Delete a file; returns False if there was none."""
        ...

    def delete_folder(self, prefix: str, *, durable: bool = True) -> None:
        """Delete everything under the folder, and the folder itself if the storage has folders."""
        ...

    def make_folder(self, prefix: str) -> None:
        """Make an empty folder and the folders above it, if the storage has folders. An existing folder is
        unchanged."""
        ...

    def url(self, path: str = "") -> str:
        """The path as a URL that Spark (Hadoop) can open."""
        ...


def not_found(url: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "No such file", url)


def refused(message: str, hint: str = "", *, url: str, retryable: bool = False, doubtful: bool = False) -> StorageError:
    """A `StorageError` about `url`. `retryable` is whether trying again makes sense, `doubtful` whether the request may
    have taken effect nevertheless; both are in the context, `retryable` is also an attribute."""
    context: dict[str, object] = {"path": url, "retryable": retryable}
    if doubtful:
        context["doubtful"] = True
    error = StorageError(message, hint, context)
    object.__setattr__(error, "retryable", retryable)
    return error


def ends_early(url: str, offset: int, requested: int, got: int) -> CorruptFile:
    """The error for a file that ends before the requested range."""
    return CorruptFile(
        f"{url} ends early: {requested} bytes wanted at offset {offset}, {got} there",
        hint="the file is cut off or was replaced while it was read",
        context={"path": url, "offset": offset},
    )


def check_relative(path: str) -> str:
    """The path, if it is inside the table; raises an error for any other path."""
    closed = f"/{path}/"
    if "//" in closed or "/./" in closed or "/../" in closed or "\0" in path:
        raise refused(f"{path!r} is not a path inside a table", "paths are relative, with single slashes", url=path)
    return path


def check_prefix(prefix: str) -> str:
    """The path of a folder inside the table without its closing slash; empty for the root."""
    prefix = prefix.rstrip("/")
    return check_relative(prefix) if prefix else ""


_HINTS = {
    errno.ENOSPC: "free some space on the disk",
    errno.EDQUOT: "the quota is used up",
    errno.EACCES: "the user that runs this lacks the permission",
    errno.EPERM: "the user that runs this lacks the permission",
    errno.EROFS: "the file system is mounted read-only",
    errno.EMFILE: "too many open files; raise the limit (ulimit -n)",
}
_RETRYABLE = frozenset(
    {errno.EIO, errno.EAGAIN, errno.EINTR, errno.EMFILE, errno.ENFILE, errno.ESTALE, errno.ETIMEDOUT}
)


# Errors of a network file system for a request that the server may have done all the same.
_NO_ANSWER = frozenset({errno.EIO, errno.EINTR, errno.ESTALE, errno.ETIMEDOUT, errno.ECONNRESET, errno.EREMOTEIO})


class InDoubt(OSError):
    """An operating system's error for a change that may have happened, or that happened and may not be durable."""


@contextlib.contextmanager
def in_doubt(*, always: bool = True, but: type[OSError] | None = None) -> Generator[None]:
    """Raise `InDoubt` for an error after which a published file may exist nevertheless: for any error with `always`,
    otherwise for a request without an answer."""
    try:
        yield
    except OSError as error:
        if (but is None or not isinstance(error, but)) and (always or error.errno in _NO_ANSWER):
            raise InDoubt(error.errno, error.strerror) from error
        raise


def from_os_error(error: OSError, doing: str, url: str) -> Exception:
    """The error for callers of storage that corresponds to an error of the operating system."""
    reason = error.strerror or str(error)
    code = error.errno or 0
    if isinstance(error, InDoubt):
        return refused(
            f"no clear answer when asked to {doing} {url}: {reason}",
            _HINTS.get(code, ""),
            url=url,
            retryable=code in _RETRYABLE,
            doubtful=True,
        )
    if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EISDIR):
        return not_found(url)
    return refused(f"cannot {doing} {url}: {reason}", _HINTS.get(code, ""), url=url, retryable=code in _RETRYABLE)


_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]+):(//)?")
_SAME_SCHEME = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "azure": "az", "abfs": "abfs", "abfss": "abfss"}
_OBJECT_STORES = frozenset({"s3", "gs", "az", "abfs", "abfss"})
SCHEMES = frozenset({"file", "s3", "gs", "az", "abfs", "abfss", "hdfs", "memory"})


@dataclass(frozen=True, slots=True)
class Location:
    """A URI in parts. `authority` is the bucket, `container@account...` or `host:port`; `path` has no slash at either
    end, except for local files, for which it is the absolute path."""

    scheme: str
    authority: str
    path: str

    @property
    def uri(self) -> str:
        """The only spelling of this location; `s3a://b/t/` and `s3://b/t` have the same.

        >>> parse_uri("s3a://lake/trips/").uri
        's3://lake/trips'
        """
        if self.scheme == "file":
            return self.path
        return f"{self.scheme}://{self.authority}" + (f"/{self.path}" if self.path else "")


def parse_uri(uri: str) -> Location:
    """The parts of a table's URI or local path.

    Local paths become absolute; `%` in them is a plain character, as it is for Hadoop. Raises `InvalidOption` for a
    scheme that lakebed does not know, and for credentials inside the URI (which would end up in logs).
    """
    if not uri.strip():
        raise InvalidOption("the URI is empty", hint="give a path or a URI; '.' is the current folder")
    match = _SCHEME.match(uri)
    scheme = match.group(1).lower() if match else "file"
    if scheme == "file":
        return _local(uri[match.end() :] if match else uri, from_uri=match is not None)
    assert match is not None
    scheme = _SAME_SCHEME.get(scheme, scheme)
    if scheme not in SCHEMES or not match.group(2):
        raise InvalidOption(
            f"no storage for URIs that begin with {match.group(0)}",
            hint="use a local path, file://, s3://, gs://, az://, abfss://, hdfs:// or memory://",
        )
    address, _, query = uri[match.end() :].partition("?")
    if scheme in _OBJECT_STORES and "=" in query:  # a key of an access that is shared, or of a whole account
        raise InvalidOption(
            f"the URI {match.group(0)}{address} goes on with a query, which may hold credentials",
            hint="remove it, and give its values as storage options or through the environment",
        )
    authority, _, path = uri[match.end() :].partition("/")
    if "@" in authority and not scheme.startswith("abfs"):
        raise InvalidOption(
            f"the {scheme}:// URI holds credentials before the @",
            hint="take them out and give them as storage options or through the environment",
        )
    if not authority and scheme != "hdfs":
        raise InvalidOption(f"the URI {uri} names no bucket", hint=f"write {scheme}://<bucket>/<path>")
    return Location(scheme, authority, path.strip("/"))


def _local(path: str, *, from_uri: bool) -> Location:
    if from_uri and not path.startswith("/"):
        host, _, path = path.partition("/")
        if host not in ("", "localhost"):
            raise InvalidOption(f"the file:// URI names the host {host}", hint="write file:///<absolute path>")
        path = f"/{path}"
    return Location("file", "", os.path.abspath(os.path.expanduser(path) if not from_uri else path))
