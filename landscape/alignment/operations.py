"""What operations do to the units of their tensors: which are units of the result, and which are permuted together.

A rule takes the values of an operation's arguments and gives those of its results. An operation without a rule leaves
all units of its arguments where they are, which is right for every operation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from .atoms import FIXED, Atoms, Axis, Factor


@dataclass
class Value:
    """A tensor of the trace.

    Attributes:
        shape: of it.
        axes: its dimensions.
        uniform: all its entries are alike.
        computed: it is no parameter or buffer, but what was made of some.
    """

    shape: tuple[int, ...]
    axes: list[Axis]
    uniform: bool = False
    computed: bool = True


#: gives the values of results from atoms, arguments with values in the place of tensors, and the results' shapes
Rule = Callable[[Atoms, list[Any], dict[str, Any], list[tuple[int, ...]]], "list[list[Axis]]"]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule for operations by their names in ATen."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


def values_in(args: Any) -> list[Value]:
    """All values among arguments."""
    if isinstance(args, Value):
        return [args]
    if isinstance(args, dict):
        args = list(args.values())
    return [value for one in args for value in values_in(one)] if isinstance(args, list | tuple) else []


def is_fixed(atoms: Atoms, axis: Axis) -> bool:
    """Tell whether all units of a dimension stay."""
    return all(atoms.find(int(atom)) == FIXED for factor in axis for atom in factor.atoms.reshape(-1))


def loosened(atoms: Atoms, x: Value, *dims: int) -> list[Axis]:
    """A tensor's dimensions where entries of some are mixed or moved: what depends on these, they permute alike."""
    gone = {dim % len(x.shape) for dim in dims}
    keys = {piece.key for dim in gone for factor in x.axes[dim] for piece in atoms.pieces(factor)}
    return [axis if i in gone else freed(atoms, axis, keys) for i, axis in enumerate(x.axes)]


def leveled(atoms: Atoms, given: list[Value]) -> list[Value]:
    """Tensors that are taken entry by entry: what depends on a dimension that lies at another place in one of them, or
    in none, is permuted alike for all of its units."""
    if len(given) < 2 or not any(factor.over for value in given for axis in value.axes for factor in axis):
        return given
    dims = [
        [{piece.key for factor in axis for piece in atoms.pieces(factor)} for axis in reversed(value.axes)]
        for value in given
    ]
    overs = [{key for axis in value.axes for factor in axis for key in atoms.current(factor).over} for value in given]
    bad = set()
    for key in set().union(*overs):
        places = {
            tuple(back for back, keys in enumerate(own) if key in keys)
            for own, over in zip(dims, overs, strict=True)
            if key in over
        }
        if len(places) > 1 or any(len(place) != 1 for place in places):
            bad.add(key)
    return [Value(value.shape, [freed(atoms, axis, bad) for axis in value.axes]) for value in given]


def freed(atoms: Atoms, axis: Axis, keys: set[int]) -> Axis:
    """A dimension whose units are permuted alike for all units of other dimensions."""
    made: Axis = []
    for factor in axis:
        factor = atoms.current(factor)
        for key in keys & set(factor.over):
            factor = atoms.independent(factor, key)
        made.append(factor)
    return made


def elementwise(atoms: Atoms, args: Any, kwargs: dict[str, Any], shapes: list[tuple[int, ...]]) -> list[list[Axis]]:
    """Tie the dimensions of all tensors, as they are broadcast."""
    shape, made = shapes[0], list[Axis]()
    given = leveled(atoms, values_in([args, kwargs]))
    for back, size in zip(range(len(shape), 0, -1), shape, strict=True):
        axis: Axis | None = None
        for value in given:
            if back > len(value.shape) or value.shape[-back] != size or size == 1:
                continue
            own = value.axes[-back]
            axis = own if axis is None else atoms.tie(axis, own)
        made.append(axis or [])
    return [made] * len(shapes)


SAME = (
    "relu relu_ relu6 gelu silu silu_ tanh tanh_ sigmoid sigmoid_ hardswish hardswish_ hardtanh hardtanh_ leaky_relu "
    "leaky_relu_ elu elu_ softplus mish mish_ hardsigmoid hardsigmoid_ neg exp log log1p expm1 sqrt rsqrt abs sin cos "
    "erf square reciprocal sign round floor clone detach alias lift_fresh contiguous _to_copy clamp clamp_ clamp_min "
    "clamp_min_ pow pow_ add add_ sub sub_ mul mul_ div div_ rsub maximum minimum where eq ne lt le gt ge logical_and "
    "logical_or logical_not bitwise_and bitwise_or bitwise_not lerp addcmul addcdiv _prelu_kernel masked_fill "
    "masked_fill_ copy_ celu celu_ selu selu_ threshold threshold_ log_sigmoid_forward softshrink hardshrink fmod "
    "remainder atan2 isnan isinf nan_to_num zero_ fill_ dropout native_dropout "
    "logit tan asin acos atan sinh cosh trunc ceil exp_ neg_ sqrt_ rsqrt_ copysign hypot glu_none"
)
rule(*SAME.split())(elementwise)


SOFTMAX = ("_softmax", "_log_softmax", "_safe_softmax")


@rule(*SOFTMAX)
def softmax(atoms: Atoms, args: Any, kwargs: Any, shapes: list[tuple[int, ...]]) -> list[list[Axis]]:
    """Shares of the sum over a dimension."""
    return [loosened(atoms, args[0], args[1])] * len(shapes)


#: operations that make tensors whose entries are all alike
MAKERS = [
    "zeros",
    "ones",
    "full",
    "empty",
    "zeros_like",
    "ones_like",
    "full_like",
    "empty_like",
    "new_zeros",
    "new_ones",
    "new_full",
    "new_empty",
    "scalar_tensor",
    "empty_strided",
    "new_empty_strided",
]


@rule(*MAKERS)
def uniform(atoms: Atoms, args: Any, kwargs: Any, shapes: list[tuple[int, ...]]) -> list[list[Axis]]:
    """All entries are alike, so any permutation leaves them."""
    return [[atoms.factor(size) for size in shape] for shape in shapes]


# --- products ---


def contract(atoms: Atoms, first: Axis, second: Axis, batch: Sequence[Factor] = ()) -> None:
    """Sum over a dimension of both, whose units may depend on those of the batch alone: all others meet each other."""
    kept = {piece.key for axis in (first, second, batch) for factor in axis for piece in atoms.pieces(factor)}
    sides = []
    for axis in (first, second):
        over = {key for factor in axis for key in atoms.current(factor).over}
        sides.append(freed(atoms, axis, over - kept))
    atoms.tie(*sides)


@rule("mm", "mv", "dot", "vdot")
def product(atoms: Atoms, args: Any, kwargs: Any, shapes: Any) -> list[list[Axis]]:
    """Products of matrices and vectors."""
    a, b = args[:2]
    contract(atoms, a.axes[-1], b.axes[0])
    return [[*loosened(atoms, a, -1)[:-1], *loosened(atoms, b, 0)[1:]]]


@rule("addmm", "addmv")
def sum_and_product(atoms: Atoms, args: Any, kwargs: Any, shapes: list[tuple[int, ...]]) -> list[list[Axis]]:
    """A product with what is added."""
    (axes,) = product(atoms, args[1:3], {}, shapes)
    return elementwise(atoms, [args[0], Value(shapes[0], axes)], {}, shapes)


@rule("bmm")
def batched(atoms: Atoms, args: Any, kwargs: Any, shapes: Any) -> list[list[Axis]]:
    """Products of matrices, one a batch."""
    a, b = args[:2]
    batch = atoms.tie(a.axes[0], b.axes[0])
    contract(atoms, a.axes[2], b.axes[1], batch)
    return [[batch, loosened(atoms, a, 2)[1], loosened(atoms, b, 1)[2]]]


@rule("baddbmm")
def sum_and_batched(atoms: Atoms, args: Any, kwargs: Any, shapes: list[tuple[int, ...]]) -> list[list[Axis]]:
    """The same with what is added."""
    (axes,) = batched(atoms, args[1:3], {}, shapes)
    return elementwise(atoms, [args[0], Value(shapes[0], axes)], {}, shapes)


@rule("convolution", "_convolution")
def convolution(atoms: Atoms, args: Any, kwargs: Any, shapes: list[tuple[int, ...]]) -> list[list[Axis]]:
    """Channels are tied to the kernel's; positions are mixed with their neighbours, and stay."""
    x, weight, bias = args[:3]
    transposed, groups = bool(args[6]), int(args[8])
    for axis in [*x.axes[2:], *weight.axes[2:]]:
        atoms.fix_axis(axis)
    # a convolution's kernel is [out, in / groups, ...], a transposed one's [in, out / groups, ...]
    if groups == 1:
        taken, out = (weight.axes[0], weight.axes[1]) if transposed else (weight.axes[1], weight.axes[0])
        contract(atoms, x.axes[1], taken)
    else:
        x_group, x_own = atoms.regroup([x.axes[1]], [groups, x.shape[1] // groups])
        if len(x_group) > 1 or len(x_own) > 1:  # blocks inside of blocks, which stay
            atoms.fix_axis([*x_group, *x_own])
            x_group, x_own = atoms.fixed(groups), atoms.fixed(x.shape[1] // groups)
        first_group, first_own = atoms.regroup([weight.axes[0]], [groups, weight.shape[0] // groups])
        group = atoms.tie(x_group, first_group)
        second = by_group(atoms, weight, group)
        if transposed:
            atoms.tie(x_own, first_own)
            out = [*group, *second]
        else:
            atoms.tie(x_own, second)
            out = [*first_group, *first_own]
    if isinstance(bias, Value):
        out = atoms.tie(out, bias.axes[0])
    return [[x.axes[0], out, *(atoms.fixed(size) for size in shapes[0][2:])]]


def by_group(atoms: Atoms, weight: Value, group: Axis) -> Axis:
    """The second dimension of a grouped kernel, whose units may be permuted otherwise in each group; of one that is
    computed of others they are permuted alike, as these are."""
    if weight.computed or weight.shape[1] == 1 or len(group) != 1 or group[0].over:
        return weight.axes[1]
    (lead,) = group
    lead = atoms.current(lead)
    if len(weight.axes[1]) == 1 and not weight.axes[1][0].over:
        (factor,) = weight.axes[1]
        own = [atoms.new(factor.size) for _ in range(lead.size)]
        if atoms.find(int(factor.atoms)) == FIXED:
            own = [FIXED] * lead.size
        weight.axes[1] = [Factor(factor.size, np.array(own), (lead.key,), atoms.new_key())]
    return weight.axes[1]


# --- normalisation ---


@rule("native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm", "_native_batch_norm_legit_no_training")
@rule("_native_batch_norm_legit", "_batch_norm_no_update", "_batch_norm_with_update", "_batch_norm_impl_index")
def batch_norm(atoms: Atoms, args: Any, kwargs: Any, shapes: list[tuple[int, ...]]) -> list[list[Axis]]:
    """Scales, shifts and statistics follow the channels."""
    x = args[0]
    channels = x.axes[1]
    for value in values_in(args[1:5]):
        channels = atoms.tie(channels, value.axes[0])
    axes = [x.axes[0], channels, *x.axes[2:]]
    return [axes] + [[atoms.fixed(size) for size in shape] for shape in shapes[1:]]


@rule("native_group_norm")
def group_norm(atoms: Atoms, args: Any, kwargs: Any, shapes: list[tuple[int, ...]]) -> list[list[Axis]]:
    """Groups may be permuted as a whole, and channels within each."""
    x, groups = args[0], int(args[6])
    channels = [piece for axis in atoms.regroup([x.axes[1]], [groups, x.shape[1] // groups]) for piece in axis]
    for value in values_in(args[1:3]):
        channels = atoms.tie(channels, value.axes[0])
    axes = [x.axes[0], channels, *x.axes[2:]]
    return [axes] + [[atoms.fixed(size) for size in shape] for shape in shapes[1:]]


@rule("native_layer_norm", "_fused_rms_norm")
def layer_norm(atoms: Atoms, args: Any, kwargs: Any, shapes: list[tuple[int, ...]]) -> list[list[Axis]]:
    """Scales and shifts follow the units."""
    x, last = args[0], len(args[1])
    own = Value(x.shape, loosened(atoms, x, *range(-last, 0)))
    axes = elementwise(atoms, [own, *values_in(args[2:4])], {}, shapes[:1])[0]
    return [axes] + [[atoms.fixed(size) for size in shape] for shape in shapes[1:]]


@rule("_weight_norm_interface")
def weight_norm(atoms: Atoms, args: Any, kwargs: Any, shapes: list[tuple[int, ...]]) -> list[list[Axis]]:
    """Directions v, lengths g of one dimension: g v / ‖v‖, over the other dimensions."""
    (axes,) = elementwise(atoms, args[:2], {}, shapes[:1])
    norms = [axis if size > 1 else [] for axis, size in zip(axes, shapes[1], strict=True)]
    return [axes, norms]


# --- sums over dimensions and windows ---


@rule("mean", "sum", "amax", "amin", "var", "std", "logsumexp", "linalg_vector_norm", "norm", "any", "all", "prod")
def reduce(atoms: Atoms, args: Any, kwargs: Any, shapes: list[tuple[int, ...]]) -> list[list[Axis]]:
    """The dimensions that are summed over go."""
    x, shape = args[0], shapes[0]
    dims = next((one for one in [*args[1:], kwargs.get("dim")] if isinstance(one, list | tuple)), None)
    if dims is None:
        ints = [one for one in args[1:] if isinstance(one, int) and not isinstance(one, bool)]
        dims = ints[:1] if ints and len(shape) else []
    gone = {dim % len(x.shape) for dim in dims} or set(range(len(x.shape)))
    axes = loosened(atoms, x, *gone)
    if len(shape) == len(x.shape):
        return [[[] if i in gone else axis for i, axis in enumerate(axes)]]
    return [[axis for i, axis in enumerate(axes) if i not in gone]]


@rule("max", "min")
def extreme(atoms: Atoms, args: Any, kwargs: Any, shapes: list[tuple[int, ...]]) -> list[list[Axis]]:
    """The greatest over a dimension, and where it is: numbers of positions, which stay."""
    if len(shapes) == 1:
        return reduce(atoms, args, kwargs, shapes)
    atoms.fix_axis(args[0].axes[args[1]])
    return reduce(atoms, args, kwargs, shapes) * 2


WINDOWS = (
    "max_pool2d_with_indices max_pool3d_with_indices avg_pool1d avg_pool2d avg_pool3d _adaptive_avg_pool2d "
    "_adaptive_avg_pool3d adaptive_max_pool2d adaptive_max_pool3d upsample_nearest2d upsample_bilinear2d "
    "upsample_bicubic2d _upsample_bilinear2d_aa _upsample_bicubic2d_aa upsample_nearest1d upsample_linear1d "
    "reflection_pad1d reflection_pad2d replication_pad2d max_pool2d mkldnn_max_pool2d pixel_none"
)


@rule(*WINDOWS.split())
def windows(atoms: Atoms, args: Any, kwargs: Any, shapes: list[tuple[int, ...]]) -> list[list[Axis]]:
    """Channels stay what they are; positions stay where they are."""
    x, made = args[0], list[list[Axis]]()
    for axis in x.axes[2:]:
        atoms.fix_axis(axis)
    axes = loosened(atoms, x, *range(2, len(x.shape)))
    for shape in shapes:
        made.append([*axes[:2], *(atoms.fixed(size) for size in shape[2:])])
    return made


@rule("constant_pad_nd")
def pad(atoms: Atoms, args: Any, kwargs: Any, shapes: list[tuple[int, ...]]) -> list[list[Axis]]:
    """A constant on both sides of a dimension, whose entries may be permuted at will."""
    x, pads = args[0], list(args[1])
    made = list(x.axes)
    for i in range(len(pads) // 2):
        at, (before, after) = len(x.shape) - 1 - i, pads[2 * i : 2 * i + 2]
        if not (before or after):
            continue
        if min(before, after) < 0 or is_fixed(atoms, x.axes[at]):
            atoms.fix_axis(x.axes[at])
            made = loosened(atoms, Value(x.shape, made), at)
            made[at] = atoms.fixed(shapes[0][at])
            continue
        parts = [(n, atom) for n, atom in ((before, None), (x.shape[at], join(atoms, x.axes[at])), (after, None)) if n]
        own = [atoms.new(n) if atom is None else atom for n, atom in parts]
        made[at] = atoms.factor(shapes[0][at])
        atoms.cut(int(made[at][0].atoms), tuple(n for n, _ in parts), own)
    return [made]


# --- shapes ---


def join(atoms: Atoms, axis: Axis) -> int:
    """Return one atom for a dimension."""
    if not axis:
        return FIXED
    if len(axis) == 1 and not axis[0].over:
        return int(axis[0].atoms)
    whole = atoms.factor(prod(factor.size for factor in axis))
    atoms.tie(whole, axis)
    return int(whole[0].atoms)


VIEWS = [
    "view",
    "_unsafe_view",
    "reshape",
    "_reshape_alias",
    "squeeze",
    "unsqueeze",
    "flatten",
    "squeeze_",
    "unsqueeze_",
]
#: operations whose results have all entries alike where those of their arguments are
ALIKE = {name for name in [*SAME.split(), *SOFTMAX, *VIEWS] if not name.endswith("_") and "dropout" not in name}
ALIKE |= {"permute", "t", "transpose", "swapaxes", "swapdims", "expand", "select", "unbind", "slice", "split"}
ALIKE |= {"split_with_sizes", "chunk", "unsafe_split", "unsafe_split_with_sizes", "unsafe_chunk"}


@rule(*VIEWS, "squeeze_", "unsqueeze_")
def view(atoms: Atoms, args: Any, kwargs: Any, shapes: list[tuple[int, ...]]) -> list[list[Axis]]:
    """The same entries in another shape."""
    return [atoms.regroup(args[0].axes, shapes[0])]


@rule("as_strided", "as_strided_")
def as_strided(atoms: Atoms, args: Any, kwargs: Any, shapes: list[tuple[int, ...]]) -> list[list[Axis]]:
    """The same tensor in another order in memory, as the mean of images over all pixels has it."""
    x = args[0]
    if x.shape == shapes[0] and (len(args) < 4 or not args[3]):
        return [list(x.axes)]
    return fix(atoms, args, kwargs, shapes)


@rule("permute")
def permute(atoms: Atoms, args: Any, kwargs: Any, shapes: Any) -> list[list[Axis]]:
    """Dimensions in another order."""
    return [[args[0].axes[dim] for dim in args[1]]]


@rule("t", "t_")
def turn(atoms: Atoms, args: Any, kwargs: Any, shapes: Any) -> list[list[Axis]]:
    """A matrix transposed."""
    return [args[0].axes[::-1]]


@rule("transpose", "transpose_", "swapaxes", "swapdims")
def transpose(atoms: Atoms, args: Any, kwargs: Any, shapes: Any) -> list[list[Axis]]:
    """Two dimensions exchanged."""
    axes = list(args[0].axes)
    axes[args[1]], axes[args[2]] = axes[args[2]], axes[args[1]]
    return [axes]


@rule("expand")
def expand(atoms: Atoms, args: Any, kwargs: Any, shapes: list[tuple[int, ...]]) -> list[list[Axis]]:
    """Entries repeated along a dimension, which may be permuted at will."""
    x, shape = args[0], shapes[0]
    new = len(shape) - len(x.shape)
    same = [i >= new and x.shape[i - new] == size for i, size in enumerate(shape)]
    return [[x.axes[i - new] if same[i] else atoms.factor(size) for i, size in enumerate(shape)]]


@rule("repeat")
def repeat(atoms: Atoms, args: Any, kwargs: Any, shapes: list[tuple[int, ...]]) -> list[list[Axis]]:
    """Entries repeated: of one alone, any permutation leaves them; of several, these stay."""
    x, (shape,) = args[0], shapes
    new = len(shape) - len(x.shape)
    moved = [i for i, size in enumerate(x.shape) if size > 1 and shape[i + new] != size]
    for i in moved:
        atoms.fix_axis(x.axes[i])
        x = Value(x.shape, loosened(atoms, x, i))
    made = [atoms.factor(size) for size in shape[:new]]
    for i, size in enumerate(x.shape):
        own = atoms.fixed(shape[i + new]) if i in moved else atoms.factor(shape[i + new])
        made.append(x.axes[i] if shape[i + new] == size else own)
    return [made]


@rule("_pack_padded_sequence")
def pack(atoms: Atoms, args: Any, kwargs: Any, shapes: list[tuple[int, ...]]) -> list[list[Axis]]:
    """Steps of sequences of several lengths one after the other: steps and sequences stay."""
    x = args[0]
    for axis in x.axes[:2]:
        atoms.fix_axis(axis)
    return [[atoms.fixed(shapes[0][0]), *loosened(atoms, x, 0, 1)[2:]], [atoms.fixed(size) for size in shapes[1]]]


@rule("select")
def select(atoms: Atoms, args: Any, kwargs: Any, shapes: Any) -> list[list[Axis]]:
    """One entry of a dimension: what depends on it is what it is there."""
    return [pick(atoms, args[0], args[1], args[2])]


def pick(atoms: Atoms, x: Value, dim: int, index: int) -> list[Axis]:
    """The other dimensions at one entry of a dimension."""
    dim %= len(x.shape)
    pieces = [piece for factor in x.axes[dim] for piece in atoms.pieces(factor)]
    where = np.unravel_index(index % x.shape[dim], [piece.size for piece in pieces] or [1])
    keys = {piece.key: int(at) for piece, at in zip(pieces, where, strict=False)}
    for piece in pieces:
        atoms.fix_factor(piece)
    made = []
    for i, axis in enumerate(x.axes):
        if i == dim:
            continue
        own: Axis = []
        for factor in axis:
            factor = atoms.current(factor)
            for key, at in keys.items():
                if key in factor.over:
                    place = factor.over.index(key)
                    over = (*factor.over[:place], *factor.over[place + 1 :])
                    factor = Factor(factor.size, factor.atoms.take(at, place), over, factor.key)
            own.append(factor)
        made.append(own)
    return made


@rule("unbind")
def unbind(atoms: Atoms, args: Any, kwargs: Any, shapes: list[tuple[int, ...]]) -> list[list[Axis]]:
    """All entries of a dimension, one by one."""
    dim = args[1] if len(args) > 1 else 0
    return [pick(atoms, args[0], dim, i) for i in range(len(shapes))]


@rule("slice")
def cut(atoms: Atoms, args: Any, kwargs: Any, shapes: list[tuple[int, ...]]) -> list[list[Axis]]:
    """Neighbours of a dimension."""
    x, shape = args[0], shapes[0]
    dim = (args[1] if len(args) > 1 else 0) % len(x.shape)
    start, step = (args[2] if len(args) > 2 else 0) or 0, args[4] if len(args) > 4 else 1
    n = x.shape[dim]
    if shape[dim] == n:
        return [list(x.axes)]
    axes = list(x.axes)
    start = max(0, start + n if start < 0 else start)
    if step != 1 or is_fixed(atoms, x.axes[dim]):
        axes = take_some(atoms, x, dim, range(start, n, step)[: shape[dim]])
    else:
        axes[dim] = parts_of(atoms, x.axes[dim], (start, shape[dim], n - start - shape[dim]))[1]
    return [axes]


def take_some(atoms: Atoms, x: Value, dim: int, positions: Sequence[int]) -> list[Axis]:
    """Some entries of a dimension, which stays; what depends on it is what it is there."""
    atoms.fix_axis(x.axes[dim])
    pieces = [piece for factor in x.axes[dim] for piece in atoms.pieces(factor)]
    made = atoms.fixed(len(positions))
    if len(pieces) != 1:
        axes = loosened(atoms, x, dim)
        axes[dim] = made
        return axes
    (lead,), axes = pieces, list[Axis]()
    for axis in x.axes:
        own: Axis = []
        for factor in axis:
            factor = atoms.current(factor)
            if lead.key in factor.over:
                place = factor.over.index(lead.key)
                kept = factor.atoms.take(list(positions), place)
                over = (*factor.over[:place], *(one.key for one in made), *factor.over[place + 1 :])
                factor = Factor(factor.size, kept if made else kept.take(0, place), over, factor.key)
            own.append(factor)
        axes.append(own)
    axes[dim] = made
    return axes


def parts_of(atoms: Atoms, axis: Axis, sizes: Sequence[int]) -> list[Axis]:
    """A dimension's parts, one after the other; empty ones too."""
    if is_fixed(atoms, axis):
        return [atoms.fixed(size) for size in sizes]
    own = iter(atoms.cut(join(atoms, axis), tuple(size for size in sizes if size)))
    return [atoms.factor(size, next(own)) if size else [] for size in sizes]


@rule("split", "split_with_sizes", "chunk", "unsafe_split", "unsafe_split_with_sizes", "unsafe_chunk", "split_copy")
def split(atoms: Atoms, args: Any, kwargs: Any, shapes: list[tuple[int, ...]]) -> list[list[Axis]]:
    """All of a dimension, a part at a time."""
    x = args[0]
    dim = kwargs.get("dim", args[2] if len(args) > 2 else 0) % len(x.shape)
    sizes = [shape[dim] for shape in shapes]
    if is_fixed(atoms, x.axes[dim]):
        ends = np.cumsum(sizes).tolist()
        return [take_some(atoms, x, dim, range(end - size, end)) for size, end in zip(sizes, ends, strict=True)]
    parts = parts_of(atoms, x.axes[dim], sizes)
    return [[*x.axes[:dim], part, *x.axes[dim + 1 :]] for part in parts]


@rule("cat")
def cat(atoms: Atoms, args: Any, kwargs: Any, shapes: list[tuple[int, ...]]) -> list[list[Axis]]:
    """Dimensions one after the other."""
    dim = (args[1] if len(args) > 1 else kwargs.get("dim", 0)) % len(shapes[0])
    known = [value for value in values_in(args[0]) if len(value.shape) == len(shapes[0])]
    given = leveled(atoms, [Value(value.shape, loosened(atoms, value, dim)) for value in known])
    axes = list(given[0].axes)
    for value in given[1:]:
        for i, axis in enumerate(value.axes):
            if i != dim:
                axes[i] = atoms.tie(axes[i], axis)
    if all(is_fixed(atoms, value.axes[dim]) for value in given):
        axes[dim] = atoms.fixed(shapes[0][dim])
        return [axes]
    axes[dim] = atoms.factor(shapes[0][dim])
    parts = [(value.shape[dim], join(atoms, value.axes[dim])) for value in given if value.shape[dim]]
    atoms.cut(int(axes[dim][0].atoms), tuple(size for size, _ in parts), [atom for _, atom in parts])
    return [axes]


@rule("stack")
def stack(atoms: Atoms, args: Any, kwargs: Any, shapes: list[tuple[int, ...]]) -> list[list[Axis]]:
    """Tensors one above the other, each with units of its own."""
    given = leveled(atoms, values_in(args[0]))
    dim = (args[1] if len(args) > 1 else kwargs.get("dim", 0)) % len(shapes[0])
    lead = atoms.fixed(len(given))
    axes = [above(atoms, [value.axes[i] for value in given], lead) for i in range(len(given[0].axes))]
    return [[*axes[:dim], lead, *axes[dim:]]]


def above(atoms: Atoms, given: Sequence[Axis], lead: Axis) -> Axis:
    """One dimension of several tensors: of each its own atom by ``lead``, or one of all where they are blocks."""
    if all(len(axis) == 1 and not axis[0].over for axis in given):
        own = [int(axis[0].atoms) for axis in given]
        if len({atoms.find(atom) for atom in own}) > 1:
            atoms.stacked.add(lead[0].key)
            return [Factor(given[0][0].size, np.array(own), (lead[0].key,), atoms.new_key())]
    axis = given[0]
    for other in given[1:]:
        axis = atoms.tie(axis, other)
    return axis


@rule("roll", "flip")
def move(atoms: Atoms, args: Any, kwargs: Any, shapes: Any) -> list[list[Axis]]:
    """Positions moved, which stay positions."""
    x, dims = args[0], args[-1]
    for dim in dims:
        atoms.fix_axis(x.axes[dim])
        x = Value(x.shape, loosened(atoms, x, dim))
    return [list(x.axes)]


@rule("index_select")
def index_select(atoms: Atoms, args: Any, kwargs: Any, shapes: list[tuple[int, ...]]) -> list[list[Axis]]:
    """Some entries of a dimension, which stay where they are."""
    x, dim = args[0], args[1] % len(args[0].shape)
    atoms.fix_axis(x.axes[dim])
    axes = loosened(atoms, x, dim)
    axes[dim] = atoms.fixed(shapes[0][dim])
    return [axes]


@rule("index")
def index(atoms: Atoms, args: Any, kwargs: Any, shapes: list[tuple[int, ...]]) -> list[list[Axis]]:
    """Entries of the first dimensions by their numbers."""
    x, numbers = args[0], list(args[1])
    known = [i for i, one in enumerate(numbers) if one is not None]
    if known != list(range(known[0], known[-1] + 1)):
        return fix(atoms, args, kwargs, shapes)
    for value in values_in(numbers):
        for axis in value.axes:
            atoms.fix_axis(axis)
    for i in known:
        atoms.fix_axis(x.axes[i])
        x = Value(x.shape, loosened(atoms, x, i))
    after = x.axes[known[-1] + 1 :]
    new = len(shapes[0]) - known[0] - len(after)
    middle = [atoms.fixed(size) for size in shapes[0][known[0] : known[0] + new]]
    return [[*x.axes[: known[0]], *middle, *after]]


@rule("embedding")
def embedding(atoms: Atoms, args: Any, kwargs: Any, shapes: list[tuple[int, ...]]) -> list[list[Axis]]:
    """Rows of a table by their numbers."""
    table, numbers = args[:2]
    atoms.fix_axis(table.axes[0])
    return [[*(numbers.axes if isinstance(numbers, Value) else []), *table.axes[1:]]]


def fix(atoms: Atoms, args: Any, kwargs: Any, shapes: list[tuple[int, ...]]) -> list[list[Axis]]:
    """Leave all units where they are."""
    for value in values_in([args, kwargs]):
        for axis in value.axes:
            atoms.fix_axis(axis)
    return [[atoms.fixed(size) for size in shape] for shape in shapes]


rule("tril", "triu", "tril_", "triu_")(fix)  # of a mask, whose entries are positions and no units
