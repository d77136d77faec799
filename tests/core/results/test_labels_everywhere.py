"""A label is all that is left of a run's name in what any result says, draws and writes on its pages."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asked
import pytest
from asked import FROM_PYTHON
from matplotlib.text import Text

import fedscope
from fedscope.decomposition.explanation.explain import explain
from fedscope.results.labels import run_of

pytestmark = pytest.mark.same_elsewhere

#: names and labels that are no word of any sentence, of one length, and in one order
NAMES, LABELS = ("zorn", "brak"), ("Qwix", "Jemm")
TWO = [f"runs/{name}" for name in NAMES]
#: takes seconds: the others go the same ways
SLOW = {"decompose", "decompose-layers", "explain", "theory", "planes", "plane-both", "parameters-tsne", "cka-models"}
#: the same questions of two runs, where they may be asked of two; the second run averages over rounds
OF_TWO: dict[str, Callable[[], Any]] = {
    "curves": lambda: fedscope.curves(TWO),
    "decompose": lambda: fedscope.decompose(TWO, rounds=2, draws="none", split="test"),
    "explain": lambda: fedscope.explain(TWO, rounds=2, draws="none", split="test"),
    "embed": lambda: fedscope.embed(TWO, method="pca"),
    "subsets": lambda: fedscope.subsets(TWO, rounds=2),
    "wima": lambda: fedscope.wima(TWO, windows=[2]),
    "consensus": lambda: fedscope.consensus(TWO, rounds=2, split="test"),
    "updates": lambda: fedscope.updates(TWO),
    "disperse": lambda: fedscope.disperse(TWO, rounds=2),
    "parameters": lambda: fedscope.parameters(TWO, rounds=2),
    "cka": lambda: fedscope.cka(TWO, rounds=2),
}


@pytest.fixture(scope="module")
def both(two_rounds: Path, recorded: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("both")
    words = "--method ima --clients 8 --participation 1 --rounds 2 --set average.start=1 --set model.hidden=[6]"
    shutil.copytree(two_rounds / "runs" / "fma", folder / "runs" / NAMES[0])
    shutil.copytree(two_rounds / "runs" / "lora", folder / "runs" / "lorn")
    recorded(folder / "runs" / NAMES[1], *words.split(), "--set", "run.evaluate_clients=0")
    return folder


def told(result: Any) -> str:
    """All that is to be read of a result: of pages without their pictures and the sums of their scripts."""
    words = [result.summary(), json.dumps(result.numbers())]
    for figure in result.figures().values():
        words += [text.get_text() for text in figure.findobj(Text)]
    pages = [re.sub(r"(?<=sha256-)[\w+/=]+|(?<=base64,)[\w+/=]+", "", page) for page in result.pages().values()]
    return "\n".join([*words, *pages])


def ask(name: str, questions: dict[str, Callable[[], Any]], both: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(both)
    monkeypatch.setattr(asked, "RUN", TWO[0])
    monkeypatch.setattr(asked, "LORA", "runs/lorn")
    return questions[name]()


def check(plain: Any, names: tuple[str, ...]) -> None:
    labels = dict(zip(names, LABELS, strict=False))
    known = {*plain.list_names(), *map(run_of, plain.list_names())}
    named = plain.renamed({name: label for name, label in labels.items() if name in known})
    said, again = told(plain), told(named)
    assert not [label for label in LABELS if label in said]
    for name, label in labels.items():
        found = re.search(rf".{{0,80}}\b{name}\b.{{0,40}}", again)
        assert found is None, found
        # a sentence that names no run else says the label
        said, again = (re.sub(rf"\s+of\s+{name}\b", "", words) for words in (said, again.replace(label, name)))
    assert again == said, "nothing else is said of a run that has a label"


@pytest.mark.parametrize(
    "name", [pytest.param(k, marks=pytest.mark.slow) if k in SLOW else k for k in FROM_PYTHON if k != "reaggregate"]
)
def test_no_name_is_left_behind(name: str, both: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers are what ``reaggregate`` names, which its own tests rename."""
    check(ask(name, FROM_PYTHON, both, monkeypatch), ("lorn",) if name == "adapters" else NAMES[:1])


@pytest.mark.parametrize("name", OF_TWO)
def test_no_name_of_two_runs_is_left_behind(name: str, both: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(ask(name, OF_TWO, both, monkeypatch), NAMES)


def test_what_is_averaged_of_a_run_is_called_by_its_label(both: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(both)
    of_both = fedscope.decompose(TWO[1], of="both", rounds=2, draws="none", split="test")
    plain = explain(of_both)
    assert plain.runs == ("brak", "brak (averaged)")
    assert plain.list_names() == ("brak",)
    check(plain, NAMES[1:])
    assert {one.run for one in plain.renamed({"brak": "IMA"}).statements} == {
        "IMA",
        "IMA (averaged)",
        "IMA, IMA (averaged)",
    }
