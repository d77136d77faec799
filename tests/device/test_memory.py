"""A device without memory: a command gives its answer with less at a time, or ends with one sentence."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from traceback import extract_tb

import numpy as np
import pytest
import torch
from device.asked import OTHERS
from device.pretend import limit, loaded
from gpu.questions import QUESTIONS

from fedscope.cli.main import run
from fedscope.evaluation.evaluator import Evaluator

pytestmark = [pytest.mark.device, pytest.mark.usefixtures("limited")]

#: of each the words, without device and place
MAIN = {
    "train": OTHERS["train"],
    "train-cohort": f"{OTHERS['train']} --set run.engine=cohort",
    "train-cnn": f"{OTHERS['train'].partition(' --set')[0]} --model cnn",
    **{name: QUESTIONS[name][0] for name in ("plane", "line", "decompose-rounds", "sharpness", "theory", "cka")},
    **{name: QUESTIONS[name][0] for name in ("forgetting", "explain", "subsets", "reaggregate", "embedding")},
    "disperse": "disperse r --rounds 2,4",
}
LIMITS = 10


@pytest.mark.parametrize("name", MAIN)
def test_a_command_ends_with_an_answer_or_with_a_sentence(
    name: str,
    folder: Path,
    pretend: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    outcome: Callable[[Sequence[str]], str],
) -> None:
    monkeypatch.chdir(folder)
    words = [*MAIN[name].split(), "--device", pretend, "--out"]
    gc.collect()
    before = loaded().held()
    loaded().reset_greatest()
    assert outcome([*words, str(tmp_path / "free")]) == ""
    enough = loaded().greatest() - before
    assert enough > 1000
    strange, ends = [], set()
    for number, size in enumerate(np.geomspace(500, 1.01 * enough, LIMITS)):
        gc.collect()  # what the last attempt has left behind in cycles is not this one's
        limit(loaded().held() + int(size))
        try:
            said = outcome([*words, str(tmp_path / str(number))])
        except Exception as error:
            frames = [frame for frame in extract_tb(error.__traceback__) if "fedscope" in frame.filename]
            place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}"
            strange.append(f"{int(size)} bytes: {type(error).__name__} in {place}")
            continue
        finally:
            limit(None)
        ends.add(bool(said))
        if said and not re.search(rf"\b{pretend}\b.* memory|memory.*\b{pretend}\b", said):
            strange.append(f"{int(size)} bytes: {said}")
    assert not strange, "\n".join(strange)
    assert ends == {True, False}, "some of the limits are too little, and the last one is enough"
    gc.collect()
    assert loaded().held() <= before + enough / 10, "nothing of it is held"


@pytest.mark.parametrize("words", [["--device", "pretend:1"], ["--device=pretend:1"], []])
def test_memory_that_runs_out_where_nobody_expects_it_is_a_sentence_of_the_command_line(
    words: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In code of the user's own, for example."""

    def full(*args: object, **kwargs: object) -> None:
        torch.empty(10**6, device=words[-1].removeprefix("--device=") if words else "pretend")

    monkeypatch.chdir(folder)
    monkeypatch.setattr(Evaluator, "__init__", full)
    limit(loaded().held() + 10**5)
    assert run(["line", "r@4/global", "r@2/global", "--limit", "50", *words, "--out", "x", "--force"]) == 2
    named = "pretend:1" if words else "pretend"
    assert capsys.readouterr().err == (
        f"fedscope: {named} has no memory left for this; free some of it, give a smaller model or fewer samples, or "
        "--device cpu\n"
    )
