"""Numbers of seven bits a byte, as Avro, Thrift, protocol buffers and Kryo have them; signed ones as zigzag."""

from __future__ import annotations

_MAX_BITS = 70


def varint(number: int) -> bytes:
    """A number >= 0 as bytes of seven bits each, the lowest first.

    >>> varint(300).hex()
    'ac02'
    """
    if number <= 0x7F:
        return bytes((number,))
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def read_varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """The number at position `at`, and the position after it. Raises IndexError if it is cut off or has more than ten
    bytes.

    >>> read_varint(b"\\xac\\x02", 0)
    (300, 2)
    """
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    value, shift = byte & 0x7F, 7
    while byte >= 0x80:
        if shift >= _MAX_BITS:
            raise IndexError("a number has more than ten bytes")
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        shift += 7
    return value, at + 1


def zigzag(number: int) -> int:
    """A signed number as a number >= 0: 0, -1, 1, -2 become 0, 1, 2, 3."""
    return number << 1 if number >= 0 else (-number << 1) - 1


def unzigzag(number: int) -> int:
    """The signed number that `zigzag` encoded as this number."""
    return number >> 1 ^ -(number & 1)
