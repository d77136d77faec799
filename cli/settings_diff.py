"""How a stored result differs from the one that is asked for, in the words in which it was asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from ..checkpoints import real_path
from ..checkpoints.errors import listed

#: settings that change when another one does, and say nothing besides it
FOLLOWS = {
    "kind": ("addresses", "models_sha256", "run", "margin", "range", "directions_seed", "directions", "seed"),
    "addresses": ("models_sha256", "run", "behaviour"),
    "run": ("models_sha256", "samples", "behaviour", "averages"),
    "rounds": ("averages",),
    "architecture": ("behaviour",),
    "data": ("data_sha256", "samples", "behaviour"),
    "data_sha256": ("samples", "behaviour"),
    "standardised": ("behaviour", "data_accepted"),
    "split": ("samples", "behaviour"),
    "task": ("loss_units", "task_behaviour", "behaviour"),
    "limit": ("samples", "behaviour"),
    "samples": ("batches", "calibration_samples", "behaviour"),
    "batch": ("batches",),
    "range": ("margin",),
    "loss": ("outputs",),
    "normalization": ("calibration_samples", "calibration_seed"),
    "seed": ("calibration_seed",),
    "directions_seed": ("seed", "calibration_seed"),
}

#: options that are called otherwise than their settings
OPTIONS = {
    "directions_seed": "seed",
    "architecture": "model",
    "calibration_seed": "seed",
    "settings": "assignments",
    "asked_perplexity": "perplexity",
}

#: what no option says
WORDS = {
    "models_sha256": "weights that have changed since",
    "behaviour": "the model's code as it was before",
    "directions": "random directions of an earlier version",
    "frozen": "frozen parameters counted otherwise (--frozen)",
    "frozen_parameters": "other parameters frozen",
    "task_behaviour": "the task's code as it was before",
    "data_sha256": "data that have changed since",
    "file_sha256": "a file that has changed since",
    "standardised": "samples in another scale (--standardise, --no-standardise)",
    "data_accepted": "data that were accepted otherwise (--accept-data)",
}


def differences(kept: Mapping[str, Any], asked: Mapping[str, Any], changed: Sequence[str]) -> str:
    """What a stored result is of, and the one that is asked for is not; for a sentence.

    Args:
        kept, asked: the settings of both.
        changed: the keys that differ.
    """
    left = [key for key in changed if not any(key in FOLLOWS.get(cause, ()) for cause in changed if cause != key)]
    if "task_behaviour" in left and len(left) > 1:
        left.remove("task_behaviour")  # losses of other outputs
    if "seed" in left and None in (kept.get("seed"), asked.get("seed")) and len(left) > 1:
        left.remove("seed")  # it is of a subset that only one of them draws
    if {"samples", "batch"} <= set(left) and not _typed("batch"):
        left.remove("batch")  # the default depends on the samples
    if {"rounds", "windows"} <= set(left) and not _typed("windows"):
        left.remove("windows")  # the default depends on the rounds
    special: dict[str, Callable[[], str]] = {
        "samples": lambda: _samples(kept.get("samples"), asked["samples"]),
        "limit": lambda: _limit(kept.get("limit"), asked["limit"]),
        "run": lambda: _run(kept.get("run"), asked["run"]),
        "addresses": lambda: f"the models {listed(kept.get('addresses') or ['(not said)'])}",
        "seed": lambda: _seed(kept.get("seed"), asked["seed"]),
    }
    parts = [special[key]() if key in special else _setting(key, kept.get(key), asked.get(key)) for key in left]
    return " and ".join(parts)


def _setting(key: str, kept: Any, asked: Any) -> str:
    if key in WORDS:
        return WORDS[key]
    if isinstance(kept, dict) and isinstance(asked, dict):
        return " and ".join(_setting(k, kept.get(k), asked[k]) for k in asked if kept.get(k) != asked[k])
    option = _option(OPTIONS.get(key, key))
    name = key.replace("_", " ") if option is None else max(option.opts, key=len)
    if kept is None:
        return f"no {name}"
    if asked is None or (isinstance(option, click.Option) and option.is_flag):
        return f"{name} (not asked for now)" if asked in (None, False) else f"no {name}"
    there, here = _shown(kept), _shown(asked)
    if not there or not here or there == here:
        return f"another {name}"
    return f"{name} {there} (not {here})"


def _samples(kept: int | None, asked: int) -> str:
    there = f"{kept:,} samples" if isinstance(kept, int) else "other samples"
    return f"{there} ({f'--limit asks for {asked:,}' if _typed('limit') else f'without --limit there are {asked:,}'})"


def _limit(kept: int | None, asked: int | None) -> str:
    if kept is None:
        return f"all samples (--limit asks for {asked:,})"
    return f"--limit {kept} (not {asked})" if asked is not None else f"--limit {kept} (all samples now)"


def _seed(kept: int | None, asked: int | None) -> str:
    if kept is None or asked is None:  # the same samples: a subset of them all
        return "no --limit" if kept is None else "--limit (not asked for now)"
    return f"--seed {kept} (not {asked})"


def _run(kept: Any, asked: Any) -> str:
    """Another run, or the same one in another state."""
    there, here = ([one] if isinstance(one, dict) else list(one or []) for one in (kept, asked))
    paths = listed(one["path"] for one in there)
    names, own = ([real_path(one["path"]).name for one in runs] for runs in (there, here))
    if names != own:
        return f"the run{'s' if len(there) > 1 else ''} {paths}"
    for before, now in zip(there, here, strict=True):
        if before.get("created") != now.get("created"):
            return f"{before['path']} before it was made again"
        if before.get("rounds") != now.get("rounds"):
            return f"{before['path']} up to round {before.get('rounds')}"
    return f"{paths} as it was before"


def _shown(value: Any) -> str:
    """A value in a few characters; nothing where that is not possible."""
    from ..checkpoints.errors import spans

    if isinstance(value, bool | dict):
        return ""
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list):
        flat = [part for one in value for part in (one if isinstance(one, list) else [one])]
        if any(isinstance(part, dict) for part in flat):
            return ""
        numbers = [part for part in flat if isinstance(part, int)]
        if numbers and all(isinstance(part, int | str) for part in flat):
            return spans(sorted(set(numbers)))
        return ",".join(f"{part:g}" if isinstance(part, float) else str(part) for part in flat)[:60]
    return str(value)


def _option(name: str) -> click.Parameter | None:
    context = click.get_current_context(silent=True)
    typed = f"--{name.replace('_', '-')}"
    known = context.command.params if context else []
    return next((param for param in known if param.name == name or typed in param.opts), None)


def _typed(name: str) -> bool:
    context = click.get_current_context(silent=True)
    return context is not None and context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
