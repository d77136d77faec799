"""Architectures of the user's own code: found where the user stands, and refused in one sentence each."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from fedscope.checkpoints import FedscopeError, Layout
from fedscope.landscape import Evaluator
from fedscope.training import Config, build_module, load_data, model_settings
from fedscope.training.own_model import Factory

CODE = """
import torch
from torch import nn

SIZES = [64, 10]

class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(64, 10))

def tanh(width=7):
    from inside import activation
    return nn.Sequential(nn.Flatten(), nn.Linear(64, width), activation(), nn.Linear(width, 10))

def seven():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 7))

def forgotten():
    tanh()

def kind():
    return Net

def wants(depth):
    return Net()

def broken():
    raise RuntimeError("no weights\\nin this folder")

def leaves():
    raise SystemExit("bye")

def lazy():
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(10))

def called():
    module = lazy()
    module(torch.zeros(1, 1, 8, 8))
    return module
"""
SCRIPT = """
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", required=True)
parser.parse_args()
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of code as the current one; what is imported from it is forgotten afterwards."""
    (tmp_path / "mynets").mkdir()
    (tmp_path / "mynets" / "__init__.py").touch()
    (tmp_path / "mynets" / "digits.py").write_text(CODE)
    (tmp_path / "inside.py").write_text("from torch.nn import Tanh as activation\n")
    (tmp_path / "wrong.py").write_text("import torch\ndef net(:\n")
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "quits.py").write_text("import sys\nsys.exit()\n")
    (tmp_path / "needs.py").write_text("import not_installed_at_all\n")
    monkeypatch.chdir(tmp_path)
    before, path = set(sys.modules), list(sys.path)
    yield tmp_path
    assert sys.path == path, "the search path is as it was"
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]


@pytest.mark.parametrize(("name", "parameters"), [("Net", 650), ("tanh", 64 * 7 + 7 + 7 * 10 + 10)])
def test_a_class_or_a_function_is_called(here: Path, name: str, parameters: int) -> None:
    module = build_module(model_settings(f"mynets.digits:{name}"), (1, 8, 8), 10)
    assert isinstance(module, nn.Module)
    assert Layout.of(module).size == parameters
    assert module(torch.zeros(2, 1, 8, 8)).shape == (2, 10)


def test_a_lazy_module_that_has_seen_a_sample_is_one_like_others(here: Path) -> None:
    module = build_module(Factory(path="mynets.digits:called"), (), 10)
    assert Layout.of(module).size == 650


def test_it_is_drawn_from_the_seed_and_leaves_torchs_own_state(here: Path) -> None:
    state = torch.get_rng_state()
    one, same, other = (build_module(Factory(path="mynets.digits:Net"), (), 10, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), state)
    weights = [module.state_dict()["1.weight"] for module in (one, same, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_the_current_folder_comes_before_the_environment(here: Path) -> None:
    # a module that Python has too, and has not loaded yet
    (here / "this.py").write_text("from mynets.digits import Net\n")
    assert isinstance(Factory(path="this:Net").build((), 10), nn.Module)


def test_the_environments_own_modules_are_found_too(here: Path) -> None:
    with pytest.raises(FedscopeError, match=r"torch\.nn:Identity2: torch\.nn \(.*\) has no Identity2; did you mean"):
        Factory(path="torch.nn:Identity2").build((), 10)
    assert isinstance(Factory(path="torch.nn:Identity").build((), 10), nn.Identity)


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("nowhere:net", r"--model nowhere:net: there is no module nowhere in /.* or in this Python; go to the folder"),
        ("mynets.none:net", r"there is no module mynets\.none in "),
        ("mynets.digits:Nett", r"mynets\.digits \(.*digits\.py\) has no Nett; did you mean \"Net\"\?"),
        ("mynets.digits:SIZES", r"SIZES is a list and cannot be called; name a function or a class"),
        ("mynets.digits:broken", r"broken\(\) failed with RuntimeError: no weights; it is called without arguments"),
        ("mynets.digits:wants", r"wants\(\) failed with TypeError: wants\(\) missing 1 required positional argument"),
        (
            "mynets.digits:forgotten",
            r"forgotten\(\) returned nothing, not a torch\.nn\.Module; return the model itself",
        ),
        ("mynets.digits:kind", r"kind\(\) returned a type, not a torch\.nn\.Module"),
        ("wrong:net", r"wrong cannot be imported: SyntaxError: invalid syntax"),
        ("needs:net", r"needs needs not_installed_at_all, which is not installed"),
        (
            "mynets.digits:leaves",
            r"--model mynets\.digits:leaves: leaves\(\) ends the program \(SystemExit: bye\), as a sc",
        ),
        ("script:net", r"--model script:net: importing script ends the program \(SystemExit: 2\), .* if __name__ =="),
        ("quits:net", r"--model quits:net: importing quits ends the program \(SystemExit\), as"),
        (
            "mynets.digits:lazy",
            r"mynets\.digits:lazy: lazy\(\) returned a module whose 1\.weight has no shape yet; name",
        ),
        ("wrong.py:net", r"--model wrong\.py:net is not a module:factory; write the module as Python imports it"),
        ("mynets/digits:Net", r"is not a module:factory"),
        ("mynets.digits:", r"is not a module:factory"),
        (":Net", r"is not a module:factory"),
    ],
)
def test_what_makes_no_model_is_refused_in_one_sentence(here: Path, path: str, sentence: str) -> None:
    with pytest.raises(FedscopeError, match=sentence) as refusal:
        build_module(model_settings(path), (1, 8, 8), 10)
    assert "\n" not in str(refusal.value)


def test_outputs_that_are_not_the_datas_classes_are_refused(here: Path) -> None:
    module = build_module(model_settings("mynets.digits:seven"), (1, 8, 8), 10)
    with pytest.raises(
        FedscopeError, match=r"returns outputs of shape \[1, 7\] .* has 10 classes, so \[1, 10\] is need"
    ):
        Evaluator(module, load_data("digits").samples("test"))


def test_a_run_is_not_trained_on_code_that_it_cannot_keep(here: Path) -> None:
    sentence = r"model\.name = 'mynets\.digits:Net' is code of your own, .* train alexnet-gn, cnn, .* or vit-b16"
    with pytest.raises(FedscopeError, match=sentence):
        Config.read({"model": {"name": "mynets.digits:Net"}})
