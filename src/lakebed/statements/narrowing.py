"""What a query needs of each of its tables: the columns that it may name, and conditions that its rows must fulfil.

The query itself runs as it was written. So a column too many or a condition too few costs only time. What is not
understood here gives all columns and no condition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from lakebed.filters.predicates import Node
from lakebed.filters.sql import SparkText, condition_of_tree
from lakebed.sharing import once
from lakebed.statements.statement import Reference, Statement

# Parts of a table in FROM that leave its rows as they are.
_PLAIN_PARTS = frozenset(("this", "db", "catalog", "alias", "version"))
_INNER = ("", "INNER", "CROSS")


def _part(node: Any, name: str) -> Any:
    """A part of a tree by its name, which later releases of sqlglot write with an underscore."""
    return node.args.get(name) or node.args.get(f"{name}_")


@dataclass(frozen=True)
class _From:
    """One table of a query's FROM, with the join that added it (None for the first)."""

    node: Any
    join: Any = None

    @property
    def side(self) -> str:
        return "" if self.join is None else self.join.side.upper()

    @property
    def kind(self) -> str:
        return "" if self.join is None else self.join.kind.upper()

    @property
    def is_test(self) -> bool:
        """Whether the join only tests for rows (SEMI, ANTI), whose columns are not visible after it."""
        return self.kind in ("SEMI", "ANTI")


# Statements of which sqlglot, with a warning, makes no tree.
_COMMANDS = ("EXPLAIN", "SHOW")


@dataclass(frozen=True)
class Narrowing:
    """The tables of a statement for Spark. `columns_of` gives the columns of each reference that is a table."""

    statement: Statement
    tree: Any
    tables: Mapping[int, Any] = field(default_factory=dict)
    """The nodes of tables by their place in the text."""

    @classmethod
    def of(cls, statement: Statement, args: Any) -> Narrowing:
        """The narrowing of a statement; if sqlglot cannot parse it, it narrows nothing."""
        if statement.word(0) in _COMMANDS:
            return cls(statement, None)
        try:
            tree = sqlglot.parse_one(statement.text, read=SparkText)
        except (SqlglotError, RecursionError):
            return cls(statement, None)
        if isinstance(args, Mapping):
            for marker in list(tree.find_all(exp.Placeholder)):
                value = args.get(marker.name)
                if type(value) in (int, str, bool):
                    marker.replace(exp.convert(value))
        tables: dict[int, Any] = {}
        for node in tree.find_all(exp.Table):
            start = next((part.meta.get("start") for part in node.parts if isinstance(part, exp.Identifier)), None)
            if start is not None:
                tables[start] = node
        return cls(statement, tree, tables)

    def is_shadowed(self, reference: Reference) -> bool:
        """Whether a common table expression has the name at that position."""
        node = self.tables.get(reference.start)
        if node is None or reference.is_uri or reference.function:
            return False
        inner, outer = node, node.parent
        while outer is not None:
            with_ = _part(outer, "with")
            if with_ is not None:
                before: list[Any] = with_.expressions
                if with_ is inner:
                    at = next(n for n, cte in enumerate(before) if cte is self._ancestor_in(node, before))
                    before = before[: at + bool(with_.recursive)]
                if any(cte.alias.lower() == reference.name.lower() for cte in before):
                    return True
            inner, outer = outer, outer.parent
        return False

    @staticmethod
    def _ancestor_in(node: Any, among: Iterable[Any]) -> Any:
        ids = {id(candidate) for candidate in among}
        while id(node) not in ids:
            node = node.parent
        return node

    @once
    def _words(self) -> frozenset[tuple[str, str]]:
        """All words and texts of the statement that may name a column, each with the table's name before it, if any."""
        texts = [token.text.lower() for token in self.statement.tokens]
        named = {table.alias_or_name.lower() for table in self.tree.find_all(exp.Table, exp.Subquery, exp.CTE)}
        qualified_words: set[tuple[str, str]] = set()
        for at, text in enumerate(texts):
            is_qualified = at > 1 and texts[at - 1] == "." and texts[at - 2] in named
            qualified_words.add((texts[at - 2] if is_qualified else "", text))
        return frozenset(qualified_words)

    def columns_of(self, reference: Reference, names: list[str]) -> list[str]:
        """The columns of a table that the statement may name; at least one."""
        node = self.tables.get(reference.start)
        query = None if node is None else node.find_ancestor(exp.Select)
        is_piped = "|>" in self.statement.text
        if node is None or query is None or is_piped or ("", "identifier") in self._words:
            return names
        joins = [join for join in query.args.get("joins") or [] if join.method.upper() == "NATURAL"]
        if joins or any(part.args.get("pivots") for part in query.find_all(exp.Table)) or query.args.get("pivots"):
            return names
        for star in query.find_all(exp.Star):
            qualifier = star.parent.table if isinstance(star.parent, exp.Column) else ""
            is_here = star.find_ancestor(exp.Select) is query and not isinstance(star.parent, exp.Count)
            if is_here and qualifier.lower() in ("", node.alias_or_name.lower()):
                return names
        possible_names = {word for table, word in self._words if table in ("", node.alias_or_name.lower())}
        return [name for name in names if name.lower() in possible_names] or names[:1]

    @once
    def key_names(self) -> frozenset[str]:
        """The names, in lower case, of columns by which rows of tables are joined, grouped or put into windows."""
        if self.tree is None:
            return frozenset()
        parts: list[Any] = []
        names: set[str] = set()
        for select in self.tree.find_all(exp.Select):
            group = select.args.get("group")
            by_place = group is not None and (group.args.get("all") or group.find(exp.Literal) is not None)
            if by_place or select.args.get("distinct"):
                parts += select.expressions
            if group is not None:
                parts.append(group)
            for join in select.args.get("joins") or []:
                parts += [join.args["on"]] if join.args.get("on") is not None else []
                names |= {identifier.name.lower() for identifier in join.args.get("using") or []}
        parts += [
            expression
            for window in self.tree.find_all(exp.Window)
            for expression in window.args.get("partition_by") or []
        ]
        for test in self.tree.find_all(exp.In):
            query = test.args.get("query")
            parts += [test.this, *query.find_all(exp.Column)] if query is not None else []
        parts += [column for test in self.tree.find_all(exp.Exists) for column in test.find_all(exp.Column)]
        names |= {column.name.lower() for part in parts for column in part.find_all(exp.Column)}
        for alias in self.tree.find_all(exp.Alias):
            if alias.alias.lower() in names:
                names |= {column.name.lower() for column in alias.find_all(exp.Column)}
        return frozenset(names)

    def conditions_of(self, reference: Reference, schemas: Mapping[int, pa.Schema], zone: str) -> list[Node]:
        """Conditions that every row of a table which contributes to the result fulfils. `schemas` are the columns of
        the tables by their position in the text."""
        node = self.tables.get(reference.start)
        query = None if node is None else node.find_ancestor(exp.Select)
        if node is None or query is None or "\\" in self.statement.text:
            return []
        tables = _QueryTables.of(self, query, node, schemas)
        trees = [] if tables is None else tables.conditions(query)
        nodes = (condition_of_tree(tree, schemas[reference.start], zone) for tree in trees)
        return [condition for condition in nodes if condition is not None]


@dataclass(frozen=True)
class _QueryTables:
    """The tables of one FROM, and the number (`at`) of the table whose conditions are looked for."""

    narrowing: Narrowing
    listed: list[_From]
    at: int
    schemas: Mapping[int, pa.Schema]
    has_laterals: bool

    @classmethod
    def of(cls, narrowing: Narrowing, query: Any, node: Any, schemas: Mapping[int, pa.Schema]) -> _QueryTables | None:
        """The tables of a query, of which one is `node`; None if its rows are not used unchanged."""
        if not isinstance(query, exp.Select) or _part(query, "from") is None:
            return None
        listed = _listed(query)
        at = next((n for n, item in enumerate(listed) if item.node is node), None)
        alias = node.args.get("alias")
        parts = {name for name, value in node.args.items() if value}
        if at is None or parts - _PLAIN_PARTS or (alias is not None and alias.columns):
            return None
        return cls(narrowing, listed, at, schemas, bool(query.args.get("laterals")))

    def conditions(self, query: Any) -> list[Any]:
        """The conditions over columns of the table alone that its rows must fulfil, including those of outer queries,
        without the table's name."""
        trees = list(self.parts(query))
        if not self._may_be_missing(len(self.listed)) and not self.listed[self.at].is_test:
            trees += _Derived(self.narrowing, query, self.schemas).conditions()
        return [owned for tree in trees if (owned := self.owned(tree)) is not None]

    def parts(self, query: Any) -> Iterator[Any]:
        """The conjuncts of WHERE and ON that a row of the table must fulfil, if they concern it alone."""
        where = query.args.get("where")
        if where is not None and not self._may_be_missing(len(self.listed)) and not self.listed[self.at].is_test:
            yield from _conjuncts(where.this)
        for number, item in enumerate(self.listed):
            on = None if item.join is None else item.join.args.get("on")
            if on is not None and self._is_required(number, item):
                yield from _conjuncts(on)

    def _is_required(self, number: int, source: _From) -> bool:
        """Whether rows of the table that do not fulfil the condition of this join are not in its result."""
        if number == self.at:
            return source.side in ("", "LEFT")
        is_left = number > self.at and not self._may_be_missing(number)
        if source.kind == "ANTI" or not is_left:
            return False
        return source.kind == "SEMI" or source.side == "RIGHT" or (not source.side and source.kind in _INNER)

    def _may_be_missing(self, before: int) -> bool:
        """Whether the joins up to this one may put nulls in place of the table's rows."""
        by_its_own = self.at > 0 and self.listed[self.at].side in ("LEFT", "FULL")
        later = self.listed[self.at + 1 : before]
        return by_its_own or any(item.side in ("RIGHT", "FULL") for item in later)

    def owned(self, condition: Any) -> Any | None:
        """The condition without the table's name before its columns; None if the condition names another table or
        column."""
        columns = list(condition.find_all(exp.Column))
        if not columns or condition.find(exp.Query, exp.AggFunc, exp.Window, exp.Placeholder, exp.Parameter):
            return None
        if not all(self._is_owned(column) for column in columns):
            return None
        copied = condition.copy()
        for column in copied.find_all(exp.Column):
            column.set("table", None)
        return copied

    def _is_owned(self, column: Any) -> bool:
        table = self.listed[self.at].node
        if column.args.get("db") or isinstance(column.parent, exp.Dot) or isinstance(column.this, exp.Star):
            return False
        if column.table:
            return column.table.lower() == table.alias_or_name.lower()
        if self.has_laterals or column.name.lower() not in self._names(table):
            return False
        other_items = [item for n, item in enumerate(self.listed) if n != self.at]
        return all(self._is_apart(column.name.lower(), item) for item in other_items)

    def _names(self, table: Any) -> frozenset[str]:
        return frozenset(name.lower() for name in _names_of(self.narrowing, table, self.schemas))

    def _is_apart(self, name: str, other: _From) -> bool:
        """Whether a column without a table's name does not belong to the other table, or is one that an inner join made
        equal."""
        names = self._names(other.node)
        if not names:
            return False
        if name not in names:
            return True
        inner = all(not item.side and item.kind in _INNER for item in self.listed)
        using = {
            identifier.name.lower()
            for listed_item in self.listed
            if listed_item.join
            for identifier in listed_item.join.args.get("using") or []
        }
        return inner and name in using


# Parts of a query, and values in it, that depend on rows together.
_PARTS_OVER_ROWS = (
    *("limit", "offset", "fetch", "group", "having", "qualify", "windows", "laterals", "match", "by_name", "sample"),
    *("on", "side", "pivots", "connect"),
)
_VALUES_OVER_ROWS = (exp.AggFunc, exp.Window, exp.Anonymous, exp.Rand, exp.Randn, exp.Uuid, exp.UDTF)


@dataclass(frozen=True)
class _Derived:
    """A query whose rows are a table of an outer query: a subquery of its FROM, a common table expression that is named
    once, or a branch of a UNION that is one of these."""

    narrowing: Narrowing
    query: Any
    schemas: Mapping[int, pa.Schema]

    def conditions(self) -> Iterator[Any]:
        """The conditions of outer queries that the query's rows must fulfil, over the columns of its FROM clause.

        There are none for a query with LIMIT, groups or windows: without some rows its other rows would change.
        """
        outputs = self.outputs()
        if outputs is None or not self._has_single_rows():
            return
        top: Any = self.query
        names = [name for name, _ in outputs]
        while isinstance(top.parent, exp.SetOperation) or _is_branch_in_parentheses(top):
            top = top.parent
        if top is not self.query:
            names = self._names_of_union(top)
        columns = {name: column for name, (_, column) in zip(names, outputs, strict=False) if names.count(name) == 1}
        node = self._use_of(top.parent)
        outer = None if node is None else node.find_ancestor(exp.Select)
        tables = None if outer is None else _QueryTables.of(self.narrowing, outer, node, self.schemas)
        for tree in () if tables is None else tables.conditions(outer):
            mapped: list[tuple[Any, Any]] = [
                (reference, columns.get(reference.name.lower())) for reference in tree.find_all(exp.Column)
            ]
            if all(column is not None for _, column in mapped):
                root = exp.Paren(this=tree)  # a condition may be a column by itself
                for reference, column in mapped:
                    reference.replace(column.copy())
                yield root.this

    def outputs(self) -> list[tuple[str, Any]] | None:
        """The columns of the result: their names in lower case, and the columns of FROM that they are (None for other
        values). None if the names are unknown."""
        if not isinstance(self.query, exp.Select) or _part(self.query, "from") is None:
            return None
        outputs: list[tuple[str, Any]] = []
        for expression in self.query.expressions:
            value = expression.this if isinstance(expression, exp.Alias) else expression
            if expression.is_star:
                starred = self._starred(expression)
                if starred is None:
                    return None
                outputs += starred
            else:
                is_column = isinstance(value, exp.Column) and not value.args.get("db")
                outputs.append((expression.alias_or_name.lower(), value if is_column else None))
        return outputs

    def _starred(self, star: Any) -> list[tuple[str, Any]] | None:
        """The columns that `*` or `t.*` stands for, with their definitions; None if they are unknown."""
        listed = _listed(self.query)
        joins = [item.join for item in listed if item.join is not None]
        changes = (star.this if isinstance(star, exp.Column) else star).args.values()
        if any(changes) or any(join.args.get("using") or join.method or join.kind for join in joins):
            return None
        columns: list[tuple[str, Any]] = []
        for item in listed:
            alias = item.node.alias_or_name
            if isinstance(star, exp.Column) and star.table.lower() != alias.lower():
                continue
            names = _names_of(self.narrowing, item.node, self.schemas)
            if not names or not alias:
                return None
            columns += [(name.lower(), exp.column(name, table=alias)) for name in names]
        return columns

    def _has_single_rows(self) -> bool:
        """Whether each row of the result comes from one row of FROM, and does not change if other rows are missing."""
        distinct = self.query.args.get("distinct")
        has_part = any(self.query.args.get(name) for name in _PARTS_OVER_ROWS)
        values = [value for expression in self.query.expressions for value in expression.find_all(*_VALUES_OVER_ROWS)]
        return not has_part and not values and (distinct is None or not distinct.args.get("on"))

    def _names_of_union(self, top: Any) -> list[str]:
        """The names of a UNION's columns, with an empty text for columns that have different types in the branches; an
        empty list if rows of the branches are not rows of the result."""
        branches: list[Any] = []
        stack = [top]
        while stack:
            node = stack.pop()
            if isinstance(node, exp.SetOperation):
                if type(node) is not exp.Union or any(node.args.get(name) for name in _PARTS_OVER_ROWS):
                    return []
                stack += [node.expression, node.this]
            elif isinstance(node, exp.Subquery):
                if any(node.args.get(name) for name in _PARTS_OVER_ROWS):
                    return []
                stack.append(node.this)
            else:
                branches.append(_Derived(self.narrowing, node, self.schemas))
        outputs = [branch.outputs() or [] for branch in branches]
        if len({len(columns) for columns in outputs}) != 1:
            return []
        names: list[str] = []
        for number, (name, _) in enumerate(outputs[0]):
            kinds = [branch.type_of(columns[number][1]) for branch, columns in zip(branches, outputs, strict=True)]
            names.append(name if kinds[0] is not None and all(kind == kinds[0] for kind in kinds) else "")
        return names

    def type_of(self, column: Any) -> pa.DataType | None:
        """The type of a column of FROM; None if it is unknown."""
        if column is None:
            return None
        kinds: list[pa.DataType | None] = []
        for item in _listed(self.query):
            if column.table and column.table.lower() != item.node.alias_or_name.lower():
                continue
            names = [name.lower() for name in _names_of(self.narrowing, item.node, self.schemas)]
            if not names:
                return None
            if column.name.lower() in names:
                kinds.append(_type_in(self.narrowing, item.node, names.index(column.name.lower()), self.schemas))
        return kinds[0] if len(kinds) == 1 else None

    def _use_of(self, parent: Any) -> Any | None:
        """The node of an outer FROM that refers to the query; None unless there is exactly one."""
        if isinstance(parent, exp.Subquery):
            return parent
        if not isinstance(parent, exp.CTE):
            return None
        with_: Any = parent.parent
        if parent.args["alias"].columns or with_.recursive:
            return None
        name = parent.alias.lower()
        named = [cte for cte in self.narrowing.tree.find_all(exp.CTE) if cte.alias.lower() == name]
        tables = [table for table in self.narrowing.tree.find_all(exp.Table) if table.name.lower() == name]
        uses = [table for table in tables if not any(ancestor is parent for ancestor in _ancestors(table))]
        return uses[0] if len(named) == len(uses) == 1 and _is_visible(parent, uses[0]) else None


def _is_branch_in_parentheses(query: Any) -> bool:
    parent = query.parent
    return isinstance(parent, exp.Subquery) and isinstance(parent.parent, exp.SetOperation)


def _listed(query: Any) -> list[_From]:
    """The tables of a query's FROM."""
    return [_From(_part(query, "from").this), *(_From(join.this, join) for join in query.args.get("joins") or [])]


def _schema_of(narrowing: Narrowing, node: Any, schemas: Mapping[int, pa.Schema]) -> pa.Schema | None:
    """The columns of a table of lakebed; None for any other node of FROM."""
    return schemas.get(next((n for n, table in narrowing.tables.items() if table is node), -1))


def _source_of(narrowing: Narrowing, node: Any) -> Any | None:
    """The query that a node of FROM stands for (for a UNION its first branch); None for a table."""
    alias, query = node.args.get("alias"), None
    if isinstance(node, exp.Subquery):
        query = node.this
    elif isinstance(node, exp.Table):
        named = [cte for cte in narrowing.tree.find_all(exp.CTE) if cte.alias.lower() == node.name.lower()]
        if len(named) == 1 and not named[0].args["alias"].columns and _is_visible(named[0], node):
            query = named[0].this
    while isinstance(query, exp.SetOperation | exp.Subquery):
        query = query.this
    is_inside = any(ancestor is query for ancestor in _ancestors(node))
    return None if is_inside or (alias is not None and alias.columns) else query


def _names_of(narrowing: Narrowing, node: Any, schemas: Mapping[int, pa.Schema]) -> list[str]:
    """The columns of a table or of a query in FROM; empty if they are unknown."""
    schema = _schema_of(narrowing, node, schemas)
    if schema is not None:
        return list(schema.names)
    query = _source_of(narrowing, node)
    outputs = None if query is None else _Derived(narrowing, query, schemas).outputs()
    return [name for name, _ in outputs or []]


def _type_in(narrowing: Narrowing, node: Any, number: int, schemas: Mapping[int, pa.Schema]) -> pa.DataType | None:
    """The type of a column of a table or of a query in FROM by its number; None if it is unknown."""
    schema = _schema_of(narrowing, node, schemas)
    if schema is not None:
        return schema.field(number).type
    query = _source_of(narrowing, node)
    if query is None or isinstance(query.parent, exp.SetOperation) or _is_branch_in_parentheses(query):
        return None
    derived = _Derived(narrowing, query, schemas)
    return derived.type_of((derived.outputs() or [])[number][1])


def _is_visible(expression: Any, node: Any) -> bool:
    """Whether a table's name may be that of a common table expression."""
    return not node.args.get("db") and any(ancestor is expression.parent.parent for ancestor in _ancestors(node))


def _ancestors(node: Any) -> Iterator[Any]:
    while node is not None:
        yield node
        node = node.parent


def _conjuncts(condition: Any) -> Iterator[Any]:
    stack = [condition]
    while stack:
        top = stack.pop()
        if isinstance(top, exp.And):
            stack += [top.expression, top.this]
        elif isinstance(top, exp.Paren):
            stack.append(top.this)
        else:
            yield top
