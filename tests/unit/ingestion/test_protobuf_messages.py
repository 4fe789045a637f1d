"""Protobuf messages as rows: every kind of field, frames with message indexes, descriptor sets, and what is no row."""

from __future__ import annotations

import base64
import json
import random
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import CorruptFile, InvalidOption, SourceError
from lakebed.ingestion.messages import Decoded
from lakebed.ingestion.schema_registry import SchemaRegistry
from lakebed.ingestion.source import IngestPoll, IngestSource

pytest.importorskip("ptars", reason="ptars is not installed")

from google.protobuf.descriptor_pb2 import FileDescriptorSet

from lakebed.ingestion.protobuf_messages import FramedProtobuf, PlainProtobuf
from support.protobuf_types import classes, describe
from support.registry_server import registry_server

WELL_KNOWN = tuple(f"google/protobuf/{name}.proto" for name in ("timestamp", "duration", "wrappers", "struct", "empty"))
SCALARS = "double float int64 uint64 int32 fixed64 fixed32 bool string bytes uint32 sfixed32 sfixed64 sint32 sint64"
WRAPPERS = "Double Float Int64 UInt64 Int32 UInt32 Bool String Bytes"
EVERY = describe(
    "every.proto",
    {
        "Inner": {"a": "int32", "s": "string", "u": "uint64", "empty": "google.protobuf.Empty"},
        "Tree": {"name": "string", "children": "repeated Tree"},
        "Every": {
            **{f"f_{kind}": kind for kind in SCALARS.split()},
            **{f"r_{kind}": f"repeated {kind}" for kind in SCALARS.split()},
            **{f"w_{kind.lower()}": f"google.protobuf.{kind}Value" for kind in WRAPPERS.split()},
            "color": "Color",
            "colors": "repeated Color",
            "inner": "Inner",
            "inners": "repeated Inner",
            "opt": "optional int32",
            "one": "oneof int32",
            "other": "oneof string",
            "third": "oneof Inner",
            "none": "oneof google.protobuf.Empty",
            "by_text": "map<string, uint64>",
            "by_number": "map<int32, Inner>",
            "at": "google.protobuf.Timestamp",
            "times": "repeated google.protobuf.Timestamp",
            "took": "google.protobuf.Duration",
            "any": "google.protobuf.Struct",
            "values": "repeated google.protobuf.Value",
            "tree": "Tree",
        },
    },
    enums={"Color": ["RED", "GREEN"]},
    imports=WELL_KNOWN,
)
PLAIN = describe("plain.proto", {"Trip": {"id": "int64", "city": "string"}})
LATER = describe(
    "later.proto",
    {"Trip": {"id": "int64", "city": "string", "fare": "double"}, "Trip.Stop": {"x": "int32"}, "Bus": {"id": "int64"}},
)


def frame(identifier: int, indexes: bytes, message: Any) -> bytes:
    return b"\0" + identifier.to_bytes(4, "big") + indexes + message.SerializeToString()


def plain(folder: Path, file: Any, name: str) -> PlainProtobuf:
    (folder / "set.desc").write_bytes(FileDescriptorSet(file=[file]).SerializeToString())
    return PlainProtobuf(str(folder / "set.desc"), name)


def rows(decoded: Decoded) -> list[dict[str, Any]]:
    return decoded.rows.to_pylist()


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> PlainProtobuf:
    return plain(tmp_path_factory.mktemp("every"), EVERY, "shop.Every")


def test_every_kind_of_field_is_a_column_of_a_table(every: PlainProtobuf) -> None:
    kinds = classes(EVERY)
    m = kinds["shop.Every"](f_uint64=2**64 - 1, f_fixed64=2**63, f_int64=-(2**63), f_uint32=2**32 - 1, f_sint32=-7)
    m.f_string, m.f_bytes, m.f_bool, m.f_double, m.f_float = "Málaga", b"\xff\0", True, 0.1, 0.5
    m.r_uint64.extend([0, 2**64 - 1])
    m.r_string.extend(["", "a"])
    m.color, m.opt, m.other = 1, 0, ""
    m.colors.extend([0, 5])
    m.inner.u = 2**64 - 1
    m.inners.add(s="x").empty.SetInParent()
    m.by_text["a"], m.by_text[""] = 2**63, 0
    m.by_number[-3].a = 4
    m.w_int32.value, m.w_uint64.value = 0, 2**64 - 1
    m.at.FromDatetime(datetime(2026, 1, 2, 3, 4, 5, 678901, UTC))
    m.times.add(seconds=-1, nanos=999_999_999)
    m.took.seconds, m.took.nanos = -1, -500_000_000
    m.any.update({"k": [1, None, {"b": "ü"}]})
    m.values.add(number_value=1.5)
    m.tree.name = "root"
    m.tree.children.add(name="leaf")
    full, empty = rows(every.decode(pa.array([m.SerializeToString(), b""], pa.binary())))
    inner: dict[str, Any] = {"a": 0, "s": "", "u": Decimal(0), "empty": None}
    most = Decimal(2**64 - 1)
    expected: dict[str, Any] = {
        "f_uint64": most, "f_fixed64": Decimal(2**63), "f_int64": -(2**63), "f_uint32": 2**32 - 1, "f_sint32": -7,
        "f_string": "Málaga", "f_bytes": b"\xff\0", "f_bool": True, "f_double": 0.1, "f_float": 0.5,
        "r_uint64": [Decimal(0), most], "r_string": ["", "a"], "color": "GREEN", "colors": ["RED", "5"],
        "opt": 0, "other": "", "inner": inner | {"u": most}, "inners": [inner | {"s": "x", "empty": True}],
        "by_number": [("-3", inner | {"a": 4})], "w_int32": 0, "w_uint64": most,
        "at": datetime(2026, 1, 2, 3, 4, 5, 678901, UTC), "times": [datetime(1969, 12, 31, 23, 59, 59, 999999, UTC)],
        "took": {"seconds": -1, "nanos": -500_000_000}, "values": ["1.5"],
    }  # fmt: skip
    assert {name: full[name] for name in expected} == expected
    assert dict(full["by_text"]) == {"a": Decimal(2**63), "": Decimal(0)}
    assert json.loads(full["any"]) == {"k": [1, None, {"b": "ü"}]}
    leaf = kinds["shop.Tree"].FromString(full["tree"]["children"][0])
    assert (full["tree"]["name"], leaf.name) == ("root", "leaf")
    # fields without presence have their default, others are null
    nulls = [
        "opt",
        "one",
        "other",
        "third",
        "none",
        "inner",
        "at",
        "took",
        "any",
        "tree",
        *(n for n in empty if n[:2] == "w_"),
    ]
    assert {name: empty[name] for name in nulls} == dict.fromkeys(nulls)
    assert (empty["f_int64"], empty["f_string"], empty["color"], empty["r_bool"], empty["by_text"]) == (
        0,
        "",
        "RED",
        [],
        [],
    )


def test_all_columns_are_stored_and_read_back_the_same(every: PlainProtobuf) -> None:
    m = classes(EVERY)["shop.Every"](f_int64=1, f_uint64=2**64 - 1, color=1, any={"a": 1})
    m.inner.u, m.by_number[3].a = 5, 6
    m.at.seconds = 7
    decoded = every.decode(pa.array([m.SerializeToString()], pa.binary())).rows
    assert all(field.nullable for field in decoded.schema)
    t = lakebed.create("memory://protobuf/every", decoded.schema, key="f_int64", type="mor")
    for _ in range(2):
        t.upsert(decoded)
    assert t.to_arrow().select(decoded.column_names).to_pylist() == decoded.to_pylist()


def test_damaged_messages_are_bad_where_protobuf_itself_refuses_them(tmp_path: Path) -> None:
    """Messages with changed bytes: the rows of those that remain messages are those of Google's reader."""
    file = describe(
        "t.proto",
        {"In": {"s": "string", "n": "int64"}, "T": {"id": "int64", "s": "string", "i": "In", "m": "map<string, In>"}},
    )
    kind = classes(file)["shop.T"]
    reader = plain(tmp_path, file, "shop.T")
    m = kind(id=5, s="abc")
    m.i.s, m.m["k"].n = "x", 1 << 40
    seed, dice = m.SerializeToString(), random.Random(7)
    messages: list[bytes] = []
    for _ in range(1500):
        data = bytearray(seed)
        for _ in range(dice.randint(0, 2)):
            at = dice.randrange(len(data))
            data[at : at + dice.choice([0, 1, 1, 3])] = bytes(
                dice.randrange(256) for _ in range(dice.choice([1, 1, 0]))
            )
            data = data or bytearray(seed)
        messages.append(bytes(data))
    expected: dict[int, tuple[int, str, str]] = {}
    for number, data in enumerate(messages):
        try:
            row = kind.FromString(data)
        except Exception:
            continue
        expected[number] = (row.id, row.s, row.i.s)
    decoded = reader.decode(pa.array(messages, pa.binary()))
    found = {
        int(number): (row["id"], row["s"], (row["i"] or {"s": ""})["s"])
        for number, row in zip(decoded.numbers, rows(decoded), strict=True)
    }
    assert found == expected
    assert [bad.number for bad in decoded.bad] == [n for n in range(len(messages)) if n not in expected]
    assert {bad.reason for bad in decoded.bad} == {"RECORD_CREATION"}


def test_a_time_that_is_none_is_a_bad_message(every: PlainProtobuf) -> None:
    kind = classes(EVERY)["shop.Every"]
    good, *bad = (kind(f_int64=n) for n in range(4))
    for message, (seconds, nanos) in zip(bad, [(2**62, 0), (1, -1), (-62_135_596_801, 0)], strict=True):
        message.at.seconds, message.at.nanos = seconds, nanos
    good.at.seconds, good.at.nanos = 253_402_300_799, 999_999_999
    decoded = every.decode(pa.array([m.SerializeToString() for m in (*bad, good)], pa.binary()))
    assert (decoded.numbers.tolist(), [one.number for one in decoded.bad]) == ([3], [0, 1, 2])
    assert rows(decoded)[0]["at"] == datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)


FILES = {7: PLAIN, 9: LATER}


def files_of(identifier: int) -> dict[str, bytes]:
    return {"": FILES[identifier].SerializeToString()}


def test_messages_of_several_schemas_and_types_are_rows_in_their_order() -> None:
    old, new = classes(PLAIN)["shop.Trip"], classes(LATER)
    messages = [
        frame(7, b"\0", old(id=1, city="rome")),
        frame(9, b"\0", new["shop.Trip"](id=2, city="oslo", fare=1.5)),
        frame(9, b"\x02\x02", new["shop.Bus"](id=3)),
        frame(9, b"\x04\0\0", new["shop.Trip"].Stop(x=4)),
        frame(7, b"\x02\0", old(id=5, city="lima")),
    ]
    decoded = FramedProtobuf(files_of).decode(pa.array(messages, pa.binary()))
    assert [list(row.values()) for row in rows(decoded)] == [
        [1, "rome", None, None],
        [2, "oslo", 1.5, None],
        [3, None, None, None],
        [None, None, None, 4],
        [5, "lima", None, None],
    ]
    assert (decoded.rows.column_names, decoded.numbers.tolist()) == (["id", "city", "fare", "x"], [0, 1, 2, 3, 4])


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b"", "frame of a schema registry"),
        (b"\x01\0\0\0\x07\0", "frame of a schema registry"),
        (b"\0\0\0\0\x07", "names no message type"),
        (b"\0\0\0\0\x08\0", "no schema with the id 8"),
        (b"\0\0\0\0\x07\x02\x02", r"no message type \[1\]"),
        (b"\0\0\0\0\x07\x01", "names no message type"),
        (b"\0\0\0\0\x07\x02\x01", "names no message type"),
        (b"\0\0\0\0\x07\x04\0", "names no message type"),
        (b"\0\0\0\0\x07" + b"\xff" * 10, "names no message type"),
        (b"\0\0\0\0\x07\x80\x80\x04", "names no message type"),
        (b"\0\0\0\0\x07\0\x08", "failed to decode"),
        (b"\0\0\0\0\x07\0\x12\x02\xff\xfe", "failed to decode"),
    ],
)
def test_a_message_that_is_no_row_is_bad_and_its_neighbours_are_rows(bad: bytes, reason: str) -> None:
    good = frame(7, b"\0", classes(PLAIN)["shop.Trip"](id=1, city="rome"))
    listed = frame(9, b"\x04\0\0", classes(LATER)["shop.Trip"].Stop(x=1))
    decoded = FramedProtobuf(files_of).decode(pa.array([listed, good, bad, good], pa.binary()))
    assert (decoded.numbers.tolist(), [one.number for one in decoded.bad]) == ([0, 1, 3], [2])
    assert pa.compute.match_substring_regex(pa.array([decoded.bad[0].error]), reason)[0].as_py(), decoded.bad


def test_a_descriptor_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match=r"no message 'shop\.Trap'.*has shop\.Trip"):
        plain(tmp_path, PLAIN, "shop.Trap")
    with pytest.raises(InvalidOption, match="cannot be read"):
        PlainProtobuf(str(tmp_path / "none"), "shop.Trip")
    (tmp_path / "bad").write_bytes(b"\xff")
    with pytest.raises(InvalidOption, match="no descriptor set"):
        PlainProtobuf(str(tmp_path / "bad"), "shop.Trip")
    lacks = describe("a.proto", {"A": {"x": "int32"}}, imports=("b.proto",))
    with pytest.raises(InvalidOption, match=r"imports b\.proto"):
        plain(tmp_path, lacks, "shop.A")
    with pytest.raises(InvalidOption, match="has no fields"):
        plain(tmp_path, describe("e.proto", {"E": {}}), "shop.E")
    with pytest.raises(CorruptFile, match="the id 7"):
        FramedProtobuf(lambda _: {"": lacks.SerializeToString()}).decode(pa.array([b"\0\0\0\0\x07\0"], pa.binary()))


def test_a_schema_of_the_registry_brings_those_to_which_it_refers() -> None:
    city = describe("x.proto", {"City": {"name": "string"}}, package="geo")
    trip = describe("y.proto", {"Trip": {"id": "int64", "to": "geo.City"}}, imports=("geo/city.proto",))
    reference = {"name": "geo/city.proto", "subject": "geo/city", "version": 2}
    answers: dict[str, dict[str, Any]] = {
        "/schemas/ids/4?format=serialized": {
            "schemaType": "PROTOBUF",
            "schema": base64.b64encode(trip.SerializeToString()).decode(),
            "references": [reference],
        },
        "/subjects/geo%2Fcity/versions/2?format=serialized": {
            "schemaType": "PROTOBUF",
            "schema": base64.b64encode(city.SerializeToString()).decode(),
        },
        "/schemas/ids/5?format=serialized": {"schemaType": "PROTOBUF", "schema": 'syntax = "proto3";'},
        "/schemas/ids/6?format=serialized": {"schema": "{}"},
        "/schemas/ids/8?format=serialized": {
            "schemaType": "PROTOBUF",
            "schema": base64.b64encode(trip.SerializeToString()).decode(),
            "references": [reference | {"version": 9}],
        },
    }
    city.name = "geo/city.proto"
    message = classes(city, trip)["shop.Trip"](id=1)
    message.to.name = "rome"
    with registry_server() as server:
        server.answers = answers
        registry = SchemaRegistry(server.address)
        reader = FramedProtobuf(registry.descriptors)
        for _ in range(2):
            decoded = reader.decode(pa.array([frame(4, b"\0", message)], pa.binary()))
            assert rows(decoded) == [{"id": 1, "to": {"name": "rome"}}]
        assert [path for path, _ in server.asked] == list(answers)[:2]
        for identifier, text in ((5, "as descriptors"), (6, "is AVRO"), (8, "lacks geo/city.proto")):
            with pytest.raises(SourceError, match=text):
                registry.descriptors(identifier)
        with pytest.raises(KeyError):
            registry.descriptors(99)


class Messages(IngestSource):
    """Framed messages by their number."""

    def __init__(self, messages: list[bytes]) -> None:
        self._messages, self._reader = messages, FramedProtobuf(files_of)

    def poll(self, checkpoint: str | None, limit: int) -> IngestPoll:
        start = int(checkpoint or 0)
        part = self._messages[start : start + limit]
        decoded = self._reader.decode(pa.array(part, pa.binary()))
        return IngestPoll(decoded.rows if part else None, None, str(start + len(part)), more=bool(part))


def test_a_schema_that_gets_a_field_under_way_gives_the_table_a_column() -> None:
    old, new = classes(PLAIN)["shop.Trip"], classes(LATER)["shop.Trip"]
    messages = [
        frame(7, b"\0", old(id=1, city="rome")),
        frame(9, b"\0", new(id=1, city="rome", fare=2.5)),
        frame(7, b"\0", old(id=2, city="oslo")),
    ]
    job = {
        "source": Messages(messages),
        "target": {"uri": "memory://protobuf/later", "create": {"key": "id"}},
        "max_rows": 1,
    }
    assert lakebed.ingest(job, once=True).commits == 3
    found = lakebed.open("memory://protobuf/later").to_arrow().select(["id", "city", "fare"]).sort_by("id").to_pylist()
    assert found == [{"id": 1, "city": "rome", "fare": 2.5}, {"id": 2, "city": "oslo", "fare": None}]
