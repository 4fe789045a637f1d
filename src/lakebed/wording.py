"""Numbers in sentences that people read."""

from __future__ import annotations


def count_text(count: int, noun: str) -> str:
    """So many of a thing.

    >>> count_text(1, "file"), count_text(2000, "log file")
    ('1 file', '2,000 log files')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def size_text(size: float) -> str:
    """Bytes as people read them.

    >>> size_text(2048)
    '2.0 KB'
    """
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TB"
