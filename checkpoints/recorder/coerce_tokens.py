"""Batches of tokens as networks for language take them, ``{"input_ids", "attention_mask", "labels"}``, as inputs and
targets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..io.array_digest import PADDING as PADDING
from ..io.errors import FedscopeError, list_few
from ..io.warn_user import warn_user
from .token_targets import UNCOUNTED, are_next, are_others

#: what a batch holds, and is read
TOKENS, MASK = "input_ids", "attention_mask"
LABELS = ("labels", "label")


def is_batch(given: Any) -> bool:
    """Check whether this is a mapping of tokens.

    >>> is_batch({"input_ids": [1]}), is_batch({"x_test": [1]}), is_batch([1])
    (True, False, False)
    """
    return isinstance(given, Mapping) and TOKENS in given


def coerce_tokens(place: str, arrays: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return tokens x [N, L] and their targets: labels [N] as they are; labels [N, L], which stand at their own tokens,
    moved to the position before, from which they are to be told; without labels the next tokens. Warns of labels that
    were moved before.

    Args:
        place: begins sentences.
        arrays: by name; of more than these names none counts.

    Raises:
        FedscopeError: other shapes; padding that is not at the end.

    >>> x, y = coerce_tokens("data:", {"input_ids": np.array([[5, 6, 7]])})
    >>> x.tolist(), y.tolist()
    ([[5, 6, 7]], [[6, 7, -100]])
    """
    x = arrays[TOKENS]
    labels = next((arrays[name] for name in LABELS if name in arrays), None)
    if x.ndim != 2 or x.dtype.kind not in "iu":
        raise FedscopeError(f"{place} {TOKENS} of shape {list(x.shape)} and type {x.dtype}; give whole numbers [N, L]")
    if labels is not None and labels.shape not in ((len(x),), x.shape):
        raise FedscopeError(
            f"{place} labels of shape {list(labels.shape)} for {TOKENS} of {list(x.shape)}; give a label a text, "
            f"[{len(x)}], or one a token, {list(x.shape)}"
        )
    counted = _counted(place, x, arrays.get(MASK))
    if labels is not None and labels.ndim == 1:
        if not counted.all():
            _say_padding(place, x, counted)
        return x, labels
    if labels is not None and labels.dtype.kind in "iu" and are_next(x, labels, counted):
        warn_user(
            f"{place} labels of which each is the next token of {TOKENS} already, and they are moved by one, as "
            f"transformers does it, so that the token after the next is asked for; give labels that are {TOKENS} "
            f"themselves, or these two as x and y, with y {UNCOUNTED} where a position does not count"
        )
    elif labels is not None and labels.dtype.kind in "iu" and are_others(x, labels, counted):
        warn_user(
            f"{place} labels of which most are other tokens than {TOKENS} has at their places, as of masked tokens or "
            "tags, and they are moved by one, as transformers does it for causal models; give these two as x and y for "
            "labels that stay at their places"
        )
    targets = np.where(counted, x if labels is None else labels, UNCOUNTED).astype(np.int64)
    return x, next_of(targets)


def padding_of(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the tokens that a mask says are padding, as an array of a data set; nothing where there is no mask.

    >>> padding_of({"input_ids": np.array([[5, 0]]), "attention_mask": np.array([[1, 0]])})
    {'padding': array([0])}
    """
    return {PADDING: np.unique(arrays[TOKENS][arrays[MASK] == 0])} if MASK in arrays else {}


def join_padding(place: str, arrays: Mapping[str, np.ndarray], said: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the padding of both splits as that of the whole; nothing where one of them does not say its own.

    Args:
        place: begins sentences.
        arrays: of the splits; said: which tokens are padding in each.

    Raises:
        FedscopeError: padding of samples with classes that is another token in the other split, or none there.
    """
    if not said or any(f"x_{split}" in arrays and split not in said for split in ("train", "test")):
        return {}
    whole = np.unique(np.concatenate([*said.values()]))
    for split, own in said.items():
        x, y = arrays[f"x_{split}"], arrays[f"y_{split}"]
        if y.ndim == 1 and (len(whole) > 1 or np.isin(np.setdiff1d(whole, own), x).any()):
            raise FedscopeError(
                f"{place} padding of the tokens {list_few(whole.tolist(), 4)}, which {split} data have as others or do "
                "not have as padding, and networks are called with tokens alone; fill both up with one token of its own"
            )
    return {PADDING: whole}


def next_of(tokens: np.ndarray) -> np.ndarray:
    """What comes after each position of rows of tokens, -100 after the last one."""
    return np.concatenate([tokens[:, 1:], np.full((len(tokens), 1), UNCOUNTED)], axis=1).astype(np.int64)


def _counted(place: str, x: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
    """Which positions are no padding."""
    if mask is None:
        return np.ones(x.shape, bool)
    if mask.shape != x.shape:
        raise FedscopeError(
            f"{place} {MASK} of shape {list(mask.shape)} for {TOKENS} of {list(x.shape)}; give one shape"
        )
    counted: np.ndarray = mask != 0
    if (counted[:, 1:] & ~counted[:, :-1]).any():
        row = int((counted[:, 1:] & ~counted[:, :-1]).any(axis=1).argmax())
        raise FedscopeError(
            f"{place} a sample (the first is {row}) whose {MASK} is 0 before its last token, and networks are called "
            "with tokens alone; put padding at the end"
        )
    return counted


def _say_padding(place: str, x: np.ndarray, counted: np.ndarray) -> None:
    """Say what a network for classes has to do with padding itself.

    Raises:
        FedscopeError: padding that no single token marks.
    """
    fills, others = np.unique(x[~counted]), np.unique(x[counted])
    if len(fills) > 1 or np.isin(fills, others).any():
        raise FedscopeError(
            f"{place} padding of the tokens {list_few(fills.tolist(), 4)}, which stand for more than padding, and "
            "networks are called with tokens alone; fill up with a token of its own, or give samples of one length"
        )
    warn_user(
        f"{place} padding, the token {fills[0]}, which the network has to leave out by itself: it is called with "
        f"tokens alone, without {MASK} (the network of a folder, hf:FOLDER, does so)"
    )
