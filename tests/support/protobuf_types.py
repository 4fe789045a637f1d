"""Protobuf files as descriptors, without a compiler: `describe("shop.proto", {"Trip": {"id": "int64"}})`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

_FIELD = re.compile(r"(?:(repeated|optional|oneof) )?(?:map<(\w+), ?([\w.]+)>|([\w.]+))")


def describe(
    name: str,
    messages: Mapping[str, Mapping[str, str]],
    *,
    enums: Mapping[str, list[str]] | None = None,
    imports: tuple[str, ...] = (),
    package: str = "shop",
) -> FileDescriptorProto:
    """A file with these messages. Types are those of proto3: "int64", "repeated string", "optional int32",
    "map<string, int64>", "oneof int32" (all such fields of a message are of one oneof), or the name of a message or
    enum. A message "A.B" is within the message A. Fields are numbered from 1."""
    file = FileDescriptorProto(name=name, package=package, syntax="proto3", dependency=imports)
    for enum, values in (enums or {}).items():
        part = file.enum_type.add(name=enum)
        for number, value in enumerate(values):
            part.value.add(name=value, number=number)
    made: dict[str, DescriptorProto] = {}
    for full, fields in messages.items():
        outer, _, short = full.rpartition(".")
        message = made[outer].nested_type.add(name=short) if outer else file.message_type.add(name=short)
        made[full] = message
        for number, (field, text) in enumerate(fields.items(), 1):
            _add_field(message, field, number, text, enums or {})
        for field in message.field:
            if field.proto3_optional:
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field.name}")
    return file


def _add_field(message: DescriptorProto, name: str, number: int, text: str, enums: Mapping[str, list[str]]) -> None:
    found = _FIELD.fullmatch(text)
    assert found is not None, text
    label, key, value, kind = found.groups()
    if key is not None:
        entry = message.nested_type.add(name="".join(map(str.title, name.split("_"))) + "Entry")
        entry.options.map_entry = True
        _add_field(entry, "key", 1, key, enums)
        _add_field(entry, "value", 2, value, enums)
        message.field.add(name=name, number=number, label=3, type=11, type_name=entry.name)
        return
    field = message.field.add(name=name, number=number, label=3 if label == "repeated" else 1)
    scalar = getattr(FieldDescriptorProto, f"TYPE_{kind.upper()}", None) if kind.islower() and "." not in kind else None
    if scalar is None:
        field.type, field.type_name = (14 if kind in enums else 11), kind
    else:
        field.type = scalar
    if label == "optional":
        field.proto3_optional = True
    if label == "oneof":
        if not message.oneof_decl:
            message.oneof_decl.add(name="choice")
        field.oneof_index = 0


def classes(*files: FileDescriptorProto) -> dict[str, Any]:
    """The classes of the messages of these files, each after those that it imports, by their full names."""
    from google.protobuf import any_pb2, duration_pb2, empty_pb2, struct_pb2, timestamp_pb2, wrappers_pb2

    pool = descriptor_pool.DescriptorPool()
    for module in (any_pb2, duration_pb2, empty_pb2, struct_pb2, timestamp_pb2, wrappers_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    for file in files:
        pool.AddSerializedFile(file.SerializeToString())
    names = [file.name for file in files]
    return message_factory.GetMessageClassesForFiles(names, pool)
