"""Protobuf messages as rows by ptars, which reads their bytes into Arrow columns.

Before that some types of fields are replaced in the descriptors by others with the same bytes: times by their seconds
and nanoseconds, since ptars cuts off times that Arrow does not have, and `Struct`, which can hold itself, by bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakebed.errors import CorruptFile, InvalidOption, UnsupportedFeature
from lakebed.format.avro.cursors import PADDING, Cursors, Damage, Room
from lakebed.ingestion.messages import FRAME_BYTES, Decoded, DecodedGroups, NoRow, by_schema, slices, spans
from lakebed.ingestion.source import RECORD_FAILURE

_JSON = {"google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue"}
_TIMESTAMP, _DURATION = "google.protobuf.Timestamp", "google.protobuf.Duration"
_PARTS_FILE, _PARTS = "lakebed/parts.proto", ".lakebed.Parts"
# Seconds of 0001-01-01 and 10000-01-01, between which a Timestamp is.
_FIRST_SECOND, _END_SECOND = -62_135_596_800, 253_402_300_800
_NANOS = 1_000_000_000
# Of an unsigned number of 64 bits; Hudi has the same.
_UNSIGNED = pa.decimal128(20, 0)
# How deep the type of a message may be within others.
_MAX_DEPTH = 32
_MAIN = ""
# The module with the descriptors of files that messages import and that schemas do not include.
_BUNDLED = {"google/": "google.", "confluent/": "confluent_kafka.schema_registry.confluent."}
Files = Mapping[str, bytes]
"""Serialized `FileDescriptorProto`s by the names under which others import them."""


class ProtobufType:
    """One message type, with its Arrow columns."""

    def __init__(self, files: _DescriptorFiles, name: str) -> None:
        self._descriptor = files.types.FindMessageTypeByName(name)
        if not self._descriptor.fields:
            raise ValueError(f"the message {name} has no fields")
        ptars: Any = _ptars()
        config = ptars.PtarsConfig(
            enum_repr="string", time_unit="us", list_value_nullable=True, map_value_nullable=True
        )
        replaced = files.replaced.FindMessageTypeByName(name)
        self._handler = ptars.HandlerPool([replaced.file], config).get_for_message(replaced)

    def rows(self, messages: pa.Array) -> pa.Table:
        """A row for each message. Raises `ValueError` or `NoRow` if a message is not of the type."""
        batch = self._handler.array_to_record_batch(messages)
        fields = self._descriptor.fields_by_name
        return pa.table({name: _column(batch.column(name), fields[name]) for name in batch.schema.names})


class PlainProtobuf:
    """Decodes messages of one type, without a frame: `path` is a file with a descriptor set of `protoc`."""

    def __init__(self, path: str, name: str) -> None:
        from google.protobuf.descriptor_pb2 import FileDescriptorSet
        from google.protobuf.message import DecodeError

        try:
            with open(path, "rb") as file:
                files = FileDescriptorSet.FromString(file.read()).file
        except OSError as error:
            raise InvalidOption(
                f"[source] descriptor {path} cannot be read: {error.strerror}", hint="see the path"
            ) from error
        except DecodeError as error:
            raise InvalidOption(f"[source] descriptor {path} is no descriptor set", hint=_PROTOC) from error
        try:
            described = _DescriptorFiles({part.name: part.SerializeToString() for part in files})
            names = described.messages()
            if name not in names:
                hint = f"it has {', '.join(names) or 'none'}"
                raise InvalidOption(f"[source] {path} has no message {name!r}", hint=hint)
            self._type = ProtobufType(described, name)
        except (TypeError, ValueError) as error:
            raise InvalidOption(f"[source] descriptor {path} cannot be used: {error}", hint=_PROTOC) from error

    def decode(self, messages: pa.Array) -> Decoded:
        """The rows of messages, in the order of the messages. A message whose bytes do not fit its type is bad."""
        groups = DecodedGroups(RECORD_FAILURE)
        groups.add(messages, np.arange(len(messages)), self._type.rows)
        return groups.decoded()


class FramedProtobuf:
    """Decodes messages with the frame of a schema registry: a zero byte, the 4-byte id of a schema, and the indexes of
    the message's type in it. `files_of` returns the schema of an id, under the name "", and those that it imports; it
    raises `KeyError` for an id that the registry does not have."""

    def __init__(self, files_of: Callable[[int], Files]) -> None:
        self._files_of = files_of
        self._files: dict[int, _DescriptorFiles] = {}
        self._types: dict[tuple[int, tuple[int, ...]], ProtobufType] = {}

    def decode(self, messages: pa.Array) -> Decoded:
        """The rows of messages, in the order of the messages. A message without the frame, with an id that the registry
        does not have, or with bytes that do not fit its type is bad."""
        groups = DecodedGroups(RECORD_FAILURE)
        for identifier, numbers in by_schema(messages, groups.bad, RECORD_FAILURE):
            try:
                files = self._described(identifier)
            except KeyError:
                groups.refuse(numbers, f"the registry has no schema with the id {identifier}")
                continue
            part = messages.take(pa.array(numbers))
            for indexes, size, rows in _indexes(part):
                if not indexes:
                    groups.refuse(numbers[rows], "the frame of the message names no message type")
                    continue
                try:
                    kind = self._type(identifier, files, indexes)
                except IndexError:
                    text = f"the schema with the id {identifier} has no message type {list(indexes)}"
                    groups.refuse(numbers[rows], text)
                    continue
                data, starts, ends = spans(part)
                payloads = slices(data, starts[rows] + FRAME_BYTES + size, ends[rows])
                groups.add(payloads, numbers[rows], kind.rows)
        return groups.decoded()

    def _described(self, identifier: int) -> _DescriptorFiles:
        if identifier not in self._files:
            files = self._files_of(identifier)
            try:
                self._files[identifier] = _DescriptorFiles(files)
            except (TypeError, ValueError) as error:
                raise self._unusable(identifier, error) from error
        return self._files[identifier]

    def _type(self, identifier: int, files: _DescriptorFiles, indexes: tuple[int, ...]) -> ProtobufType:
        if (identifier, indexes) not in self._types:
            name = files.message(indexes)
            try:
                self._types[identifier, indexes] = ProtobufType(files, name)
            except (TypeError, ValueError) as error:
                raise self._unusable(identifier, error) from error
        return self._types[identifier, indexes]

    @staticmethod
    def _unusable(identifier: int, error: Exception) -> CorruptFile:
        return CorruptFile(
            f"the schema with the id {identifier} cannot be used: {error}",
            hint="messages are of Protobuf types with fields, and schemas bring the files that they import",
            context={"schema_id": identifier},
        )


_PROTOC = "make it with protoc --include_imports --descriptor_set_out=FILE"


def _indexes(messages: pa.Array) -> list[tuple[tuple[int, ...], int, np.ndarray]]:
    """The message indexes after the frame, the number of their bytes, and the numbers of the messages that have them;
    empty indexes for messages without them. The list is encoded as its length and its numbers, and the first type as a
    single 0."""
    data, starts, ends = spans(messages)
    starts = starts + FRAME_BYTES
    has_byte = starts < ends
    simple = has_byte.copy()
    simple[has_byte] = data[starts[has_byte]] == 0
    groups: list[tuple[tuple[int, ...], int, np.ndarray]] = []
    if simple.any():
        groups.append(((0,), 1, np.flatnonzero(simple)))
    listed_numbers = np.flatnonzero(~simple)
    if len(listed_numbers):
        groups += _listed_indexes(data, starts[listed_numbers], ends[listed_numbers], listed_numbers)
    return groups


def _listed_indexes(
    data: np.ndarray, starts: np.ndarray, ends: np.ndarray, numbers: np.ndarray
) -> list[tuple[tuple[int, ...], int, np.ndarray]]:
    try:
        counts, table = _index_table(data, starts, ends)
    except Damage:  # a number of more than 64 bits
        if len(numbers) == 1:
            return [((), 0, numbers)]
        middle = len(numbers) // 2
        halves = (slice(middle), slice(middle, None))
        return [part for half in halves for part in _listed_indexes(data, starts[half], ends[half], numbers[half])]
    depth = table.shape[1] - 1
    lacks = ((table[:, :depth] < 0) & (np.arange(depth) < counts[:, None])).any(axis=1)
    is_list = (counts > 0) & (counts <= _MAX_DEPTH) & (starts + table[:, depth] <= ends) & ~lacks
    groups = [] if is_list.all() else [((), 0, numbers[~is_list])]
    distinct, which = np.unique(table[is_list], axis=0, return_inverse=True)
    for number, (*indexes, size) in enumerate(distinct.tolist()):
        rows = numbers[is_list][which.reshape(-1) == number]
        groups.append((tuple(index for index in indexes if index >= 0), size, rows))
    return groups


def _index_table(data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The number of indexes of each message, and a table with a row for each: its indexes, -1 after the last one, and
    the number of their bytes."""
    cursors = Cursors(np.concatenate([data, np.zeros(PADDING, np.uint8)]), starts, ends, Room(len(data)))
    counts = cursors.longs()
    is_list = (counts > 0) & (counts <= _MAX_DEPTH) & (cursors.at <= ends)
    depth = int(counts[is_list].max(initial=0))
    table = np.full((len(starts), depth + 1), -1, np.int64)
    for level in range(depth):
        rows = np.flatnonzero(is_list & (counts > level) & (cursors.at < ends))
        row_cursors = cursors.part(rows)
        table[rows, level] = row_cursors.longs()
        cursors.rejoin(rows, row_cursors)
    table[:, depth] = cursors.at - starts
    return counts, table


class _DescriptorFiles:
    """Descriptor files as two pools: `types` unchanged, `replaced` with the types that are read instead."""

    def __init__(self, files: Files) -> None:
        _ptars()
        from google.protobuf.descriptor_pb2 import FileDescriptorProto
        from google.protobuf.descriptor_pool import DescriptorPool

        self.types, self.replaced = DescriptorPool(), DescriptorPool()
        self._files: dict[str, Any] = {}
        for name, data in files.items():
            part = FileDescriptorProto.FromString(data)
            part.name = name or "lakebed/main.proto"
            self._files[name] = part
        parts = FileDescriptorProto(name=_PARTS_FILE, package="lakebed", syntax="proto3")
        message = parts.message_type.add(name="Parts")
        message.field.add(name="seconds", number=1, type="TYPE_INT64", label="LABEL_OPTIONAL")
        message.field.add(name="nanos", number=2, type="TYPE_INT32", label="LABEL_OPTIONAL")
        self.replaced.AddSerializedFile(parts.SerializeToString())
        added: set[str] = set()
        for name in self._files:
            self._add(name, added)

    def _add(self, name: str, added: set[str]) -> None:
        """Add a file to both pools, after the files that it imports."""
        if name in added:
            return
        added.add(name)
        part = self._files.get(name) or _bundled(name)
        for dependency in part.dependency:
            self._add(dependency, added)
        self.types.AddSerializedFile(part.SerializeToString())
        complete = type(part)()
        self.types.FindFileByName(part.name).CopyToProto(complete)
        if name in self._files:
            complete.dependency.append(_PARTS_FILE)
            for message in complete.message_type:
                _replace(message, has_presence=complete.syntax != "proto3")
        self.replaced.AddSerializedFile(complete.SerializeToString())

    def message(self, indexes: tuple[int, ...]) -> str:
        """The full name of the message with these indexes, from outer to inner. Raises `IndexError`."""
        part = self._files[_MAIN]
        names = [part.package] if part.package else []
        messages = part.message_type
        for index in indexes:
            names.append(messages[index].name)
            messages = messages[index].nested_type
        return ".".join(names)

    def messages(self) -> list[str]:
        """The full names of the messages in all files except Google's, including nested messages."""
        names: list[str] = []
        parts = [part for name, part in self._files.items() if not name.startswith(tuple(_BUNDLED))]
        pending = [(part.package, message) for part in reversed(parts) for message in reversed(part.message_type)]
        while pending:
            outer, message = pending.pop()
            names.append(f"{outer}.{message.name}" if outer else message.name)
            pending += [(names[-1], inner) for inner in message.nested_type if not inner.options.map_entry]
        return names


def _bundled(name: str) -> Any:
    for prefix, package in _BUNDLED.items():
        if name.startswith(prefix):
            module = package + name.removeprefix(prefix).removesuffix(".proto").replace("/", ".") + "_pb2"
            try:
                descriptor = import_module(module).DESCRIPTOR
            except ImportError:
                break
            from google.protobuf.descriptor_pb2 import FileDescriptorProto

            part = FileDescriptorProto()
            descriptor.CopyToProto(part)
            return part
    raise ValueError(f"it imports {name}, which is not there")


def _replace(message: Any, *, has_presence: bool) -> None:
    """Replace types of fields by those that are read instead, in a message and its nested messages. `has_presence` is
    whether unset fields of plain types are null."""
    for field in message.field:
        name = field.type_name.removeprefix(".")
        if name in _JSON:
            field.type = field.TYPE_BYTES
            field.ClearField("type_name")
            is_single = field.label != field.LABEL_REPEATED and not message.options.map_entry
            if is_single and not has_presence and not field.HasField("oneof_index"):
                field.proto3_optional = True
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_lakebed_{field.name}")
        elif name in (_TIMESTAMP, _DURATION):
            field.type_name = _PARTS
    for inner in message.nested_type:
        _replace(inner, has_presence=has_presence)


def _column(values: Any, field: Any) -> pa.Array:
    """The column of a field in the types of tables, nullable throughout."""
    if pt.is_map(values.type):
        items = _value(values.items, field.message_type.fields_by_name["value"])
        return pa.MapArray.from_arrays(values.offsets, values.keys.cast(pa.string()), items)
    if pt.is_list(values.type):
        items = _value(values.values, field)
        return pa.ListArray.from_arrays(values.offsets, items, pa.list_(pa.field("element", items.type)))
    return _value(values, field)


def _value(values: Any, field: Any) -> pa.Array:
    kind: Any = field.message_type
    if kind is not None and kind.full_name in _JSON:
        return _json_texts(values, kind.full_name.rpartition(".")[2])
    if kind is not None and kind.full_name == _TIMESTAMP:
        return _timestamps(values)
    if not pt.is_struct(values.type):
        return values.cast(_UNSIGNED) if pt.is_uint64(values.type) else values
    if not values.type.num_fields:  # a message without fields is there, or is not
        return pc.if_else(values.is_valid(), True, pa.scalar(None, pa.bool_()))
    names = [field.name for field in values.type]
    inner: Any = kind.fields_by_name if kind is not None else {}
    columns = [_column(values.field(at), inner[name]) for at, name in enumerate(names)]
    fields = [pa.field(name, column.type) for name, column in zip(names, columns, strict=True)]
    return pa.StructArray.from_arrays(columns, fields=fields, mask=values.is_null())


def _timestamps(values: Any) -> pa.Array:
    seconds, nanos = pc.struct_field(values, "seconds"), pc.struct_field(values, "nanos")
    for part, first, end in ((seconds, _FIRST_SECOND, _END_SECOND), (nanos, 0, _NANOS)):
        low, high = pc.min_max(part).values()
        if low.is_valid and (low.as_py() < first or high.as_py() >= end):
            raise NoRow("a Timestamp is not between the years 1 and 9999")
    micros = pc.divide(nanos.cast(pa.int64()), 1000)
    return pc.add(pc.multiply(seconds, 1_000_000), micros).cast(pa.timestamp("us", "UTC"))


def _json_texts(values: Any, name: str) -> pa.Array:
    """The messages of a type that can hold any value as JSON, one Python object for each distinct one."""
    from google.protobuf import json_format, struct_pb2
    from google.protobuf.message import DecodeError

    distinct = values.dictionary_encode()
    kind = getattr(struct_pb2, name)
    try:
        texts = [
            json_format.MessageToJson(kind.FromString(value), indent=None) for value in distinct.dictionary.to_pylist()
        ]
    except (DecodeError, json_format.Error) as error:
        raise NoRow(f"a {name} is no JSON: {error}") from error
    return pa.array(texts, pa.string()).take(distinct.indices)


def _ptars() -> Any:
    try:
        import ptars
    except ImportError as error:
        raise UnsupportedFeature(
            "ptars is not installed, which reads Protobuf messages", hint="pip install 'lakebed[protobuf]'"
        ) from error
    return ptars
