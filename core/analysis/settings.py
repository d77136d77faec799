"""On what models are measured, and how: the settings that most questions share, and what refuses other values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, TypedDict

from ..checkpoints import FedscopeError, nearest
from ..checkpoints.recorder.coerce_models import model_made
from ..checkpoints.recorder.inputs import spell_data
from ..evaluation.device import PRECISIONS, Compute, precision_word
from ..old_paths import names_of

SPLITS = ("test", "train")
#: where the normalization statistics of combinations of models come from
NORMALIZATIONS = ("interpolate", "re-estimate", "keep")


class EvaluationSettings(TypedDict, total=False):
    """Settings that most questions take by keyword; those that a question does not need it does not have.

    Attributes:
        split: ``test`` or ``train``; of whole runs ``train`` is all clients' training data.
        limit: a seeded, stratified subset of so many samples.
        seed: of what is drawn.
        data: what to measure on, where that is not the run's own: a data set's name (``digits``, ``test.npz``,
            ``folder:PATH``, ``module:factory``), a pair of arrays (x, y), a ``torch.utils.data.Dataset`` or
            ``DataLoader``, or a :class:`fedscope.training.Dataset`.
        model: the architecture of models that do not say it: a name (``mlp``, ``cnn``, ``module:factory``,
            ``hf:FOLDER``), an ``nn.Module``, or a class or function without arguments that makes one.
        task: what is measured, where that is not what the run has learnt: ``classification``, ``regression``,
            ``sequences``, ``sequence-classification``, one's own as ``module:factory``, a :class:`fedscope.Task`, or a
            function ``loss(outputs, y) -> [n]``.
        device: ``cpu``, ``cuda``, or ``auto``: cuda where there is one; ``cuda:0,cuda:1`` spreads models and points
            over several. A ``torch.device`` is taken, too, and a list of them.
        precision: ``float32``, ``tf32`` or ``bf16``.
        engine: ``threads``: a worker a core of this machine; or ``ray``, ``ray:2``, ``ray:ADDRESS``: replays and the
            points of lines and planes are computed by the workers of a cluster, to the same numbers.
        standardise: whether samples are standardised by the training split. By default as the run says; where it does
            not, a recorded run's own data are taken as they are, and all others as ``fedscope train`` takes them.
        accept_data: True measures a run although its recorded ``test_error`` is not what is measured, or the data are
            others than it was recorded with; every result then says so.
        base: of adapters the weights that they adapt, a file or folder; held fixed, and part of no model.
        code: of the user's own that a run names, by kind, ``{"client": FedX}``, for analyses that train or aggregate
            again; nothing that a run's files name is imported.
        code_changed: take it although its source is another than the run has.
    """

    split: str
    limit: int | None
    seed: int
    data: Any
    model: Any
    task: Any
    device: str
    precision: str
    engine: str
    standardise: bool | None
    accept_data: bool
    base: Path | str | None
    code: Mapping[str, Any]
    code_changed: bool


def is_same_setting(name: str, kept: Any, asked: Any) -> bool:
    """Tell whether a result's setting is what is asked for. The precision of networks in float64 is told by their
    parameters; earlier versions called it by what was asked for. Of code they told nothing of what it imports. Models
    count by the names of their runs and files, wherever these lie: their sums are a setting of their own.

    >>> is_same_setting("precision", "float32", "float64"), is_same_setting("precision", "bf16", "float32")
    (True, False)
    >>> is_same_setting("addresses", ["runs/fma@2"], ["/home/me/runs/fma@2"])
    True
    """
    if name == "addresses" and isinstance(kept, list) and isinstance(asked, list):
        return [*map(_placeless, kept)] == [*map(_placeless, asked)]
    if name == "code" and isinstance(kept, dict) and isinstance(asked, dict):
        return kept.keys() == asked.keys() and all(_is_same_code(str(kept[key]), str(asked[key])) for key in kept)
    return bool(kept == asked) or (name == "precision" and "float64" in (kept, asked))


def _placeless(address: object) -> str:
    """``fma@2/global`` of ``runs/fma@2/global``; of a file its name.

    >>> _placeless("runs/fma@2/global"), _placeless("old/one.pt")
    ('fma@2/global', 'one.pt')
    """
    path, at, rest = str(address).rpartition("@")
    return f"{PurePath(path).name}@{rest}" if at else PurePath(rest).name


def _is_same_code(kept: str, asked: str) -> bool:
    """Compare SHA-256 of code, with that of its imports behind it where both have one.

    >>> _is_same_code("a1 b2", "a1"), _is_same_code("a1 b2", "a1 c3")
    (True, False)
    """
    return all(one == other for one, other in zip(kept.split(), asked.split(), strict=False))


@dataclass(frozen=True)
class EvaluationConfig:
    """The same, each with its value; see :class:`EvaluationSettings`."""

    split: str
    limit: int | None = None
    seed: int = 0
    device: str = "auto"
    precision: str = "float32"
    model: Any = None
    data: Any = None
    task: Any = None
    engine: str = "threads"
    standardise: bool | None = None
    accept_data: bool = False
    code: Mapping[str, Any] = field(default_factory=dict)
    code_changed: bool = False
    base: Any = None

    def __post_init__(self) -> None:
        """A class or a function is called once, as the recorder calls it: all that follows has the module. A precision
        has its one word, which results record."""
        object.__setattr__(self, "model", model_made(self.model))
        object.__setattr__(self, "precision", precision_word(self.precision))

    @classmethod
    def of(cls, split: str, given: Mapping[str, Any], *, both: bool = False) -> EvaluationConfig:
        """Take what was given, and the analysis's own split where none was.

        Args:
            both: whether the split may be ``both``: two results in one pass.

        Raises:
            FedscopeError: a value that there is not.
        """
        source = cls(**{"split": split, **given, "data": spell_data(given.get("data"))})
        refuse_unknown_choice("split", source.split, (*SPLITS, "both") if both else SPLITS)
        refuse_unknown_choice("precision", source.precision, PRECISIONS, hint=False)  # fp16 is like each, and none
        at_least("seed", source.seed, 0)
        if source.limit is not None:
            at_least("limit", source.limit, 1)
        return source

    @property
    def compute(self) -> Compute:
        """The device, precision and cluster on which models are measured.

        Raises:
            FedscopeError: a device that this machine does not have; a cluster that is not there.
        """
        if self.engine == "threads":
            return Compute(self.device, self.precision)
        from ..distributed.engines import open_cluster

        where = Compute(self.device, self.precision)
        return replace(where, device=where.name, cluster=open_cluster(self.engine, where.name))


def refuse_unknown_choice(name: str, value: Any, options: Sequence[str], *, hint: bool = True) -> None:
    """Refuse what is none of the options.

    Args:
        hint: whether one that is spelt alike is meant; False where words are alike that mean different things.

    Raises:
        FedscopeError: names the nearest one.
    """
    if value not in options:
        near = nearest(str(value), options) if hint else ""
        raise FedscopeError(f"--{name} {value} is none of {', '.join(options)}{near}")


def at_least(name: str, value: Any, least: int) -> None:
    """Refuse what is no whole number from ``least`` on.

    Raises:
        FedscopeError: a smaller number, or none.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise FedscopeError(f"--{name} {value} is not a whole number from {least} on")


def refuse_idle(given: Mapping[str, tuple[Any, Any]], why: str) -> None:
    """Refuse settings that would be without effect. The command line looks at what was typed; a function sees only
    what is not the default.

    Args:
        given: by setting its value and its default.
        why: what follows both in the sentence.

    Raises:
        FedscopeError: one that is not its default.
    """
    for name, (value, default) in given.items():
        if value != default:
            raise FedscopeError(f"--{name} {value} {why}")


def read_range(given: Any, names: str) -> list[float]:
    """Read the ends of axes, as many as there are names.

    Args:
        names: of the numbers, in a row.

    Raises:
        FedscopeError: another count of them, or no numbers; one that is not finite.

    >>> read_range((-1, 2.5), "from, to")
    [-1.0, 2.5]
    """
    count = len(names.split(", "))
    try:
        if isinstance(given, str):
            raise TypeError
        ends = [float(one) for one in given]
    except (TypeError, ValueError):
        raise FedscopeError(f"--range is {given!r}, and not {count} numbers; give {names}") from None
    if len(ends) != count:
        raise FedscopeError(f"--range takes {count} numbers, {names}, but got {len(ends)}")
    for end in ends:
        if not isfinite(end):
            raise FedscopeError(f"--range has {end:g}, and no line is drawn to there; give {names} as finite numbers")
    return ends


if not TYPE_CHECKING:  # a checker is to see what is really there
    __getattr__ = names_of(__name__)
