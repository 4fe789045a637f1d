"""Chromium without a window, for tests of pages."""

from __future__ import annotations

import shutil
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from conftest import unavailable

_FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")


@contextmanager
def chromium(*flags: str) -> Generator[Any]:
    """The running browser. Skips the test where it is not installed."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        unavailable("Chromium is not installed (Debian: apt-get install --no-install-recommends chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=program, headless=True, args=[*_FLAGS, *flags])
        yield running
        running.close()
