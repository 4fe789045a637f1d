"""The inspector in a browser: headless Chromium shows its pages at 1280 and 400 pixels, light and dark."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Literal
from urllib.parse import urlencode

import pyarrow as pa
import pytest

import lakebed
from lakebed.inspector.server import InspectorServer
from lakebed.storage.memory import MemoryStorage
from support.chromium import chromium
from support.hostile import EVIL, hostile_table, notebook_views
from support.hostile import PATHS as HOSTILE_PATHS
from support.inspected import crawl, inspector
from support.vector_tables import another_writer, indexed_table, vector_rows

# Chromium is Debian's package; a sandbox of its own is not allowed in a container.
SERIOUS = ("serious", "critical")
PATHS = {
    "timeline": "/t/0/timeline",
    "metadata table": "/t/0/timeline?of=metadata",
    "archive": "/t/0/timeline?of=archived",
    "rows": "/t/0/rows",
    "rows of a filter": "/t/0/rows?filter=fare+%3E+5",
    "schema": "/t/0/schema",
    "files": "/t/0/files",
    "partition": "/t/0/files?partition=Oslo",
    "indexes": "/t/0/indexes",
    "record": "/t/0/record?key=3",
    "no record": "/t/0/record",
    "query": "/t/0/query?" + urlencode({"filter": "city = 'Oslo'"}),
    "bad query": "/t/0/query?filter=nowhere",
    "front": "/",
    "damaged": "/t/1/timeline",
}
NewPage = Callable[..., Any]


@pytest.fixture(scope="module")
def server() -> Generator[InspectorServer]:
    uri = "memory://inspector-browser/trips"
    rows = pa.table({"id": range(60), "city": ["Oslo", "Rome", "Bern"] * 20, "fare": [float(n) for n in range(60)]})
    t = lakebed.create(uri, rows, key="id", partition_by="city", type="mor", index="record")
    for step in range(5):
        t.upsert(rows.slice(step))
    with inspector(uri, "memory://inspector-browser/none") as running:
        yield running
    MemoryStorage.drop("inspector-browser")


@pytest.fixture(scope="module")
def browser() -> Generator[Any]:
    with chromium("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1") as running:
        yield running


@pytest.fixture
def new_page(browser: Any) -> Generator[NewPage]:
    """Opens a page of a width and a colour scheme; a message of the console or an error fails the test."""
    contexts: list[Any] = []
    complaints: list[str] = []

    def opened(width: int = 1280, scheme: Literal["light", "dark"] = "light", **more: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, **more)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []


def faults(page: Any) -> list[str]:
    """What axe-core finds of serious faults, each with the first element that has it."""
    from axe_playwright_python.sync_playwright import Axe

    violations = Axe().run(page).response["violations"]
    return [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in violations if one["impact"] in SERIOUS]


def is_wider_than_the_screen(page: Any) -> bool:
    return page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")


def test_pages_are_accessible_and_fit_the_screen(server: InspectorServer, new_page: NewPage) -> None:
    page = new_page()
    for name in ("timeline", "files", "query"):
        page.goto(server.url + PATHS[name][1:], wait_until="networkidle")
        assert faults(page) == [], name
        assert not is_wider_than_the_screen(page), name


@pytest.mark.rest
@pytest.mark.parametrize(("width", "scheme"), [(1280, "dark"), (400, "light")])
def test_every_page_is_accessible_in_each_form(
    server: InspectorServer, new_page: NewPage, width: int, scheme: Literal["light", "dark"]
) -> None:
    page = new_page(width, scheme)
    background = {"light": "rgb(251, 251, 250)", "dark": "rgb(20, 23, 26)"}[scheme]
    for name, path in PATHS.items():
        page.goto(server.url + path[1:], wait_until="networkidle")
        assert faults(page) == [], name
        assert not is_wider_than_the_screen(page), name
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == background


@pytest.fixture(scope="module")
def layered() -> Generator[InspectorServer]:
    """A server of a table with a vector index that lacks a commit, and a text index."""
    table = indexed_table("cow", "memory://inspector-browser-layers/notes")
    table.indexes.create("text", column="name")
    table.upsert(vector_rows(range(10, 20), ts=2))
    with another_writer():
        table.upsert(vector_rows(range(3), ts=3))
    with inspector(table.uri) as running:
        yield running
    MemoryStorage.drop("inspector-browser-layers")


FORMS = [(1280, "dark"), (390, "light"), (390, "dark")]


@pytest.mark.parametrize(
    ("width", "scheme"), [(1280, "light"), *(pytest.param(*form, marks=pytest.mark.rest) for form in FORMS)]
)
def test_the_page_of_a_vector_index_fits_the_screen_and_measures_when_asked(
    layered: InspectorServer, new_page: NewPage, width: int, scheme: Literal["light", "dark"]
) -> None:
    page = new_page(width, scheme)
    page.goto(layered.url + "t/0/indexes", wait_until="networkidle")
    page.get_by_role("link", name="vector_index_emb").click()
    page.wait_for_selector("#clusters")
    assert page.locator("h2").first.inner_text() == "vector_index_emb"
    assert page.get_by_role("region", name="Sizes of the clusters").locator("rect.bar").count() == 4
    assert page.get_by_text("recall@10").count() == 0
    page.get_by_role("button", name="Measure").click()
    page.wait_for_selector("text=recall@10")
    assert page.locator("#recall-state dd").first.inner_text() == "1.000"
    assert faults(page) == []
    assert not is_wider_than_the_screen(page)
    page.get_by_role("link", name="text_index_name").click()
    page.wait_for_selector("h2:has-text('text_index_name')")
    assert page.locator("#clusters").count() == 0
    assert faults(page) == []
    assert not is_wider_than_the_screen(page)


@pytest.mark.rest
def test_parts_of_a_page_come_when_they_are_asked_for(server: InspectorServer, new_page: NewPage) -> None:
    page = new_page()
    page.goto(server.url + "t/0/indexes", wait_until="networkidle")
    assert page.locator("#range-picture svg").count() == 0
    page.get_by_text("Show the ranges of fare").click()
    page.wait_for_selector("#range-picture svg")
    page.get_by_role("button", name="Verify").click()
    page.wait_for_selector("#check-state .state.ok", timeout=30_000)
    page.get_by_text("Rank the indexes").click()
    page.wait_for_selector("text=costs least")
    assert faults(page) == []


@pytest.mark.rest
def test_a_browser_runs_nothing_of_a_hostile_table(browser: Any, new_page: NewPage) -> None:
    t = hostile_table(f"memory://inspector-browser-hostile/{EVIL}")
    page = new_page(400)
    with inspector(t.uri) as server:
        for path in crawl(server, [f"/t/0/{path}" for path in HOSTILE_PATHS]):
            if path.startswith("/t/") and "/timeline/body" not in path:
                page.goto(server.url + path[1:])
                assert page.locator("img, [onerror]").count() == 0, path
                assert not is_wider_than_the_screen(page), path
    context = browser.new_context()  # a notebook has no policy of contents
    notebook, dialogs = context.new_page(), list[str]()
    notebook.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    for name, text in notebook_views(t).items():
        notebook.set_content(text)
        assert notebook.locator("img, [onerror]").count() == 0, name
    assert dialogs == []
    notebook.set_content(EVIL)  # its text would run there
    notebook.wait_for_timeout(100)
    assert dialogs == ["1"]
    context.close()
    MemoryStorage.drop("inspector-browser-hostile")


@pytest.mark.rest
def test_the_keyboard_reaches_every_tab_and_the_content(server: InspectorServer, new_page: NewPage) -> None:
    page = new_page()
    page.goto(server.url + "t/0/timeline")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.goto(server.url + "t/0/timeline")
    reached: list[str] = []
    for _ in range(12):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.textContent.trim()"))
    assert [one for one in reached if one in ("Files", "Indexes", "A record's life", "Plan of a query")] == [
        "Files",
        "Indexes",
        "A record's life",
        "Plan of a query",
    ]
    page.get_by_role("link", name="A record's life").focus()
    page.keyboard.press("Enter")
    page.get_by_label("Key (id)").fill("3")
    page.keyboard.press("Enter")
    page.wait_for_selector("#versions")


@pytest.mark.rest
def test_pages_work_without_scripts(server: InspectorServer, new_page: NewPage) -> None:
    page = new_page(java_script_enabled=False)
    page.goto(server.url + "t/0/files")
    page.get_by_role("link", name="Oslo").click()
    assert page.locator("h2").first.inner_text() == "Oslo"
    page.goto(server.url + "t/0/indexes")
    page.get_by_role("link", name="Show it").first.click()
    assert "fare" in page.content()
