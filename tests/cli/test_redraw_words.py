"""The very same command with ``--redraw`` draws what it made, whatever its words stand for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from fedscope.cli.main import run
from fedscope.cli.redraw_settings import other_setting

pytestmark = pytest.mark.usefixtures("few_digits")

TINY = "--clients 4 --participation 1 --epochs 1 --set model.hidden=[6]"
RUNS = {
    "fma": f"{TINY} --method fma --rounds 3",
    "short": f"{TINY} --method ima --set average.start=1 --rounds 2",
}
REMEDY = "leave --redraw out with another --out, or ask for what it holds"
THEORY = "theory runs/fma --kernel-samples 40 --dimension 16"
CHECKPOINTS = "wima runs/fma@last --checkpoints --windows 2,all --weights uniform,ema:0.9"
#: commands with words that are stored as what they stand for
WORDS = [
    "decompose runs/fma runs/short --draws none --rounds last",
    "subsets runs/fma runs/short --rounds last --sizes all",
    "subsets runs/fma@last runs/short@1 --sizes 3,1,3",
    "consensus runs/fma runs/short --rounds 1,last",
    "disperse runs/fma runs/short --rounds last --layer fc1",
    "disperse runs/fma --rounds last --layer /fc[12]/ --layer head.bias",
    "sharpness runs/fma runs/short --rounds last --no-hessian --draws 1",
    "wima runs/fma runs/short --windows 2,2 --rounds last",
    CHECKPOINTS,
    f"{THEORY} --rounds 1,last --draws none --shrink none",
    "align runs/fma --rounds 1,last",
    "cka runs/fma@all/global --layer /fc/",
    "reaggregate runs/fma@last --server fedavgm --layers fc1=fedadam",
]
#: the same of words that were not refused before, or that take long
LONG = [
    "decompose runs/fma runs/short --draws none --rounds 1,last",
    "decompose runs/fma --draws rounds:2 --rounds -1",
    "decompose runs/short --draws none --of both --rounds all",
    "decompose runs/fma --draws none --rounds 1-2 --layers fc*",
    "subsets runs/fma --rounds 1,last --data-of own",
    "subsets runs/fma --rounds last --data-of clients",
    "subsets runs/fma --rounds last --data-of 3,0",
    "consensus runs/fma runs/short --rounds last",
    "disperse runs/fma --layer fc*",
    "disperse runs/fma runs/short --embed pca --rounds 1-last",
    "disperse runs/fma --embed pca --layer fc1 --rounds last:2",
    "sharpness runs/fma@last --no-hessian --layers fc1,head",
    "sharpness runs/fma@last --no-hessian --data-of every",
    "sharpness runs/fma@all/global --no-hessian",
    "explain runs/fma runs/short --rounds last --draws none",
    "explain runs/fma runs/short --rounds 1,last --draws none",
    "wima runs/fma --checkpoints --rounds last",
    f"{THEORY} --kernel none --rounds last:2",
    f"{THEORY} --draws local:2 --rounds every:2 --shrink 2 --kernel last",
    "cka runs/fma --rounds every:2 --layer fc*",
    "cka runs/fma runs/short --rounds 1,last --layer fc1 --layer output",
    "updates runs/fma runs/short --rounds last",
    "updates runs/fma --layers fc* --rounds 1-last",
    "line runs/fma@last runs/short@last --points 3",
    "line runs/fma --layers fc1,head --rounds last:2 --points 3",
    "line runs/fma@last/client-0 runs/fma@last/client-1 --points 3 --data-of clients",
    "line runs/fma@last/client-0 runs/fma@last/client-1 --points 3 --layers cumulative",
    "plane runs/fma runs/short --rounds last --grid 3",
    "plane runs/fma --trajectory --rounds all --grid 3",
    "plane runs/fma@last --clients --show runs/fma@all/global --grid 3",
    "plane runs/fma@last --clients --data-of 3,0 --grid 3",
    "plane runs/fma@last runs/short@last --same-axes --grid 3",
    "forgetting runs/fma --rounds last:2",
    "matrix runs/fma --rounds 1-last",
    "predictors runs/fma --rounds 1-last",
    "parameters runs/fma --round last",
    "synergy runs/fma --rounds last",
    "reaggregate runs/fma --rounds last --server fedavgm --set server.momentum=0.50",
    "data --data digits --partition iid --clients 3",
]
#: by the command that made a result: another one, and what the file holds instead
OTHERS = {
    "decompose runs/fma runs/short --draws none --rounds last": {
        "decompose runs/fma runs/short --rounds 2": ("factors", "rounds 2-3"),
        "decompose runs/fma runs/short --rounds 1,last": ("factors", "rounds 2-3"),
    },
    "disperse runs/fma runs/short --rounds last --layer fc1": {
        "disperse runs/fma runs/short --layer head": ("dispersion", "--layer fc1 (not head)"),
        "disperse runs/fma runs/short --layer *": ("dispersion", "--layer fc1 (not *)"),
        "disperse runs/fma runs/short --layer fc1.weight": (
            "dispersion",
            "--layer fc1 (not fc1.weight)",
        ),
    },
    "disperse runs/fma --embed pca --layer fc1 --rounds last:2": {
        "disperse runs/fma --embed pca --layer * --rounds last:2": ("embedding", "--layer fc1 (not *)"),
    },
    CHECKPOINTS: {
        "wima runs/fma@last --checkpoints --windows 3,all": ("checkpoints", "--windows 2, 4 (not 3,all)"),
        "wima runs/fma@last --checkpoints --weights ema:0.8": ("checkpoints", "--weights uniform,ema (not ema:0.8)"),
    },
    f"{THEORY} --rounds 1,last --draws none --shrink none": {
        "theory runs/fma --draws local:2": ("theory", "--draws none (not local:2)"),
        "theory runs/fma --shrink 3": ("theory", "--shrink none (not 3)"),
        "theory runs/fma --kernel none": ("theory", "--kernel 3 (not none)"),
    },
    "reaggregate runs/fma@last --server fedavgm --layers fc1=fedadam": {
        "reaggregate runs/fma@last --layers fc1=fedyogi": ("reaggregate", "--layers fc1=fedadam (not fc1=fedyogi)"),
        "reaggregate runs/fma@last --layers *=fedadam": ("reaggregate", "--layers fc1=fedadam (not *=fedadam)"),
    },
}


@pytest.mark.parametrize("made", [*WORDS, *(pytest.param(one, marks=pytest.mark.slow) for one in LONG)])
def test_the_same_command_is_never_another_result(runs: Path, capsys: pytest.CaptureFixture[str], made: str) -> None:
    words = [*made.split(), "--out", "m", "--format", "png"]
    assert run(words) == 0, capsys.readouterr().err
    assert run([*words, "--redraw"]) == 0, capsys.readouterr().err
    for other, (file, holds) in OTHERS.get(made, {}).items():
        capsys.readouterr()
        assert run([*other.split(), "--out", "m", "--redraw"]) == 2, other
        said = capsys.readouterr().err.splitlines()[-1]
        assert said == f"fedscope: m.{file}.json holds another result, of {holds}; {REMEDY}"


FC1, HEADS = ["fc1.weight", "fc1.bias"], ["head.weight"]


@pytest.mark.parametrize(
    ("kept", "words", "is_same"),
    [
        ({"layers": FC1, "words": ["fc*"]}, ["fc*"], True),
        ({"layers": FC1, "words": ["fc*"]}, ["*"], False),
        ({"layers": FC1, "words": ["fc*"]}, ["fc1"], True),
        ({"layers": FC1}, ["fc1"], True),
        ({"layers": FC1}, ["fc1.bias", "fc1.weight"], True),
        ({"layers": FC1}, ["fc1.bias"], False),
        ({"layers": FC1}, ["fc1", "head"], False),
        ({"layers": FC1}, ["fc*"], False),
        ({"layers": FC1}, ["/fc1/"], False),
        ({"layers": HEADS}, ["head"], False),  # it may have a bias besides
        ({"asked_layers": FC1, "words": ["fc1"], "layers": FC1}, ["*"], False),
        ({"asked_layers": FC1, "words": ["fc1"]}, ["*"], False),
        ({"layers": [["fc1", "fedadam"]]}, ["fc1=fedadam"], True),
        ({"layers": [["fc1", "fedadam"]]}, [" fc1 = fedadam"], True),
        ({"layers": [["fc1", "fedadam"]]}, ["*=fedadam"], False),
        ({"layers": [["/(?=fc)/", "fedadam"]]}, ["/(?=fc)/=fedadam"], True),
        ({"layer": "fc1"}, ["fc1", "head"], True),
        ({"layer": "fc1"}, ["/fc/"], True),
        ({"layer": "fc1"}, ["fc*,head"], True),
        ({"layer": "fc1"}, ["head*"], False),
        ({"layer": "fc1"}, ["/(/"], False),  # no expression at all
    ],
)
def test_a_wider_pattern_is_another_setting(kept: dict[str, Any], words: list[str], is_same: bool) -> None:
    """What a pattern stands for is compared by its words: a result does not say what else there was."""
    assert (other_setting("layers", words, kept, click.Option(["--layers"])) is None) == is_same
