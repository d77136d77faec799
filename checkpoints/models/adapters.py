"""Low-rank adapters: what files, modules and runs say of the scale and the base of their products, compared."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..io.errors import FedscopeError, list_few
from ..io.number_words import exact
from ..io.untrusted import read_json
from .adapter_bases import EARLIER, INIT, NAME, SHA256, changed_base, is_whole, located, refuse_other_base
from .factor_names import ALPHA, alphas_in
from .factor_names import about_adapters as about_adapters
from .factor_names import factors_in as factors_in
from .factor_names import other_ranks as other_ranks
from .factor_names import rank_of as rank_of
from .factor_names import split_factor as split_factor
from .wrappers import unwrap

#: what a file beside an adapter says of how its product is scaled, and how it is called in sentences
_SETTINGS = ("r", "lora_alpha", "randlora_alpha", "alpha", "rank_pattern", "alpha_pattern", "use_rslora", "use_dora")
#: and how tensors of other kinds make what they add: from which matrices and at which places, that are drawn (VeRA and
#: RandLoRA, FourierFT, SHiRA), or in what way (OFT, BOFT, HRA, RoAd, VB-LoRA)
_WAYS = (
    *("projection_prng_key", "sparse", "very_sparse", "random_loc_seed", "scaling", "random_seed", "mask_type"),
    *("oft_block_size", "boft_block_size", "boft_block_num", "boft_n_butterfly_factor"),
    *("apply_GS", "variant", "group_size", "topk"),
)
#: where the sentence on two adapters says what follows of it
ABOUT_BOTH = re.compile(r": their products|: their tensors|: what they add|, so they must not")
#: who says which settings
Told = tuple[object, dict[str, Any]]
#: kinds of LoRA that add no plain product of A and B
_KINDS = ("use_qalora", "use_bdlora")
#: for which tokens, or in which layers, an adapter's tensors are
_PLACES = ("alora_invocation_tokens", "trainable_token_indices", "layer_replication")
_CONFIG = "adapter_config.json"


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
    found = {name.removesuffix(ALPHA): float(arrays[name].reshape(-1)[0]) for name in arrays if name in names}
    return {"alpha": found} if found else {}


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
    if "r" in settings and not (isinstance(told, Mapping) and NAME in told):
        settings[EARLIER] = True
    return settings


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
        says = "by layer" if isinstance(had, Mapping) else exact(had)
        raise FedscopeError(f"lora_alpha = {exact(alpha)} was given, but {told[0]} says alpha {says}; leave it out")
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
        was = "without lora_alpha" if told is None else f"with alpha {told if isinstance(told, str) else exact(told)}"
        raise FedscopeError(
            f"{run} was recorded {was}, not lora_alpha = {exact(alpha)}; leave lora_alpha= out to go on with it"
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
    # seeds of 0 say something, and so does what is not done
    settings |= {name: config[name] for name in _WAYS if isinstance(config.get(name), int | float | str)}
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
    for name in (name for name in _WAYS if name in of_one and name in of_other):
        if of_one[name] != of_other[name]:
            raise FedscopeError(
                f"{one} is an adapter with {name} {_format(of_one[name])}, {other} one with {_format(of_other[name])}: "
                "their tensors make what they add in other ways, so they must not be averaged or compared as they are; "
                "merge them into their base, or leave one out"
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


def taken_scale(unsaid: Sequence[object], other: object) -> str:
    """Return the sentence on adapters whose scale nothing says, beside one whose scale is known.

    >>> taken_scale(["b"], "a")
    'b: the scale of this adapter is not known, and taken to be that of a; put its own adapter_config.json beside it'
    """
    one = len(unsaid) == 1
    of, own = ("this adapter", "its own") if one else ("these adapters", "each one's")
    return (
        f"{list_few(unsaid, 3)}: the scale of {of} is not known, and taken to be that of {other}; put {own} {_CONFIG} "
        f"beside {'it' if one else 'it, in a folder of its own'}"
    )


def _is_list(value: Any) -> bool:
    """Check for whole numbers in lists, perhaps by name."""
    if isinstance(value, Mapping):
        return all(isinstance(name, str) and _is_list(one) for name, one in value.items())
    return isinstance(value, list | tuple) and all(isinstance(one, int) or _is_list(one) for one in value)


def _compared(of_one: Mapping[str, Any], of_other: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """Return the settings that both say, by name."""
    mine, theirs = _alpha_of(of_one), _alpha_of(of_other)
    if "r" in of_one and "r" in of_other:
        # adapters like VeRA's say no alpha, which somebody may have typed for a run of them
        unsaid = ("alpha", "lora_alpha") if mine is None or theirs is None else ()
        return [(name, of_one.get(name), of_other.get(name)) for name in _SETTINGS if name not in unsaid]
    scaled = any(settings.get(name) for settings in (of_one, of_other) for name in ("use_rslora", "alpha_pattern"))
    if scaled or mine is None or theirs is None:
        return []
    if isinstance(mine, Mapping) != isinstance(theirs, Mapping):  # by layer, and of all
        mine, theirs = (set(one.values()) if isinstance(one, Mapping) else {one} for one in (mine, theirs))
        if len(mine) == len(theirs) == 1:
            (mine,), (theirs,) = mine, theirs
    return [("alpha" if isinstance(mine, Mapping) else "lora_alpha", mine, theirs)]


def _format(value: Any) -> str:
    return "none" if value in (None, {}) else exact(value) if isinstance(value, float) else str(value)
