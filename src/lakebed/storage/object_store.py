"""`ObjectStorage`: a table on S3, Google Cloud Storage or Azure Blob Storage, through obstore. Its errors show
whether a request was done, may have been done, or was not; they never hold credentials.
"""

from __future__ import annotations

import builtins
import contextlib
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import obstore
import pyarrow as pa
from obstore.exceptions import AlreadyExistsError, BaseError, NotModifiedError, PreconditionError
from obstore.store import AzureStore, GCSStore, S3Store

from lakebed.errors import InvalidOption, StorageError
from lakebed.sharing import forget_in_forks
from lakebed.storage.base import (
    Durable,
    FileInfo,
    Location,
    StorageSpec,
    Versioned,
    check_prefix,
    check_relative,
    ends_early,
    not_found,
    refused,
)
from lakebed.storage.object_options import ObjectSettings, object_settings
from lakebed.storage.parallel import write_each
from lakebed.storage.streams import BLOCK_BYTES, CACHE_BLOCKS, RangeFile, StreamUpload

_STATUS = re.compile(r"status code: (\d{3})")
_KIND = re.compile(r"\bkind: (\w+)")
_QUERY = re.compile(r"\?[^\s\"')>,]+")
_LONG = 400


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a request that failed. `undone` is whether it certainly took no effect, `retryable` whether it may
    succeed the next time."""

    undone: bool
    retryable: bool
    hint: str = ""


def judge(error: BaseException) -> Verdict:
    """The outcome of a request that was sent once, from obstore's error text, which alone has it."""
    text = str(error)
    status = _STATUS.search(text)
    if status:
        code = int(status.group(1))
        if code in (408, 429) or (code == 503 and "SlowDown" in text):
            return Verdict(undone=code != 408, retryable=True, hint="the store asks for fewer requests")
        if code >= 500 and code != 501:
            return Verdict(undone=False, retryable=True)
        hint = "check the credentials and what they may do" if code in (401, 403) else ""
        return Verdict(undone=True, retryable=False, hint=hint)
    kind = _KIND.search(text)
    if kind is None:
        return Verdict(undone=True, retryable=False)
    if kind.group(1) == "Connect":
        return Verdict(undone=True, retryable=True, hint="nothing answers there; check the endpoint")
    return Verdict(undone=False, retryable=True)


def redact(text: str, secrets: Iterable[str]) -> str:
    """The first line of an error's text without credentials: known values, and the queries of signed URLs."""
    text = text.split("\n\nDebug source", 1)[0].split("\n", 1)[0]
    for secret in secrets:
        text = text.replace(secret, "***")
    return _QUERY.sub("?...", text)[:_LONG]


def from_store_error(
    error: BaseException, doing: str, url: str, secrets: Iterable[str], *, conditional: bool = False
) -> StorageError:
    """The `StorageError` for an obstore error. Raise it `from None`: the original's text may hold credentials."""
    verdict = judge(error)
    return refused(
        f"cannot {doing} {url}: {redact(str(error), secrets)}",
        verdict.hint,
        url=url,
        retryable=verdict.retryable,
        doubtful=conditional and not verdict.undone,
    )


_PART_BYTES = 8 << 20
_GAP_BYTES = 1 << 20
_DELETE_AT_ONCE = 1000
_PAUSES = (0.1, 0.4, 1.6)
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound", "bucket does not exist")
_REFUSED = (BaseError, ValueError, OSError)
_T = TypeVar("_T")


class ObjectStorage:
    """Objects under `<scheme>://<bucket>/<prefix>`.

    Plain requests are retried by obstore; conditional ones are sent once, since a retry after a lost answer would
    see its own object as someone else's. Error texts never hold credentials.
    """

    def __init__(self, location: Location, options: Mapping[str, str] | None = None) -> None:
        self._location = location
        self._spec = StorageSpec(location.uri, dict(options or {}))
        self._settings = object_settings(location, self._spec.options)
        tuning = self._settings.tuning
        self._pauses = _PAUSES[: tuning.get("max_retries", 10)]
        self.forget()
        forget_in_forks(self)
        self._block = tuning.get("read_block", BLOCK_BYTES)
        self._blocks = max(1, tuning.get("read_cache", CACHE_BLOCKS * BLOCK_BYTES) // self._block)
        self._part = tuning.get("upload_part", _PART_BYTES)

    def __repr__(self) -> str:
        return f"ObjectStorage({self._location.uri!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        from lakebed.storage.opening import open_storage_spec  # which keeps the connections of a process

        return (open_storage_spec, (self._spec,))

    def forget(self) -> None:
        """Open new connections in a forked process, which cannot use its parent's."""
        self._store = self._connect(self._settings.tuning.get("max_retries", 10))
        self._once = self._connect(0)

    def _connect(self, retries: int) -> Any:
        settings = self._settings
        retry = {
            "max_retries": retries,
            "retry_timeout": timedelta(seconds=settings.tuning.get("retry_timeout", 180)),
            "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=15), "base": 2},
        }
        stores: dict[str, Any] = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}
        try:
            return stores[settings.kind](
                settings.bucket,
                prefix=settings.prefix or None,
                config=_with_defaults(settings),
                client_options=dict(settings.client) or None,
                retry_config=retry,
            )
        except _REFUSED as error:
            raise InvalidOption(
                f"cannot open {self._location.uri}: {redact(str(error), settings.secrets)}",
                hint="check the storage options",
            ) from None

    @property
    def spec(self) -> StorageSpec:
        return self._spec

    def url(self, path: str = "") -> str:
        """The URL of a path: with `s3a://` for S3, as in Hadoop; with `abfss://` for Azure, once the account is
        known."""
        location = self._location
        scheme, authority = location.scheme, location.authority
        if scheme == "s3":
            scheme = "s3a"
        elif scheme == "az" and self._settings.account:
            scheme, authority = "abfss", f"{authority}@{self._settings.account}.dfs.core.windows.net"
        return "/".join(part for part in (f"{scheme}://{authority}", location.path, path) if part)

    def _do(self, doing: str, path: str, call: Callable[[], _T]) -> _T:
        try:
            return call()
        except FileNotFoundError as error:
            self._check_bucket(error, doing, path)
            raise not_found(self.url(path)) from None
        except _REFUSED as error:
            raise from_store_error(error, doing, self.url(path), self._settings.secrets) from None

    def _check_bucket(self, error: BaseException, doing: str, path: str) -> None:
        """Raise an error for a missing bucket: if it were taken for a missing file the table would look empty."""
        if any(code in str(error) for code in _NO_BUCKET):
            raise refused(
                f"cannot {doing} {self.url(path)}: there is no bucket {self._settings.bucket}",
                "create it, or correct the URI",
                url=self.url(path),
            ) from None

    # reading

    def list(self, prefix: str = "", *, recursive: bool = True) -> Iterator[FileInfo]:
        prefix = check_prefix(prefix)
        if not recursive:
            listing = self._do("list", prefix, lambda: obstore.list_with_delimiter(self._store, prefix or None))
            yield from map(_info, _inside(prefix, listing["objects"]))
            return
        stream = self._do("list", prefix, lambda: iter(obstore.list(self._store, prefix or None, chunk_size=1000)))

        def entries() -> Iterator[Any]:
            while (chunk := self._do("list", prefix, lambda: next(stream, None))) is not None:
                yield from _inside(prefix, chunk)

        for entry in self._without_folder_markers(entries()):
            yield _info(entry)

    def _without_folder_markers(self, entries: Iterator[Any]) -> Iterator[Any]:
        """The entries without Hadoop's folder markers: empty objects whose keys end in a slash, which obstore shows
        without the slash. A marker is recognized by the next object, which is inside its folder. If an empty object may
        be the marker of an empty folder, the store is asked for it."""
        entry = next(entries, None)
        while entry is not None:
            following = next(entries, None)
            path = entry["path"]
            inside = following is not None and following["path"].startswith(f"{path}/")
            name = path.rpartition("/")[2]
            doubtful = not entry["size"] and "." not in name[1:]
            if entry["size"] or not (inside or (doubtful and self.head(path) is None)):
                yield entry
            entry = following

    def list_names(self, prefix: str = "") -> Sequence[str]:
        return [info.path.rpartition("/")[2] for info in self.list(prefix, recursive=False)]

    def list_folders(self, prefix: str = "") -> Sequence[str]:
        prefix = check_prefix(prefix)
        listing = self._do("list", prefix, lambda: obstore.list_with_delimiter(self._store, prefix or None))
        return sorted(folder.rstrip("/").rsplit("/", 1)[-1] for folder in listing["common_prefixes"])

    def head(self, path: str) -> FileInfo | None:
        check_relative(path)
        try:
            meta = self._do("look at", path, lambda: obstore.head(self._store, path))
        except FileNotFoundError:
            return None
        return _info(meta)

    def read(self, path: str) -> bytes:
        check_relative(path)
        return self._do("read", path, lambda: bytes(obstore.get(self._store, path).bytes()))

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        check_relative(path)
        nonempty = [i for i, (_, length) in enumerate(ranges) if length > 0]
        out = [b""] * len(ranges)
        if not nonempty:
            return out
        got = self._do(
            "read",
            path,
            lambda: obstore.get_ranges(
                self._store,
                path,
                starts=[ranges[i][0] for i in nonempty],
                lengths=[ranges[i][1] for i in nonempty],
                coalesce=_GAP_BYTES,
            ),
        )
        for i, data in zip(nonempty, got, strict=True):
            out[i] = self._whole(path, *ranges[i], bytes(data))
        return out

    def _whole(self, path: str, offset: int, length: int, data: bytes) -> bytes:
        if len(data) != length:
            raise ends_early(self.url(path), offset, length, len(data))
        return data

    def open_input(self, path: str, size: int | None = None) -> pa.NativeFile:
        check_relative(path)
        if size is None:
            info = self.head(path)
            if info is None:
                raise not_found(self.url(path))
            size = info.size

        def fetch(offset: int, length: int) -> bytes:
            get = obstore.get_range
            data = self._do("read", path, lambda: bytes(get(self._store, path, start=offset, length=length)))
            return self._whole(path, offset, length, data)

        return pa.PythonFile(RangeFile(fetch, size, block=self._block, blocks=self._blocks), mode="r")

    def read_versioned(self, path: str) -> Versioned:
        check_relative(path)

        def get() -> Versioned:
            result = obstore.get(self._store, path)
            return Versioned(bytes(result.bytes()), _version(result.meta))

        return self._do("read", path, get)

    # writing

    def write(self, path: str, data: bytes, *, durable: Durable = True) -> None:
        check_relative(path)
        self._do("write", path, lambda: obstore.put(self._store, path, data, use_multipart=False))

    def write_same(self, paths: Sequence[str], data: bytes) -> None:
        write_each(self, paths, data)

    def put_if_absent(self, path: str, data: bytes, *, durable: Durable = True) -> bool:
        return self._put_once(path, data, "create", lambda: self.head(path) is None)

    def put_if_match(self, path: str, data: bytes, version: str | None, *, durable: bool = True) -> bool:
        if version is None:
            return self.put_if_absent(path, data)
        return self._put_once(path, data, json.loads(version), lambda: self._still(path, version))

    def _still(self, path: str, version: str) -> bool:
        try:
            meta = self._do("look at", path, lambda: obstore.head(self._store, path))
        except FileNotFoundError:
            return False
        return _version(meta) == version

    def _put_once(self, path: str, data: bytes, mode: Any, still_open: Callable[[], bool]) -> bool:
        """A conditional put; returns whether it took effect. It is sent again only if the previous one certainly had no
        effect."""
        check_relative(path)
        for pause in (*self._pauses, None):
            try:
                obstore.put(self._once, path, data, mode=mode, use_multipart=False)
                return True
            except (PreconditionError, NotModifiedError) as error:
                self._check_bucket(error, "write", path)
                return False
            except AlreadyExistsError:
                # also S3's answer to two conditional writes at the same moment (409): possibly neither was done
                if pause is None or not still_open():
                    return False
            except FileNotFoundError as error:
                self._check_bucket(error, "write", path)
                return False
            except _REFUSED as error:
                verdict = judge(error)
                if pause is None or not (verdict.undone and verdict.retryable):
                    raise from_store_error(
                        error, "write", self.url(path), self._settings.secrets, conditional=True
                    ) from None
            time.sleep(pause)
        return False

    def move(self, path: str, to: str) -> None:
        check_relative(path)
        check_relative(to)
        self._do("move", path, lambda: obstore.copy(self._store, path, to, overwrite=True))
        self.delete(path)

    def create(self, path: str) -> ObjectUpload:
        check_relative(path)
        writer = self._do("create", path, lambda: obstore.open_writer(self._store, path, buffer_size=self._part))
        return ObjectUpload(path, writer, lambda call: self._do("write", path, call))

    # deleting

    def delete(self, path: str, *, durable: bool = True) -> bool:
        if self.head(path) is None:
            return False
        with contextlib.suppress(FileNotFoundError):
            self._do("delete", path, lambda: obstore.delete(self._store, path))
        return True

    def delete_folder(self, prefix: str, *, durable: bool = True) -> None:
        prefix = check_prefix(prefix)
        entries = self._do("list", prefix, lambda: obstore.list(self._store, prefix or None).collect())
        paths = [entry["path"] for entry in entries]
        for start in range(0, len(paths), _DELETE_AT_ONCE):
            path_batch = paths[start : start + _DELETE_AT_ONCE]
            with contextlib.suppress(FileNotFoundError):
                self._do("delete", prefix, lambda path_batch=path_batch: obstore.delete(self._store, path_batch))

    def make_folder(self, prefix: str) -> None:
        """Do nothing: object stores have no folders."""


class ObjectUpload(StreamUpload):
    """An object sent in parts. Nothing is visible before `close`; the bucket's lifecycle rules remove the parts of a
    dead writer (no call does)."""

    def __init__(self, path: str, writer: Any, do: Callable[[Callable[[], Any]], Any]) -> None:
        super().__init__(path)
        self._writer: Any = writer
        self._do = do

    def _append(self, data: memoryview) -> None:
        self._do(lambda: self._writer.write(bytes(data)))

    def _finish(self) -> None:
        self._do(self._writer.close)
        self._writer = None

    def _discard(self) -> None:
        self._writer = None


def _with_defaults(settings: ObjectSettings) -> dict[str, Any]:
    config: dict[str, Any] = dict(settings.store)
    if settings.kind == "s3" and not (
        {"region"} & config.keys() or _from_environment("AWS_REGION", "AWS_DEFAULT_REGION")
    ):
        config["region"] = "us-east-1"
    return config


def _from_environment(*names: str) -> bool:
    return any(os.environ.get(name) for name in names)


def _version(meta: Any) -> str:
    return json.dumps({name: meta[name] for name in ("e_tag", "version") if meta.get(name)})


def _inside(prefix: str, objects: Sequence[Any]) -> Iterator[Any]:
    """The listed objects except Hadoop's marker of the folder itself, which has the folder's name."""
    return (entry for entry in objects if entry["path"] not in ("", prefix))


def _info(meta: Any) -> FileInfo:
    return FileInfo(meta["path"], meta["size"], int(meta["last_modified"].timestamp() * 1000))
