"""`t.catalogs` lists where other programs find a table."""

from __future__ import annotations

import lakebed


def test_entries_of_settings_and_published_lists_are_listed_with_what_they_show() -> None:
    table = lakebed.load("memory://catalogs-view/trips", {"id": [1]}, key="id")
    assert (len(table.catalogs), table.catalogs.to_arrow().num_rows) == (0, 0)
    table.catalogs.publish("delta")
    settings = {
        "lakebed.catalogs": "hive://ms:9083/shop/trips,glue://eu-west-1/shop/trips",
        "lakebed.publish": "iceberg",
    }
    table.configure(settings)
    shown = table.timeline.last
    assert shown is not None
    assert table.catalogs.to_arrow().to_pylist() == [
        {"catalog": "hive://ms:9083/shop/trips", "kind": "entry", "automatic": True, "shows": ""},
        {"catalog": "glue://eu-west-1/shop/trips", "kind": "entry", "automatic": True, "shows": ""},
        {"catalog": "delta", "kind": "list", "automatic": False, "shows": shown.completion_time},
        {"catalog": "iceberg", "kind": "list", "automatic": True, "shows": ""},
    ]
    assert [str(entry) for entry in table.catalogs][::2] == [
        "entry hive://ms:9083/shop/trips: each commit updates it",
        f"list delta: updated on request, shows {shown.completion_time}",
    ]
