"""Spark's `variant_get` and `try_variant_get` in queries of DuckDB, which has no functions of these names."""

from __future__ import annotations

from sqlglot.tokens import TokenType

from lakebed.errors import InvalidOption
from lakebed.format.variants import decoded, duckdb_type, value_at
from lakebed.schema.type_names import column_type
from lakebed.statements.statement import Statement

_FUNCTIONS = {"VARIANT_GET": "error", "TRY_VARIANT_GET": "null"}


def variant_calls(statement: Statement) -> dict[tuple[int, int], str]:
    """The calls of these functions, by the positions at which they begin and end, as expressions of DuckDB.

    Raises `InvalidOption` for a call without a constant path and a constant type.
    """
    calls: dict[tuple[int, int], str] = {}
    for at in range(len(statement.tokens) - 1):
        if statement.word(at) in _FUNCTIONS and statement.tokens[at + 1].token_type is TokenType.L_PAREN:
            calls |= _call(statement, at)
    return calls


def _call(statement: Statement, at: int) -> dict[tuple[int, int], str]:
    tokens = statement.tokens
    depth, commas, end = 0, list[int](), at + 1
    while end < len(tokens):
        kind = tokens[end].token_type
        depth += (kind in (TokenType.L_PAREN, TokenType.L_BRACKET)) - (kind in (TokenType.R_PAREN, TokenType.R_BRACKET))
        if not depth:
            break
        if depth == 1 and kind is TokenType.COMMA:
            commas.append(end)
        end += 1
    constants = [n + 1 for n in commas if tokens[n + 1].token_type is TokenType.STRING]
    if len(commas) != 2 or len(constants) != 2 or constants[0] + 1 != commas[1] or constants[1] + 1 != end:
        name = tokens[at].text
        raise InvalidOption(
            f"{name} takes a column, a constant path and a constant type, in the SQL text near {statement.near(at)}",
            hint=f"write {name}(column, '$.a.b', 'int')",
        )
    variant = statement.text[tokens[at + 2].start : tokens[commas[0]].start].strip()
    path, declared = (tokens[n].text for n in constants)
    target = duckdb_type(column_type(declared, tokens[at].text))
    value = value_at(decoded(variant), path, target, invalid=_FUNCTIONS[statement.word(at)])
    return {(tokens[at].start, tokens[end].end + 1): value}
