"""HFiles: lookups in a record-index file, lakebed against Hudi's own Java reader on the same file; writing.

    python bench/hfile.py                      1 M entries, 100,000 random keys
    python bench/hfile.py --only lakebed       a quick look without Java

See README.md in this folder for what is measured and what the bars mean.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from bars import Bar

from lakebed.format.hfile.entries import BLOCKS
from lakebed.format.hfile.reader import open_hfile
from lakebed.format.hfile.writer import write_hfile
from lakebed.format.sources import FileSource
from lakebed.metadata_kinds import record_index
from lakebed.metadata_records.records import record_form, record_schema
from lakebed.storage.local import LocalStorage
from lakebed.testing import CountingStorage

_HERE = Path(__file__).parent
_FILE_GROUPS = 8


class Inputs:
    """A record index of random keys, and the keys to look up in it."""

    def __init__(self, work: Path, entries: int, asked: int, *, even: bool, block_size: int) -> None:
        rng = np.random.default_rng(42)
        keys = _keys(rng, entries, even=even)
        form = record_form(9)
        ids = [str(_uuid(rng)) + "-0" for _ in range(_FILE_GROUPS)]
        table = pa.table(
            {
                "key": keys,
                "partition": pa.repeat("2026/11/21", len(keys)),
                "file_id": pa.array(ids).take(pa.array(rng.integers(0, _FILE_GROUPS, len(keys)))),
                "instant": pa.repeat("20261121113115110", len(keys)),
            }
        )
        self.keys, self.values = record_index.encode(table, form)
        self.schema = record_schema(form)
        self.block_size = block_size
        self.folder, self.file = work, f"{'even' if even else 'uneven'}.hfile"
        (work / self.file).write_bytes(self.written())
        chosen = np.sort(rng.choice(len(keys), min(asked, len(keys)), replace=False))
        self.asked = self.keys.take(pa.array(chosen))
        (work / f"{self.file}.keys").write_text("\n".join(self.asked.to_pylist()))

    def written(self) -> bytes:
        return write_hfile(self.keys, self.values, schema_json=self.schema, block_size=self.block_size)


def _uuid(rng: np.random.Generator) -> str:
    text = rng.bytes(16).hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def _keys(rng: np.random.Generator, entries: int, *, even: bool) -> pa.Array:
    """Sorted UUIDs; not even: cut off anywhere from the 16th character on."""
    keys = pa.array([_uuid(rng) for _ in range(entries)])
    if not even:
        lengths = pa.array(rng.integers(16, 37, entries))
        cut = [pc.utf8_slice_codeunits(keys, 0, size).filter(pc.equal(lengths, size)) for size in range(16, 37)]
        keys = pc.unique(pa.concat_arrays(cut))
    return keys.take(pc.array_sort_indices(keys))


class JavaSide:
    """A JVM with Hudi's bundle; the classes it needs of Hadoop and Avro are those of the oracle's PySpark."""

    def __init__(self, inputs: Inputs, log: Path) -> None:
        sys.path.insert(0, str(_HERE.parent / "tests"))
        from oracle.environment import oracle_environment

        found = oracle_environment()
        if found.bundle is None:
            sys.exit("HUDI_BUNDLE_JAR must name the Hudi bundle")
        find = "import os, pyspark; print(os.path.dirname(pyspark.__file__))"
        spark = subprocess.run([str(found.python), "-c", find], capture_output=True, text=True, check=True).stdout
        classes = f"{found.bundle}:{spark.strip()}/jars/*"
        file = inputs.folder / inputs.file
        with log.open("w") as noise:
            self._process = subprocess.Popen(
                ["java", "-Xmx2g", "-cp", classes, str(_HERE / "HFileSide.java"), str(file), f"{file}.keys"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=noise,
                text=True,
            )
        if self._line() != "ready":
            sys.exit(f"the JVM did not start, see {log}")

    def seconds(self, how: str, expected: int) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write(how + "\n")
        self._process.stdin.flush()
        millis, found = self._line().split()
        if int(found) != expected:
            sys.exit(f"Hudi found {found} of {expected} keys")
        return float(millis) / 1000

    def _line(self) -> str:
        assert self._process.stdout is not None
        # what Hudi logs comes the same way
        while line := self._process.stdout.readline():
            if line.strip() == "ready" or line[:1].isdigit():
                return line.strip()
        sys.exit("the JVM ended")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)


class LakebedSide:
    """The same lookups in this process; the file's bytes come from local disk."""

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs
        self.storage = CountingStorage(LocalStorage(str(inputs.folder)))

    def lookup(self, keys: pa.Array | None = None) -> None:
        asked = self._inputs.asked if keys is None else keys
        size = (self._inputs.folder / self._inputs.file).stat().st_size
        found = open_hfile(FileSource(self.storage, self._inputs.file, size)).lookup(asked)
        if len(found) != len(asked):
            sys.exit(f"lakebed found {len(found)} of {len(asked)} keys")


def _timed(work: Callable[[], object]) -> tuple[float, float]:
    """Wall and CPU seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


Figures = dict[str, list[float]]


def measure(inputs: Inputs, java: JavaSide | None, rounds: int) -> Figures:
    """Seconds of each step, the sides in turn; the first half of the rounds warms up the JVM."""
    side, figures = LakebedSide(inputs), defaultdict[str, list[float]](list)
    rng = np.random.default_rng(7)
    some = inputs.asked.take(pa.array(rng.permutation(len(inputs.asked))[:1_000]))
    asked = {"": inputs.asked, ", 1000 keys": some, ", 10 keys": some.slice(0, 10)}
    for n in range(2 * rounds):
        kept: Figures = figures if n >= rounds else defaultdict(list)
        for how in ("uncached", "memory", "cached", "records") if java else ():
            kept[f"hudi {how}"].append(java.seconds(how, len(inputs.asked)))
        for count, keys in asked.items():
            BLOCKS.clear()
            for how in ("cold", "warm"):
                wall, cpu = _timed(lambda keys=keys: side.lookup(keys))
                kept[f"lakebed {how}{count}"].append(wall)
                kept[f"lakebed {how}{count}, CPU"].append(cpu)
        if n >= rounds:
            kept["write, CPU"].append(_timed(inputs.written)[1])
    BLOCKS.clear()
    side.storage.reset()
    side.lookup(some.slice(0, 10))
    figures["requests of 10 cold keys"].append(side.storage.counts["read_ranges"])
    return figures


def bars(name: str, figures: Figures, entries: int) -> list[Bar]:
    """The bars: of the best runs, as it is their time on the clock that counts."""

    def ratio(ours: str, theirs: str) -> float | None:
        return min(figures[ours]) / min(figures[theirs]) if figures.get(theirs) else None

    rate = entries / median(figures["write, CPU"]) / 1e6
    return [
        Bar(f"{name}: cold, lakebed's / Hudi's uncached", ratio("lakebed cold", "hudi uncached"), 1 / 2, False),
        Bar(f"{name}: warm, lakebed's / Hudi's cached", ratio("lakebed warm", "hudi records"), 1 / 3, False),
        Bar(f"{name}: written, M entries a CPU second", rate, 0.8, True),
        Bar(f"{name}: requests for 10 keys of a cold file", figures["requests of 10 cold keys"][0], 2, False),
    ]


def main() -> int:
    arguments = _arguments()
    work = Path(tempfile.mkdtemp(prefix="lakebed-bench-", dir=arguments.work))
    found: list[Bar] = []
    kept: dict[str, Figures] = {}
    try:
        for name in ("even", "uneven"):
            inputs = Inputs(
                work, arguments.entries, arguments.keys, even=name == "even", block_size=arguments.block_size
            )
            java = None if arguments.only == "lakebed" else JavaSide(inputs, work / f"java-{name}.log")
            try:
                figures = kept[name] = measure(inputs, java, arguments.rounds)
            finally:
                if java is not None:
                    java.close()
            size = (work / inputs.file).stat().st_size
            print(
                f"{name} lengths: {len(inputs.keys):,} entries, {size / 1e6:.1f} MB, {len(inputs.asked):,} keys asked"
            )
            for step, seconds in figures.items():
                if not step.startswith("requests"):
                    print(f"  {step:<26}{1000 * median(seconds):9.1f} ms  ({1000 * min(seconds):.1f} at best)")
            found += bars(name, figures, len(inputs.keys))
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print(*(bar.line() for bar in found), sep="\n")
    if arguments.json:
        about = {"entries": arguments.entries, "keys": arguments.keys, "cores": os.cpu_count()}
        Path(arguments.json).write_text(json.dumps({"about": about, "seconds": kept}, indent=1))
    return 1 if any(bar.held is False for bar in found) else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=100_000, help="random keys to look up")
    parser.add_argument("--block-size", type=int, default=1 << 20)
    parser.add_argument("--rounds", type=int, default=12, help="counted rounds; as many before them warm up")
    parser.add_argument("--only", choices=("lakebed",), help="leave Java out")
    parser.add_argument("--json", metavar="FILE", help="write every figure there as well")
    parser.add_argument("--work", help="where files go (default: the temporary folder)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
