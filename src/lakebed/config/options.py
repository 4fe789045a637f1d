"""Options: every key lakebed or a Hudi job knows, checked and turned into settings."""

from __future__ import annotations

from lakebed.config.settings import ReadSettings, WriteSettings

__all__ = ["ReadSettings", "WriteSettings"]
