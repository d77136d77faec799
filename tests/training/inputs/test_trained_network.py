"""A run that fedscope trained with the user's own network is measured with that network, or there is a word."""

from __future__ import annotations

import warnings
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any

import pytest
import torch
from own_code import forget
from torch import nn

import fedscope
from fedscope import Run
from fedscope.checkpoints import FedscopeError, FedscopeWarning
from fedscope.training.import_string import ImportString
from fedscope.training.inputs.trained_network import _WARNED
from fedscope.training.settings.code_source import source_of
from fedscope.training.user_code.kept_source import say_changed

NETS = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(64, 16), nn.Linear(16, 10)

    def forward(self, x):
        return self.b(torch.relu(self.a(x.flatten(1))))


class Tanh(Net):
    def forward(self, x):
        return self.b(torch.tanh(self.a(x.flatten(1))))
"""
CALL: dict[str, Any] = {"windows": 2, "rounds": "last", "limit": 50}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a network in a file."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as here:
        here.chdir(folder)
        (folder / "ownnets.py").write_text(NETS)
        fedscope.train(
            model="ownnets:Net", method="fma", clients=4, participation=1, rounds=2, lr=0.1, out=folder / "run"
        )
    forget("ownnets")
    return folder


@pytest.fixture
def run(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, beside the file, in a process that has not imported it."""
    copytree(trained, tmp_path, dirs_exist_ok=True)
    rmtree(tmp_path / "__pycache__", ignore_errors=True)
    monkeypatch.chdir(tmp_path)
    forget("ownnets")
    _WARNED.clear()
    return tmp_path / "run"


def edit(before: str, after: str) -> None:
    text = Path("ownnets.py").read_text()
    assert before in text
    Path("ownnets.py").write_text(text.replace(before, after))


@pytest.fixture(autouse=True)
def _forgotten() -> Any:
    yield
    forget("ownnets")


@pytest.fixture
def silent() -> Any:
    """No warning of fedscope's."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", FedscopeWarning)
        yield


@pytest.mark.usefixtures("silent")
def test_the_same_network_is_taken_without_a_word(run: Path) -> None:
    before = fedscope.wima(run, model="ownnets:Net", **CALL)
    assert "recorded_numbers" not in before.attrs
    assert fedscope.wima(run, model="ownnets:Net", **CALL).rows() == before.rows()


def test_an_edited_network_is_refused_with_both_numbers(run: Path) -> None:
    edit("torch.relu", "torch.tanh")
    with pytest.raises(FedscopeError) as refused:
        fedscope.wima(run, model="ownnets:Net", **CALL)
    # the error of tanh with the trained weights, worked out here
    weights = Run.open(run).round("last").read("global")
    state = {name: torch.from_numpy(array.copy()) for name, array in weights.arrays().items()}
    samples = fedscope.training.load_data("digits").samples("test")
    hidden = torch.tanh(samples.x.flatten(1) @ state["a.weight"].T + state["a.bias"])
    wrong = (hidden @ state["b.weight"].T + state["b.bias"]).argmax(1) != samples.y
    recorded = 100 * Run.open(run).metrics()["test_error"][-1]
    assert f"was recorded as {recorded:.4g} %" in str(refused.value)
    assert f"global has {100 * wrong.double().mean():.4g} % on all 360 test samples of digits" in str(refused.value)
    assert "ownnets.py has another source than the run was trained with" in str(refused.value)
    assert str(run / "code" / "model.py") in str(refused.value)


@pytest.mark.parametrize("ask", ["line", "measure", "subsets", "object"])
def test_another_class_of_the_same_shapes_is_refused_by_every_question(run: Path, ask: str) -> None:
    calls: dict[str, Any] = {
        "line": lambda: fedscope.line([f"{run}@1", f"{run}@2"], points=3, model="ownnets:Tanh", limit=50),
        "measure": lambda: fedscope.measure(run, force=True, model="ownnets:Tanh"),
        "subsets": lambda: fedscope.subsets(run, rounds="last", model="ownnets:Tanh", limit=50),
        "object": lambda: fedscope.sharpness(f"{run}@last", model=Tanh(), limit=50),
    }
    with pytest.raises(FedscopeError, match="is not the network that the run was trained with"):
        calls[ask]()


class Tanh(nn.Module):
    """As that of the file, from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(64, 16), nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(torch.tanh(self.a(x.flatten(1))))


def test_a_difference_that_is_accepted_stands_in_the_result(run: Path) -> None:
    result = fedscope.wima(run, model="ownnets:Tanh", accept_data=True, **CALL)
    assert "but with --model ownnets:Tanh global has" in result.attrs["data_accepted"]


def test_an_edit_that_changes_no_number_is_one_note(run: Path) -> None:
    before = fedscope.wima(run, model="ownnets:Net", **CALL)
    edit("\nclass Net", "\n# the network\nclass Net")
    forget("ownnets")
    with pytest.warns(FedscopeWarning, match="its network has the recorded numbers, so it is taken") as said:
        after = fedscope.wima(run, model="ownnets:Net", **CALL)
    assert len(said) == 1
    assert after.rows() == before.rows()


@pytest.mark.usefixtures("silent")
def test_a_source_that_the_run_went_on_with_is_its_own(run: Path) -> None:
    edit("torch.relu", "torch.tanh")
    forget("ownnets")
    source = source_of(ImportString.parse("model=", "ownnets:Net").found())
    changed = {"kind": "model", "name": "ownnets:Net", **source.said(), "source": source.text}
    say_changed(Run.open(run), [changed])
    (run / "metrics.csv").unlink()
    assert "recorded_numbers" not in fedscope.wima(run, model="ownnets:Net", **CALL).attrs


def test_where_nothing_was_recorded_another_source_is_said(run: Path) -> None:
    lines = (run / "metrics.csv").read_text().splitlines()
    (run / "metrics.csv").unlink()
    assert len(lines) > 2
    edit("torch.relu", "torch.tanh")
    with pytest.warns(
        FedscopeWarning, match="no number tells whether model=.* is the network that it was trained with"
    ):
        result = fedscope.wima(run, model="ownnets:Net", **CALL)
    assert "another source" in result.attrs["recorded_numbers"]


@pytest.mark.usefixtures("silent")
def test_where_nothing_was_recorded_the_same_code_is_taken_without_a_word(run: Path) -> None:
    (run / "metrics.csv").unlink()
    fedscope.wima(run, model="ownnets:Net", **CALL)


def test_where_nothing_was_recorded_another_class_is_said(run: Path) -> None:
    (run / "metrics.csv").unlink()
    with pytest.warns(FedscopeWarning, match="no number tells whether model='ownnets:Tanh' is the network"):
        fedscope.wima(run, model="ownnets:Tanh", **CALL)


def test_the_loss_tells_where_the_errors_agree(run: Path) -> None:
    # outputs twice as large have the same error and another loss
    edit("return self.b(torch.relu(self.a(x.flatten(1))))", "return 2 * self.b(torch.relu(self.a(x.flatten(1))))")
    with pytest.raises(FedscopeError, match=r"test_loss of round 2 was recorded as 0\.\d+, but with model="):
        fedscope.wima(run, model="ownnets:Net", **CALL)


def mild(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """A loss of one's own."""
    return nn.functional.cross_entropy(outputs, y, reduction="none", label_smoothing=0.1)


def strong(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Another one."""
    return nn.functional.cross_entropy(outputs, y, reduction="none", label_smoothing=0.5)


def test_another_task_is_no_other_network(run: Path) -> None:
    few: dict[str, Any] = {"clients": 4, "participation": 1, "rounds": 1, "epochs": 1, "partition": "iid"}
    fedscope.train(model="ownnets:Net", task=mild, out="smooth", **few)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FedscopeWarning)
        for task in (mild, strong):
            fedscope.sharpness("smooth@last", model="ownnets:Net", task=task, limit=50)
    with pytest.raises(FedscopeError, match="is not the network that the run was trained with"):
        fedscope.sharpness("smooth@last", model="ownnets:Tanh", task=mild, limit=50)
    assert run.exists()
