"""The extensions that other packages add to lakebed: indexes, mergers, catalogs, each a group of entry points."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints


def plugins(group: str) -> EntryPoints:
    """The entry points of the installed packages in this group."""
    from importlib.metadata import entry_points  # costs a tenth of what pyarrow costs, and most tables have no plug-ins

    return entry_points(group=group)
