"""Low-rank adapters: models whose tensors are factors of a product, so that the mean of factors is not the mean of what
they do; their ranks and scales."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..io.errors import FedscopeError, list_few
from ..io.untrusted import read_json
from .weights import Layout

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
_CONFIG = "adapter_config.json"


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
    config = (path if path.is_dir() else path.parent) / _CONFIG
    if not config.is_file():
        return {}
    held = read_json(config, "an adapter's configuration", "copy or save it again")
    return _settings(held) if isinstance(held, dict) else {}


def scale_of_module(model: Any) -> dict[str, Any]:
    """Read the same of a ``PeftModel``; none of other models."""
    configs = getattr(model, "peft_config", None)
    if not isinstance(configs, Mapping) or len(configs) != 1:
        return {}
    (config,) = configs.values()
    return _settings(config if isinstance(config, Mapping) else getattr(config, "__dict__", {}))


def scale_in(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Read the same of kohya's adapters, which keep an ``.alpha`` with each pair of factors; none of others.

    >>> scale_in({"q.lora_down.weight": np.ones((4, 8)), "q.lora_up.weight": np.ones((8, 4)), "q.alpha": np.array(2.0)})
    {'alpha': {'q': 2.0}}
    """
    names = [name.removesuffix(".alpha") for name in arrays if name.endswith(".alpha") and arrays[name].size == 1]
    modules = {name[: match.start()] for name in arrays if (match := _FACTOR.search(name))} if names else set()
    found = {name: float(arrays[f"{name}.alpha"].reshape(-1)[0]) for name in names if name in modules}
    return {"alpha": found} if found else {}


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


def _settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Without what has no effect, so that settings of two versions of a library compare; and without what is none."""

    def plain(value: Any) -> bool:
        return isinstance(value, int | float) or (
            isinstance(value, Mapping) and all(isinstance(one, int | float) for one in value.values())
        )

    return {
        name: config[name] for name in _SETTINGS if config.get(name) not in (None, {}, False) and plain(config[name])
    }


def refuse_other_scale(one: object, of_one: Mapping[str, Any], other: object, of_other: Mapping[str, Any]) -> None:
    """Refuse two adapters whose products are scaled differently: their factors say nothing of each other.

    Args:
        one, other: what they are called; of_one, of_other: their settings, none where these are not known.

    Raises:
        FedscopeError: ranks, alphas or scalings differ; names both.
    """
    if not of_one or not of_other:
        return
    for name in _SETTINGS:
        mine, theirs = of_one.get(name), of_other.get(name)
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


def _format(value: Any) -> str:
    return "none" if value in (None, {}) else f"{value:g}" if isinstance(value, float) else str(value)
