"""Which modules ``--layer`` names: one as it is called, or layers in the language of patterns."""

from __future__ import annotations

from collections.abc import Sequence

from .layers import chosen_layers
from .weights import Layout


def is_pattern(word: str) -> bool:
    """Tell whether a word is a pattern rather than one name.

    >>> is_pattern("conv*"), is_pattern("/^conv/"), is_pattern("a,b"), is_pattern("blocks.0")
    (True, True, True, False)
    """
    return any(sign in word for sign in "*?[,") or _is_expression(word)


def modules_named(layout: Layout, words: Sequence[str]) -> tuple[str, ...]:
    """Return the modules that words name: a word that is no pattern is a module's name, and a pattern names layers,
    which are modules with tensors.

    Raises:
        FedscopeError: a pattern that names no layer.

    >>> import fedscope, torch
    >>> layout = fedscope.Layout.of(torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Tanh(), torch.nn.Linear(2, 2)))
    >>> modules_named(layout, ["output", "1", "*"])
    ('output', '1', '0', '2')
    """
    found: list[str] = []
    for word in words:
        named = [layer.name for layer in chosen_layers(layout, word)] if is_pattern(word) else [word]
        # a name that is given twice is a mistake, and one that a pattern has, too, is none
        found += named if len(named) == 1 else [name for name in named if name not in found]
    return tuple(found)


def _is_expression(word: str) -> bool:
    return len(word) > 1 and word.startswith("/") and word.endswith("/")
