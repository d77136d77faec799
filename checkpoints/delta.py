"""Clients as differences from the model they were sent, bit for bit, in a form that compresses."""

from __future__ import annotations

import numpy as np


def encode(start: np.ndarray, clients: np.ndarray) -> np.ndarray:
    """The zigzag code of the difference between bit patterns, int32, for float32; other dtypes stay as they are.

    d = bits(client) - bits(start) mod 2^32, stored as (d << 1) ^ (d >> 31): small differences of either sign become
    small codes, whose high bytes are zero, which shuffle + gzip shrinks (1.6 to 2.0 times as measured).

    Args:
        start: [P]; clients: [P] or [C, P].

    >>> encode(np.float32([1.0]), np.float32([[1.0], [1.0000001]]))
    array([[0],
           [2]], dtype=int32)
    """
    if not encodes(clients.dtype):
        return clients
    difference = clients.view(np.int32) - start.view(np.int32)
    return (difference << 1) ^ (difference >> 31)


def decode(start: np.ndarray, coded: np.ndarray) -> np.ndarray:
    """The inverse of :func:`encode`, bit for bit (NaN payloads and the sign of zero included)."""
    if not encodes(start.dtype):
        return coded
    code = coded.view(np.uint32)
    difference = (code >> 1).view(np.int32) ^ -(code & 1).view(np.int32)
    clients: np.ndarray = (start.view(np.int32) + difference).view(np.float32)
    return clients


def encodes(dtype: np.dtype[np.generic]) -> bool:
    """Whether values of this dtype are stored as differences."""
    return dtype == np.dtype(np.float32)
