"""Whether the rows that incoming ones replace or delete have the same key fields, and not the key text alone."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.handles.base import GroupWrite
from lakebed.merge.incoming import Incoming
from lakebed.model import RECORD_KEY
from lakebed.upkeep.stored_rows import stored_rows


def check_stored_key_fields(group: GroupWrite, incoming: Incoming) -> None:
    """Raise `InvalidRecord` where a stored row has the key text of an incoming one and other key fields. Rows are read
    only of key texts that other fields may have, too."""
    fields, slices = group.rules.key_fields, group.target.stored_in
    if fields is None or group.on_match == "none" or not slices:
        return
    at = fields.may_share(incoming.keys)
    names = [] if not len(at) else fields.columns(incoming.take(at[:0]).schema)
    if not names:
        return
    keys = incoming.keys.take(pa.array(at))
    for one in slices:
        stored = stored_rows(group.reader, one, [RECORD_KEY, *names], keys=keys)
        if stored.num_rows:
            texts = stored.column(RECORD_KEY)
            places = pc.index_in(texts, value_set=keys).to_numpy(zero_copy_only=False).astype(np.int64)
            fields.check_equal(texts, stored, incoming.take(at[places], names))
