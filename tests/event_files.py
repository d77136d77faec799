"""TensorBoard's event files, read by the bytes: records with their sums, and the few fields of an event that matter.

Written from the formats' definitions (TFRecord, CRC-32C, protocol buffers), because the product writes with
TensorBoard's own classes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Event:
    """One record: ``version`` is of the first alone, ``values`` by tag."""

    wall: float
    step: int
    version: str
    values: dict[str, float]


def crc32c(data: bytes) -> int:
    """Castagnoli's sum, bit by bit.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    total = 0xFFFFFFFF
    for byte in data:
        total ^= byte
        for _ in range(8):
            total = total >> 1 ^ (0x82F63B78 if total & 1 else 0)
    return total ^ 0xFFFFFFFF


def masked(data: bytes) -> int:
    """As records keep it: turned by 15 bits, and a constant more."""
    total = crc32c(data)
    return ((total >> 15 | total << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(content: bytes) -> Iterator[bytes]:
    """What lies in the records, each checked and whole."""
    at = 0
    while at < len(content):
        (length,), (head,) = struct.unpack_from("<Q", content, at), struct.unpack_from("<I", content, at + 8)
        assert masked(content[at : at + 8]) == head
        data = content[at + 12 : at + 12 + length]
        assert len(data) == length
        assert struct.unpack_from("<I", content, at + 12 + length) == (masked(data),)
        yield data
        at += length + 16


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = _varint(message, at)
            yield number, value
        elif kind == 2:
            length, at = _varint(message, at)
            yield number, message[at : at + length]
            at += length
        else:
            size, form = {1: (8, "<d"), 5: (4, "<f")}[kind]
            yield number, struct.unpack_from(form, message, at)[0]
            at += size


def read_events(path: Path) -> list[Event]:
    """All events of a file, in its order."""
    events = []
    for data in records(path.read_bytes()):
        known = dict(_fields(data))  # wall_time 1, step 2, file_version 3, summary 5
        values = {}
        for number, value in _fields(known.get(5, b"")):
            assert number == 1
            one = dict(_fields(value))  # tag 1, simple_value 2
            tag = one[1].decode()
            assert tag not in values
            values[tag] = one.get(2, 0.0)
        events.append(Event(known.get(1, 0.0), known.get(2, 0), known.get(3, b"").decode(), values))
    return events
