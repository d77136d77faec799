"""Settings of methods out of range: each is refused with its place, its value, the limit, and the way out."""

from __future__ import annotations

import re
from typing import Any

import pytest

from fedscope.checkpoints import FedscopeError
from fedscope.training.settings.registry import find


@pytest.mark.parametrize(
    ("shelf", "name", "key", "value", "limit"),
    [
        ("clients", "adabest", "mu", 0.0, "off: --client sgd"),
        ("clients", "adabest", "mu", -1.0, "greater than 0"),
        ("clients", "ditto", "pull", 0, "off: --client sgd"),
        ("clients", "ditto", "personal_epochs", 0, "at least 1"),
        ("clients", "fedacg", "beta", 0.0, "off: --client sgd"),
        ("clients", "fedacg", "beta", -1.0, "greater than 0"),
        ("clients", "fedala", "layers", 0, "at least 1"),
        ("clients", "fedala", "mixing_lr", 0, "off: --client sgd"),
        ("clients", "fedala", "portion", 1.2, "at most 1"),
        ("clients", "fedasam", "sam_rho", 0.0, "off: --client sgd"),
        ("clients", "fedasam", "sam_eta", -0.1, "at least 0"),
        ("clients", "fedbabu", "fine_tune", "tail", "type: all, head, body"),
        ("clients", "fedbabu", "fine_tune_epochs", 0, "at least 1"),
        ("clients", "fedcm", "alpha", 0.0, "greater than 0"),
        ("clients", "fedcm", "alpha", 1.0, "less than 1"),
        ("clients", "feddyn", "alpha", 0.0, "off: --client sgd"),
        ("clients", "feddyn", "alpha", -1.0, "greater than 0"),
        ("clients", "fedfa", "anchor_weight", 0.0, "off: --client sgd"),
        ("clients", "fedfa", "anchor_momentum", 1.5, "at most 1"),
        ("clients", "fedfa", "calibrate_from", 0, "at least 1"),
        ("clients", "fedgen", "decay", 0.0, "greater than 0"),
        ("clients", "fedgen", "generator_batch", 1, "at least 2"),
        ("clients", "fedgen", "generator_steps", 0, "at least 1"),
        ("clients", "fedmoswa", "gamma", 0, "off: --client fedswa"),
        ("clients", "fedmoswa", "gamma", 1.5, "at most 1"),
        ("clients", "fedmoswa", "lr_floor", 0, "greater than 0"),
        ("clients", "fedntd", "beta", 0.0, "off: --client sgd"),
        ("clients", "fedntd", "beta", -1.0, "greater than 0"),
        ("clients", "fedntd", "temperature", 0.0, "greater than 0"),
        ("clients", "fedprox", "mu", 0.0, "off: --client sgd"),
        ("clients", "fedprox", "mu", -0.1, "greater than 0"),
        ("clients", "fedsam", "sam_rho", 0.0, "off: --client sgd"),
        ("clients", "fedsam", "sam_rho", -1.0, "greater than 0"),
        ("clients", "fedswa", "lr_floor", 0, "greater than 0"),
        ("clients", "fedswa", "lr_floor", 1.1, "at most 1"),
        ("clients", "mime", "optimiser", "sgd", "type: momentum, adam"),
        ("clients", "mime", "tau", 0, "greater than 0"),
        ("clients", "mofedsam", "sam_rho", 0.0, "off: --client fedcm"),
        ("clients", "mofedsam", "alpha", 1.0, "less than 1"),
        ("clients", "moon", "mu", 0.0, "off: --client sgd"),
        ("clients", "moon", "temperature", 0.0, "greater than 0"),
        ("servers", "adabest", "beta", 0.0, "off: --server fma"),
        ("servers", "diloco", "momentum", 0.0, "off: --server fma"),
        ("servers", "diloco", "momentum", 1.0, "less than 1"),
        ("servers", "diloco", "lr", 0.0, "greater than 0"),
        ("servers", "checkpoints", "shape", "sqrt", "type: uniform, linear, cosine, minus_sqrt, ema"),
        ("servers", "checkpoints", "last", 0, "at least 1"),
        ("servers", "checkpoints", "beta", 1.0, "less than 1"),
        ("servers", "dare", "drop", 1.0, "less than 1"),
        ("servers", "dare", "drop", -0.1, "at least 0"),
        ("servers", "dare", "scale", 0.0, "greater than 0"),
        ("servers", "dare", "seed", -1, "at least 0"),
        ("servers", "task-arithmetic", "scale", 1e4, "at most 1000"),
        ("servers", "ties", "density", 0.0, "greater than 0"),
        ("servers", "ties", "density", 1.1, "at most 1"),
        ("servers", "ties", "scale", 0.0, "greater than 0"),
        ("servers", "ties", "over", "layer", "type: model, tensor"),
        ("servers", "greedy", "split", "both", "type: train, test"),
        ("servers", "greedy", "samples", 0, "at least 1"),
        ("servers", "fisher", "samples", 0, "at least 1"),
        ("servers", "fisher", "labels", "both", "type: model, data"),
        ("servers", "fisher", "floor", 0.0, "greater than 0"),
        ("servers", "regmean", "samples", 0, "at least 1"),
        ("servers", "regmean", "alpha", 1.1, "at most 1"),
        ("servers", "adabest", "beta", 1.1, "at most 1"),
        ("servers", "fedacg", "momentum", 0.0, "off: --server fma"),
        ("servers", "fedacg", "momentum", 1.0, "less than 1"),
        ("servers", "fedadam", "beta1", 1.0, "less than 1"),
        ("servers", "fedadam", "beta2", -0.1, "at least 0"),
        ("servers", "fedadam", "tau", 0.0, "greater than 0"),
        ("servers", "fedadam", "lr", 0.0, "greater than 0"),
        ("servers", "fedadam", "v0", "one", "type: zero, tau2"),
        ("servers", "fedavgm", "momentum", 0.0, "off: --server fma"),
        ("servers", "fedavgm", "momentum", 1.0, "less than 1"),
        ("servers", "feddyn", "alpha", 0.0, "off: --server fma"),
        ("servers", "fedgma", "tau", 0.0, "off: --server fma"),
        ("servers", "fedgma", "tau", 1.5, "at most 1"),
        ("servers", "fedsa", "classes", 0, "at least 1"),
        ("servers", "fedsa", "classes", 256, "at most 255"),
        ("servers", "fedsa", "clusters", 0, "at least 1"),
        ("servers", "fedsa", "cv_threshold", 1.0, "less than 1"),
        ("servers", "fedsa", "cv_threshold", -0.1, "at least 0"),
        ("servers", "fedsa", "sim_threshold", 1.1, "at most 1"),
        ("servers", "fedsa", "similarity", "round", "type: layer, model"),
        ("servers", "fedsa", "quantile", 0.0, "greater than 0"),
        ("servers", "fedsa", "quantile", 1.5, "at most 1"),
        ("servers", "fedswa", "alpha", 0.0, "greater than 0"),
        ("servers", "fedswa", "alpha", -1.0, "greater than 0"),
        ("averages", "wima", "window", 1, "at least 2"),
    ],
)
def test_settings_out_of_range_are_refused(shelf: Any, name: str, key: str, value: Any, limit: str) -> None:
    kind = find(shelf, name)
    says = f"is out of range: it must be {limit}"
    if limit.startswith("off: "):
        says = f"would switch the method off; give a number greater than 0, or {limit[5:]}"
    elif limit.startswith("type: "):
        says = f"{'is not a choice' if isinstance(value, str) else 'has the wrong type'}: it takes one of {limit[6:]}"
    shown = f"{value:g}" if isinstance(value, float | int) else repr(value)
    with pytest.raises(FedscopeError, match=re.escape(f"{kind.section}.{key} = {shown} {says}") + "$"):
        kind(**{key: value})
