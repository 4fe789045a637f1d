"""Keys found among others: what Arrow's hash table says, of keys of every shape, and where eight bytes tell nothing."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakebed.merge.key_table import KeyTable, key_codes

SHAPES = {
    "numbers": "{:09}",
    "short": "{}",
    "prefix": "a/long/prefix/of/all/{:06}",
    "middle": "a/long/prefix/{:06}/and/a/suffix/of/all",
    "many lengths": "prefix/{}/and/a/suffix/of/all",
    "digits apart": "{:03}/some/words/between/{}",
    "other letters": "é{:06}ü",
}


def keys_of(shape: str, numbers: np.ndarray) -> pa.Array:
    other = (numbers * 7919) % 1000
    return pa.array([SHAPES[shape].format(n, m) for n, m in zip(numbers.tolist(), other.tolist(), strict=True)])


@pytest.mark.every_case
@pytest.mark.parametrize("known", [0, 1, 3, 300, 5000, 20_000])
@pytest.mark.parametrize("shape", SHAPES)
def test_keys_are_found_where_they_are(shape: str, known: int) -> None:
    rng = np.random.default_rng(known)
    keys = pc.unique(keys_of(shape, rng.permutation(30_000)[:known]).cast(pa.string()))
    sought = pa.concat_arrays([pa.array(["", "x"]), keys_of(shape, rng.integers(0, 40_000, 9000))])
    table = KeyTable(keys)
    for some in (sought, sought.slice(3, 4000), sought.slice(0, 0), sought.slice(5, 1)):
        expected = pc.fill_null(pc.index_in(some, value_set=keys), -1)
        assert table.find(some).tolist() == expected.to_pylist()


@pytest.mark.parametrize("shape", SHAPES)
def test_the_first_of_repeated_keys_is_found(shape: str) -> None:
    rng = np.random.default_rng(3)
    numbers = rng.permutation(30_000)[:9000]
    numbers[rng.integers(4500, 9000, 400)] = numbers[:400]
    keys = keys_of(shape, numbers)
    assert len(pc.unique(keys)) < len(keys)
    sought = pa.concat_arrays([keys, keys_of(shape, rng.integers(0, 40_000, 3000))])
    assert KeyTable(keys).find(sought).tolist() == pc.fill_null(pc.index_in(sought, value_set=keys), -1).to_pylist()


@pytest.mark.every_case
@pytest.mark.parametrize("distinct", [1, 5, 700, 40_000])
@pytest.mark.parametrize("shape", SHAPES)
def test_equal_keys_have_one_number_in_the_order_in_which_they_come(shape: str, distinct: int) -> None:
    keys = keys_of(shape, np.random.default_rng(distinct).integers(0, distinct, 9000))
    for some in (keys, keys.slice(17, 7000), keys.slice(17, 900), keys.slice(0, 1), keys.slice(0, 0)):
        expected = some.dictionary_encode()
        codes, count = key_codes(some)
        assert codes.tolist() == expected.indices.to_pylist()
        assert count == len(expected.dictionary)
