"""Keys as people write them on the command line."""

from __future__ import annotations

import pyarrow as pa

import lakebed

COLUMNS = pa.schema([("id", pa.int64()), ("day", pa.int32())])


def test_a_complex_key_of_one_column_is_given_with_or_without_its_name_and_one_of_several_with_the_names() -> None:
    one = lakebed.create(
        "memory://typed-keys/one", COLUMNS, key="id", properties={"hoodie.table.keygenerator.type": "COMPLEX"}
    )
    several = lakebed.create("memory://typed-keys/several", COLUMNS, key=["id", "day"])
    for table in (one, several):
        table.upsert([{"id": 42, "day": 7}, {"id": 43, "day": 7}])
    for table, texts in ((one, ("42", "id:42")), (several, ("id:42,day:7",))):
        for text in texts:
            assert table.get(lakebed.KeyText([text], typed=True)).to_pylist() == [{"id": 42, "day": 7}], text
