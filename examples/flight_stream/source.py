"""Where the events come from: a topic of a real Kafka broker, or files of JSON where no broker can be started."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import polars as pl

from flight_stream.events import as_json
from lakebed.errors import UnsupportedFeature

_ROOT = Path(__file__).parents[2]
_TOPIC, _PARTITIONS = "flights", 3
_PER_FILE, _BYTES = 3000, 1_200_000


class Source(Protocol):
    """A source of the ingest job: `section` is its description there."""

    name: str
    section: dict[str, Any]

    def send(self, events: pl.DataFrame) -> None:
        """Make the events readable."""
        ...

    def close(self) -> None:
        """End what was started."""
        ...


class Files:
    """A folder that gets a file of JSON lines for each part of the events."""

    name = "a folder of JSON files"

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._count = 0
        self.section: dict[str, Any] = {"kind": "files", "path": str(folder), "format": "json", "max_bytes": _BYTES}

    def send(self, events: pl.DataFrame) -> None:
        """Write files of so many events; each is renamed when it is whole."""
        for part in events.iter_slices(_PER_FILE):
            self._count += 1
            hidden = self._folder / ".new"
            hidden.write_bytes(as_json(part))
            hidden.rename(self._folder / f"{self._count:04}.json")

    def close(self) -> None:
        """Nothing to end."""


class Kafka:
    """A topic of three partitions, by flight, of a broker that is started for it on this machine."""

    name = "a topic of a Kafka broker"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._broker("start")
        try:
            bootstrap = json.loads((folder / "service.json").read_text())["info"]["bootstrap"]
            from confluent_kafka import Producer
            from confluent_kafka.admin import AdminClient, NewTopic  # pyright: ignore[reportPrivateImportUsage]

            admin = AdminClient({"bootstrap.servers": bootstrap})
            admin.create_topics([NewTopic(_TOPIC, _PARTITIONS, 1)])[_TOPIC].result(30)
            self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "log_level": 0})
        except BaseException:
            self.close()
            raise
        self.section: dict[str, Any] = {"kind": "kafka", "topic": _TOPIC, "bootstrap": bootstrap}

    def send(self, events: pl.DataFrame) -> None:
        """Produce a message for each, whose key is the flight, and wait until the broker has them."""
        for flight, line in zip(events["flight"], as_json(events).splitlines(), strict=True):
            self._producer.produce(_TOPIC, line, flight.encode())
            self._producer.poll(0)
        left = self._producer.flush(60)
        if left:
            raise OSError(f"the Kafka broker did not take {left:,} messages")

    def close(self) -> None:
        """Stop the broker."""
        self._broker("stop")

    def _broker(self, command: str) -> None:
        line = [sys.executable, "-m", "tests.services.kafka_broker", command, "--folder", str(self._folder)]
        done = subprocess.run(line, cwd=_ROOT, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        if done.returncode:
            raise OSError((done.stderr.strip().splitlines() or ["the broker's script failed"])[0])


def open_source(wanted: str, folder: Path) -> tuple[Source, str]:
    """The source `kafka`, `files`, or for `auto` Kafka where it can be started; and why it is not Kafka in this case.

    Raises `UnsupportedFeature` where Kafka is wanted and no broker can be started.
    """
    if wanted == "files":
        return Files(folder / "events"), ""
    try:
        if find_spec("confluent_kafka") is None:
            raise OSError("confluent-kafka is not installed")
        return Kafka(folder / "kafka"), ""
    except OSError as error:
        if wanted == "kafka":
            raise UnsupportedFeature(f"no Kafka broker can be started: {error}", hint="--source files") from error
        return Files(folder / "events"), str(error)
