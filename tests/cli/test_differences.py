"""A stored result that is not the one asked for is refused in the words of the option that was changed."""

from __future__ import annotations

from typing import Any

import click
import pytest

from fedscope.cli.commands.plane import command
from fedscope.cli.settings_diff import differences

pytestmark = pytest.mark.same_elsewhere

RUN = {"path": "runs/ima", "created": "2026-01-01", "versions": {}}
SUBSET = {"samples": 100, "seed": 0}
ALL = {"samples": 360, "seed": None}


@pytest.mark.parametrize(
    ("kept", "asked", "said"),
    [
        # nobody touched the seed
        (SUBSET, ALL, "samples 100 (not 360)"),
        (ALL, SUBSET, "samples 360 (not 100)"),
        ({**SUBSET, "batches": 2, "batch": 50}, {**ALL, "batches": 7, "batch": 51},
         "samples 100 (not 360)"),
        ({"limit": None, "seed": None}, {"limit": 500, "seed": 0}, "--limit none (not 500)"),
        ({"limit": 500, "seed": 0}, {"limit": None, "seed": None}, "--limit 500 (not none)"),
        ({"limit": 500, "samples": 500}, {"limit": 50, "samples": 50}, "--limit 500 (not 50)"),
        ({**ALL, "seed": 0}, ALL, "--seed 0 (not none)"),  # a limit that takes them all
        # but where it was, it is said
        (SUBSET, {**SUBSET, "seed": 1}, "--seed 0 (not 1)"),
        ({"directions_seed": 0, "seed": None}, {"directions_seed": 1, "seed": None}, "--seed 0 (not 1)"),
        (SUBSET, {"samples": 50, "seed": 1}, "samples 100 (not 50) and --seed 0 (not 1)"),
        # what follows from another setting is not said besides
        ({"split": "test", **ALL}, {"split": "train", "samples": 1437, "seed": None}, "--split test (not train)"),
        ({"addresses": ["a.pt", "b.pt"], "models_sha256": ["1"]}, {"addresses": ["c.pt"], "models_sha256": ["2"]},
         "models a.pt,b.pt (not c.pt)"),
        ({"models_sha256": ["1"]}, {"models_sha256": ["2"]}, "weights that have changed since"),
        # runs
        ({"run": RUN}, {"run": {**RUN, "created": "2026-02-02"}}, "runs/ima before it was made again"),
        ({"run": [{**RUN, "rounds": 9}]}, {"run": [{**RUN, "rounds": 12}]}, "runs/ima up to round 9"),
        ({"run": RUN}, {"run": {**RUN, "path": "runs/fma"}}, "the run runs/ima"),
        ({"run": [RUN]}, {"run": [RUN, RUN]}, "the run runs/ima"),
        ({"run": {**RUN, "files": "1"}}, {"run": {**RUN, "files": "2"}}, "runs/ima as it was before"),
        # any other setting, of whatever kind, by its option where the command has one
        ({"range": None}, {"range": [0.0, 1.0]}, "--range none (not 0,1)"),
        ({"adaptive": None}, {"adaptive": 1.0}, "--adaptive no (not yes)"),
        ({"adaptive": 0.15}, {"adaptive": None}, "--adaptive yes (not no)"),
        ({"rounds": [[1, 20]]}, {"rounds": [[1, 2, 3]]}, "--rounds 1, 20 (not 1-3)"),
        ({"rounds": [["ima", 1]]}, {"rounds": [["ima", 2]]}, "--rounds 1 (not 2)"),
        ({"margin": 0.3}, {"margin": None}, "--margin 0.3 (not none)"),
        ({"kernel_samples": None}, {"kernel_samples": 50}, "kernel samples none (not 50)"),
        ({"asked": {"classes": 4, "quantile": None}}, {"asked": {"classes": 5, "quantile": None}},
         "classes 4 (not 5)"),
        # code of one's own, of which earlier results say nothing
        ({"behaviour": [1.0]}, {"behaviour": [2.0]}, "the model's code as it was before"),
        ({"behaviour": None}, {"behaviour": [2.0]}, "the model's code as it was before"),
        ({}, {"behaviour": [2.0]}, "an earlier fedscope, which kept nothing that tells the model's code"),
        ({"samples": 100}, {"behaviour": [2.0], "samples": 100},
         "an earlier fedscope, which kept nothing that tells the model's code"),
        ({}, {"behaviour": [2.0], "task_behaviour": [1.0]},
         "an earlier fedscope, which kept nothing that tells the model's code"),
        ({}, {"task_behaviour": [1.0]}, "an earlier fedscope, which kept nothing that tells the task's code"),
        ({}, {"partition_sha256": "1"}, "an earlier fedscope, which kept nothing that tells the partition's code"),
        ({"servers": ["m:FedX"]}, {"servers": ["m:FedX"], "code": {"m:FedX": "1"}},
         "an earlier fedscope, which kept nothing that tells your server's code"),
        ({"draws": "local:2"}, {"draws": "local:2", "code": {"m:FedX": "1"}},
         "your own code with another source (--code-changed, or edited since)"),
        ({"architecture": "cnn"}, {"architecture": "m:net", "behaviour": [1.0]}, "--model cnn (not m:net)"),
        ({"margin": 0.3}, {"margin": 0.2, "partition_sha256": "1"},
         "--margin 0.3 (not 0.2) and an earlier fedscope, which kept nothing that tells the partition's code"),
        ({"settings": [{"lr": 1}]}, {"settings": [{"lr": 2}]}, "another settings"),
    ],
)  # fmt: skip
def test_what_differs_is_said_in_the_users_words(kept: dict[str, Any], asked: dict[str, Any], said: str) -> None:
    changed = [key for key in asked if kept.get(key) != asked[key]]
    with click.Context(command):
        assert differences(kept, asked, changed) == said
