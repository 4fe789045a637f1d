"""`StreamUpload`: the part of an `Upload` that is the same for every store."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from lakebed.storage.base import Upload

if TYPE_CHECKING:
    from typing_extensions import Buffer


class StreamUpload(Upload):
    """A forward-only file. Stores fill in `_append`, `_finish` (make it visible) and `_discard` (leave nothing).

    As a context manager it closes at the end of the block and aborts when the block raised.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._position = 0
        self._closed = False

    def _append(self, data: memoryview) -> None:
        raise NotImplementedError

    def _finish(self) -> None:
        raise NotImplementedError

    def _discard(self) -> None:
        raise NotImplementedError

    def write(self, data: Buffer, /) -> int:
        if self._closed:
            raise ValueError(f"write to the closed upload of {self._path}")
        view = memoryview(data)
        if view.format != "B" or view.ndim != 1:
            view = view.cast("B")
        self._append(view)
        self._position += view.nbytes
        return view.nbytes

    def close(self) -> None:
        """Make the file durable and visible. When that fails nothing is left, and the error is raised."""
        if self._closed:
            return
        self._closed = True
        try:
            self._finish()
        except Exception:
            self._discard()
            raise

    def abort(self) -> None:
        """Drop what was written. Does nothing after `close`."""
        if not self._closed:
            self._closed = True
            self._discard()

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        return None

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def isatty(self) -> bool:
        return False

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def mode(self) -> str:
        return "wb"

    @property
    def name(self) -> str:
        return self._path

    def __enter__(self) -> StreamUpload:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            self.abort()
