from __future__ import annotations

import pyarrow as pa
import pytest

from lakebed.errors import InvalidOption, SchemaConflict, UnsupportedFeature
from lakebed.expressions.base import escape, escape_arrow, unescape
from lakebed.expressions.key_generators import KeyGeneratorSpec, infer_kind, key_generator, kind_of

ROWS = pa.record_batch({"id": ["a", "", None], "n": [1, None, None], "city": ["rome", "a/b", None]})


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("org.apache.hudi.keygen.SimpleKeyGenerator", "SIMPLE"),
        ("org.apache.hudi.keygen.SimpleAvroKeyGenerator", "SIMPLE"),
        ("org.apache.hudi.keygen.ComplexKeyGenerator", "COMPLEX"),
        ("org.apache.hudi.keygen.NonpartitionedAvroKeyGenerator", "NON_PARTITION"),
        ("org.apache.hudi.keygen.TimestampBasedKeyGenerator", "TIMESTAMP"),
        ("org.apache.hudi.keygen.CustomAvroKeyGenerator", "CUSTOM"),
        ("org.apache.hudi.keygen.GlobalAvroDeleteKeyGenerator", "GLOBAL_DELETE"),
        ("non_partition", "NON_PARTITION"),
        ("TIMESTAMP_AVRO", "TIMESTAMP"),
        ("", ""),
    ],
)
def test_types_and_class_names_of_hudi_are_known(name: str, kind: str) -> None:
    assert kind_of(name) == kind


def test_a_foreign_class_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedFeature, match=r"com\.acme\.Keys"):
        key_generator(KeyGeneratorSpec("com.acme.Keys", ("id",)))


@pytest.mark.parametrize(
    ("keys", "partitions", "kind"),
    [
        (("a",), (), "NON_PARTITION"),
        (("a", "b"), (), "NON_PARTITION"),
        (("a",), ("p",), "SIMPLE"),
        ((), ("p",), "SIMPLE"),
        (("a", "b"), ("p",), "COMPLEX"),
        (("a",), ("p", "q"), "COMPLEX"),
        (("a",), ("p:SIMPLE",), "CUSTOM"),
    ],
)
def test_an_unnamed_generator_is_inferred(keys: tuple[str, ...], partitions: tuple[str, ...], kind: str) -> None:
    assert infer_kind(keys, partitions) == kind
    assert key_generator(KeyGeneratorSpec("", keys, partitions)).kind == kind


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (KeyGeneratorSpec("SIMPLE", ("a", "b"), ("p",)), "takes one key field"),
        (KeyGeneratorSpec("SIMPLE", ("a",), ("p", "q")), "takes one partition field"),
        (KeyGeneratorSpec("TIMESTAMP", ("a",), ()), "takes one partition field"),
        (KeyGeneratorSpec("CUSTOM", ("a",), ("p", "q:SIMPLE")), "without a type: p"),
        (KeyGeneratorSpec("CUSTOM", ("a",), ("p",), ("DATE",)), "without a type: p"),
        (KeyGeneratorSpec("CUSTOM", ("a",), ("p", "q"), ("SIMPLE",)), "without a type"),
        (KeyGeneratorSpec("SIMPLE", ("a",), ("p",), timezone="Mars/Base"), "unknown time zone 'Mars/Base'"),
    ],
)
def test_settings_that_contradict_are_refused(spec: KeyGeneratorSpec, text: str) -> None:
    with pytest.raises(InvalidOption, match=text):
        key_generator(spec)


def test_generated_keys_are_left_to_the_writer() -> None:
    keys = key_generator(KeyGeneratorSpec("SIMPLE", (), ("city",)))
    assert not keys.key_fields
    assert keys.record_key.arrow(ROWS).to_pylist() == [None, None, None]
    assert keys.partition_path.arrow(ROWS).to_pylist() == ["rome", "a/b", "__HIVE_DEFAULT_PARTITION__"]


def test_a_missing_key_column_is_a_schema_conflict() -> None:
    keys = key_generator(KeyGeneratorSpec("SIMPLE", ("ID",), ("city",)))
    with pytest.raises(SchemaConflict, match="no column `ID`") as error:
        keys.record_key.sql(ROWS.schema)
    assert "'id'" in error.value.hint


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.int32()), pa.map_(pa.string(), pa.int32()), pa.struct([("x", pa.int8())])]
)
def test_nested_types_are_no_keys(kind: pa.DataType) -> None:
    rows = pa.record_batch([pa.nulls(1, kind)], ["id"])
    keys = key_generator(KeyGeneratorSpec("NON_PARTITION", ("id",)))
    for ask in (lambda: keys.record_key.sql(rows.schema), lambda: keys.record_key.arrow(rows)):
        with pytest.raises(SchemaConflict, match="cannot be part of a record key"):
            ask()


class TestKeyTextOf:
    def test_a_list_an_array_and_a_table_give_the_same(self) -> None:
        keys = key_generator(KeyGeneratorSpec("SIMPLE", ("id",), ("city",)))
        for values in ([1, 2], pa.array([1, 2]), pa.chunked_array([[1], [2]]), pa.table({"id": [1, 2]})):
            assert keys.key_text_of(values).to_pylist() == ["1", "2"]
        assert keys.key_text_of([]).to_pylist() == []

    def test_values_are_cast_to_the_tables_types(self) -> None:
        keys = key_generator(KeyGeneratorSpec("COMPLEX", ("d", "n")))
        schema = pa.schema([("n", pa.int64()), ("d", pa.decimal128(10, 2))])
        values = pa.table({"n": ["7", "8"], "d": [1, 2]})
        assert keys.key_text_of(values, schema).to_pylist() == ["d:1.00,n:7", "d:2.00,n:8"]
        with pytest.raises(InvalidOption, match="do not fit the key column `n`"):
            keys.key_text_of(pa.table({"n": ["x"], "d": [1]}), schema)

    def test_nested_fields_by_dotted_name_or_as_structs(self) -> None:
        keys = key_generator(KeyGeneratorSpec("COMPLEX", ("a.b",)))
        assert keys.key_text_of(pa.table({"a.b": [1]})).to_pylist() == ["a.b:1"]
        assert keys.key_text_of(pa.table({"a": [{"b": 1}]})).to_pylist() == ["a.b:1"]

    def test_missing_columns_and_bare_values_of_composite_keys_are_refused(self) -> None:
        keys = key_generator(KeyGeneratorSpec("COMPLEX", ("a", "b")))
        with pytest.raises(InvalidOption, match="key columns missing: b"):
            keys.key_text_of(pa.table({"a": [1]}))
        with pytest.raises(InvalidOption, match="the key is made of a, b"):
            keys.key_text_of([1])


class TestPartitionValues:
    @pytest.mark.parametrize(
        ("path", "values"),
        [
            ("city=rome/n=1", {"city": "rome", "n": "1"}),
            ("city=a%2Fb%3Dc/n=__HIVE_DEFAULT_PARTITION__", {"city": "a/b=c", "n": None}),
            ("city=/n=1", {"city": "", "n": "1"}),
            ("rome/1", {}),
            ("city=x/n=y/n=1", {}),
        ],
    )
    def test_hive_style_paths_are_taken_apart(self, path: str, values: dict[str, str | None]) -> None:
        spec = KeyGeneratorSpec("COMPLEX", ("id",), ("city", "n"), hive_style=True, url_encode=True)
        assert key_generator(spec).partition_values(path) == values

    @pytest.mark.parametrize(
        ("fields", "path", "values"),
        [
            (("city",), "a/b", {"city": "a/b"}),
            (("city", "n"), "a/1", {"city": "a", "n": "1"}),
            (("city", "n"), "a/b/1", {}),
            (("city", "n"), "a", {}),
        ],
    )
    def test_plain_paths_are_taken_apart(self, fields: tuple[str, ...], path: str, values: dict[str, str]) -> None:
        assert key_generator(KeyGeneratorSpec("COMPLEX", ("id",), fields)).partition_values(path) == values

    def test_times_slash_dates_and_no_partitions(self) -> None:
        settings = {"timestamp.type": "UNIX_TIMESTAMP", "output.dateformat": "yyyy/MM/dd"}
        custom = KeyGeneratorSpec("CUSTOM", ("id",), ("ts:TIMESTAMP", "city:SIMPLE"), timestamp=settings)
        assert key_generator(custom).partition_values("2024/02/03/a/b") == {"ts": "2024/02/03", "city": "a/b"}
        dates = key_generator(KeyGeneratorSpec("SIMPLE", ("id",), ("day",), slash_dates=True))
        assert dates.partition_values("2024/02/03") == {"day": "2024-02-03"}
        assert key_generator(KeyGeneratorSpec("NON_PARTITION", ("id",))).partition_values("") == {}

    def test_generated_keys_are_read_back(self) -> None:
        odd = ["a/b", "%2F", "x=y", "é'\\", "a%", "{^}", "\x01\x7f"]
        spec = KeyGeneratorSpec("COMPLEX", ("id",), ("p", "q"), hive_style=True, url_encode=True)
        keys = key_generator(spec)
        rows = pa.record_batch({"p": odd, "q": odd[::-1]})
        for number, path in enumerate(keys.partition_path.arrow(rows).to_pylist()):
            assert keys.partition_values(path) == {"p": odd[number], "q": odd[::-1][number]}


def test_escaping_takes_the_same_characters_everywhere() -> None:
    text = "".join(map(chr, range(1, 0x180)))
    assert escape_arrow(pa.array([text])).to_pylist() == [escape(text)]
    assert unescape(escape(text)) == text
    assert [c for c in map(chr, range(0x20, 0x180)) if escape(c) != c] == list("\"#%'*/:=?[\\]^{\x7f")
