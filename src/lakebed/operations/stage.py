"""`Stage`: a write that waits between its files and its commit, so that the caller can look at the table with it.

It is the write of `pipeline.run`, held open: the instant is pending, its heartbeat is renewed, and the table lock is
free. `commit` goes on where the write paused; `discard` rolls it back as an error would. Where the process dies, or
drops the stage, the next writer takes the write for dead and rolls it back.
"""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING

from lakebed.concurrency.running_call import RunningCall
from lakebed.errors import InvalidOption, LakebedError
from lakebed.operations.result import WriteResult
from lakebed.slices.snapshot import Snapshot

if TYPE_CHECKING:
    from lakebed.operations.pipeline import WrittenFiles


class OpenStage(RunningCall):
    """The time in which a stage is open: what its write holds is worth something until the stage ends, or until the
    caller has dropped it."""

    def __init__(self, stage: Stage) -> None:
        self._stage = weakref.ref(stage)

    def is_running(self) -> bool:
        """Whether the stage is open. Any thread may ask."""
        stage = self._stage()
        return stage is not None and not stage.has_ended


class Stage:
    """A place for one write that is not committed yet."""

    def __init__(self) -> None:
        self.has_ended = False
        self.open = OpenStage(self)
        self._files: WrittenFiles | None = None
        self._view: Snapshot | None = None
        self._process = os.getpid()

    @property
    def has_write(self) -> bool:
        """Whether a write waits for its commit."""
        return self._files is not None

    def hold(self, files: WrittenFiles) -> WriteResult:
        """Keep a write whose files are written. Returns its result as far as it is known, without a checkpoint."""
        assert not self.has_ended
        assert self._files is None
        result = files.result(None)
        self._files = files
        return result

    def view(self, table: Snapshot) -> Snapshot:
        """The newest view of a table with the write of this stage; the view itself while nothing is written.

        Raises `CommitConflict` if another writer has changed the same file groups since the write began: a view shows
        one version of a file group, and would leave the rows of one of the two writes out.
        """
        if self._files is None:
            return table
        if self._view is None or self._view.before is not table:
            pending = self._files.pending() if self._view is None else self._view.pending
            assert pending is not None
            self._files.tx.check_written(pending.metadata, table.timeline)
            self._view = table.with_pending(pending)
        return self._view

    def commit(self) -> WriteResult:
        """Commit the write, and return its result. Raises `CommitConflict`, and nothing is visible then."""
        if self._process != os.getpid():
            raise InvalidOption(
                "this stage was opened by the process that this one was forked from, which alone can commit it",
                hint="Open the table and the stage in this process.",
            )
        files = self._files
        assert files is not None
        try:
            files.times.mark("staged")
            with files.tx:
                done = files.commit()
        finally:
            self._end()
        return files.result(done)

    def discard(self, error: BaseException | None = None) -> None:
        """Roll the write back, if there is one and it is not committed. `error` is what ended the stage."""
        try:
            if self._files is not None:
                reason = error or LakebedError("the stage was left without a commit")
                self._files.tx.__exit__(type(reason), reason, None)
        finally:
            self._end()

    def _end(self) -> None:
        self.has_ended, self._files, self._view = True, None, None
