"""How storage says no: the few errors every store raises in the same words."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Generator

from lakebed.errors import CorruptFile, StorageError


def not_found(url: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "No such file", url)


def refused(message: str, hint: str = "", *, url: str, retryable: bool = False, doubtful: bool = False) -> StorageError:
    """A `StorageError` about `url`. `retryable`: trying again makes sense. `doubtful`: it may have happened all the
    same; both are in the context, `retryable` on the instance too."""
    context: dict[str, object] = {"path": url, "retryable": retryable}
    if doubtful:
        context["doubtful"] = True
    error = StorageError(message, hint, context)
    object.__setattr__(error, "retryable", retryable)
    return error


def ends_early(url: str, offset: int, requested: int, got: int) -> CorruptFile:
    """A file that is shorter than what was asked of it."""
    return CorruptFile(
        f"{url} ends early: {requested} bytes wanted at offset {offset}, {got} there",
        hint="the file is cut off or was replaced while it was read",
        context={"path": url, "offset": offset},
    )


def check_relative(path: str) -> str:
    """A path inside the table, or an error: nothing may reach outside of the root."""
    if path.startswith("/") or "\0" in path or any(part in ("", ".", "..") for part in path.split("/")):
        raise refused(f"{path!r} is not a path inside a table", "paths are relative, with single slashes", url=path)
    return path


def check_prefix(prefix: str) -> str:
    """A folder inside the table without its closing slash; empty for the root."""
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


# What a network file system says of a request that the server may have done all the same.
_NO_ANSWER = frozenset({errno.EIO, errno.EINTR, errno.ESTALE, errno.ETIMEDOUT, errno.ECONNRESET, errno.EREMOTEIO})


class InDoubt(OSError):
    """An operating system's error of a change that may have happened, or that did and may not last."""


@contextlib.contextmanager
def in_doubt(*, always: bool = True, but: type[OSError] | None = None) -> Generator[None]:
    """Around what publishes a file, or (`always`) comes after that: an error does not mean that it is not there."""
    try:
        yield
    except OSError as error:
        if (but is None or not isinstance(error, but)) and (always or error.errno in _NO_ANSWER):
            raise InDoubt(error.errno, error.strerror) from error
        raise


def from_os_error(error: OSError, doing: str, url: str) -> Exception:
    """What a caller of storage sees for an operating system's error."""
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
