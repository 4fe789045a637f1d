"""Consistent hashing: hashes and rings as Hudi has them, what splits and merges, and which rings count."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from lakebed.errors import CorruptFile
from lakebed.index.consistent.resize import BucketSizes, PartitionResize
from lakebed.index.consistent.ring import RING_SIZE, Children, Ring, default_ring, merge, ring_hashes, split, xxh32
from lakebed.model import BaseFile, FileSlice

# key, hash fields, its place on the ring, and the node of eight that has it: told by Hudi's own classes
VECTORS = [
    ("k0", "id", 1521402247, 1610612736),
    ("abc", "id", 852579327, 1073741824),
    ("", "id", 46947589, 268435456),
    ("é€😀", "id", 1850554848, 1879048192),
    ("id:1,ts:2", "id", 921487538, None),
    ("id:1,ts:2", "id,ts", 1412794799, None),
    ("id:1,ts:2", "ts,id", 1412794799, None),
    ("id:__null__,ts:5", "id", 171510893, None),
    ("id:__null__,ts:5", "id,ts", 416672614, None),
    ("id:__empty__,ts:5", "id,ts", 475484659, None),
    ("ts:2014-10-22 13:50:42,id:3", "ts", 1810899483, None),
]


@pytest.mark.parametrize(("key", "fields", "place", "node"), VECTORS)
def test_keys_are_where_hudi_has_them(key: str, fields: str, place: int, node: int | None) -> None:
    found = ring_hashes(pa.array(["another", key, None, "x:1,y:2"]), fields.split(","))
    assert found[1] == place
    if node is not None:
        ring = default_ring("p", 8)
        assert ring.nodes[ring.node_numbers(found)[1]].value == node


def test_xxh32_of_any_length() -> None:
    # shorter than a stripe of 16 bytes, one, several and a rest
    texts = ["", "a", "abc", "abcd", "Nobody inspects the spammish repetition", "x" * 100]
    assert [f"{h:08x}" for h in xxh32(pa.array(texts)).tolist()] == [
        "02cc5d05",
        "550d7456",
        "32d153ff",
        "a3643705",
        "e2293b2f",
        "4bd30d3a",
    ]


def test_the_first_ring_is_the_same_for_every_writer() -> None:
    assert [(n.value, n.prefix) for n in default_ring("p0", 2).nodes] == [
        (1073741824, "dad73638-0699-3d64-9014-d55bccb9782d"),
        (2147483647, "a13eb516-36a4-3dd9-8c1c-801a3ef285ac"),
    ]
    plain = default_ring("", 3)
    assert [n.value for n in plain.nodes] == [715827883, 1431655766, 2147483647]
    assert plain.nodes[0].file_id == "311806fd-dba0-301e-bf8b-b1ef74239d59-0"


def test_a_ring_is_stored_as_hudi_stores_it() -> None:
    ring = default_ring("p0", 2)
    data = ring.encode()
    assert data.startswith(b'{\n  "version" : 0,\n  "partitionPath" : "p0",\n  "instant" : "00000000000000",\n')
    assert b'"nodes" : [ {\n    "value" : 1073741824,\n    "fileIdPrefix" : "dad7' in data
    assert data.endswith(b'"tag" : "NORMAL"\n  } ]\n}')
    assert Ring.decode(data, "f") == ring
    broken = json.dumps(json.loads(data) | {"nodes": []}).encode()
    for bad in (b"", b"{}", data[:-9], broken):
        with pytest.raises(CorruptFile, match=r"f (is no ring|has no nodes)"):
            Ring.decode(bad, "f")


def test_a_split_halves_a_bucket_also_round_the_end_of_the_ring() -> None:
    ring = default_ring("p", 4)
    children = split(ring, 0, ["a", "b"])
    assert children is not None
    assert [(n.value, n.tag) for n in children] == [(268435455, "REPLACE"), (536870912, "REPLACE")]
    # without the last node its values belong to the first, which then has values on both sides of the end
    open_ended = ring.changed("1", merge(ring, [3, 0], "c"))
    assert [n.value for n in open_ended.nodes] == [536870912, 1073741824, 1610612736]
    halves = split(open_ended, 0, ["a", "b"])
    assert halves is not None
    both = Children("p", 1, halves)
    after = open_ended.changed("2", halves)
    hashes = pa.array([0, 536870912, 1610612737, RING_SIZE], pa.int32()).to_numpy()
    by_ring = [after.nodes[n].prefix for n in after.node_numbers(hashes)]
    assert [both.alive[n].prefix for n in both.node_numbers(hashes)] == by_ring
    assert set(by_ring) == {"a", "b"}
    assert after.sequence == 2


def slices(*sizes: int) -> dict[int, FileSlice]:
    ring = default_ring("p", len(sizes))
    files = [BaseFile("p", n.file_id, "0", "1", "f", size) for n, size in zip(ring.nodes, sizes, strict=True)]
    return {at: FileSlice("p", f.file_id, "1", f) for at, f in enumerate(files) if f.size}


def resized(sizes: tuple[int, ...], most: int, least: int, *, everything: bool = False) -> list[tuple[int, list[str]]]:
    plan = PartitionResize(
        default_ring("p", len(sizes)), slices(*sizes), BucketSizes(100, 10, most, least), "5", everything
    )
    groups = list(plan.groups())
    nodes = [Children.of_metadata(group.extra) for group in groups]
    assert all(children is not None and children.partition == "p" for children in nodes)
    return [(len(g.slices), [n.tag for n in c.nodes]) for g, c in zip(groups, nodes, strict=True) if c is not None]


def test_large_buckets_split_and_small_neighbours_merge_within_bounds() -> None:
    split_one, pair = (1, ["REPLACE", "REPLACE"]), (2, ["DELETE", "REPLACE"])
    assert resized((101, 50, 4, 5), most=8, least=1) == [split_one, pair]
    assert resized((101, 200, 4, 50), most=5, least=4) == [split_one]
    assert resized((101, 50, 4, 5), most=4, least=4) == []
    assert resized((1, 1, 1, 1), most=4, least=1) == [(4, ["DELETE"] * 3 + ["REPLACE"])]
    assert resized((1, 1, 1, 1), most=4, least=3) == [pair]
    assert resized((6, 0, 6, 6), most=4, least=1) == [], "too much together, and nothing next to the second"
    assert resized((50, 101, 50, 50), most=9, least=1, everything=True)[0] == split_one
    assert len(resized((50, 101, 50, 50), most=9, least=1, everything=True)) == 4
