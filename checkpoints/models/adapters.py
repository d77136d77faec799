"""Low-rank adapters: models whose tensors are factors of a product, so that the mean of factors is not the mean of what
they do; their ranks and scales."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ..io.errors import FedscopeError, list_few
from ..io.untrusted import read_json
from .adapter_bases import EARLIER, INIT, NAME, SHA256, changed_base, is_whole, located, refuse_other_base
from .weights import Layout
from .wrappers import unwrap

#: LoRA and DoRA (PEFT, kohya, diffusers, loralib), LoHa, LoKr, VeRA, AdaLoRA; and the dimension that is the rank
_RANK_IS = {
    "lora_A": 0,
    "lora_B": 1,
    "lora_a": 0,
    "lora_b": 1,
    "lora_embedding_A": 0,
    "lora_embedding_B": 1,
    "loraA": 0,
    "loraB": 1,
    "lora_down": 0,
    "lora_up": 1,
    "lora.down": 0,
    "lora.up": 1,
    "lora_layer.down": 0,
    "lora_layer.up": 1,
    "lora_linear_layer.down": 0,
    "lora_linear_layer.up": 1,
    "hada_w1_a": 1,
    "hada_w1_b": 0,
    "hada_w2_a": 1,
    "hada_w2_b": 0,
    "lokr_w1": None,
    "lokr_w2": None,
    "lokr_w1_a": 1,
    "lokr_w1_b": 0,
    "lokr_w2_a": 1,
    "lokr_w2_b": 0,
    "lora_E": 0,
    "lora_diag": None,  # of KaSA, between A and B
    "lora_mid": 0,  # between both, of convolutions
    "lora_magnitude_vector": None,
    "dora_scale": None,
    "vera_lambda_b": None,
    "vera_lambda_d": None,
}
# behind a name with "_" too, as in to_q_lora.down, and one of several, as lora_A0
_FACTOR = re.compile(
    rf"(?:^|[._])({'|'.join(re.escape(name) for name in sorted(_RANK_IS, key=len, reverse=True))})(?=[0-9]*(?:\.|$))"
)
_NO_MEAN = "the mean of A and the mean of B are not the mean of B·A unless one of them is the same in all models"
#: what is to be known of factors, by what a question does: it averages them or goes between them, it averages them and
#: compares products, or it looks at single numbers
SUBJECTS = {
    "factors": (
        f"{_NO_MEAN}, and distances, angles and lines between factors are not those between the products; fedscope "
        "adapters says how far off the mean is, and fedscope updates compares products"
    ),
    "means": (
        f"{_NO_MEAN}; losses here are those of factors' means, distances and angles those between products, and "
        "fedscope adapters says how far off the mean is"
    ),
    "numbers": (
        "this answer is of single numbers of A and B, which are others in another pair with the same product B·A; "
        "fedscope updates and fedscope disperse --embed compare products"
    ),
}
#: what a file beside an adapter says of how its product is scaled, and how it is called in sentences
_SETTINGS = ("r", "lora_alpha", "alpha", "rank_pattern", "alpha_pattern", "use_rslora", "use_dora")
#: where the sentence on two adapters says what follows of it
ABOUT_BOTH = re.compile(r": their products|: their tensors|: what they add|, so they must not")
#: who says which settings
Told = tuple[object, dict[str, Any]]
#: kinds of LoRA that add no plain product of A and B
_KINDS = ("use_qalora", "use_bdlora")
#: for which tokens, or in which layers, an adapter's tensors are
_PLACES = ("alora_invocation_tokens", "trainable_token_indices", "layer_replication")
_CONFIG = "adapter_config.json"
_ALPHA = ".alpha"


def factors_in(names: Iterable[str]) -> list[str]:
    """Return the kinds of factors among the names of tensors, each once; none where the model is no adapter.

    >>> factors_in(["q.lora_A.weight", "q.lora_B.weight", "k.lora_A.weight", "k.weight"])
    ['lora_A', 'lora_B']
    >>> factors_in(["attn1.processor.to_q_lora.down.weight", "encoder.down.weight", "explorer_lora.weight"])
    ['lora.down']
    """
    return sorted({match[1] for name in names if (match := _FACTOR.search(name))})


def split_factor(name: str) -> tuple[str, str, str] | None:
    """Split the name of a factor: what stands before its kind, the kind, and what stands behind; None of another.

    >>> split_factor("layers.0.q.lora_A.default.weight"), split_factor("head.weight")
    (('layers.0.q', 'lora_A', '.default.weight'), None)
    """
    match = _FACTOR.search(name)
    return None if match is None else (name[: match.start()], match[1], name[match.end() :])


def about_adapters(names: Iterable[str], subject: str = "factors") -> str:
    """Warn of averaging or comparing adapters; "" for other models.

    Args:
        subject: what a question does with them, one of SUBJECTS.

    >>> about_adapters(["q.lora_A.weight"], "numbers").partition(": ")[2].partition(";")[0]
    'this answer is of single numbers of A and B, which are others in another pair with the same product B·A'
    """
    kinds = factors_in(names)
    if not kinds:
        return ""
    return (
        f"the models are adapters, whose tensors are factors of a product ({list_few(kinds, 4)}): {SUBJECTS[subject]}"
    )


def rank_of(name: str, shape: tuple[int, ...]) -> int | None:
    """Return the rank of the product that a factor is of; None of another tensor.

    >>> rank_of("q.lora_A.weight", (4, 64)), rank_of("q.lora_B.weight", (16, 4)), rank_of("q.weight", (16, 4))
    (4, 4, None)
    """
    match = _FACTOR.search(name)
    dimension = None if match is None else _RANK_IS[match[1]]
    return None if dimension is None or dimension >= len(shape) else shape[dimension]


def other_ranks(arrays: Mapping[str, Any], layout: Layout) -> str:
    """Return a clause for adapters whose shapes differ in their rank; "" for others."""
    for entry in layout.entries:
        given = arrays.get(entry.name)
        if given is None or tuple(given.shape) == entry.shape:
            continue
        one, other = rank_of(entry.name, tuple(given.shape)), rank_of(entry.name, entry.shape)
        if one is not None and one != other:
            return (
                f"; these are adapters of rank {one} and of rank {other}: merge them into their base, or leave one out"
            )
    return ""


def scale_beside(path: Path) -> dict[str, Any]:
    """Read rank, alpha and what else scales an adapter from the ``adapter_config.json`` in its file's folder; none
    without one.

    Raises:
        FedscopeError: a configuration that cannot be read.
    """
    folder = path if path.is_dir() else path.parent
    config = folder / _CONFIG
    if not config.is_file():
        return {}
    held = read_json(config, "an adapter's configuration", "copy or save it again")
    return _settings(held, folder.parent, folder) if isinstance(held, dict) else {}


def scale_of_module(model: Any) -> dict[str, Any]:
    """Read the same of a ``PeftModel``, in a wrapper too (``DataParallel``, ...); none of other models."""
    configs = getattr(unwrap(model), "peft_config", None)
    if not isinstance(configs, Mapping) or len(configs) != 1:
        return {}
    (config,) = configs.values()
    return _settings(config if isinstance(config, Mapping) else getattr(config, "__dict__", {}))


def scale_in(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Read the same of kohya's adapters, which keep an ``.alpha`` with each pair of factors; none of others.

    >>> scale_in({"q.lora_down.weight": np.ones((4, 8)), "q.lora_up.weight": np.ones((8, 4)), "q.alpha": np.array(2.0)})
    {'alpha': {'q': 2.0}}
    """
    names = alphas_in({name: array.shape for name, array in arrays.items()})
    found = {name.removesuffix(_ALPHA): float(arrays[name].reshape(-1)[0]) for name in arrays if name in names}
    return {"alpha": found} if found else {}


def alphas_in(shapes: Mapping[str, tuple[int, ...]]) -> frozenset[str]:
    """Return the names of kohya's ``.alpha``: single numbers beside factors, which scale their product. They are
    settings, and no weights.

    >>> alphas_in({"q.lora_down.weight": (4, 8), "q.alpha": (), "prelu.alpha": (1,)})
    frozenset({'q.alpha'})
    """
    names = [name for name, shape in shapes.items() if name.endswith(_ALPHA) and prod(shape) == 1]
    modules = {name[: match.start()] for name in shapes if (match := _FACTOR.search(name))} if names else set()
    return frozenset(name for name in names if name.removesuffix(_ALPHA) in modules)


def alphas_apart(layout: Layout) -> Layout:
    """Return a layout in which what scales kohya's adapters is no parameter, see :func:`alphas_in`."""
    alphas = alphas_in({entry.name: entry.shape for entry in layout.entries})
    if not alphas:
        return layout
    return Layout(tuple(replace(entry, kind="buffer") if entry.name in alphas else entry for entry in layout.entries))


def settings_of_run(info: Mapping[str, Any]) -> dict[str, Any]:
    """Return what ``run.json`` says of a run's adapters, and of their base; nothing where it says nothing.

    >>> settings_of_run({"adapters": {"lora_alpha": 8}, "base": {"path": "/base.pt", "sha256": "0a"}})
    {'lora_alpha': 8, 'base_model_name_or_path': '/base.pt', 'base_sha256': '0a'}
    """
    told, base = info.get("adapters"), info.get("base")
    settings = dict(told) if isinstance(told, Mapping) else {}
    if isinstance(base, Mapping) and isinstance(base.get("path"), str):
        settings |= {NAME: base["path"], SHA256: base.get("sha256")}
    # earlier versions kept ranks and scales alone
    return settings | ({EARLIER: True} if "r" in settings and NAME not in told else {})


def checked_alpha(alpha: Any) -> float:
    """Check the α of adapters.

    Raises:
        FedscopeError: it is no number above 0.
    """
    if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not 0 < alpha < float("inf"):
        raise FedscopeError(f"lora_alpha = {alpha!r} is no number above 0; give the alpha of the adapters, as 16")
    return float(alpha)


def settings_of_adapters(
    names: Iterable[str],
    told: tuple[object, Mapping[str, Any]] | None,
    alpha: float | None,
    base: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return what a run says of its adapters' scale and base; nothing of other models.

    Args:
        told: who says which settings, a model or the file beside it; alpha, base: what was given besides.

    Raises:
        FedscopeError: an alpha of models that are no adapters, or another one than they say.
    """
    if not factors_in(names):
        if alpha is not None:
            raise FedscopeError(
                f"lora_alpha = {alpha:g} was given, but the models hold no factors of adapters; leave it out"
            )
        if base is not None:
            raise FedscopeError(
                f"the base {base['path']} was given, but the models hold no factors of adapters; leave it out"
            )
        return {}
    settings = {} if told is None else dict(told[1])
    had = _alpha_of(settings)
    if alpha is not None and isinstance(had, Mapping) and set(had.values()) == {alpha}:
        alpha = None  # every layer says it
    if alpha is not None and had not in (None, alpha):
        assert told is not None, "it says so"
        says = "by layer" if isinstance(had, Mapping) else f"{had:g}"
        raise FedscopeError(f"lora_alpha = {alpha:g} was given, but {told[0]} says alpha {says}; leave it out")
    if alpha is not None:
        settings["lora_alpha"] = alpha
    return ({"adapters": settings} if settings else {}) | ({} if base is None else {"base": dict(base)})


def alphas_of(info: Mapping[str, Any]) -> set[Any]:
    """Return the alphas that ``run.json`` says of a run's adapters, by layer or of all; None where it says none."""
    had = _alpha_of(info.get("adapters", {}))
    return set(had.values()) if isinstance(had, Mapping) else {had}


def _alpha_of(settings: Mapping[str, Any]) -> Any:
    return settings.get("lora_alpha", settings.get("alpha"))


def recorded_scale(run: Path, info: Mapping[str, Any], given: Told | None) -> tuple[Told | None, Told | None]:
    """Return what a run says of its adapters, for a recorder that goes on with it: as tensors say it (kohya's), and as
    models do.

    Args:
        given: what the recorder's model says.

    Raises:
        FedscopeError: the model says another scale, or another base.
    """
    settings = settings_of_run(info)
    told = (f"what {run} holds", settings) if settings else None
    if told is not None and given is not None:
        refuse_other_scale(*told, *given)
    return (told, given) if isinstance(_alpha_of(settings), Mapping) else (None, told or given)


def refuse_other_adapters(
    run: Path, info: Mapping[str, Any], alpha: float | None, base: Mapping[str, str] | None
) -> None:
    """Refuse to go on with a run's adapters with another scale, or for another base, than it says.

    Args:
        info: of ``run.json``; alpha, base: what was given, as of :func:`settings_of_adapters`. None asks nothing.

    Raises:
        FedscopeError: it says another one, or none.
    """
    if alpha is not None and (each := alphas_of(info)) != {alpha}:
        told = "by layer" if len(each) > 1 else next(iter(each))
        was = "without lora_alpha" if told is None else f"with alpha {told if isinstance(told, str) else f'{told:g}'}"
        raise FedscopeError(
            f"{run} was recorded {was}, not lora_alpha = {alpha:g}; leave lora_alpha= out to go on with it"
        )
    recorded = info.get("base")
    if base is not None and (recorded or {}).get("sha256") != base["sha256"]:
        was = "without a base" if recorded is None else f"with the base {recorded['path']}"
        raise FedscopeError(f"{run} was recorded {was}, not {base['path']} as it is now; leave base= out to go on")


def _settings(config: Mapping[str, Any], *places: Path) -> dict[str, Any]:
    """Without what has no effect, so that settings of two versions of a library compare; and without what is none.

    Args:
        places: where a base that is named by a relative path may lie.
    """

    def plain(value: Any) -> bool:
        return isinstance(value, int | float) or (
            isinstance(value, Mapping) and all(isinstance(one, int | float) for one in value.values())
        )

    settings = {
        name: config[name] for name in _SETTINGS if config.get(name) not in (None, {}, False) and plain(config[name])
    }
    targets = config.get("target_parameters")
    if isinstance(targets, list | tuple | set) and targets and all(isinstance(one, str) for one in targets):
        settings["target_parameters"] = sorted(targets)
    settings |= {name: True for name in _KINDS if config.get(name)}
    settings |= {name: config[name] for name in _PLACES if config.get(name) and _is_list(config[name])}
    settings |= {INIT: how} if (how := changed_base(config)) else {}
    return settings | ({NAME: base} if (base := located(config.get(NAME), *places)) else {})


def refuse_other_scale(one: object, of_one: Mapping[str, Any], other: object, of_other: Mapping[str, Any]) -> None:
    """Refuse two adapters whose products are scaled differently, or added to different weights: their factors say
    nothing of each other.

    Of settings that somebody typed, as those of a run, the alpha alone is known, and compared.

    Args:
        one, other: what they are called; of_one, of_other: their settings, none where these are not known.

    Raises:
        FedscopeError: ranks, alphas, scalings or bases differ; names both.
    """
    if not of_one or not of_other:
        return
    for name, mine, theirs in _compared(of_one, of_other):
        if mine == theirs:
            continue
        if isinstance(mine, Mapping) and isinstance(theirs, Mapping):  # by module: the first that differs
            where = next((key for key in {**mine, **theirs} if mine.get(key) != theirs.get(key)), "")
            mine, theirs = f"{mine.get(where)} at {where}", f"{theirs.get(where)}"
        spoken = "rank" if name == "r" else name
        raise FedscopeError(
            f"{one} is an adapter with {spoken} {_format(mine)}, {other} one with {_format(theirs)}: their products "
            "are scaled by alpha / rank, so their factors must not be averaged or compared as they are; merge them "
            "into their base, or leave one out"
        )
    for name in _PLACES if is_whole(of_one) and is_whole(of_other) else ():
        mine, theirs = (json.dumps(settings.get(name), sort_keys=True) for settings in (of_one, of_other))
        if mine != theirs:
            says = [f"{name} {said[:40]}" if said != "null" else f"no {name}" for said in (mine, theirs)]
            raise FedscopeError(
                f"{one} is an adapter with {says[0]}, {other} one with {says[1]}: their tensors are for other tokens "
                "or layers, so they must not be averaged or compared; leave one out"
            )
    refuse_other_base(one, of_one, other, of_other)


def _is_list(value: Any) -> bool:
    """Check for whole numbers in lists, perhaps by name."""
    if isinstance(value, Mapping):
        return all(isinstance(name, str) and _is_list(one) for name, one in value.items())
    return isinstance(value, list | tuple) and all(isinstance(one, int) or _is_list(one) for one in value)


def _compared(of_one: Mapping[str, Any], of_other: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """Return the settings that both say, by name."""
    if "r" in of_one and "r" in of_other:
        return [(name, of_one.get(name), of_other.get(name)) for name in _SETTINGS]
    mine, theirs = _alpha_of(of_one), _alpha_of(of_other)
    scaled = any(settings.get(name) for settings in (of_one, of_other) for name in ("use_rslora", "alpha_pattern"))
    if scaled or mine is None or theirs is None:
        return []
    if isinstance(mine, Mapping) != isinstance(theirs, Mapping):  # by layer, and of all
        mine, theirs = (set(one.values()) if isinstance(one, Mapping) else {one} for one in (mine, theirs))
        if len(mine) == len(theirs) == 1:
            (mine,), (theirs,) = mine, theirs
    return [("alpha" if isinstance(mine, Mapping) else "lora_alpha", mine, theirs)]


def _format(value: Any) -> str:
    return "none" if value in (None, {}) else f"{value:g}" if isinstance(value, float) else str(value)
