"""Types of columns that folders name, as Spark infers them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakebed.inputs.partition_columns import inferred_type, texts_of


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["1", "-7", "007", "+5"], pa.int32()),
        (["2147483647", "-2147483648"], pa.int32()),
        (["2147483648"], pa.int64()),
        (["-9223372036854775808"], pa.int64()),
        (["9223372036854775808"], pa.string()),
        (["1.5", "2"], pa.float64()),
        (["1e5"], pa.float64()),
        (["2024-01-31", None], pa.date32()),
        (["2024-01-31", "2024-02-30"], pa.string()),
        (["2024-01-31", "5"], pa.string()),
        (["1_0"], pa.string()),
        ([""], pa.string()),
        ([None], pa.string()),
    ],
)
def test_the_narrowest_type_holds_all_values(texts: list[str | None], kind: pa.DataType) -> None:
    assert inferred_type(texts) == kind


def test_only_folders_name_columns() -> None:
    assert texts_of("a=1/b/c%2F=x%3Dy/d=2.parquet") == {"a": "1", "c/": "x=y"}
    assert texts_of("day=__HIVE_DEFAULT_PARTITION__/x") == {"day": None}
