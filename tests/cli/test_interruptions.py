"""Questions over rounds that were stopped go on: finished rounds are computed once, also where others are asked."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from fedscope.cli.main import run

pytestmark = [pytest.mark.programs, pytest.mark.usefixtures("few_digits")]


def numbers(capsys: pytest.CaptureFixture[str], command: str, rounds: str, out: str) -> dict[str, Any]:
    capsys.readouterr()
    assert run([*command.split(), "--rounds", rounds, "--json", "--out", out]) == 0, capsys.readouterr().err
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    return {name: value for name, value in told.items() if name != "files"}


@pytest.mark.parametrize(
    ("command", "package", "name"),
    [
        ("decompose runs/fma --draws local:2 --split test", "", "round_factors"),
        ("decompose runs/fma --draws local:2 --split test --layers each", "", "round_layer_factors"),
        ("explain runs/fma --draws local:2 --split test", "", "round_factors"),
        ("explain runs/fma --draws local:2 --split test", ".cka.pairs", "round_similarity"),
        ("forgetting runs/fma", ".forgetting.accuracy", "round_answers"),
        ("matrix runs/fma", ".matrix.rounds", "round_matrix"),
        ("predictors runs/fma", ".predictors.round_predictors", "predicted_round"),
        ("subsets runs/fma", ".subsets.averages", "round_subsets"),
        ("consensus runs/fma", ".consensus.rounds", "measure_round"),
        ("wima runs/fma --windows 2", "fedscope.decomposition.windows.sliding_mean", "round_means"),
        ("updates runs/fma", ".updates.angles", "geometry"),
        ("updates runs/fma --layers each", ".updates.layers", "round_layers"),
        ("line runs/fma --layers each --points 3", "fedscope.landscape.lines.requests", "round_barriers"),
        ("cka runs/fma", ".cka.pairs", "round_similarity"),
        ("disperse runs/fma", ".dispersion.dispersion", "disperse_round"),
        ("theory runs/fma --shrink none --kernel none", ".theory.outputs", "locality_gaps"),
    ],
)
def test_finished_rounds_are_computed_once(
    two_rounds: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    command: str, package: str, name: str,
) -> None:  # fmt: skip
    (tmp_path / "runs").symlink_to(two_rounds / "runs")
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(f"fedscope.decomposition{package}" if package[:1] in (".", "") else package)
    whole, first = (numbers(capsys, command, rounds, f"whole{rounds[-1]}") for rounds in ("1,2", "1"))
    real, calls = getattr(module, name), []

    def stopping(*args: Any, **settings: Any) -> Any:
        calls.append(1)
        if len(calls) in (2, 5):
            raise KeyboardInterrupt
        return real(*args, **settings)

    monkeypatch.setattr(module, name, stopping)
    asked = [*command.split(), "--rounds", "1,2", "--out"]
    assert run([*asked, "cut"]) == 130
    assert numbers(capsys, command, "1,2", "cut") == whole
    assert len(calls) == 3, "round 1, the interrupted one, and this one again"
    assert not list(Path().glob("*.partial"))
    if package != ".cka.pairs":  # of another decomposition, which is there
        assert run([*asked, "less"]) == 130
        assert [path.suffix for path in Path().glob("less*")] == [".partial"]
        assert numbers(capsys, command, "1", "less") == first
        # wima also compares the last round of a question with equation 7: as the last one, round 1 is measured anew
        assert len(calls) == (6 if name == "round_means" else 5)
