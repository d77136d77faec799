"""The settings in which a stored result differs from the one that is asked for, by their options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from ..analysis.run_identity import METRICS, is_renamed, other_rounds
from ..checkpoints import real_path
from ..checkpoints.io.errors import list_few, spans
from ..checkpoints.io.number_words import exact
from ..results.labels import LABEL, name_of_run

#: settings that change when another one does, and say nothing besides it
FOLLOWS = {
    "kind": (
        "addresses",
        "models_sha256",
        "run",
        "margin",
        "range",
        "directions_seed",
        "directions",
        "seed",
        "same_axes",
    ),
    "addresses": ("models_sha256", "run", "behaviour", "same_axes", "directions"),
    "models_sha256": ("same_axes",),
    "run": ("models_sha256", "samples", "behaviour", "averages", "distinct", METRICS),
    "measured": (METRICS,),
    "rounds": ("averages", "models"),
    "kernel": ("frozen_head",),
    "servers": ("settings", "keeps", "code"),
    "layers": ("layer_settings", "keeps", "code"),
    "folder": ("names", "files", "left_out", "checkpoints", "windows", "behaviour"),
    "checkpoints": ("names", "files", "left_out", "windows", "behaviour"),
    "names": ("files", "left_out", "behaviour"),
    "files": ("left_out", "behaviour"),
    "architecture": ("behaviour", "directions"),
    "data": ("data_sha256", "samples", "behaviour", "partition_sha256"),
    "data_sha256": ("samples", "behaviour", "partition_sha256"),
    "partition": ("partition_sha256",),
    "clients": ("partition_sha256",),
    "client_test": ("partition_sha256",),
    "standardised": ("behaviour", "data_accepted"),
    "split": ("samples", "behaviour"),
    "task": ("loss_units", "task_behaviour", "task_means_behaviour", "behaviour"),
    "task_behaviour": ("task_means_behaviour",),
    "limit": ("samples", "behaviour", "calibration_batches"),
    "samples": ("batches", "calibration_samples", "calibration_batches", "behaviour"),
    "batch": ("batches",),
    "range": ("margin", "directions"),
    "loss": ("outputs",),
    "normalization": ("calibration_samples", "calibration_seed", "calibration_batches"),
    "calibration_limit": ("calibration_batches",),
    "calibration_samples": ("calibration_batches",),
    "seed": ("calibration_seed", "partition_sha256"),
    "directions_seed": ("seed", "calibration_seed"),
}
#: settings whose default depends on another one: said besides it only where they were typed
DEFAULTS = {"batch": "samples", "windows": "rounds"}
#: options that are called otherwise than their settings
OPTIONS = {
    "directions_seed": "seed",
    "architecture": "model",
    "calibration_seed": "seed",
    "settings": "assignments",
    "asked_perplexity": "perplexity",
    "addresses": "models",
}
#: settings that no option says
WORDS = {
    "models_sha256": "weights that have changed since",
    "same_axes": "directions of other models (--same-axes)",
    "behaviour": "the model's code as it was before",
    "code": "your own code with another source (--code-changed, or edited since)",
    "layer_settings": "layers with other servers or settings (--layers)",
    "directions": "random directions of an earlier version",
    "calibration_batches": "statistics re-estimated on other batches, by an earlier version",
    "recorded_models": "losses of the first run's models alone, by an earlier version",
    "frozen": "frozen parameters counted otherwise (--frozen)",
    "frozen_parameters": "other parameters frozen",
    "served_last": "a last round whose mixing was not known, by an earlier version",
    "frozen_head": "a kernel with the head that clients did not move, by an earlier version",
    "task_behaviour": "the task's code as it was before",
    "task_means_behaviour": "the task's code as it was before",
    "data_sha256": "data that have changed since",
    "partition_sha256": "other samples of the clients, by the partition's code as it was before",
    "distinct": "samples that are held several times counted as often, by an earlier version",
    "names": "files of other names",
    "files": "files that have changed since",
    "file_sha256": "a file that has changed since",
    "standardised": "samples in another scale (--standardise, --no-standardise)",
    "measured": "numbers that were measured afterwards, otherwise than now (fedscope measure)",
    METRICS: "metrics that have changed since",
    "data_accepted": "data that were accepted otherwise (--accept-data)",
}
#: settings that tell whether the user's own code or data have changed, and whose: results of an earlier fedscope lack
#: them
CODE = {
    "data_sha256": "the data",
    "behaviour": "the model's code",
    "task_behaviour": "the task's code",
    "code": "your server's code",
    "partition_sha256": "the partition's code",
}


def differences(kept: Mapping[str, Any], asked: Mapping[str, Any], changed: Sequence[str]) -> str:
    """Describe the settings of a stored result that are not those asked for, for a sentence.

    Args:
        kept, asked: the settings of both.
        changed: the keys that differ.
    """
    left = [key for key in changed if not any(key in FOLLOWS.get(cause, ()) for cause in changed if cause != key)]
    left = [key for key in left if DEFAULTS.get(key) not in left or _is_typed(key)]
    if len(left) > 1:  # the task's code changes losses of other outputs; a seed alone is of a subset that one draws
        one_draws = None in (kept.get("seed"), asked.get("seed"))
        of_task = ("task_behaviour", "task_means_behaviour")
        left = [key for key in left if key not in of_task and not (key == "seed" and one_draws)]
    unkept = [key for key in left if _is_unkept(key, kept, asked)]
    told = bool(kept.get(METRICS)) and kept.get(METRICS) == asked.get(METRICS)
    said = [
        _run(kept.get(key), asked.get(key), same_metrics=told)
        if key == "run"
        else _difference(key, kept.get(key), asked.get(key))
        for key in left
        if key not in unkept
    ]
    if unkept:
        said.append(f"an earlier fedscope, which kept nothing that tells {' and '.join(CODE[key] for key in unkept)}")
    return " and ".join(said)


def _is_unkept(key: str, kept: Mapping[str, Any], asked: Mapping[str, Any]) -> bool:
    """Check whether a result says nothing of code that it was made by, where it would say it now. Of replays ``code``
    is said of other code than the run's alone."""
    return key in CODE and key not in kept and asked.get(key) is not None and (key != "code" or "servers" in asked)


def _difference(key: str, kept: Any, asked: Any) -> str:
    """``--grid 21 (not 51)``."""
    if key in WORDS:
        return WORDS[key]
    if key == "adaptive":  # a number, of what may be measured, that --budget says and that refuses no result
        kept, asked = kept is not None, asked is not None
    if isinstance(kept, dict) and isinstance(asked, dict):
        return " and ".join(_difference(k, kept.get(k), asked[k]) for k in asked if kept.get(k) != asked[k])
    context = click.get_current_context(silent=True)
    name = OPTIONS.get(key, key)
    typed = f"--{name.replace('_', '-')}"
    params = context.command.params if context else []
    option = next((param.opts for param in params if param.name == name or typed in param.opts), None)
    shown = max(option, key=len) if option else key.replace("_", " ")
    there, here = _text(kept), _text(asked)
    return f"{shown} {there} (not {here})" if there and here and there != here else f"another {shown}"


def option_differs(param: click.Parameter, kept: Any, asked: Any) -> str:
    """``--grid 21 (not 51)``, of an option of the command.

    Args:
        kept, asked: its values in a stored result and as it was typed.
    """
    shown = max(param.opts, key=len)
    there, here = _text(kept), _text(list(asked) if isinstance(asked, tuple) else asked)
    return f"{shown} {there} (not {here})" if there and here and there != here else f"another {shown}"


def _run(kept: Any, asked: Any, *, same_metrics: bool) -> str:
    """Another run, or the same one in another state, or under another name.

    Args:
        same_metrics: whether what tells the runs' metrics from others is equal.
    """
    there, here = ([one] if isinstance(one, dict) else list(one or []) for one in (kept, asked))
    paths = list_few(one["path"] for one in there)
    if [real_path(one["path"]).name for one in there] != [real_path(one["path"]).name for one in here]:
        several = len(there) > 1
        if is_renamed(there, here, same_metrics=same_metrics):
            return f"these runs under other names, {paths}" if several else f"this run under another name, {paths}"
        return f"the run{'s' if several else ''} {paths}"
    for before, now in zip(there, here, strict=True):
        if before.get("created") != now.get("created"):
            return f"{before['path']} before it was made again"
        if before.get(LABEL) != now.get(LABEL):
            return f"{before['path']} as {name_of_run(before)!r}"
        if before.get("rounds") != now.get("rounds"):
            return f"{before['path']} up to round {before.get('rounds')}"
        if again := other_rounds(before, now):
            return f"{before['path']} with {'other rounds' if len(again) > 1 else 'another round'} {spans(again)}"
    return f"{paths} as it was before"


def _text(value: Any) -> str:
    """A value in a few characters; "" where that is not possible."""
    if value is None or isinstance(value, bool):
        return "yes" if value else "none" if value is None else "no"
    if not isinstance(value, list):
        return "" if isinstance(value, dict) else exact(value) if isinstance(value, float) else str(value)
    flat = [part for one in value for part in (one if isinstance(one, list) else [one])]
    numbers = [part for part in flat if isinstance(part, int)]
    if numbers and all(isinstance(part, int | str) for part in flat):
        return spans(sorted(set(numbers)))
    texts = [_text(part) for part in flat]
    return ",".join(texts)[:60] if all(texts) else ""


def _is_typed(name: str) -> bool:
    context = click.get_current_context(silent=True)
    return context is not None and context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
