"""Ask real Hudi for record keys, partition paths and buckets, and keep the answers for the unit tests.

    PYTHONPATH=tests python tests/interop/make_key_vectors.py

Writes tests/unit/expressions/hudi_keys.json. Each case is one small table: written by upsert under a bucket index of
8, read back.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from oracle.client import HudiOracle, OracleError
from oracle.environment import oracle_environment
from support.key_vectors import rows_of

OUT = Path(__file__).parents[1] / "unit" / "expressions" / "hudi_keys.json"
BUCKETS = 8
CLASSES = {
    "SIMPLE": "SimpleKeyGenerator",
    "COMPLEX": "ComplexKeyGenerator",
    "NON_PARTITION": "NonpartitionedKeyGenerator",
    "TIMESTAMP": "TimestampBasedKeyGenerator",
    "CUSTOM": "CustomKeyGenerator",
    "GLOBAL_DELETE": "GlobalDeleteKeyGenerator",
}
W = "hoodie.datasource.write."
OPTIONS = {
    "hoodie.metadata.enable": "false",
    "hoodie.index.type": "BUCKET",
    "hoodie.bucket.index.num.buckets": str(BUCKETS),
    "hoodie.embed.timeline.server": "false",
    W + "row.writer.enable": "false",
}
STAMPS = [
    0,
    1706933106123456,
    -1,
    -1000,
    -1500000,
    -1999999,
    4102444800000000,
    1710054000000000,
    1706933106120000,
    None,
]
TYPED: dict[str, list[Any]] = {
    "byte": [0, 127, -128, None],
    "short": [0, 32767, -32768, None],
    "int": [0, 1, -1, 2**31 - 1, -(2**31), None],
    "long": [0, 2**63 - 1, -(2**63), 1706933106123, None],
    "boolean": [True, False, None],
    "float": [0.0, -0.0, 1.5, 1e10, 0.1, 3.4e38, 1.5e-38, 1e7, 0.001, 9.999e-4, "NaN", "inf", "-inf", None],
    "double": [0.0, -0.0, 1.5, 1e10, 0.1, 1e-5, 1.7976931348623157e308, 1e7, 0.001, 123456789.125, "NaN",
        "inf", "-inf", None],
    "decimal(10,2)": ["0", "1.5", "-7", "99999999.99", "-0.01", None],
    "decimal(20,7)": ["0", "1E-7", "-1E-7", "0.0000012", "12.3456789", "-0.001", None],
    "decimal(38,18)": ["0", "1E-18", "-0.25", "12345678901234567890.5", None],
    "date": [0, 1, -1, 19756, 60, -100000, 2932896, None],
    "timestamp": STAMPS,
    "timestamp_ntz": STAMPS,
    "binary": ["6262", "", "00ff", None],
}  # fmt: skip
TEXTS = ["abc", "", "é€😀", "a b", "-2024-02-03", None]
ESCAPED = ["a/b", "q\"#%'*", ":=?\\{[]^", "}&;|<>~ `$@!,+()", "\x01\x1f\x7f", "2024-02-03", "", "é/€", None]


def numbered(**columns: list[Any]) -> dict[str, list[Any]]:
    size = len(next(iter(columns.values()))[1])
    return {"row": ["int", list(range(size))], **columns}


def case(
    name: str, columns: dict[str, list[Any]], kind: str, keys: str, partitions: str = "", **more: Any
) -> dict[str, Any]:
    """`more`: other fields of KeyGeneratorSpec, `bucket_fields`, and `options` for Hudi alone."""
    spec = {"kind": kind, "key_fields": keys.split(), "partition_fields": partitions.split()}
    options, bucket_fields = more.pop("options", {}), more.pop("bucket_fields", "").split()
    return {"name": name, "spec": spec | more, "bucket_fields": bucket_fields, "options": options, "columns": columns}


def typed_cases() -> Iterator[dict[str, Any]]:
    for kind, values in TYPED.items():
        columns = numbered(v=[kind, values])
        yield case(f"complex {kind}", columns, "COMPLEX", "v row", "v", hive_style=True)
        if kind in ("int", "double", "decimal(20,7)", "date", "timestamp", "binary"):
            present = [v for v in values if v not in (None, "")]
            yield case(f"simple {kind}", numbered(v=[kind, present]), "SIMPLE", "v", "row")
    for kind in ("timestamp", "timestamp_ntz"):
        columns = numbered(v=[kind, STAMPS])
        yield case(
            f"consistent {kind}", columns, "COMPLEX", "v row", "v", url_encode=True, consistent_logical_timestamp=True
        )
    yield case("complex string", numbered(v=["string", TEXTS]), "COMPLEX", "v row", "v")
    nested = [{"b": "x", "Cd": 1}, {"b": None, "Cd": 2}, {"b": "", "Cd": None}]
    yield case("nested", numbered(a=["struct", nested]), "COMPLEX", "a.b row", "a.b", hive_style=True)
    yield case(
        "upper case and not ASCII",
        numbered(Größe=["string", ["a", None]], ID=["int", [1, 2]]),
        "COMPLEX",
        "ID Größe",
        "Größe",
        hive_style=True,
    )


def path_cases() -> Iterator[dict[str, Any]]:
    escaped = numbered(v=["string", ESCAPED], w=["string", ESCAPED[::-1]])
    for hive in (False, True):
        yield case(f"encoded {hive}", escaped, "SIMPLE", "row", "v", hive_style=hive, url_encode=True)
        yield case(f"encoded twice {hive}", escaped, "COMPLEX", "row", "v w", hive_style=hive, url_encode=True)
        plain = numbered(v=["string", ["x/y", "2024-02-03", "a b", None]], w=["int", [1, None, 3, 4]])
        yield case(f"plain {hive}", plain, "COMPLEX", "row w", "v w", hive_style=hive)
    dates = numbered(d=["date", [0, 19756, None]], s=["string", ["2024-02-03", "a-b-c", ""]])
    yield case("slash date", dates, "SIMPLE", "row", "d", slash_dates=True)
    yield case("slash text", dates, "SIMPLE", "row", "s", slash_dates=True)
    yield case("slash encoded", dates, "SIMPLE", "row", "s", slash_dates=True, url_encode=True)
    yield case("no partitions", dates, "NON_PARTITION", "s row")
    yield case("no partitions, one key", dates, "NON_PARTITION", "row")
    yield case("global delete", dates, "GLOBAL_DELETE", "row s")
    yield case("global delete, one key", dates, "GLOBAL_DELETE", "row")
    old = {"hoodie.write.table.version": "8", "hoodie.write.complex.keygen.validation.enable": "false"}
    new = old | {"hoodie.write.complex.keygen.new.encoding": "true"}
    yield case("complex of one field", dates, "COMPLEX", "row", "d")
    yield case("complex of one field, version 8", dates, "COMPLEX", "row", "d", options=old)
    yield case(
        "complex of one field, version 8, new",
        dates,
        "COMPLEX",
        "row",
        "d",
        options=new,
        complex_single_field_prefix=False,
    )


def loops(key: str, fields: tuple[str, ...]) -> bool:
    """Whether Hudi's parser never ends: a field that is not hashed whose value has a colon and no comma before the
    key's end.
    """
    first, _, rest = key.partition(":")
    if "," not in key or ":" not in key:
        return False
    last = re.split(",(?=[^,:]*:)", f"{first}:{rest}")[-1]
    return last.partition(":")[0] not in fields and ":" in last.partition(":")[2]


def bucket_cases() -> Iterator[dict[str, Any]]:
    odd = [
        "a",
        "a,b",
        "a:b",
        "a,b:c",
        ":",
        ",",
        "a,id:5",
        "x,ts:7",
        "__null__",
        "__empty__",
        "",
        None,
        "é😀,:",
        "a:b,c",
        "2014-10-22 13:50:42",
        ",,::",
    ]
    columns = numbered(
        id=["string", odd], ts=["string", odd[5:] + odd[:5]], n=["long", list(range(10**10, 10**10 + len(odd)))]
    )
    yield case("odd keys, all fields", columns, "NON_PARTITION", "id ts row")
    keys = [
        f"ts:{t or '__null__'},n:{n},id:{i or '__null__'}"
        for i, t, n in zip(*(columns[c][1] for c in ("id", "ts", "n")), strict=True)
    ]
    ending = [n for n, key in enumerate(keys) if not loops(key, ("id", "ts"))]
    some = {name: [kind, [values[n] for n in ending]] for name, (kind, values) in columns.items()}
    yield case("odd keys, no numbers", some, "NON_PARTITION", "ts n id", bucket_fields="id ts")
    for kind, prefix in (("SIMPLE", ""), ("COMPLEX", "id:")):
        ending = [v for v in odd if v and not loops(prefix + v, ("id",))]
        yield case(f"odd single keys, {kind}", numbered(id=["string", ending]), kind, "id", "row")
    calm = ["a", "a,b", "__null__", "__empty__", "", None, ",", "x,y,z"]
    calmly = numbered(id=["string", odd[: len(calm)]], ts=["string", calm])
    yield case("one of two hashed", calmly, "COMPLEX", "id ts", "row", bucket_fields="id")
    yield case("one of three hashed", calmly, "NON_PARTITION", "ts row id", bucket_fields="id")
    yield case(
        "number hashed", columns | {"id": ["string", ["v"] * len(odd)]}, "NON_PARTITION", "id n", bucket_fields="n"
    )


def timestamp(kind: str, output: str, **more: str) -> dict[str, str]:
    return {"timestamp.type": kind, "output.dateformat": output, **{k.replace("_", "."): v for k, v in more.items()}}


LETTERS = "yyyy/MM/dd HH/y yy YYYY M MMM MMMM d D DDD/x w e E EEEE/a K h k m s S SSS SSSSS/Z ZZ ZZZ C/'o''clock'"


def number_cases() -> Iterator[dict[str, Any]]:
    shapes = [
        ("UNIX_TIMESTAMP", "long", [0, 1, -1, 1706933106, 1710054000, 253402300799, None]),
        ("UNIX_TIMESTAMP", "double", [0.5, 1706933106.9, -1.5, None]),
        ("UNIX_TIMESTAMP", "decimal(20,7)", ["0.5", "1706933106.9", "-1.5", None]),
        ("UNIX_TIMESTAMP", "int", [0, 1706933106, -86401, None]),
        ("EPOCHMILLISECONDS", "long", [0, 1706933106123, -1, 1706933106123456, -99999999999999, None]),
        ("EPOCHMILLISECONDS", "timestamp", [0, 1706933106123, None]),
        ("EPOCHMICROSECONDS", "timestamp", STAMPS),
        ("EPOCHMICROSECONDS", "long", [-1, -999, -1000, -1001, 1706933106123456]),
        ("SCALAR", "date", [0, 19756, -1, None]),
        ("SCALAR", "long", [0, 19756, -1, None]),
    ]
    for number, (kind, column, values) in enumerate(shapes):
        columns = numbered(v=[column, values])
        zones = ({}, {"timezone": "GMT+8:00"}, {"output_timezone": "America/New_York"})
        for zone in (zones[number % 3], zones[(number + 1) % 3])[: 1 + number % 2]:
            text = LETTERS if number % 2 == 0 else "yyyy/MM/dd HH"
            settings = timestamp(kind, text, timestamp_scalar_time_unit="DAYS", **zone)
            name = f"{kind} {column} {zone}"
            yield case(name, columns, "TIMESTAMP", "row", "v", timestamp=settings, hive_style=number % 3 == 0)
    columns = numbered(v=["timestamp", STAMPS])
    settings = timestamp("EPOCHMILLISECONDS", "yyyy/MM/dd HH:mm:ss.SSS", output_timezone="Asia/Kolkata")
    yield case(
        "consistent",
        columns,
        "TIMESTAMP",
        "row",
        "v",
        timestamp=settings,
        url_encode=True,
        consistent_logical_timestamp=True,
    )
    custom = numbered(n=["int", [1, None]], ts=["timestamp", [1706933106123456, None]])
    settings = timestamp("EPOCHMICROSECONDS", "yyyy/MM/dd HH")
    for hive in (False, True):
        yield case(
            f"custom {hive}", custom, "CUSTOM", "row n", "n:simple ts:TIMESTAMP", timestamp=settings, hive_style=hive
        )
    yield case("custom, one key", custom, "CUSTOM", "row", "ts:timestamp n:SIMPLE", timestamp=settings)
    yield case("custom, no partitions' kind", custom, "CUSTOM", "row", "n:SIMPLE", url_encode=True)


READ = {
    "yyyy-MM-dd'T'HH:mm:ssZ,yyyy-MM-dd": ["2024-02-03T04:05:06Z", "2024-02-03T04:05:06+0530",
        "2024-02-03t04:05:06-08:00", "2024-02-03", "2024-2-3", "+2024-02-03", "-0044-03-15",
            "2024-02-03T04:05:06+05", "12345-01-01", None],
    "yyyyMMdd": ["20240203", "2024023", None],
    "dd MMM yyyy hh:mm a,d MMMM yyyy K:m a": ["03 Feb 2024 11:05 PM", "03 february 2024 12:05 am",
        "3 MAR 1969 1:5 AM", None],
    "yyyy-MM-dd HH:mm:ss.SSS": ["2024-02-03 04:05:06.7", "2024-02-03 04:05:06.789", "2024-11-03 01:30:00.0", None],
    "yyyy DDD": ["2024 366", "2024 060", "2023 1"],
    "yyyy-MM-dd'T'kk:mm:ssZZ": ["2024-02-03T24:05:06+01:00", "2024-02-03T01:05:06Z"],
    "yy-MM-dd": ["24-01-01", "69-01-01", "2024-01-01", "5-01-01"],
    "EEE dd MMM yyyy K:m a": ["Sat 03 Feb 2024 0:5 pm", "Mon 03 Feb 2024 11:59 AM", "monday 05 Feb 2024 0:0 am"],
}  # fmt: skip


def text_cases() -> Iterator[dict[str, Any]]:
    for number, (inputs, values) in enumerate(READ.items()):
        columns = numbered(v=["string", values])
        zones = (
            {},
            {"timezone": "GMT+8:00"},
            {"output_timezone": "America/New_York"},
            {"input_timezone": "Asia/Kolkata"},
        )
        for zone in (zones[number % 4], zones[(number + 1) % 4]):
            text = "yyyy/MM/dd HH:mm:ss.SSS Z ZZZ" if number % 2 == 0 else "yyyy/MM/dd HH"
            settings = timestamp("DATE_STRING" if number else "MIXED", text, input_dateformat=inputs, **zone)
            yield case(
                f"{inputs} {zone}", columns, "TIMESTAMP", "row", "v", timestamp=settings, url_encode=number % 2 == 0
            )


def refused_cases() -> Iterator[dict[str, Any]]:
    """Rows that real Hudi fails on; ours have no key or no path then, or are refused by type."""
    day = timestamp("DATE_STRING", "yyyy/MM/dd", input_dateformat="yyyy-MM-dd HH:mm", timezone="America/New_York")
    for text in (
        "2024-13-01 00:00",
        "2024-02-30 00:00",
        "2024-02-03 24:00",
        "2024-03-10 02:30",
        "2024-02-03",
        "",
        "24-02-03 00:00 ",
    ):
        yield case(f"not a date: {text!r}", numbered(v=["string", [text]]), "TIMESTAMP", "row", "v", timestamp=day)
    mixed = timestamp("MIXED", "yyyy/MM/dd", input_dateformat="yyyy-MM-dd")
    yield case("number for MIXED", numbered(v=["long", [1706933106]]), "TIMESTAMP", "row", "v", timestamp=mixed)
    seconds = timestamp("UNIX_TIMESTAMP", "yyyy/MM/dd")
    yield case("text for a number", numbered(v=["string", ["1706933106"]]), "TIMESTAMP", "row", "v", timestamp=seconds)
    yield case("boolean time", numbered(v=["boolean", [True]]), "TIMESTAMP", "row", "v", timestamp=seconds)
    for value in (None, ""):
        yield case(f"no key: {value!r}", numbered(v=["string", [value]]), "SIMPLE", "v", "row")
        yield case(f"no keys: {value!r}", numbered(v=["string", [value]], w=["int", [None]]), "COMPLEX", "v w", "row")
        yield case(f"no key, complex: {value!r}", numbered(v=["string", [value]]), "COMPLEX", "v", "row")


def hudi_options(entry: dict[str, Any]) -> dict[str, str]:
    spec = entry["spec"]
    options = {
        **OPTIONS,
        W + "recordkey.field": ",".join(spec["key_fields"]),
        W + "partitionpath.field": ",".join(spec["partition_fields"]),
        # the datasource goes by the class and overlooks a type
        W + "keygenerator.class": f"org.apache.hudi.keygen.{CLASSES[spec['kind']]}",
        W + "hive_style_partitioning": str(spec.get("hive_style", False)).lower(),
        W + "partitionpath.urlencode": str(spec.get("url_encode", False)).lower(),
        W + "keygenerator.consistent.logical.timestamp.enabled": str(
            spec.get("consistent_logical_timestamp", False)
        ).lower(),
        **{"hoodie.keygen.timebased." + key: value for key, value in spec.get("timestamp", {}).items()},
        **entry["options"],
    }
    if spec.get("slash_dates"):
        options[W + "slash.separated.date.partitioning"] = "true"
    if not spec["partition_fields"]:
        options.pop(W + "partitionpath.field", None)
    if entry["bucket_fields"]:
        options["hoodie.bucket.index.hash.field"] = ",".join(entry["bucket_fields"])
    return options


def answer(oracle: HudiOracle, table: Path, entry: dict[str, Any]) -> dict[str, Any]:
    """Hudi's keys, paths and buckets by row, from the base files themselves; or its error."""
    try:
        oracle.write(table, rows_of(entry["columns"]), "upsert", hudi_options(entry), "overwrite")
    except OracleError as error:
        return {"error": str(error)[:200]}
    import pyarrow.parquet as pq

    found: dict[int, list[Any]] = {}
    for file in table.rglob("*.parquet"):
        if ".hoodie" in file.parts:
            continue
        rows = pq.ParquetFile(file).read(["row", "_hoodie_record_key", "_hoodie_partition_path"])
        for row, key, path in zip(*(column.to_pylist() for column in rows.columns), strict=True):
            found[row] = [key, path, int(file.name[:8])]
    return {"rows": [found.get(n) for n in entry["columns"]["row"][1]]}


def without_answer(entry: dict[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps({name: value for name, value in entry.items() if name != "hudi"}))


def save(version: str, cases: list[dict[str, Any]]) -> None:
    lines = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in cases if "hudi" in entry)
    OUT.write_text(
        f'{{"hudi": {json.dumps(version)}, "buckets": {BUCKETS}, "cases": [\n{lines}\n]}}\n', encoding="utf-8"
    )


def main() -> None:
    """Asks for new and changed cases only; remove the file to ask for all."""
    known = json.loads(OUT.read_text(encoding="utf-8"))["cases"] if OUT.exists() else []
    cases = [*typed_cases(), *path_cases(), *bucket_cases(), *number_cases(), *text_cases(), *refused_cases()]
    with tempfile.TemporaryDirectory() as folder:
        oracle = HudiOracle(oracle_environment(), Path(folder) / "oracle.log")
        for number, entry in enumerate(cases):
            same = [old["hudi"] for old in known if without_answer(old) == without_answer(entry)]
            if not same:
                print(f"{number + 1}/{len(cases)} {entry['name']} ", end="", file=sys.stderr, flush=True)
                same = [answer(oracle, Path(folder) / f"t{number}", entry)]
                print(same[0].get("error", "ok"), file=sys.stderr, flush=True)
            entry["hudi"] = same[0]
            save(oracle.version, cases)
        oracle.close()


if __name__ == "__main__":
    pa.set_cpu_count(1)
    main()
