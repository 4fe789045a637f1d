"""The documentation site as `make docs` builds it, in headless Chromium at 1280 and 400 pixels."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Generator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import pytest

from conftest import unavailable
from support.chromium import chromium
from support.documented_examples import ROOT

pytestmark = pytest.mark.rest

# A sandbox of its own is not allowed in a container.
PAGES = ("index.html", "runbook.html", "indexes.html", "api/table.html", "errors.html", "concepts.html")


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site: strict, so a link or anchor that leads nowhere fails."""
    if find_spec("mkdocs") is None:
        unavailable("mkdocs is not installed: run `make docs` once")
    place = tmp_path_factory.getbasetemp()
    place = place.parent if "PYTEST_XDIST_WORKER" in os.environ else place  # one of all processes of a run
    folder = place / "site"
    with (place / "site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "index.html").exists():
            command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
            if done.returncode:
                shutil.rmtree(folder, ignore_errors=True)
            assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def address(folder: Path) -> Generator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def browser() -> Generator[Any]:
    with chromium() as running:
        yield running


def test_a_page_of_docs_that_is_not_in_the_navigation_fails_the_build(folder: Path) -> None:
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")}
    assert pages <= {path.stem for path in folder.glob("*.html")}
    assert {"changelog", "contributing"} <= {path.stem for path in folder.glob("*.html")}
    methods = (folder / "api/table.html").read_text(encoding="utf-8")
    assert 'id="lakebed.Table.upsert"' in methods
    assert "&gt;&gt;&gt; " not in (folder / "api/table.html").read_text(encoding="utf-8").partition("<blockquote")[2]


@pytest.mark.every_case
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (400, "dark")])
def test_pages_fit_the_screen_and_load_nothing_from_elsewhere(
    address: str, browser: Any, width: int, scheme: Literal["light", "dark"]
) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    complaints: list[str] = []
    requested: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requested.append(request.url))
    for name in PAGES:
        page.goto(address + name, wait_until="networkidle")
        wide = page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
        assert not wide, name
        missing = page.evaluate("[...document.images].filter(i => !i.complete || !i.naturalWidth).map(i => i.src)")
        assert missing == [], name
        assert page.evaluate("document.body.dataset.mdColorScheme") == {"light": "default", "dark": "slate"}[scheme]
    context.close()
    assert complaints == []
    assert [url for url in requested if not url.startswith((address, "data:"))] == []


# Of code in cells: names of up to 22 characters that take two lines, and cells of a word a line.
_NARROW = """() => {
    const lines = (element) => {
        const range = document.createRange();
        range.selectNodeContents(element);
        const boxes = [...range.getClientRects()].filter((box) => box.width);
        return new Set(boxes.map((box) => Math.round(box.top / 6))).size;
    };
    const isShort = (text) => text.length <= 22 && !/\\s/.test(text);
    const names = [...document.querySelectorAll("td code")].filter((code) => code.offsetParent);
    const broken = names.filter((code) => isShort(code.textContent) && lines(code) > 1);
    const columns = [...document.querySelectorAll("td")].filter((cell) => cell.clientWidth < 100 && lines(cell) > 10);
    return [...broken, ...columns].map((element) => element.textContent.slice(0, 60));
}"""


@pytest.mark.full  # half a minute; the pages above are those of each kind
def test_every_page_fits_a_phone_and_breaks_no_short_name(address: str, browser: Any, folder: Path) -> None:
    context = browser.new_context(viewport={"width": 400, "height": 900})
    page = context.new_page()
    for path in sorted(folder.rglob("*.html")):
        page.goto(address + path.relative_to(folder).as_posix())
        wide = page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
        assert not wide, path.name
        assert page.evaluate(_NARROW) == [], path.name
    context.close()


@pytest.mark.every_case
@pytest.mark.parametrize("width", [1280, 400])
def test_the_search_finds_a_page(address: str, browser: Any, width: int) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900})
    page = context.new_page()
    page.goto(address + "index.html", wait_until="networkidle")
    if width == 400:
        page.locator("label[for=__search]").first.click()
    # keys, as the search waits for those
    page.locator("input.md-search__input").press_sequentially("consistent hashing", delay=20)
    page.wait_for_selector(".md-search-result__item a", timeout=30_000)
    found = page.locator(".md-search-result__item a").evaluate_all("links => links.map(link => link.href)")
    assert any("indexes" in link for link in found)
    page.locator(".md-search-result__item a").first.click()
    page.wait_for_url("**/*index*")
    assert page.locator("h1").first.inner_text()
    context.close()
