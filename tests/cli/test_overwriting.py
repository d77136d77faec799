"""Nothing that lies where a command writes is replaced without ``--force``: neither results nor a user's own files."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedscope.cli.main import run

# One command of every result, with --out m and each file that it would write there beside its main one.
ASKED = {
    "curves": ("curves runs/fma", "curves.csv pdf png"),
    "data": ("data runs/fma", "counts.csv pdf samples.pdf"),
    "line": ("line runs/fma@1 runs/fma@2 --points 3 --split test", "pdf png"),
    "line-clients": ("line runs/fma@2 --clients --points 3 --split test", "pdf png"),
    "plane": ("plane runs/fma@1 runs/fma@2 runs/fma@2/client-0 --grid 5 --split test", "pdf png html basin.csv"),
    "planes": ("plane runs/fma --rounds 1,2 --grid 5 --split test", "pdf png"),
    "plane-both": ("plane runs/fma@1 runs/fma@2 runs/fma@2/client-0 --grid 5 --split both", "both.pdf both.png"),
    "sharpness": ("sharpness runs/fma@2 --no-hessian --split test", "sharpness.csv pdf png"),
    "decompose": ("decompose runs/fma --rounds 2 --draws local:2 --split test", "factors.csv clients.csv pdf png"),
    "explain": ("explain runs/fma --rounds 2 --draws local:2 --split test", "factors.csv explain.json md pdf html"),
    "cka": ("cka runs/fma --rounds 2 --split test", "pdf png"),
    "cka-models": ("cka runs/fma@1 runs/fma@2 --split test", "pdf png"),
    "subsets": ("subsets runs/fma --rounds 2 --split test", "subsets.csv pdf png"),
    "forgetting": ("forgetting runs/fma --rounds 2 --split test", "pdf png"),
    "theory": ("theory runs/fma --rounds 2 --split test", "theory.csv pdf png"),
    "disperse": ("disperse runs/fma --rounds 2", "dispersion.csv layers.pdf pdf png"),
    "embed": ("disperse runs/fma --embed pca", "embedding.csv embedding.pdf embedding.html"),
    "parameters": ("parameters runs/fma --round 2", "parameters.csv pdf png"),
    "parameters-tsne": (
        "parameters runs/fma --round 2 --tsne --sample 40",
        "parameters-tsne.csv pdf png",
    ),
    "updates": ("updates runs/fma", "updates.csv pdf png"),
    "synergy": ("synergy runs/fma@2", "pdf png"),
    "reaggregate": ("reaggregate runs/fma@2 --server fedavgm", "safetensors reaggregate.csv"),
}


pytestmark = pytest.mark.usefixtures("few_digits")


@pytest.mark.parametrize(("command", "ends"), ASKED.values(), ids=ASKED)
def test_foreign_files_stay(here: Path, capsys: pytest.CaptureFixture[str], command: str, ends: str) -> None:
    for end in ends.split():
        own = Path(f"m.{end}")
        own.write_text("mine", encoding="utf-8")
        assert run([*command.split(), "--out", "m"]) == 2
        assert f"m.{end} is in the way, and without m" in capsys.readouterr().err
        assert own.read_text(encoding="utf-8") == "mine"
        assert sorted(path.name for path in here.iterdir()) == sorted(["runs", own.name])
        own.unlink()
    first = Path(f"m.{ends.split()[0]}")
    first.write_text("mine", encoding="utf-8")
    assert run([*command.split(), "--out", "m", "--force"]) == 0
    assert not first.exists() or first.read_bytes() != b"mine"
    assert run([*command.split(), "--out", "m"]) == 0, "its own files are not in the way"


def test_what_is_missing_is_said_before_what_is_in_the_way(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["curves", "runs/fma", "--out", "m"]) == 0
    capsys.readouterr()
    assert run(["line", "runs/fma@1", "x.pt", "--out", "m"]) == 2
    assert capsys.readouterr().err.startswith("fedscope: x.pt does not exist; give a model's file, or a model of a run")
    assert run(["line", "runs/fma@1", "runs/fma@2", "--out", "m"]) == 2
    assert "m.pdf is in the way" in capsys.readouterr().err


def test_an_extension_that_was_typed_is_left_off(here: Path) -> None:
    assert run(["curves", "runs/fma", "--out", "fig.pdf"]) == 0
    assert run(["updates", "runs/fma", "--out", "lr0.1"]) == 0
    assert run(["reaggregate", "runs/fma@2", "--server", "fedavgm", "--out", "re.safetensors"]) == 0
    found = {path.name for path in here.iterdir()} - {"runs"}
    assert found == {
        *("fig.curves.csv", "fig.curves.json", "fig.pdf", "fig.png"),
        *("lr0.1.nc", "lr0.1.updates.csv", "lr0.1.pdf", "lr0.1.png"),
        *("re.safetensors", "re.reaggregate.csv", "re.reaggregate.json"),
    }


def test_examples_stand_on_lines_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["updates", "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "  Example:  fedscope updates runs/ima" in lines
    assert "  Several runs in one figure:  fedscope updates runs/fma runs/ima" in lines
