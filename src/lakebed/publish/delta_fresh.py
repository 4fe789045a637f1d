"""The rows of log files in a Delta log: deletion vectors of base files, and files with copies of rows.

Vectors are in files, never inside the log: a file of vectors has a new name in each version, so that an `add` with
another vector is another file for every reader, and the `remove` before it takes nothing else off.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Collection, Iterable, Mapping
from typing import Any
from urllib.parse import quote

from lakebed.errors import UnsupportedFeature
from lakebed.model import FileSlice, path_in
from lakebed.publish.data_files import DataFile
from lakebed.publish.deletion_vectors import deletion_vector, delta_vector_file, uuid_of_z85, z85_of
from lakebed.publish.fresh import ROWS_SUFFIX, FreshRows
from lakebed.storage.base import Storage

FEATURE = "deletionVectors"
"""The feature of Delta's protocol without which readers must refuse the table."""
PATH_LETTERS = "/=-._~"
"""The characters besides letters and digits that paths in a log have as they are."""
PROPERTY = "delta.enableDeletionVectors"
"""The property of tables with vectors: some readers look at it and not at the protocol."""

_MASK = "lakebed.mask"
_SAME_IN_URLS = re.compile(r"[A-Za-z0-9/=._~:@-]*")
_VECTORS = re.compile(r"deletion_vector_([0-9a-f-]{36})\.bin")
_COPIES = re.compile(rf"(\d*)-[0-9a-f]{{32}}{re.escape(ROWS_SUFFIX)}")

Action = dict[str, Any]
Adds = Mapping[str, Action]


def is_logged_file(name: str) -> bool:
    """Whether a file with this name has deletion vectors or copies of rows."""
    return _VECTORS.fullmatch(name) is not None or _COPIES.fullmatch(name) is not None


def is_copy(path: str) -> bool:
    """Whether the file of an `add` has copies of rows; else it is a base file."""
    return _COPIES.fullmatch(path.rpartition("/")[2]) is not None


def without_logged_rows(adds: Adds) -> dict[str, Action]:
    """The `add` actions of a version that shows base files alone: without masks and copies of rows."""
    return {path: _unmasked(add) if "deletionVector" in add else add for path, add in adds.items() if not is_copy(path)}


def with_logged_rows(
    storage: Storage, folder: str, before: Adds, rows: FreshRows, copies: Iterable[tuple[DataFile, Action]]
) -> dict[str, Action]:
    """The `add` actions of a version with masked rows and copies of rows. `before` are those of its base files, masked
    as in the version before; an `add` whose mask is the same stays as it is. The vectors are written in `folder`."""
    adds: dict[str, Action] = {}
    changed: dict[str, bytes] = {}
    for path, add in before.items():
        if is_copy(path):
            continue
        positions = rows.masks.get(path)
        if positions is None:
            adds[path] = _unmasked(add) if "deletionVector" in add else add
            continue
        vector = deletion_vector(positions)
        adds[path] = add
        if _digest(vector) != add.get("tags", {}).get(_MASK):
            changed[path] = vector
    if changed:
        number = uuid.uuid4()
        body, offsets = delta_vector_file(list(changed.values()))
        storage.write(path_in(folder, f"deletion_vector_{number}.bin"), body)
        for (path, vector), offset in zip(changed.items(), offsets, strict=True):
            descriptor = {
                "storageType": "u",
                "pathOrInlineDv": f"{folder}{z85_of(number)}",
                "offset": offset,
                "sizeInBytes": len(vector),
                "cardinality": len(rows.masks[path]),
            }
            # the bounds may be those of masked rows; the number of records is that of the file
            stats = json.dumps({**json.loads(adds[path]["stats"]), "tightBounds": False}, ensure_ascii=False)
            mask = {"tags": {_MASK: _digest(vector)}, "deletionVector": descriptor}
            adds[path] = {**adds[path], "stats": stats, **mask}
    return adds | {file.base.path: add for file, add in copies}


def check_paths(storage: Storage, slices: Iterable[FileSlice]) -> None:
    """Raise `UnsupportedFeature` for a base file with log files whose URL does not have the letters of its path, with
    the path as the log has it: polars 2.1 finds no mask of it, and shows every row."""
    root = storage.spec.uri
    paths = [file_slice.base_file.path for file_slice in slices if file_slice.base_file is not None]
    escaped = [path for path in paths if quote(path, safe=PATH_LETTERS) != path or not _SAME_IN_URLS.fullmatch(root)]
    if escaped:
        location = f"{root}/{escaped[0]}"
        raise UnsupportedFeature(
            f"rows of {location} cannot be hidden in a Delta log: its path has a character that URLs escape, and some"
            " readers then show them nevertheless",
            hint="Publish the table as Iceberg, or as Delta without the rows of log files.",
            context={"path": location},
        )


def removal(add: Action) -> Action:
    """The part of a `remove` that says which of the files at a path it is of."""
    return {"deletionVector": add["deletionVector"]} if "deletionVector" in add else {}


def vector_files(adds: Adds, folder: str) -> set[str]:
    """The paths of the files of vectors that `add` actions name."""
    texts = {add["deletionVector"]["pathOrInlineDv"] for add in adds.values() if "deletionVector" in add}
    return {path_in(folder, f"deletion_vector_{uuid_of_z85(text[-20:])}.bin") for text in texts}


def instant_of_copy(name: str) -> str | None:
    """The commit whose rows a file with this name has copies of; None if it is another file."""
    match = _COPIES.fullmatch(name)
    return None if match is None else match.group(1)


def logged_files(adds: Adds, folder: str, but: Collection[str] = ()) -> set[str]:
    """The paths of the copies of rows, and of the files of vectors, that `add` actions name."""
    return ({path for path in adds if is_copy(path)} | vector_files(adds, folder)) - set(but)


def _digest(vector: bytes) -> str:
    return hashlib.sha256(vector).hexdigest()[:32]


def _unmasked(add: Action) -> Action:
    stats = {name: value for name, value in json.loads(add["stats"]).items() if name != "tightBounds"}
    plain = {name: value for name, value in add.items() if name not in ("tags", "deletionVector")}
    return {**plain, "stats": json.dumps(stats, ensure_ascii=False)}
