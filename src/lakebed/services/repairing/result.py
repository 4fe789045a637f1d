"""What `repair` gives back: each part with what it found, and whether that is mended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Part = Literal["properties", "partition_metadata", "orphans", "metadata", "duplicates"]
_SHOWN = 5


@dataclass(frozen=True)
class RepairPart:
    """One kind of damage. `found` are the things that are wrong, as text; `mended` says that they are not any more;
    `note` what was left, and why."""

    name: Part
    found: tuple[str, ...] = ()
    mended: bool = False
    note: str = ""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong (any more)."""
        return self.mended or not self.found

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"part": self.name, "found": list(self.found), "mended": self.mended, "note": self.note}

    def __str__(self) -> str:
        if not self.found:
            return f"{self.name}: nothing found" + (f"; {self.note}" if self.note else "")
        state = "mended" if self.mended else "not mended"
        lines = [f"{self.name}: {len(self.found):,} found, {state}" + (f"; {self.note}" if self.note else "")]
        lines += [f"  {what}" for what in self.found[:_SHOWN]]
        return "\n".join([*lines, *([f"  ... and {len(self.found) - _SHOWN:,} more"] * (len(self.found) > _SHOWN))])


@dataclass(frozen=True)
class RepairResult:
    """What `repair` found by its `parts`, and mended, or with `dry_run` would."""

    parts: tuple[RepairPart, ...]
    dry_run: bool = False

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong (any more)."""
        return all(part.ok for part in self.parts)

    def __bool__(self) -> bool:
        return self.ok

    def __getitem__(self, name: Part) -> RepairPart:
        return next(part for part in self.parts if part.name == name)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"parts": [part.to_dict() for part in self.parts], "dry_run": self.dry_run, "ok": self.ok}

    def __str__(self) -> str:
        return "\n".join([*map(str, self.parts), *(["(nothing was done)"] if self.dry_run and not self.ok else [])])

    __repr__ = __str__
