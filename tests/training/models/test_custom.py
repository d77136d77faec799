"""Architectures of the user's own code: found where the user stands, and refused in one sentence each."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import fedscope
from fedscope.checkpoints import FedscopeError, Layout
from fedscope.evaluation.evaluator import Evaluator
from fedscope.training import Config, build_module, load_data, model_settings
from fedscope.training.models.custom import Factory

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
# as torchvision beside a torch of another build, whichever is installed here: importing it fails once, or for ever
VISION = """
import builtins
from torch import nn

def imported():
    builtins.tried = getattr(builtins, "tried", 0) + 1
    if builtins.tried <= {fails}:
        raise RuntimeError("operator torchvision::nms does not exist")

{at_import}

class Net(nn.Sequential):
    def __init__(self):
        {at_call}
        super().__init__(nn.Flatten(), nn.Linear(64, 10))
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
        ("mynets.digits:broken", r"broken\(\) failed with RuntimeError: no weights \(line \d+ of digits\.py\)$"),
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


def test_a_configuration_that_names_code_does_not_bring_it(here: Path) -> None:
    sentence = r"model\.name = 'mynets\.digits:Net' is code of your own, .* give --code model=mynets\.digits:Net"
    with pytest.raises(FedscopeError, match=sentence):
        Config.read({"model": {"name": "mynets.digits:Net"}})


@pytest.fixture
def vision(here: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Writes a module that imports such a torchvision; the one of this environment stays loaded as it is."""
    import builtins

    loaded = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "torchvision"}

    def write(fails: int, at_import: str = "", at_call: str = "pass") -> None:
        (here / "seeing.py").write_text(VISION.format(fails=fails, at_import=at_import, at_call=at_call))

    yield write
    monkeypatch.delattr(builtins, "tried", raising=False)
    sys.modules.update(loaded)


@pytest.mark.parametrize("where", [{"at_import": "imported()"}, {"at_call": "imported()"}])
def test_code_that_imports_torchvision_beside_another_torch_is_run(
    where: dict[str, str], vision: Callable[..., None]
) -> None:
    vision(1, **where)
    assert Layout.of(build_module(model_settings("seeing:Net"), (1, 8, 8), 10)).size == 650
    assert hasattr(torch.ops.torchvision, "nms"), "declared, so that importing it goes on"


@pytest.mark.parametrize(
    ("where", "sentence"),
    [
        ({"at_import": "imported()"}, r"seeing cannot be imported: RuntimeError: operator torchvision::nms does not e"),
        ({"at_call": "imported()"}, r"Net\(\) failed with RuntimeError: operator torchvision::nms does not exist"),
    ],
)
def test_a_torchvision_that_does_not_fit_is_named_with_what_to_install(
    where: dict[str, str], sentence: str, vision: Callable[..., None]
) -> None:
    vision(9, **where)
    with pytest.raises(
        FedscopeError, match=sentence + r".*; install the torchvision that belongs to torch \d"
    ) as refusal:
        build_module(model_settings("seeing:Net"), (1, 8, 8), 10)
    assert "\n" not in str(refusal.value)
    assert torch.__version__ in str(refusal.value)


def test_a_network_of_torchvision_is_named_like_ones_own(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from fedscope.cli.main import run

    name = "torchvision.models:squeezenet1_1(num_classes=10)"
    for seed in range(2):
        torch.save(build_module(model_settings(name), (), 10, seed=seed).state_dict(), here / f"{seed}.pt")
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(4, 3, 32, 32, generator=draw), torch.arange(4)
    np.savez(here / "small.npz", x_test=x.numpy(), y_test=y.numpy())
    words = [
        "--model",
        name,
        "--data",
        "npz:small.npz",
        "--points",
        "3",
        "--range",
        "0",
        "1",
        "--out",
        "figure",
        "--json",
    ]
    assert run(["line", "0.pt", "1.pt", *words]) == 0
    expected = [
        functional.cross_entropy(build_module(model_settings(name), (), 10, seed=seed).eval()(x), y).item()
        for seed in range(2)
    ]
    loss = np.ravel(fedscope.Line.load("figure").loss)
    # float32 in another layout of the channels
    np.testing.assert_allclose(loss[[-1, 0]], expected, rtol=1e-5)


class Buffered(nn.Module):
    """A network in float32 with a buffer in another type, which it saves or not."""

    def __init__(self, dtype: torch.dtype, persistent: bool = True) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 2)
        self.register_buffer("pe", torch.linspace(0, 1, 4).to(dtype), persistent)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.fc(x + self.get_buffer("pe").float())
        return made


def test_a_buffer_in_bfloat16_is_taken_in_float32(recwarn: pytest.WarningsRecorder) -> None:
    data = (torch.randn(8, 4), torch.arange(8) % 2)
    for dtype, persistent in ((torch.float16, True), (torch.float32, True), (torch.bfloat16, False)):
        fedscope.line([Buffered(dtype, persistent), Buffered(dtype, persistent)], data=data, points=3)
    assert not [one for one in recwarn if "is taken in float32" in str(one.message)]
    models = [Buffered(torch.bfloat16), Buffered(torch.bfloat16)]
    with pytest.warns(
        fedscope.checkpoints.FedscopeWarning, match=r"Buffered is in part in bfloat16, which is taken in f"
    ):
        line = fedscope.line(models, data=data, points=3)
    losses = [functional.cross_entropy(model(data[0]), data[1]).item() for model in models]
    assert [np.isclose(line.loss, loss, rtol=1e-5).any() for loss in losses] == [True, True]  # float32 against float64
    assert models[0].get_buffer("pe").dtype == torch.bfloat16
