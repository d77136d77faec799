"""Matching a model's tensors with the expected ones by name: wrappers' prefixes, tied tensors, constants and counters.
The same rules hold for files, for models in memory and for recorded ones."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from ..io.errors import FedscopeError, list_few
from .expected import STATISTICS, ExpectedModel, tied_names
from .factor_names import split_factor
from .weights import EXTRA, TensorEntry
from .wrappers import plain_name, plain_names

#: counters that programs leave beside weights, by the last part of their names; no network computes with them
COUNTERS = frozenset({"n_averaged", "total_ops", "total_params", "__flops__", "__params__", EXTRA})
#: constants that a library saves in one version and not in another, though they are floating
_CONSTANTS = frozenset(
    {"inv_freq", "original_inv_freq", "masked_bias", "attn_mask", "attention_mask", "causal_mask", "position_ids"}
    | {"token_type_ids", "relative_position_index", "relative_coords_table"}
)
#: parts of the names of modules that watch a network while it is quantised
_WATCHERS = frozenset({"activation_post_process", "weight_fake_quant"})
_COUNTING = re.compile(
    r"(^|_)(n|num|count|counter|counts|steps?|iters?|iterations?|epochs?|ops|flops|macs|updates?)(_|$)"
)
#: a tensor that torch's weight_norm parametrises, and how the old weight_norm calls its length and its direction
_PARAMETRISED = re.compile(r"(?:^|\.)parametrizations\.([^.]+)\.original0$")
_OLD_NORM = ("_g", "_v")
#: prefixes that are tried
_MOST = 16


@dataclass(frozen=True)
class NameMatch:
    """The tensors of a model matched with the expected ones.

    Attributes:
        names: by expected name the name that is given; where ``whole`` is False, every given name by itself.
        supplied: values of the architecture's own, by expected name, for constants that are not given.
        notes: a clause for each thing that was changed.
        whole: whether everything that is expected is there, and nothing else that is a weight.
    """

    names: dict[str, str]
    supplied: dict[str, np.ndarray]
    notes: list[str]
    whole: bool

    @property
    def is_same(self) -> bool:
        """True if all names are the expected ones, and no more or less is there."""
        return not self.supplied and not self.notes and all(name == given for name, given in self.names.items())


def match_names(
    place: object, given: Mapping[str, np.ndarray], dtypes: Mapping[str, str], expected: ExpectedModel
) -> NameMatch:
    """Find the expected tensors among those that are given.

    In this order: names that are the expected ones; one prefix before all of them (``model.``, ``module.``), or before
    all expected ones; the same without the parts that wrappers put into names, and with those of an old ``weight_norm``
    as its parametrization has them. A tensor that the architecture knows
    under two names may have either. A constant that is not given (whole numbers that are no parameters) is the
    architecture's own. What else is given must be no weight: a counter or a constant.

    Args:
        place: for sentences: the file, or what a model in memory is called.
        given: by name; of bfloat16 the bits.
        dtypes: by name, with ``bfloat16`` where it is that.

    Raises:
        FedscopeError: two names of what is one tensor in the architecture hold different numbers.
    """
    wanted = expected.layout.names
    if len(given) == len(wanted) and all(name in given for name in wanted):
        found = NameMatch(dict(zip(wanted, wanted, strict=True)), {}, [], whole=True)
    else:
        found = next(_attempts(given, dtypes, expected), NameMatch({name: name for name in given}, {}, [], whole=False))
    if found.whole:
        refuse_untied(place, {want: given[name] for want, name in found.names.items()}, expected, found.names)
    return found


def _attempts(
    given: Mapping[str, np.ndarray], dtypes: Mapping[str, str], expected: ExpectedModel
) -> Iterator[NameMatch]:
    """Yield every way in which all that is expected is found."""
    wanted = expected.layout.names
    parametrised = _parametrised(given, wanted)
    for own, want in (
        ({name: name for name in given}, {name: name for name in wanted}),
        (_plain(given), _plain(wanted)),
        *([(parametrised, {name: name for name in wanted})] if parametrised else []),
    ):
        if own is None or want is None:
            continue
        for prefix in ("", *prefixes(own, [*want])):
            keys = {name: own[f"{prefix}{key}"] for key, name in want.items() if f"{prefix}{key}" in own}
            if (found := _complete(given, dtypes, expected, keys)) is not None:
                yield found
        for prefix in prefixes(want, [*own]):
            keys = {want[f"{prefix}{key}"]: name for key, name in own.items() if f"{prefix}{key}" in want}
            if (found := _complete(given, dtypes, expected, keys)) is not None:
                yield found


def _parametrised(given: Iterable[str], wanted: Iterable[str]) -> dict[str, str] | None:
    """Names of an old ``weight_norm`` as those of ``parametrizations.weight_norm``, as torch reads them; None where
    there are none, or the architecture has no such.

    >>> _parametrised(["fc.weight_g", "fc.weight_v", "fc.bias"], ["fc.parametrizations.weight.original0"])
    {'fc.parametrizations.weight.original0': 'fc.weight_g', 'fc.parametrizations.weight.original1': 'fc.weight_v', \
'fc.bias': 'fc.bias'}
    """
    lengths = [plain_name(name) for name in wanted if _PARAMETRISED.search(name)]
    names = set(given)

    def is_wanted(name: str) -> bool:  # behind a prefix that one of the two has
        own = plain_name(name)
        return any(own == one or own.endswith(f".{one}") or one.endswith(f".{own}") for one in lengths)

    renamed: dict[str, str] = {}
    for name in given:
        module, dot, last = name.rpartition(".")
        tensor, kind = last[:-2], last[-2:]
        if lengths and kind in _OLD_NORM and all(f"{module}{dot}{tensor}{one}" in names for one in _OLD_NORM):
            new = f"{module}{dot}parametrizations.{tensor}.original"
            if is_wanted(f"{new}0"):
                module, dot, last = new, "", str(_OLD_NORM.index(kind))
        renamed[f"{module}{dot}{last}"] = name
    return renamed if len(renamed) == len(names) and any(name != own for name, own in renamed.items()) else None


def _plain(names: Mapping[str, object] | tuple[str, ...]) -> dict[str, str] | None:
    """Names by what they are without their wrappers; None where two would be one."""
    plain = {plain: name for name, plain in plain_names(tuple(names)).items()}
    return plain if len(plain) == len(names) else None


def left_beside(own: Collection[str], given: Collection[str]) -> list[str]:
    """Return which of an architecture's names are not among those that are given, up to wrappers' parts of names and
    one prefix: what it has beside the tensors of adapters.

    >>> left_beside(["q.base.weight", "q.lora_A.weight"], ["module.q.lora_A.weight"])
    ['q.base.weight']
    >>> left_beside(["head.original_module.bias", "head.modules_to_save.default.bias"], ["head.bias"])
    ['head.original_module.bias']
    """
    mine = _plain(tuple(own)) or {name: name for name in own}
    theirs = _plain(tuple(given)) or {name: name for name in given}
    # the base's names are not given, and say no prefix
    anchors = [name for name in mine if split_factor(name)] or [*mine]
    found = [{name for name in mine if f"{prefix}{name}" in theirs} for prefix in ("", *prefixes(theirs, anchors))]
    found += [
        {f"{prefix}{name}" for name in theirs if f"{prefix}{name}" in mine} for prefix in prefixes(mine, [*theirs])
    ]
    there = {mine[name] for name in max(found, key=len)}
    return [name for name in own if name not in there]


def prefixes(names: Mapping[str, object], wanted: list[str]) -> list[str]:
    """Prefixes, ending in a dot, behind which wanted names are there: those first behind which the most are.

    >>> prefixes({"a.w": 0, "a.b": 0, "c.w": 0}, ["w", "b"])
    ['a.', 'c.']
    """
    found: dict[str, None] = {}
    # a long name is there less often by accident; a first one may be missing, because it is tied or a constant
    for anchor in sorted(wanted, key=lambda name: -name.count("."))[:8]:
        for name in names:
            if name.endswith(f".{anchor}"):
                found.setdefault(name.removesuffix(anchor))
        if len(found) >= _MOST:
            break
    some = list(found)[:_MOST]
    return sorted(some, key=lambda prefix: -sum(f"{prefix}{want}" in names for want in wanted))


def _complete(
    given: Mapping[str, np.ndarray], dtypes: Mapping[str, str], expected: ExpectedModel, names: dict[str, str]
) -> NameMatch | None:
    """With tied names and constants that are not there; None where anything else is missing or too much."""
    if not names:
        return None
    taken = dict(names)
    supplied: dict[str, np.ndarray] = {}
    ties: list[str] = []
    for entry in expected.layout.entries:
        if entry.name in taken:
            continue
        same = next((other for other in expected.tied.get(entry.name, ()) if other in names), None)
        if same is not None:
            taken[entry.name] = names[same]
            ties.append(f"{entry.name} is taken from {same}, which it is tied to")
        elif is_constant(entry) and entry.name in expected.own:
            supplied[entry.name] = expected.own[entry.name]
        else:
            return None
    used = set(names.values())
    others = [name for name in given if name not in used]
    tied = tied_names(given) if others else {}
    aliases = [name for name in others if used & set(tied.get(name, ()))]
    left = [name for name in others if name not in aliases]
    if not all(is_no_weight(name, given[name], dtypes[name]) for name in left):
        return None
    notes = [
        *_about_names(names),
        *ties,
        *(f"{name} is left out, which is tied to {next(iter(used & set(tied[name])))}" for name in aliases),
    ]
    if left:
        notes.append(f"{list_few(left, 3)} {_are(left)} left out, which {_are(left)} no weight{'s'[: len(left) != 1]}")
    if supplied:
        its = [*supplied]
        notes.append(
            f"it lacks {list_few(its, 3)}, which {_are(its)} the architecture's own constant{'s'[: len(its) != 1]}"
        )
    return NameMatch(
        {name: taken[name] for name in expected.layout.names if name in taken}, supplied, notes, whole=True
    )


def _are(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _about_names(names: Mapping[str, str]) -> list[str]:
    """Return a clause on how names were changed."""
    if all(want == name for want, name in names.items()):
        return []
    want, name = next(iter(names.items()))
    before = name.removesuffix(want) if name.endswith(want) else ""
    if before and all(one == f"{before}{other}" for other, one in names.items()):
        return [f'the prefix "{before}" is taken off its names']
    behind = want.removesuffix(name) if want.endswith(name) else ""
    if behind and all(other == f"{behind}{one}" for other, one in names.items()):
        return [f'the prefix "{behind}" is put before its names']
    norms = [(one, other) for other, one in names.items() if _PARAMETRISED.search(other) and one.endswith(_OLD_NORM[0])]
    if norms:
        return [f"its names of the old weight_norm are read as torch reads them ({norms[0][0]} is {norms[0][1]})"]
    changed = next((one, other) for other, one in names.items() if one != other)
    return [f"its names are read without their wrappers ({changed[0]} is {changed[1]})"]


def refuse_untied(
    place: object,
    arrays: Mapping[str, np.ndarray],
    expected: ExpectedModel,
    names: Mapping[str, str] | None = None,
) -> None:
    """Refuse two sets of numbers for what is one tensor: torch would take the last one without a word.

    Args:
        arrays: by expected name.
        names: what the tensors are called in sentences, if not so.

    Raises:
        FedscopeError: names both.
    """
    for name, others in expected.tied.items():
        for other in others:
            if name > other or name not in arrays or other not in arrays:
                continue
            one, two = arrays[name], arrays[other]
            if one is two or tied_names({"a": one, "b": two}):
                continue
            if one.shape != two.shape or one.tobytes() != two.tobytes():
                said = names or {}
                raise FedscopeError(
                    f"{place}: {said.get(name, name)} and {said.get(other, other)} hold different numbers, but are one "
                    "tensor in the architecture; give an architecture in which they are two, or save one of them alone"
                )


def is_constant(entry: TensorEntry) -> bool:
    """Check whether an expected tensor is the same in every model of an architecture, so that a file may lack it.

    Whole numbers that are no parameters are (``position_ids``, counts of batches), and floating ones by their name.
    What is measured while training is not: running statistics; nor are weights that are stored as whole numbers.

    >>> is_constant(TensorEntry("bert.position_ids", (1, 5), "int64", "buffer"))
    True
    >>> is_constant(TensorEntry("bn.running_mean", (5,), "float32", "buffer"))
    False
    """
    last = entry.name.rpartition(".")[2]
    if entry.kind == "parameter" or "weight" in last:
        return False
    return last in _CONSTANTS or np.dtype(entry.dtype).kind in "iub"


def is_no_weight(name: str, value: np.ndarray, dtype: str) -> bool:
    """Check whether a tensor that nobody expects can be left out: a counter or a constant, by its type, size and name.

    >>> is_no_weight("n_averaged", np.array(2), "int64"), is_no_weight("fc.weight", np.ones((2, 3)), "float64")
    (True, False)
    >>> is_no_weight("fc.weight", np.ones((2, 3), np.int8), "int8"), is_no_weight("1.total_ops", np.zeros(1), "float64")
    (False, True)
    """
    *modules, last = name.split(".")
    if last in STATISTICS[:2]:
        return False
    if last in COUNTERS or last in _CONSTANTS or _WATCHERS & set(modules):
        return True
    if "float" not in dtype:
        masks = last == "bias" and (value.dtype == np.bool_ or value.ndim > 2)  # of GPT-2's attention
        return masks or not ("weight" in last or "bias" in last or "packed" in last)
    if value.size != 1 or not _COUNTING.search(last) or dtype == "bfloat16":
        return False
    return float(value.reshape(-1)[0]).is_integer()
