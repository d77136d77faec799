"""Which unit of one network is which of another: by their weights, or by what they answer on data.

Weights: Ainsworth, Hayase and Srinivasa, "Git Re-Basin" (arXiv 2209.04836), algorithm 1: the units of one group after
the other are assigned such that the inner product of both networks' tensors is largest, the other groups as they are
at that time. Units inside of blocks (heads) are assigned for every pair of blocks, then the blocks by what that gives.
Activations: units are assigned by the correlation of what they answer on the same samples, and those that nothing shows
by their weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from ...checkpoints import FedscopeError
from ...checkpoints.io.errors import list_few
from ...checkpoints.io.warn_user import warn_user
from .apply import Mover, Permutation, identity
from .groups import Group, Specification, Tap, TensorAxis
from .same_answers import FEW_NAMES, OTHERWISE, unmet_words
from .tracing import TAPPED, computed_plainly, operation_of

#: passes over all groups at most; matching mostly ends after five
PASSES = 100
#: what a change must gain, as a share of the inner product
GAIN = 1e-9

Arrays = Mapping[str, np.ndarray]
#: similarities of a group's units, or blocks, [size, size]; of the units inside, [size, size, units, units] each
Similar = tuple[np.ndarray, list[np.ndarray]]


def assign(similar: Similar) -> Permutation:
    """Return the permutation with the largest sum of similarities: unit i of the first with ``outer[i]`` of the
    second."""
    outer, inner = similar
    total, tables = outer.copy(), []
    for one in inner:
        size, _, units, _ = one.shape
        table = np.empty((size, size, units), np.int64)
        for i in range(size):
            for j in range(size):
                rows, columns = linear_sum_assignment(one[i, j], maximize=True)
                table[i, j] = columns
                total[i, j] += one[i, j][rows, columns].sum()
        tables.append(table)
    _, blocks = linear_sum_assignment(total, maximize=True)
    inverse = np.argsort(blocks)  # of a block of the second the place at which it comes to lie
    return Permutation(blocks, tuple(table[inverse, np.arange(len(blocks))] for table in tables))


def match_weights(
    specification: Specification,
    reference: Arrays,
    model: Arrays,
    *,
    starts: Sequence[str] = ("order", "identity"),
    given: Mapping[int, Permutation] | None = None,
) -> tuple[Permutation, ...]:
    """Match a network's units to those of a reference by their weights.

    From each start, groups are matched in turn until none changes; the largest inner product counts. ``order`` begins
    by matching each group from the input on, by the tensors whose other units are matched already, which finds the
    units of a copy; ``identity`` begins with all units where they are.

    Args:
        given: groups that are matched already, by their numbers, and stay so.
    """
    matching = _Weights(specification, reference, model, given or {})
    ends = [matching.improve(matching.in_order() if start == "order" else matching.begun()) for start in starts]
    values = [matching.value(end) for end in ends]
    best = max(range(len(ends)), key=lambda i: values[i] - GAIN * abs(values[-1]) * (i < len(ends) - 1))
    return tuple(ends[best])


class _Weights:
    """The inner product of two networks, one of them permuted."""

    def __init__(
        self, specification: Specification, reference: Arrays, model: Arrays, given: Mapping[int, Permutation]
    ) -> None:
        self.groups, self.given = specification.groups, given
        self.left = [g for g in range(len(self.groups)) if g not in given]
        self.mover = Mover(specification)
        names = [
            name
            for name in self.mover.places
            # whole numbers are no units, and statistics are measured and not learnt
            if np.asarray(reference[name]).dtype.kind == "f" and not name.endswith(("running_mean", "running_var"))
        ]
        self.first, self.second = (_scaled({name: one[name] for name in names}) for one in (reference, model))

    def value(self, permutations: Sequence[Permutation]) -> float:
        """Return the inner product."""
        moved = ((name, self.mover.tensor(name, values, permutations)) for name, values in self.second.items())
        return float(sum(np.vdot(self.first[name], values) for name, values in moved))

    def similar(self, g: int, permutations: Sequence[Permutation], known: set[int] | None = None) -> Similar:
        """Return the similarities of a group's units, the others permuted; with ``known``, by tensors whose other
        dimensions hold units of these groups alone."""
        group = self.groups[g]

        def rows(place: TensorAxis) -> tuple[np.ndarray, np.ndarray] | None:
            if place.tensor not in self.first:
                return None
            if known is not None and any(
                other != g and other not in known for other, *_ in self.mover.places[place.tensor]
            ):
                return None
            moved = self.mover.tensor(place.tensor, self.second[place.tensor], permutations, skip=(g, place.dim))
            found = []
            for values in (self.first[place.tensor], moved):
                values = values if place.rows is None else values[place.rows]
                taken = np.moveaxis(values, place.dim, 0)[place.index]
                found.append(taken.reshape(len(place.index), -1))
            return found[0], found[1]

        size = group.size
        outer = np.zeros((size, size))
        divided = {(p.tensor, p.dim) for units in group.inner for places in units.places for p in places}
        for place in group.places:
            if (place.tensor, place.dim) not in divided and (two := rows(place)) is not None:
                outer += two[0] @ two[1].T
        inner = []
        for units in group.inner:
            table = np.zeros((size, size, units.size, units.size))
            for at in range(len(units.places[0])):
                of_blocks = [rows(places[at]) for places in units.places]
                if any(one is None for one in of_blocks):
                    continue
                first, second = (np.stack([one[k] for one in of_blocks if one is not None]) for k in (0, 1))
                table += np.einsum("iam,jbm->ijab", first, second, optimize=True)
            inner.append(table)
        return outer, inner

    def begun(self) -> list[Permutation]:
        """All units where they are, but for those that are matched already."""
        return [self.given.get(g) or identity(group) for g, group in enumerate(self.groups)]

    def in_order(self) -> list[Permutation]:
        """Match each group by the tensors that hold no units but its own and those matched before."""
        permutations, known, left = self.begun(), set(self.given), list(self.left)
        while left:
            # the first whose tensors say something; else the first
            similar = {g: self.similar(g, permutations, known) for g in left[:1]}
            chosen = left[0]
            for g in left:
                one = similar.get(g) or self.similar(g, permutations, known)
                if one[0].any() or any(table.any() for table in one[1]):
                    chosen, similar[g] = g, one
                    break
            permutations[chosen] = assign(similar[chosen])
            known.add(chosen)
            left.remove(chosen)
        return permutations

    def improve(self, permutations: Sequence[Permutation]) -> list[Permutation]:
        """Match one group after the other until no inner product grows."""
        best = list(permutations)
        value = self.value(best)
        for _ in range(PASSES):
            before = value
            for g in self.left:
                found = assign(self.similar(g, best))
                if same(found, best[g]):
                    continue
                tried = [*best[:g], found, *best[g + 1 :]]
                now = self.value(tried)
                if now > value + GAIN * abs(value):
                    best, value = tried, now
            if value <= before + GAIN * abs(before):
                break
        return best


def _scaled(arrays: Arrays) -> dict[str, np.ndarray]:
    """Return tensors in float32 and by one power of 2 below 1, so that no sum of their products overflows: which
    permutation is best, and every other digit, stays."""
    largest = max((float(np.abs(values).max()) for values in arrays.values() if np.size(values)), default=0.0)
    by = -int(np.frexp(largest)[1])
    wide = {name: np.asarray(values, np.promote_types(values.dtype, np.float32)) for name, values in arrays.items()}
    return {name: np.ldexp(values, by).astype(np.float32) for name, values in wide.items()}


def same(first: Permutation, second: Permutation) -> bool:
    """Tell whether two permutations move all units alike."""
    pairs = zip((first.outer, *first.inner), (second.outer, *second.inner), strict=True)
    return all(np.array_equal(one, two) for one, two in pairs)


# --- activations ---


class _Tapping(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Hands over the results of some operations."""

    def __init__(self, calls: Mapping[int, Any], take: Callable[[int, Tensor], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls, self.take, self.call = calls, take, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if operation_of(func) not in TAPPED:
            return result
        if self.call in self.calls:
            self.take(self.call, result[0] if isinstance(result, list | tuple) else result)
        self.call += 1
        return result


def match_activations(
    specification: Specification,
    reference: nn.Module,
    model: nn.Module,
    batches: Sequence[Tensor],
    *,
    option: str = "--by",
) -> tuple[Permutation, ...]:
    """Match a network's units to those of a reference by the correlations of what they answer.

    Those that no product or norm shows (a table's, the inner ones of a product of two weights) are matched by their
    weights then, beside the others, with a warning.

    Args:
        reference, model: the networks, on the device of the samples.
        batches: of inputs, of the same kind as the networks were traced with.
        option: what asks for this, in sentences.

    Raises:
        FedscopeError: a network that does not compute the same operations on all samples; answers that are not finite.
    """
    sums = _Correlations(specification, option)
    for x in batches:
        found = []
        for module in (reference, model):
            answers: dict[int, Tensor] = {}
            with computed_plainly(module), _Tapping(sums.calls, answers.__setitem__) as tapping:
                module(x)
            if tapping.call != specification.calls:
                why = unmet_words(specification)
                remedy = f": {why}; {OTHERWISE}" if why else f"; give {option} weights"
                raise FedscopeError(
                    f"{type(module).__name__} computes {specification.calls} products and norms of its first samples, "
                    f"but {tapping.call} of others, so what its units answer cannot be compared{remedy}"
                )
            found.append(answers)
        for call, first in found[0].items():
            sums.add(call, first, found[1][call])
    unseen = sums.unseen()
    groups = list(enumerate(specification.groups))
    seen = {g: assign(sums.similar(g, group)) for g, group in groups if g not in unseen}
    if not unseen:
        return tuple(seen.values())
    named = [group.name for g, group in groups if g in unseen]
    many = f" ({len(named):,} in all)" if len(named) > FEW_NAMES else ""
    warn_user(
        f"the units of {list_few(named, most=FEW_NAMES)}{many} are matched by their weights, for no product or norm "
        "shows what they answer"
    )
    arrays = (_placed(specification, module) for module in (reference, model))
    return match_weights(specification, *arrays, given=seen)


def _placed(specification: Specification, module: nn.Module) -> dict[str, np.ndarray]:
    """Return the tensors of a module in which units lie; floats that numpy does not have in float32."""
    state = module.state_dict()
    held = {name: state[name].detach().cpu() for name in Mover(specification).places}
    return {name: (one.float() if one.dtype == torch.bfloat16 else one).numpy() for name, one in held.items()}


class _Correlations:
    """Correlations of units of two networks, over batches."""

    def __init__(self, specification: Specification, option: str) -> None:
        self.groups, self.option = specification.groups, option
        self.calls: dict[int, list[Tap]] = {}
        for tap in specification.taps:
            self.calls.setdefault(tap.call, []).append(tap)
        self.sums: dict[tuple[int, int], list[np.ndarray]] = {}

    def add(self, call: int, first: Tensor, second: Tensor) -> None:
        """Add what an operation of both networks gave.

        Raises:
            FedscopeError: it is not finite.
        """
        for tap in {one.dim: one for one in self.calls[call]}.values():
            if first.shape[tap.dim] != tap.length:  # samples are among its entries
                continue
            x, y = (_entries(one.double(), tap) for one in (first, second))
            new = [x.sum(1), y.sum(1), (x * x).sum(1), (y * y).sum(1), x @ y.T, torch.tensor(float(x.shape[1]))]
            numbers = [one.cpu().numpy() for one in new]
            if not all(np.isfinite(one).all() for one in numbers):
                raise FedscopeError(
                    f"units of {self.groups[tap.group].name} answer with a NaN or an infinity, so they cannot be "
                    f"matched by activations; give {self.option} weights"
                )
            held = self.sums.get((call, tap.dim))
            self.sums[call, tap.dim] = numbers if held is None else [a + b for a, b in zip(held, numbers, strict=True)]

    def unseen(self) -> set[int]:
        """Return the numbers of the groups that no operation has shown, or not all of their units."""
        shown = [tap for taps in self.calls.values() for tap in taps if (tap.call, tap.dim) in self.sums]
        tables = {(tap.group, None if tap.inner is None else tap.inner[0]) for tap in shown}
        wanted: list[Sequence[int | None]] = [range(len(group.inner)) or [None] for group in self.groups]
        return {g for g, own in enumerate(wanted) if any((g, table) not in tables for table in own)}

    def correlation(self, call: int, dim: int) -> np.ndarray:
        """Return the correlations of all entries, [n, n]; 0 where one does not vary."""
        x, y, xx, yy, xy, n = self.sums[call, dim]
        cov = xy / n - np.outer(x / n, y / n)
        spread = np.sqrt(np.outer(np.maximum(xx / n - (x / n) ** 2, 0), np.maximum(yy / n - (y / n) ** 2, 0)))
        found: np.ndarray = np.divide(cov, spread, out=np.zeros_like(cov), where=spread > 1e-12)
        return found

    def similar(self, g: int, group: Group) -> Similar:
        """Return the similarities of a group's units: the sums of their correlations."""
        outer = np.zeros((group.size, group.size))
        inner = [np.zeros((group.size, group.size, units.size, units.size)) for units in group.inner]
        for call, dim in self.sums:
            mine = [tap for tap in self.calls[call] if tap.group == g and tap.dim == dim]
            if not mine:
                continue
            found = self.correlation(call, dim)
            inside = [tap for tap in mine if tap.inner is not None]
            for one in mine:
                if one.inner is None and not inside:
                    for column in range(one.index.shape[1]):
                        at = one.index[:, column]
                        outer += found[np.ix_(at, at)]
            blocks = _by_block(inside)
            for (k, i), own in blocks.items():
                for (table, j), theirs in blocks.items():
                    # a packed layer shows several: a block's queries are compared with another's, not with its keys
                    for one, two in zip(own, theirs, strict=False) if k == table else ():
                        for column in range(one.index.shape[1]):
                            inner[k][i, j] += found[np.ix_(one.index[:, column], two.index[:, column])]
        return outer, inner


def _entries(values: Tensor, tap: Tap) -> Tensor:
    """Return what each entry of a tap's dimension is for all samples, [n, m]: the mean over other units, as another
    network has these in another order."""
    for dim, block, outside in tap.others:
        apart = torch.unflatten(values, dim, (block, -1) if outside else (-1, block))
        values = apart.mean(dim - 1 if outside else dim)
    return values.movedim(tap.dim, 0).reshape(values.shape[tap.dim], -1)


def _by_block(taps: Sequence[Tap]) -> dict[tuple[int, int], list[Tap]]:
    """Sort the taps of units inside of blocks by table and block, in the order in which a result shows them."""
    found: dict[tuple[int, int], list[Tap]] = {}
    for tap in taps:
        if tap.inner is not None:
            found.setdefault(tap.inner, []).append(tap)
    return found
