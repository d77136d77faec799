"""About how long a recipe would take on one GPU. Nobody has measured it: the rates are assumed, and said."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

#: of a data set: training samples, samples in all, the shape of one, classes; as docs/methods.md and the recipes know
#: them
SETS: dict[str, tuple[int, int, tuple[int, ...], int]] = {
    "cifar10": (50_000, 60_000, (3, 32, 32), 10),
    "cifar100": (50_000, 60_000, (3, 32, 32), 100),
    "fmnist": (60_000, 70_000, (1, 28, 28), 10),
    "digit5": (37_190, 51_000, (3, 28, 28), 10),
    "pacs": (8_992, 9_991, (3, 224, 224), 7),
    "femnist": (671_585, 749_068, (1, 28, 28), 62),
    "shakespeare": (16_068, 18_424, (80,), 90),
    "gldv2": (164_172, 183_698, (3, 224, 224), 2028),
    "tiny-imagenet": (100_000, 110_000, (3, 64, 64), 200),
}
#: what a GPU is taken to sustain: operations a second, and steps a second of small models
RATE, STEPS = 1e13, 1e3
SAID = (
    "Hours on one GPU are estimated, not measured. They are for training alone, with one seed, at "
    f"{RATE / 1e12:g} TFLOP/s sustained or {STEPS:,.0f} steps per second, whichever takes longer. Rounds that runs "
    "share and what a method adds are not counted."
)


def hours(name: str) -> float:
    """Of all runs of a recipe, one seed: Σ_runs max(3 F n / rate, steps / steps a second).

    F: operations of a forward pass of one sample; n: samples that all clients of all rounds see, epochs included.
    """
    import fedscope
    from fedscope.training import Config
    from fedscope.training.config.recipes import tables_of

    recipe = fedscope.recipe(name)
    seconds = 0.0
    for cell in recipe.cells():
        tables = Config.read(recipe.configured(*tables_of(cell))).tables()
        data, run, client = (tables[section] for section in ("data", "run", "client"))
        train, everything, shape, classes = SETS[data["name"]]
        samples = everything * (1 - data["client_test"]) if data["pool"] else train
        kind, _, counted = str(data["partition"]).partition(",")
        if kind.startswith("shards") and counted:
            samples = data["clients"] * int(kind.removeprefix("shards:")) * int(counted)
        seen = samples * run["participation"] * run["rounds"] * client["epochs"]
        model = json.dumps(tables["model"])
        seconds += max(3 * operations(model, shape, classes) * seen / RATE, seen / client["batch"] / STEPS)
    return seconds / 3600


@cache
def operations(model: str, shape: tuple[int, ...], classes: int) -> float:
    """Of a forward pass of one sample, of a model's settings in JSON; a multiply-add counts as two."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from fedscope.training import model_settings

    settings = json.loads(model)
    name, _ = settings.pop("name"), settings.pop("weights", "")
    with torch.device("meta"):
        module = replace(model_settings(name), **settings).build(shape, classes).eval()
        if len(shape) == 1:  # a sequence: every parameter once a position, which the counter does not know of LSTMs
            return 2.0 * sum(one.numel() for one in module.parameters()) * shape[0]
        with FlopCounterMode(display=False) as counter:
            module(torch.zeros(1, *shape))
    return float(counter.get_total_flops())


def said(name: str) -> str:
    """As a table has it; "" of what is no recipe.

    >>> said("a command"), said("fedsa/fig7")
    ('', '')
    """
    import fedscope

    if name not in fedscope.recipe_names() or name in ("fedsa/fig7", "fedsa/fig8"):
        return ""
    found = hours(name)
    return f"{found:,.0f}" if found >= 10 else f"{found:.1g}"
