"""Which file group takes an inserted row: by a share in [0, 1) made from its key, equal in both engines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from lakebed.format.hashes import java_hash
from lakebed.model import DERIVED, PARTITION_PATH, RECORD_KEY

# Java's hash of similar keys is close together: multiply (Knuth) and keep the low 32 bits to spread it.
_SPREAD = 2654435761
_RANGE = 1 << 32

KEY_HASH = f"{DERIVED}key_hash"
SHARE_SQL = f"pmod(cast(`{KEY_HASH}` as bigint) * {_SPREAD}L, {_RANGE}L) / {_RANGE}D"
"""A row's share from the Java hash of its record key."""


def insert_share(rows: pa.Table) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Each row's share, from its record key."""
    hashes = java_hash(rows.column(RECORD_KEY).combine_chunks()).astype(np.int64)
    return np.mod(hashes * _SPREAD, _RANGE) / _RANGE


def choose_group(partitions: pa.Array, share: np.ndarray[Any, Any], inserts: pa.Table) -> pa.Array:
    """The group number for each row as if it were an insert; null where its partition takes no inserts."""
    result = np.full(len(share), -1, dtype=np.int32)
    encoded = partitions.dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    names = {name: code for code, name in enumerate(encoded.dictionary.to_pylist())}
    for row in inserts.to_pylist():  # one a partition
        code = names.get(row[PARTITION_PATH])
        if code is None:
            continue
        mine = np.flatnonzero(codes == code)
        chosen = np.searchsorted(np.asarray(row["bounds"]), share[mine], side="right")
        groups = np.asarray(row["groups"], dtype=np.int32)
        result[mine] = groups[np.minimum(chosen, len(groups) - 1)]
    return pa.array(result, mask=result < 0)
