"""Whether what stands side by side is of the same seeds, and how a sentence says that it is not.

One place for tables, bands, draws of a decomposition and reports. Loads no torch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from ...checkpoints import Run
from ...checkpoints.io.errors import list_few, spans
from .run_names import both_seeds

#: seeds that a sentence names one by one
FEW = 6


def seed_words(seeds: tuple[Any, Any]) -> str | None:
    """``3``, or ``3/0`` where run and data have two; None where the run says none.

    >>> seed_words((3, 3)), seed_words((3, 0)), seed_words((None, None))
    ('3', '3/0', None)
    """
    run, data = seeds
    if run is None:
        return None
    return str(run) if run == data or data is None else f"{run}/{data}"


def are_nested(seeds: Iterable[Collection[str]]) -> bool:
    """Check whether of any two sets one has all seeds of the other, so that the smaller one only lacks some.

    >>> are_nested([{"0", "1"}, {"0"}, {"0", "1"}]), are_nested([{"0"}, {"1"}])
    (True, False)
    """
    ordered = sorted({frozenset(own) for own in seeds}, key=len)
    return all(less <= more for less, more in pairwise(ordered))


def list_seeds(named: Mapping[str, Collection[str]]) -> str:
    """Say of each which seeds it has; those of the same seeds together, and none where its runs say none.

    >>> list_seeds({"fma": ["0", "1"], "scaffold": ["0", "1"], "ima": ["2"], "mine": []})
    'fma, scaffold have seeds 0, 1; ima has seed 2; mine says no seed'
    """
    groups: dict[frozenset[str], list[str]] = {}
    for name, seeds in named.items():
        groups.setdefault(frozenset(seeds), []).append(name)
    return "; ".join(_describe(names, named[names[0]]) for names in groups.values())


def _describe(names: Sequence[str], seeds: Collection[str]) -> str:
    several = len(names) > 1
    if not seeds:
        return f"{list_few(names, 5)} {'say' if several else 'says'} no seed"
    return f"{list_few(names, 5)} {'have' if several else 'has'} seed{'s' if len(seeds) > 1 else ''} {_list(seeds)}"


def _list(seeds: Collection[str]) -> str:
    """List seeds in order; many as spans.

    >>> _list(["10", "9", "2/0"]), _list([str(seed) for seed in range(10)])
    ('9, 10, 2 (data.seed 0)', '0-9')
    """
    numbers = sorted(int(seed) for seed in seeds if seed.isdecimal())
    others = sorted(seed for seed in seeds if not seed.isdecimal())
    told = [spans(numbers)] if len(numbers) > FEW else list(map(str, numbers))
    told += [f"{run} (data.seed {data})" if data else run for run, _, data in (one.partition("/") for one in others)]
    return list_few(told)


def describe_other_seeds(groups: Mapping[str, Sequence[Run]]) -> str:
    """Say that groups of runs that stand side by side have other seeds, and how many all have in common; "" where they
    have the same, where one group only lacks some of another's, or where no run says its seed."""
    told = {name: [seed_words(both_seeds(run)) for run in runs] for name, runs in groups.items()}
    named = {name: [seed for seed in own if seed is not None] for name, own in told.items()}
    known = [own for own in named.values() if own]
    if are_nested(known):
        return ""
    return f"{list_seeds(named)}; {count_common(known)} in common"


def count_common(seeds: Sequence[Collection[str]]) -> str:
    """Count the seeds that all have, in words.

    >>> count_common([["0", "1"], ["1", "2"]]), count_common([["0"], ["1"]])
    ('1', 'none')
    """
    return str(len(set.intersection(*map(set, seeds))) or "none")
