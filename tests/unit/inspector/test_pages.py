"""What the inspector's pages show, against the tables that they are about."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Generator
from html import unescape
from pathlib import Path
from urllib.parse import quote, urlencode

import pyarrow as pa
import pytest

import lakebed
from lakebed import variant
from lakebed.concurrency.heartbeat import Heartbeat
from lakebed.hosts import LOOPBACK
from lakebed.inspector.server import PAGES, InspectorServer
from lakebed.inspector.tables import InspectedTable
from lakebed.storage.folder import WrappedStorage
from lakebed.storage.memory import MemoryStorage
from lakebed.storage.opening import open_storage, wrapping
from lakebed.timeline import timeline as commits_of
from lakebed.wording import instant_text, size_text, vector_text
from support.golden_tables import golden
from support.hostile import COLUMN, EVIL, PARTITION, QUERY, RECORD, hostile_table, notebook_views
from support.hostile import PATHS as HOSTILE_PATHS
from support.inspected import answer, crawl, inspector, links_of, page, plain, rows_of
from support.vector_tables import another_writer, indexed_table, vector_of, vector_rows, vector_table

TABS = ("timeline", "rows", "schema", "files", "indexes", "record", "query")


def trips(step: int, ids: range = range(40)) -> pa.Table:
    cities = ["Oslo", "Rome", "Bern", "Lima"]
    return pa.table(
        {
            "id": [f"trip-{n:03}" for n in ids],
            "city": [cities[n % 4] for n in ids],
            "fare": [n + step / 10 for n in ids],
            "ts": [step] * len(ids),
        }
    )


@pytest.fixture(scope="module")
def table() -> Generator[lakebed.Table]:
    left = {"hoodie.compact.inline": False, "hoodie.clean.automatic": False}
    uri = "memory://inspector-pages/trips"
    t = lakebed.create(
        uri, trips(0), key="id", partition_by="city", ordering="ts", type="mor", index="record", properties=left
    )
    for step in range(4):
        t.upsert(trips(step))
    t.delete(["trip-007"])
    yield t
    MemoryStorage.drop("inspector-pages")


@pytest.fixture(scope="module")
def hostile() -> Generator[lakebed.Table]:
    yield hostile_table(f"memory://inspector-hostile/{EVIL}")
    MemoryStorage.drop("inspector-hostile")


@pytest.fixture(scope="module")
def server(table: lakebed.Table, hostile: lakebed.Table) -> Generator[InspectorServer]:
    with inspector(table.uri, hostile.uri) as running:
        yield running


def test_the_timeline_shows_every_instant_with_what_it_wrote(server: InspectorServer, table: lakebed.Table) -> None:
    shown = {row[0]: row for row in rows_of(page(server, "/t/0/timeline")) if len(row) == 9}
    for row in table.timeline.to_arrow().to_pylist():
        cells = shown[instant_text(row["time"])]
        counts = [str(row[name]) for name in ("inserted", "updated", "deleted", "files")]
        assert cells[1:3] == [row["action"], row["operation"]]
        assert cells[4:8] == counts
    sizes = {row["commit_time"]: row["total_bytes_written"] for row in table.timeline.commit_totals().to_pylist()}
    last = table.timeline.last
    assert last is not None
    assert shown[instant_text(last.time)][8] == size_text(sizes[last.time])


def test_the_first_page_of_an_open_table_lists_its_timeline_once(table: lakebed.Table) -> None:
    listed: list[str] = []

    class Counting(WrappedStorage):
        def _before(self, verb: str, path: str) -> None:
            if verb == "list_names":
                listed.append(path)

    with wrapping(Counting), inspector(table.uri) as server:
        page(server, "/t/0/timeline")
        listed.clear()
        text = page(server, "/t/0/timeline")
    last = table.timeline.last
    assert last is not None
    assert f"last commit {instant_text(last.time)}" in plain(text)
    assert listed.count(".hoodie/timeline") == 1


def test_the_metadata_table_has_a_timeline_of_its_own(server: InspectorServer, table: lakebed.Table) -> None:
    metadata = table.timeline.metadata_table
    assert metadata is not None
    text = page(server, "/t/0/timeline?of=metadata")
    shown = [row[0] for row in rows_of(text) if len(row) == 9][1:]
    assert shown == [instant_text(i.time) for i in metadata[-50:]][::-1]
    assert "metadata table</text>" in page(server, "/t/0/timeline")


def test_an_instant_shows_its_files_and_its_body_as_json(server: InspectorServer, table: lakebed.Table) -> None:
    last = table.timeline.last
    assert last is not None
    query = urlencode({"time": last.time, "action": last.action.value})
    text = page(server, f"/t/0/timeline/instant?{query}")
    stats = [stat for group in table.timeline.commit(last).stats.values() for stat in group]
    assert {row[0] for row in rows_of(text)} >= {stat.path for stat in stats}
    body = json.loads(page(server, f"/t/0/timeline/body?{query}"))
    assert body == json.loads(json.dumps(table.timeline.body(last), default=str))
    shown = re.search(r'<pre class="json"[^>]*>(.*?)</pre>', text, re.DOTALL)
    assert shown is not None
    assert json.loads(plain(shown[1])) == body


def test_a_pending_instant_is_shown_on_top() -> None:
    uri = in_memory("v9_mor_compaction_pending")
    with inspector(uri) as server:
        text = page(server, "/t/0/timeline")
    timeline = lakebed.open(uri).timeline
    plan = next(iter(timeline.pending))
    section = text[text.index('id="pending"') : text.index('id="instants"')]
    row = next(row for row in rows_of(section) if row[0] == instant_text(plan.time))
    assert row[1:3] == ["compaction", "requested"]
    assert f"compact of {len(timeline.body(plan)['operations'])} file group" in row[4]


def in_memory(name: str) -> str:
    """The URI of a golden table in memory."""
    uri = f"memory://inspector-golden/{name}"
    storage = open_storage(uri, None)
    for path, data in golden(name).files().items():
        storage.write(path, data)
    return uri


def test_files_show_partitions_groups_and_slices(server: InspectorServer, table: lakebed.Table) -> None:
    listed = {row[0]: row for row in rows_of(page(server, "/t/0/files")) if len(row) == 6}
    for city in table.partitions:
        slices = [one for one in table.files if one.partition == city]
        logs = sum(log.size for one in slices for log in one.log_files)
        assert listed[city][1:4] == [str(len(slices)), size_text(sum(one.size for one in slices)), size_text(logs)]
        groups = {row[0]: row for row in rows_of(page(server, f"/t/0/files?partition={city}"))}
        counts = table.files.base_rows(slices)
        for one, rows in zip(slices, counts, strict=True):
            assert groups[one.file_id][2] == ("" if rows is None else str(rows))
            query = urlencode({"partition": city, "file_id": one.file_id})
            versions = rows_of(page(server, f"/t/0/files/group?{query}"))
            names = [file.name for old in table.files.versions(city, one.file_id) for file in old.files]
            assert sorted(row[0] for row in versions if row[1:2] in (["base file"], ["log file"])) == sorted(names)


def test_plans_are_those_of_the_dry_runs(server: InspectorServer, table: lakebed.Table) -> None:
    text = plain(page(server, "/t/0/files/plans"))
    assert "Its trigger is reached." in text
    for result in (
        table.maintenance.compact(dry_run=True),
        table.maintenance.clean(dry_run=True),
        table.maintenance.archive(dry_run=True),
    ):
        assert " ".join(str(result).split()) in text


def test_indexes_show_sizes_overlap_and_filters(server: InspectorServer, table: lakebed.Table) -> None:
    listed = {row[0]: row for row in rows_of(page(server, "/t/0/indexes")) if len(row) == 6}
    for index in table.indexes.list():
        assert listed[index.name][3:5] == [str(index.file_groups), size_text(index.bytes)]
    shown = {row[0]: row for row in rows_of(page(server, "/t/0/indexes/ranges"))}
    for row in table.indexes.ranges().to_arrow().to_pylist():
        assert shown[row["column"]][3] == f"{row['overlap'] * 100:.0f} %"
    assert "<svg" in page(server, "/t/0/indexes/ranges?column=fare")
    rates = table.indexes.bloom_rates()
    assert f"filters looked at {rates.num_rows}" in plain(page(server, "/t/0/indexes/bloom"))
    ranking = [one.index for one in table.indexes.advise().ranking]
    assert [row[0].split()[0] for row in rows_of(page(server, "/t/0/indexes/advice"))[1:]] == ranking


def test_a_check_of_the_indexes_runs_to_its_end(server: InspectorServer, table: lakebed.Table) -> None:
    text = page(server, "/t/0/indexes/verification?start=1")
    for _ in range(600):
        if "hx-trigger" not in text:
            break
        text = page(server, "/t/0/indexes/verification")
    names = [index.name for index in table.indexes.list()]
    assert f"no difference {', '.join([*names, 'record keys'])}" in plain(text)


def test_another_site_cannot_start_a_check(hostile: lakebed.Table) -> None:
    with inspector(hostile.uri) as server:
        status, text, _ = answer(server, "/t/0/indexes/verification?start=1", headers={"sec-fetch-site": "cross-site"})
        assert status == 200
        assert "Compares every index" in text


def test_a_key_shows_its_place_and_its_versions(server: InspectorServer, table: lakebed.Table) -> None:
    text = page(server, "/t/0/record?key=trip-006")
    place = table.locate(["trip-006"]).to_pylist()[0]
    assert [place["partition_path"], place["file_id"], instant_text(place["instant"])] in rows_of(text)
    changes = re.findall(r'class="change (\w+)"', text)
    assert changes == [one.change for one in table.history(["trip-006"])] == ["update", "update", "update", "insert"]
    assert ["fare", "6.2", "6.3"] in rows_of(text)
    deleted = page(server, "/t/0/record?key=trip-007")
    assert "Not in the table" in deleted
    assert re.findall(r'class="change (\w+)"', deleted)[0] == "delete"
    assert "No version of this key can be read" in page(server, "/t/0/record?key=absent")


def test_the_plan_of_a_query_shows_what_is_read(server: InspectorServer, table: lakebed.Table) -> None:
    condition = "city = 'Oslo' and fare > 100"
    plan = table.scan(where="city = 'Oslo'").plan
    text = page(server, "/t/0/query?" + urlencode({"filter": "city = 'Oslo'"}))
    read = [row[0] for row in rows_of(text[text.index('id="files"') :]) if len(row) == 3]
    assert read[1:] == [one.label for one in plan.slices]
    total = len(plan.slices) + sum((plan.pruned_by or {}).values())
    assert f"{len(plan.slices)} of {total} file slices read" in plain(text)
    for what, count in (plan.pruned_by or {}).items():
        assert f"{what} " in plain(text), what
        assert f"−{count}" in plain(text)
    assert "No file is read" in page(server, "/t/0/query?" + urlencode({"filter": condition}))
    nothing = page(server, "/t/0/query?" + urlencode({"filter": condition, "by": "no step", "page": 3}))
    assert "This step rules out no file" in nothing


def test_the_plan_of_a_query_names_the_files_that_each_step_rules_out(
    server: InspectorServer, table: lakebed.Table
) -> None:
    condition = "city != 'Rome' and fare > 38"
    pruning = table.scan(where=condition).pruning().to_pylist()
    steps = {row["pruned_by"] for row in pruning}
    assert len(steps) > 1
    for step in steps:
        query = {"filter": condition} | ({"by": step} if step else {})
        text = page(server, "/t/0/query?" + urlencode(query))
        shown = {row[0] for row in rows_of(text[text.index('id="files"') :]) if len(row) == 3} - {"Base file"}
        assert shown == {f"{row['partition']}/{row['base_file']}" for row in pruning if row["pruned_by"] == step}, step


def test_files_of_a_plan_are_paged(server: InspectorServer) -> None:
    uri = "memory://inspector-pages/many"
    t = lakebed.load(uri, {"id": range(130), "part": range(130)}, key="id", partition_by="part")
    with inspector(uri) as many:
        path: str | None = "/t/0/query?" + urlencode({"filter": "part < 10", "by": "partition"})
        pages: list[list[str]] = []
        while path:
            _, text, _ = answer(many, path, headers={"hx-request": "true"})
            text = text[text.index('id="files"') :] if 'id="files"' in text else text
            pages.append([row[0] for row in rows_of(text) if len(row) == 3 and row[0] != "Base file"])
            path = next(iter(links_of(text, "hx-get")), None)
    assert [len(one) for one in pages] == [50, 50, 20]
    assert {name for one in pages for name in one} == {s.label for s in t.files if int(s.partition) >= 10}


def test_a_bad_filter_shows_the_text_of_the_error(server: InspectorServer, table: lakebed.Table) -> None:
    for text in ("nowhere = 1", "fare >", "city = "):
        with pytest.raises(lakebed.InvalidOption) as refusal:
            table.scan(where=text).plan  # noqa: B018
        shown = plain(page(server, "/t/0/query?" + urlencode({"filter": text})))
        assert " ".join(refusal.value.message.split()) in shown


def test_hostile_names_and_contents_show_as_text(server: InspectorServer, hostile: lakebed.Table) -> None:
    pages = crawl(server, [f"/t/1/{path}" for path in HOSTILE_PATHS])
    pages = {path[5:]: text for path, text in pages.items() if path.startswith("/t/1/") and "/body?" not in path}
    for path, text in pages.items():
        assert not re.search(r"<img|<[^>&]*\sonerror=", text), path
    texts = {path: plain(text) for path, text in pages.items()}
    for path in ("timeline", "files", "indexes", RECORD, QUERY):
        assert f"{EVIL} memory://inspector-hostile/{EVIL}" in texts[path]
    assert [EVIL, EVIL, EVIL] in rows_of(pages[RECORD])
    assert {row[0] for row in rows_of(pages["files"])} >= {PARTITION, "other"}
    assert {row[0] for row in rows_of(pages["indexes"])} >= {f"expr_index_{EVIL}", "record_index"}
    assert [EVIL, "string"] in rows_of(pages[QUERY])
    assert f'value="`{EVIL}` is not null"' in unescape(pages[QUERY])
    assert f'aria-label="Ranges of {EVIL}"' in unescape(pages[COLUMN])
    instants = {path: rows_of(text) for path, text in pages.items() if path.startswith("timeline/instant")}
    assert [f"_{EVIL}", EVIL] in [row for rows in instants.values() for row in rows]
    saved = next(text for path, text in pages.items() if "action=savepoint" in path)
    body = json.loads(plain(re.findall(r'<pre class="json"[^>]*>(.*?)</pre>', saved, re.DOTALL)[0]))
    assert (body["comments"], body["savepointedBy"]) == (EVIL, EVIL)


def test_a_notebook_shows_hostile_names_and_contents_as_text(hostile: lakebed.Table) -> None:
    views = notebook_views(hostile)
    for name, text in views.items():
        assert not re.search(r"<img|<[^>&]*\sonerror=", text), name
    shown = {name for name, text in views.items() if EVIL in unescape(text)}
    assert shown >= {"table", "files", "skew", "properties", "columns", "indexes", "ranges", "savepoint", "doctor"}
    assert shown >= {
        "scan",
        "plan of a scan",
        "changes",
        "change log",
        "history",
        "plan of a write",
        "erasure",
        "clustering",
    }


@pytest.mark.rest
def test_every_link_leads_to_a_page_of_this_server(server: InspectorServer) -> None:
    pages = crawl(server, ["/"])
    kinds = {re.sub(r"\?.*", "", path) for path in pages}
    assert kinds >= {f"/t/{n}/{tab}" for n in (0, 1) for tab in TABS}
    for path, text in pages.items():
        if path.startswith("/t/") and "/body?" not in path:
            assert all(one.startswith(("/", "#")) for one in links_of(text)), path
            assert "Traceback" not in text


def test_pages_change_nothing(hostile: lakebed.Table) -> None:
    storage = open_storage(hostile.uri, None)
    before = {info.path: storage.read(info.path) for info in storage.list("")}
    with inspector(hostile.uri) as server:
        crawl(server, ["/t/0/timeline"])
    assert {info.path: storage.read(info.path) for info in storage.list("")} == before


def test_only_this_machine_is_served(server: InspectorServer) -> None:
    assert server.url.startswith(f"http://{LOOPBACK}:")
    assert server._socket.getsockname()[0] == LOOPBACK
    assert answer(server, "/t/0/timeline", headers={"Host": "evil.example"})[0] == 400
    headers = answer(server, "/t/0/timeline")[2]
    assert "default-src 'none'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"


LONG = "9" * 6000
NO_PAGES = {
    "/etc/passwd": "There is no such page.",
    "/t/../../etc/passwd": "There is no such page.",
    "/t/0/../1/timeline": "There is no such page.",
    "/t/0/%2e%2e/%2e%2e/etc/passwd": "There is no such page.",
    "/t/0/nowhere": "There is no such page.",
    f"/t/0/{LONG}": "There is no such page.",
    "/static/..%2Fserver.py": "There is no such page.",
    "/static/../server.py": "There is no such page.",
    "/static/%00": "There is no such page.",
    "/t/7": "There is no table '7': this inspector shows 2, from 0 on.",
    "/t/7/timeline": "There is no table '7': this inspector shows 2, from 0 on.",
    "/t/-1/files": "There is no table '-1': this inspector shows 2, from 0 on.",
    f"/t/{LONG}/timeline": f"There is no table '{LONG[:120]}…': this inspector shows 2, from 0 on.",
    "/t/0/timeline?of=else": "There is no timeline of='else': take active, archived, metadata.",
    "/t/0/timeline?before=-1": "before='-1' is no whole number of up to 17 digits.",
    f"/t/0/timeline?before={LONG}": f"before='{LONG[:120]}…' is no whole number of up to 17 digits.",
    "/t/0/timeline/instant": "The timeline has no instant time='' of action=''.",
    "/t/0/timeline/instant?time=1&action=commit": "The timeline has no instant time='1' of action='commit'.",
    "/t/0/timeline/instant?time=1&action=commit&of=else": "There is no timeline of='else'",
    "/t/0/timeline/body?time=..%2F..&action=hoodie": "The timeline has no instant time='../..' of action='hoodie'.",
    "/t/0/files?partition=..%2F..%2Fetc": "The table has no files in a partition path '../../etc'.",
    "/t/0/files?partition=%00": "The table has no files in a partition path '\\x00'.",
    "/t/0/files?page=x": "page='x' is no whole number of up to 17 digits.",
    "/t/0/files/group?partition=..%2F..&file_id=etc": "The table has no file group 'etc' in a partition path '../..'.",
    "/t/0/record?key=trip-006&before=x": "before='x' is no whole number of up to 17 digits.",
}


@pytest.mark.parametrize("path", NO_PAGES, ids=lambda path: path[:60])
def test_an_address_that_there_is_not_is_a_page_that_says_so(server: InspectorServer, path: str) -> None:
    status, text, headers = answer(server, path)
    assert status == 404
    assert headers["content-type"] == "text/html; charset=utf-8"
    assert NO_PAGES[path] in plain(text)
    assert "Not found" in text


@pytest.mark.parametrize(
    "path",
    [
        f"/t/0/record?key={LONG}",
        f"/t/0/query?filter={LONG}x",
        f"/t/0/query?filter={'(' * 6000}",
        f"/t/0/indexes/ranges?column={LONG}",
        f"/t/0/files?page={LONG[:17]}",
        f"/t/0/timeline?before={LONG[:17]}",
        "/t/0/record?key=%ff%00",
    ],
    ids=lambda path: path[:30],
)
def test_long_and_odd_values_are_a_page(server: InspectorServer, path: str) -> None:
    text = page(server, path)
    assert "lakebed inspector</title>" in text
    assert "Traceback" not in text


@pytest.mark.parametrize("path", ["/", "/t/0", "/t/0/timeline", "/t/7/files", "/static/inspector.css"])
def test_only_get_requests_are_answered(server: InspectorServer, path: str) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "NONE"):
        status, text, headers = answer(server, path, method)
        assert (status, set(headers["allow"].split(", "))) == (405, {"GET", "HEAD"})
        assert f"The inspector only shows pages: it answers GET requests, not {method}." in plain(text)
        assert "default-src 'none'" in headers["content-security-policy"]
    assert answer(server, "/t/0/timeline", "HEAD")[:2] == (200, "")


def test_no_page_has_a_credential() -> None:
    secret = "Xy7/SECRET+value"
    shown = InspectedTable(0, "s3://user:hidden@lake/t", {"secret_access_key": secret, "region": "eu-west-1"})
    text = shown.redacted(f"<p>{shown.title} {secret} eu-west-1 s3://me:pass@lake/other</p>")
    assert text == "<p>s3://lake/t ••• eu-west-1 s3://lake/other</p>"


def test_a_secret_of_the_storage_that_is_in_the_rows_is_on_no_page() -> None:
    secret, uri = 'Xy7/SECRET+"<value>', "memory://inspector-secrets/t"
    rows = pa.table({"id": [secret, "plain"], "part": [f"p{secret}", "other"], "note": [secret, "x"]})
    t = lakebed.load(uri, rows, key="id", partition_by="part", index="simple")
    t.upsert(rows)
    with inspector(uri, storage_options={"secret_access_key": secret}) as server:
        query = {"filter": f"note = '{secret}' and part != 'other'"}
        last, group = t.timeline.last, next(one for one in t.files if secret[-6:] in one.partition)
        assert last is not None
        instant = {"time": last.time, "action": last.action.value}
        named = {
            "timeline/instant": instant,
            "timeline/body": instant,
            "files/group": {"partition": group.partition, "file_id": group.file_id},
            "record": {"key": secret},
            "query": query,
        }
        paths = [f"/t/0/{path}?{urlencode(named.get(path, {}))}" for path in PAGES]
        paths += [f"/t/0/files?{urlencode({'partition': group.partition})}", "/t/0/indexes/ranges?column=note"]
        for path in paths:
            assert "SECRET" not in page(server, path), path
        assert "•••" in page(server, f"/t/0/record?{urlencode(named['record'])}")
    MemoryStorage.drop("inspector-secrets")


@pytest.mark.rest
def test_damage_is_described_where_it_is(tmp_path: Path) -> None:
    t = lakebed.create(str(tmp_path / "t"), trips(0), key="id", partition_by="city", index="simple")
    for step in range(2):
        t.upsert(trips(step))
    timeline = tmp_path / "t/.hoodie/timeline"
    bodies = commits_of._BODIES  # pyright: ignore[reportPrivateUsage]
    with inspector(str(tmp_path / "t"), str(tmp_path / "none")) as server:
        assert "Table not found" in page(server, "/t/1/files")
        last = t.timeline.last
        assert last is not None
        body = timeline / last.file_name
        kept = body.read_bytes()
        body.write_bytes(b"")
        bodies.clear()  # this process remembers what it wrote
        row = next(row for row in rows_of(page(server, "/t/0/timeline")) if row[0] == instant_text(last.time))
        assert "is empty" in row[2]
        query = urlencode({"time": last.time, "action": last.action.value})
        assert "is empty" in page(server, f"/t/0/timeline/instant?{query}")
        body.write_bytes(kept)
        for file in (tmp_path / "t/.hoodie/metadata/files").iterdir():
            file.write_bytes(b"damage")
        text = page(server, "/t/0/files")
        assert "The metadata table is damaged" in text
        assert {row[0] for row in rows_of(text)} >= {"Oslo", "Rome", "Bern", "Lima"}
        (tmp_path / "t/.hoodie/hoodie.properties").write_bytes(b"")
        (tmp_path / "t/.hoodie/hoodie.properties.backup").unlink(missing_ok=True)
        for tab in TABS:
            text = page(server, f"/t/0/{tab}?key=1")
            assert 'class="problem"' in text
            assert "Traceback" not in text


@pytest.mark.rest
def test_paging_reaches_every_instant_once() -> None:
    uri = "memory://inspector-paging/t"
    left = {"hoodie.clean.automatic": False, "hoodie.keep.max.commits": 70, "hoodie.keep.min.commits": 60}
    t = lakebed.create(uri, trips(0), key="id", index="simple", properties=left)
    for step in range(110):
        t.upsert(trips(step, range(1)))
    with inspector(uri) as server:
        for source, view in (("active", t.timeline), ("archived", t.timeline.archived)):
            found: list[str] = []
            path: str | None = f"/t/0/timeline?of={source}"
            while path:
                text = page(server, path)
                found += [row[0] for row in rows_of(text[text.index('id="instants"') :]) if len(row) == 9][1:]
                older = [one for one in links_of(text, "hx-get") if "before=" in one]
                path = older[0] if older else None
            assert found == [instant_text(i.time) for i in view][::-1], source
            assert len(found) > 40
    MemoryStorage.drop("inspector-paging")


HUDI = ("v6_mor_compaction", "v8_mor_mdt_secondary", "v9_cow_mdt_all", "v9_mor_bucket_consistent", "v9_cow_failed_left")


@pytest.mark.parametrize("name", HUDI)
@pytest.mark.one_case
def test_every_page_of_a_table_of_real_hudi_is_there(name: str) -> None:
    table = golden(name)
    uri = in_memory(name)
    with inspector(uri) as server:
        pages = crawl(server, ["/t/0/timeline"], most=120)
        assert not [path for path, text in pages.items() if 'class="problem"' in text]
        expected = table.expected
        keys = expected["_hoodie_record_key"].to_pylist()
        field = lakebed.open(uri).properties["hoodie.table.recordkey.fields"]
        key = str(expected[field][0].as_py()) if "," not in field else keys[0]
        text = page(server, f"/t/0/record?key={quote(key)}")
    assert "Not in the table" not in text
    assert expected["_hoodie_partition_path"][0].as_py() in {row[0] for row in rows_of(text)}


def test_a_pending_write_says_whether_its_process_lives(tmp_path: Path) -> None:
    table = lakebed.load(str(tmp_path / "t"), {"id": [1]}, key="id")
    for time in ("20300101000000000", "20300101000000001", "20300101000000002"):
        for state in ("requested", "inflight"):
            suffix = "commit.requested" if state == "requested" else "inflight"
            (tmp_path / f"t/.hoodie/timeline/{time}.{suffix}").write_bytes(b"")
    storage = open_storage(table.uri)
    folder = tmp_path / "t/.hoodie/.heartbeat"
    with Heartbeat(storage, "20300101000000000"):
        Heartbeat(storage, "20300101000000001")._beat()  # of this process, in which no such write runs
        folder.joinpath("20300101000000002").write_bytes(b"")  # of real Hudi
        os.utime(folder / "20300101000000002", (1, 1))
        with inspector(table.uri) as running:
            text = plain(page(running, "/t/0/timeline"))
    pending = text[text.index("Not completed") :]
    assert "The writer runs; it counts as dead 120 seconds after its last heartbeat." in pending
    assert "The process has ended: the next write takes this back." in pending
    assert "That is more than 120 seconds: the writer is dead, and the next write takes this back." in pending
    assert f"process {os.getpid()}" in pending or str(os.getpid()) in pending


def test_vectors_are_shown_by_dimension_and_norm() -> None:
    table = vector_table("cow", "memory://inspector-vectors/t", index="record")
    norm = vector_text(vector_of(3))
    assert norm == "4 numbers, norm 4.30842"
    with inspector(table.uri) as running:
        record = plain(page(running, "/t/0/record?key=k003"))
        assert norm in record
        assert "-2.0" not in record
        assert "VECTOR(4)" in page(running, "/t/0/query")
    notebooks = [table.scan(where="id = 'k003'"), table.search(vector_of(3), 1, columns=["emb"])]
    notebooks += [lakebed.sql("select emb from t where id = 'k003'", tables={"t": table})]
    for rows in notebooks:
        assert norm in rows._repr_html_()
    assert "VECTOR(4)" in table._repr_html_()
    MemoryStorage.drop("inspector-vectors")


def test_blobs_are_shown_by_their_size_and_variants_by_their_json() -> None:
    schema = pa.schema([("id", pa.string()), ("facts", variant.TYPE), ("pic", lakebed.BLOB)])
    table = lakebed.create("memory://inspector-texts/t", schema, key="id")
    blobs = lakebed.blob(data=pa.array([b"x" * 1500]))
    table.upsert(pa.table([["a"], variant.encode([{"tags": ["one"]}]), blobs], schema=table.schema))
    with inspector(table.uri) as running:
        shown = plain(page(running, "/t/0/record?key=a"))
        assert "1,500 bytes" in shown
        assert unescape(shown).count('{"tags":["one"]}') == 1
        assert "VARIANT" in page(running, "/t/0/query")
    text = unescape(table.scan()._repr_html_())
    assert "1,500 bytes" in text
    assert '{"tags":["one"]}' in text
    MemoryStorage.drop("inspector-texts")


@pytest.fixture
def life() -> Generator[InspectorServer]:
    """A server of a table with a key of two columns, a comment and an odd text."""
    uri = "memory://inspector-life/life"
    rows = {
        "country": ["Norway", "Norway", "<i>Peru"],
        "year": [2002, 2007, 2007],
        "life": [79.05, 80.2, None],
    }
    table = lakebed.load(uri, rows, key=["country", "year"])
    table.columns.comment("life", "in years")
    table.upsert({"country": ["Norway"], "year": [2007], "life": [81.0]})
    with inspector(uri) as running:
        yield running
    MemoryStorage.drop("inspector-life")


def test_the_page_of_rows_shows_the_first_rows_of_a_filter(life: InspectorServer) -> None:
    every = plain(page(life, "/t/0/rows"))
    assert "3 rows, which is all" in every
    text = page(life, "/t/0/rows?" + urlencode({"filter": "year = 2007"}))
    assert '<td class="num">81.0</td>' in text
    assert "<td>&lt;i&gt;Peru</td>" in text
    assert '<td class="num">null</td>' in text
    assert "79.05" not in text
    assert "No row fulfils the filter" in page(life, "/t/0/rows?filter=year+%3D+1")
    problem = plain(page(life, "/t/0/rows?filter=country+%3D+Norway"))
    assert "no column 'Norway'" in problem
    assert "A text is written in quotes: 'Norway'" in problem


@pytest.mark.parametrize(("count", "text"), [(50, "50 rows, which is all"), (51, "The first 50 rows")])
def test_the_page_of_rows_ends_after_fifty(count: int, text: str) -> None:
    uri = f"memory://inspector-rows/t{count}"
    lakebed.load(uri, {"id": list(range(count))}, key="id")
    with inspector(uri) as running:
        shown = page(running, "/t/0/rows")
    assert text in plain(shown)
    assert shown.count('<td class="num">') == 50
    MemoryStorage.drop("inspector-rows")


def test_the_page_of_the_schema_lists_columns_with_their_roles(life: InspectorServer) -> None:
    text = page(life, "/t/0/schema")
    assert '<th scope="row">country</th><td class="mono">STRING</td><td>yes</td><td>key</td>' in text
    assert '<td class="mono">DOUBLE</td><td>yes</td><td></td><td class="prose">in years</td>' in text


def test_a_key_of_several_columns_has_a_field_for_each(life: InspectorServer) -> None:
    text = page(life, "/t/0/record")
    assert 'name="key.country"' in text
    assert 'name="key.year"' in text
    found = page(life, "/t/0/record?" + urlencode({"key.country": "Norway", "key.year": 2007}))
    assert 'value="Norway"' in found
    assert 'value="2007"' in found
    assert "81.0" in found
    assert "80.2" in found
    assert "81.0" in page(life, "/t/0/record?" + urlencode({"key": "country:Norway,year:2007"}))


def test_the_archive_keeps_recent_activity_and_a_small_table_has_no_warning(life: InspectorServer) -> None:
    recent = re.compile(r'aria-label="(\d+ instants[^"]*)"')
    assert recent.findall(page(life, "/t/0/timeline?of=archived")) == recent.findall(page(life, "/t/0/timeline"))
    assert 'class="notice"' not in page(life, "/t/0/files")


@pytest.fixture(scope="module")
def layered() -> Generator[tuple[lakebed.Table, InspectorServer]]:
    """A table with a vector index that lacks a commit, and a text index, and a server of it."""
    table = indexed_table("cow", "memory://inspector-layers/notes")
    table.indexes.create("text", column="name")
    table.upsert(vector_rows(range(10, 20), ts=2))
    with another_writer():
        table.upsert([row for row in vector_rows(range(40), ts=3) if row["part"] == "p0"][:3])
    with inspector(table.uri) as running:
        yield table, running
    MemoryStorage.drop("inspector-layers")


def test_the_page_of_a_vector_index_shows_what_it_is_made_of(layered: tuple[lakebed.Table, InspectorServer]) -> None:
    table, server = layered
    made_of = table.indexes.layers("emb")
    assert "/t/0/indexes/layers?index=vector_index_emb" in links_of(page(server, "/t/0/indexes"))
    text = page(server, "/t/0/indexes/layers?index=vector_index_emb")
    shown = plain(text)
    figures = ["column emb", "metric l2", "bits for each element 8", "entries 45", f"bytes {size_text(made_of.bytes)}"]
    figures += [
        f"largest {made_of.largest_cluster} entries",
        f"mean {made_of.mean_cluster:.1f} entries",
        "no rebuild due",
    ]
    figures += [f"entries that do not count {made_of.stale_share * 100:.1f} %", "of entries looked at 45"]
    assert [figure for figure in figures if figure not in shown] == []
    rows = rows_of(text)
    assert ["build, with what was folded into it", "36", "0"] in rows
    assert [instant_text(made_of.layers["layer"][1].as_py()), "9", "10"] in rows
    assert [instant_text(made_of.gaps["instant"][0].as_py()), "upsert", "1"] in rows
    assert "searches read 1 file group exactly" in shown
    assert made_of.plot() in text
    assert text.count('class="bar"') == 4


def test_recall_is_measured_only_when_a_page_of_this_server_asks(
    layered: tuple[lakebed.Table, InspectorServer],
) -> None:
    _, server = layered
    path = "/t/0/indexes/layers?index=vector_index_emb"
    assert "recall@10" not in page(server, path)
    measured = plain(page(server, f"{path}&recall=1"))
    assert re.search(r"recall@10 1\.000 searches (1\d|20) ", measured)
    elsewhere = answer(server, f"{path}&recall=1", headers={"sec-fetch-site": "cross-site"})
    assert elsewhere[0] == 200
    assert "recall@10" not in elsewhere[1]
    assert answer(server, f"{path}&recall=1", headers={"Host": "evil.example"})[0] == 400


def test_the_page_of_a_text_index_has_no_clusters_and_no_recall(
    layered: tuple[lakebed.Table, InspectorServer],
) -> None:
    _, server = layered
    first = page(server, "/t/0/indexes/layers")  # that of the first one by name
    assert '<h2 id="index">text_index_name</h2>' in first
    assert "Clusters" not in first
    assert "Recall" not in first
    assert ["build, with what was folded into it", "40", "0"] in rows_of(first)
    assert "/t/0/indexes/layers?index=vector_index_emb" in links_of(first)


def test_an_index_without_layers_has_no_such_page(
    server: InspectorServer, layered: tuple[lakebed.Table, InspectorServer]
) -> None:
    assert "No vector index and no text index" in page(server, "/t/0/indexes/layers")
    for name in ("record_index", "<img>"):
        status, text, _ = answer(layered[1], f"/t/0/indexes/layers?index={quote(name)}")
        assert status == 404
        assert f"The table has no vector index or text index {name!r}." in plain(unescape(text)) or "<" in name


@pytest.mark.parametrize(("count", "note"), [(49, None), (50, "1 older layer.")])
def test_the_page_of_an_index_lists_fifty_layers(count: int, note: str | None) -> None:
    uri = f"memory://inspector-layers/many{count}"
    left = {"hoodie.metadata.compact.max.delta.commits": 100, "hoodie.clean.automatic": False}
    table = indexed_table("cow", uri, properties=left, partition_by=None)
    for step in range(count):
        table.upsert(vector_rows(range(step % 3, step % 3 + 1), ts=step + 2))
    with inspector(uri) as running:
        text = page(running, "/t/0/indexes/layers")
    layers = [row for row in rows_of(text) if len(row) == 3 and row[0] != "Layer"]
    assert len(layers) == 50
    assert (note in plain(text)) if note else ("older layer" not in plain(text))
    MemoryStorage.drop("inspector-layers")
