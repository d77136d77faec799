"""Federations that learn other things than classes: a small character model and a small regression, from training to
planes, lines and sharpness through the command line."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from fedscope.checkpoints import FedscopeError, Run
from fedscope.cli.main import run
from fedscope.decomposition.draws.replay import Replayer
from fedscope.evaluation.device import Compute
from fedscope.evaluation.standard_tasks import Regression, Sequences
from fedscope.landscape import Line, Plane, Sharpness
from fedscope.training import Config, branch, data_of, load_data, module_of, resume, train
from fedscope.training.build import initial_model
from fedscope.training.local.local_training import batches, full_gradient
from fedscope.training.local.worker_model import TrainableModel
from fedscope.training.loop.state import RunMemory
from fedscope.training.methods.clients.sgd import SGD

TEXT = "the quick brown fox jumps over the lazy dog and the dog does not mind "
FAST = ["--clients", "4", "--participation", "0.5", "--rounds", "2", "--epochs", "1", "--partition", "iid"]
TRAINED = {
    "text": ["--data", "npz:text.npz", "--model", "gru", "--task", "sequences", "--set", "model.hidden=6"],
    "wave": ["--data", "npz:wave.npz", "--task", "regression", "--set", "model.hidden=[6]"],
}
OWN = """
import torch
from fedscope import Task

class Huber(Task):
    def __init__(self, delta=1.0):
        self.delta = delta

    def loss(self, outputs, y):
        return torch.nn.functional.huber_loss(outputs[:, 0], y, reduction="none", delta=self.delta)

def absolute():
    return lambda outputs, y: (outputs[:, 0] - y).abs()

def nothing():
    return 3
"""


def write_data(folder: Path) -> None:
    """A text cut into pieces of up to eight characters, and a wave with noise."""
    alphabet = sorted(set(TEXT))
    codes = np.array([alphabet.index(letter) for letter in TEXT * 4])
    pieces = np.lib.stride_tricks.sliding_window_view(codes, 9)[::3]
    x, y = pieces[:, :-1].copy(), pieces[:, 1:].copy()
    y[::4, 5:] = -100
    np.savez(folder / "text.npz", x_train=x[:60], y_train=y[:60], x_test=x[60:], y_test=y[60:])
    draw = np.random.default_rng(0)
    x = draw.uniform(-3, 3, (100, 2))
    y = np.sin(x[:, 0]) * x[:, 1] + 0.1 * draw.normal(size=100)
    np.savez(folder / "wave.npz", x_train=x[:70], y_train=y[:70], x_test=x[70:], y_test=y[70:])
    (folder / "owntasks.py").write_text(OWN)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tasks")
    write_data(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, words in TRAINED.items():
            assert run(["train", "--method", "fma", "--out", f"runs/{name}", *words, *FAST]) == 0
    return folder


@pytest.fixture
def here(trained: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(trained)
    yield trained
    sys.modules.pop("owntasks", None)


def config_for(name: str, **changes: Any) -> Config:
    """As the runs were trained."""
    tables = {
        "data": {"name": f"npz:{name}.npz", "clients": 4, "partition": "iid"},
        "model": {"text": {"name": "gru", "hidden": 6}, "wave": {"hidden": [6]}}[name],
        "client": {"epochs": 1},
        "run": {"rounds": 2, "participation": 0.5},
    }
    task = {"text": "sequences", "wave": "regression"}[name]
    tables["model"] = {"task": task, **tables["model"]}
    for section, table in changes.items():
        tables[section] = {**tables.get(section, {}), **table}
    return Config.read(tables)


# --- data ---


def test_tokens_and_targets_stay_as_they_are(here: Path) -> None:
    text = load_data("npz:text.npz", Sequences())
    stored = np.load("text.npz")
    assert text.x_train.dtype == text.y_train.dtype == np.int64
    assert np.array_equal(text.x_test, stored["x_test"])
    assert np.array_equal(text.y_test, stored["y_test"])
    assert (text.classes, text.means, text.shape) == (len(set(TEXT)), (), (8,))
    wave = load_data("npz:wave.npz", Regression())
    assert np.array_equal(wave.y_train, stored_wave("y_train"))
    assert wave.classes == 1
    np.testing.assert_allclose(wave.x_train.mean(0), 0, atol=1e-6)
    assert wave.samples("test").task.name == "regression"


def stored_wave(name: str) -> np.ndarray:
    values: np.ndarray = np.load("wave.npz")[name].astype(np.float32)
    return values


def test_classes_may_be_declared_and_targets_have_several_numbers(tmp_path: Path) -> None:
    x, y = np.zeros((6, 3), np.int64), np.ones((6, 3), np.int64)
    np.savez(tmp_path / "few.npz", x_train=x, y_train=y, x_test=x, y_test=y, classes=9)
    assert load_data(f"npz:{tmp_path}/few.npz", Sequences()).classes == 9
    y = np.ones((6, 2, 2))
    np.savez(tmp_path / "many.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    assert load_data(f"npz:{tmp_path}/many.npz", Regression()).classes == 4


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"x_test": -np.ones((2, 3), int)}, "x_test contains the token -1; tokens count from 0"),
        ({"y_test": np.ones((2, 4), int)}, "y_train has shape \\[2, 3\\], y_test \\[2, 4\\]"),
        ({"y_test": np.array(["a", "b"])}, "y_test has shape \\[2\\] and type <U1; targets are numbers"),
        ({"y_test": np.ones((3, 3), int)}, "x_test has 2 samples, but y_test has 3 targets"),
    ],
)
def test_arrays_that_are_no_sequences(tmp_path: Path, arrays: dict[str, Any], sentence: str) -> None:
    given = {name: np.ones((2, 3), int) for name in ("x_train", "y_train", "x_test", "y_test")}
    np.savez(tmp_path / "d.npz", **{**given, **arrays})
    with pytest.raises(FedscopeError, match=sentence):
        load_data(f"npz:{tmp_path}/d.npz", Sequences())


# --- training ---


@pytest.mark.parametrize("name", TRAINED)
def test_a_clients_steps_are_those_of_plain_sgd(here: Path, name: str) -> None:
    """One client of round 1, trained again with torch's own optimiser and its own losses."""
    recorded = Run.open(f"runs/{name}")
    round_, split = recorded.round(1), recorded.partition
    assert split is not None
    k = int(round_.client_ids[0])
    replayer = Replayer.of(recorded, compute=Compute(workers=1))
    federation = replayer.federation
    (task,) = federation.tasks(1, [k], round_.read("start"), {}, {}, RunMemory(recorded))
    module = module_of(recorded)
    torch.nn.utils.vector_to_parameters(torch.tensor(round_.read("start").parameters), module.parameters())
    sgd = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
    for x, y in batches(task, federation.config.client):
        sgd.zero_grad()
        outputs = module(x)
        if name == "text":
            there = y != -100
            loss = functional.cross_entropy(outputs[there], y[there])
        else:
            loss = ((outputs[:, 0] - y) ** 2).mean()
        loss.backward()
        sgd.step()
    found = torch.nn.utils.parameters_to_vector(module.parameters()).detach().numpy()
    np.testing.assert_allclose(round_.clients().row(0).parameters, found, atol=1e-5)


@pytest.mark.parametrize("name", TRAINED)
def test_metrics_have_an_error_where_there_is_one(here: Path, name: str) -> None:
    metrics = Run.open(f"runs/{name}").metrics()
    assert np.isfinite(metrics["test_loss"]).all()
    assert np.isfinite(metrics["train_loss"]).all()
    for column in ("test_error", "client_error_mean"):
        assert np.isfinite(metrics[column]).all() == (name == "text")
    samples = data_of(Run.open(f"runs/{name}")).samples("test")
    module = module_of(Run.open(f"runs/{name}"))
    last = Run.open(f"runs/{name}").round(2).read("global")
    torch.nn.utils.vector_to_parameters(torch.tensor(last.parameters), module.parameters())
    outputs = module(samples.x)
    there = samples.y != -100
    expected = (
        functional.cross_entropy(outputs[there], samples.y[there])
        if name == "text"
        else functional.mse_loss(outputs[:, 0], samples.y)
    )
    assert metrics["test_loss"][-1] == pytest.approx(expected.item(), rel=1e-5)


def test_what_is_trained_is_said(here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "--method", "fma", "--out", str(tmp_path / "again"), *TRAINED["wave"], *FAST]) == 0
    assert "2 rounds; test loss of the global model" in capsys.readouterr().out
    words = ["--method", "fma", "--out", str(tmp_path / "more"), "--json", *TRAINED["wave"], *FAST]
    assert run(["train", *words]) == 0
    told = json.loads(capsys.readouterr().out)
    assert list(told) == ["run", "rounds", "test_loss", "last_rounds_mean"]
    assert told["test_loss"] == Run.open("runs/wave").metrics()["test_loss"][-1]


@pytest.mark.parametrize("name", TRAINED)
def test_a_resume_is_an_uninterrupted_run_bit_for_bit(here: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(f"runs/{name}", tmp_path / "cut")
    whole = Run.open(f"runs/{name}")
    (tmp_path / "cut/rounds/00002.h5").unlink()
    for kept in (tmp_path / "cut/kept").rglob("*.h5"):
        kept.unlink()
    again = resume(tmp_path / "cut", workers=2)
    assert again.rounds == (1, 2)
    for which in ("start", "global"):
        assert np.array_equal(again.round(2).read(which).parameters, whole.round(2).read(which).parameters)
    assert np.array_equal(again.round(2).clients().parameters, whole.round(2).clients().parameters)


def test_a_configuration_says_the_task_where_it_is_not_the_usual(here: Path) -> None:
    assert 'task = "regression"' in Path("runs/wave/config.toml").read_text()
    assert "task" not in Config.read({}).tables()["model"]
    assert Run.open("runs/wave").partition.label_counts.tolist() == [[18], [18], [17], [17]]  # type: ignore[union-attr]


def test_a_full_gradient_weights_blocks_by_their_positions(here: Path) -> None:
    """Blocks of a batch with more padding count less: the mean is over positions."""
    recorded = Run.open("runs/text")
    federation = Replayer.of(recorded, compute=Compute(workers=1)).federation
    start = initial_model(module_of(recorded))
    (task,) = federation.tasks(1, [1], start, {}, {}, RunMemory(recorded))
    module = module_of(recorded).double()
    task = replace(task, start=initial_model(module), bench=TrainableModel(module))
    found = full_gradient(task, SGD(batch=4, weight_decay=0.0))
    x, y = task.x[task.indices], task.y[task.indices]
    assert len({int((part != -100).sum()) / len(part) for part in torch.split(y, 4)}) > 1
    loss = functional.cross_entropy(module(x).flatten(0, 1), y.flatten(), ignore_index=-100)
    expected = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(module.parameters()))])
    np.testing.assert_allclose(found.numpy(), expected.numpy(), atol=1e-12)


@pytest.mark.parametrize("client", ["fedsam", "mime", "scaffold", "fedala", "ditto", "fedbabu"])
def test_methods_without_classes_learn_any_task(here: Path, tmp_path: Path, client: str) -> None:
    made = train(config_for("wave", client={"method": client}, data={"client_test": 0.2}), tmp_path / client, workers=1)
    assert np.isfinite(made.metrics()["test_loss"]).all()
    assert np.isnan(made.metrics()["client_test_error_mean"]).all()


@pytest.mark.parametrize("client", ["moon", "fedntd", "fedgen", "fedfa"])
def test_methods_that_need_classes_say_so(here: Path, tmp_path: Path, client: str) -> None:
    with pytest.raises(
        FedscopeError, match=f"client.method = '{client}' is defined for classification, and the task r"
    ):
        train(config_for("wave", client={"method": client}), tmp_path / "run")
    changes = {"client": {"method": client}, "run": {"rounds": 3}}
    with pytest.raises(FedscopeError, match=f"client.method = '{client}' is defined for classification"):
        branch(Run.open("runs/text"), 2, changes, tmp_path / "branch")


@pytest.mark.parametrize("partition", ["shards:2", "dirichlet:0.5"])
def test_partitions_by_class_say_so(here: Path, tmp_path: Path, partition: str) -> None:
    with pytest.raises(FedscopeError, match=f"{partition}' divides the samples by class, and the task sequences has"):
        train(config_for("text", data={"partition": partition}), tmp_path / "run")


def test_models_and_tasks_that_do_not_fit(here: Path, tmp_path: Path) -> None:
    with pytest.raises(FedscopeError, match="'gru' needs tokens"):
        train(Config.read({"model": {"name": "gru"}, "data": {"partition": "iid"}}), tmp_path / "run")
    with pytest.raises(
        FedscopeError, match=r"'mlp' takes numbers, but a sample of npz:.* is 8 tokens, which have to be"
    ):
        train(config_for("text", model={"name": "mlp", "hidden": [4]}), tmp_path / "run")
    with pytest.raises(
        FedscopeError, match=r'model.task regressoin is not a task that fedscope knows; did you mean "regres'
    ):
        Config.read({"model": {"task": "regressoin"}})
    with pytest.raises(FedscopeError, match=r"y_train contains .* labels are whole numbers"):
        load_data("npz:wave.npz")


# --- a task of one's own ---


def test_a_task_of_ones_own_is_trained_and_resumed_by_whoever_names_it(here: Path, tmp_path: Path) -> None:
    words = ["train", "--method", "fma", "--data", "npz:wave.npz", "--set", "model.hidden=[6]", *FAST]
    out, task = str(tmp_path / "own"), ["--task", "owntasks:Huber(0.5)"]
    assert run([*words, *task, "--out", out]) == 0
    made = Run.open(out)
    assert made.config["model"]["task"] == "owntasks:Huber(0.5)"  # type: ignore[index]
    (made.path / "rounds/00002.h5").unlink()
    with pytest.raises(FedscopeError, match=r"its task owntasks:Huber\(0.5\) is your own code.*give task='owntasks"):
        resume(out)
    with pytest.raises(FedscopeError, match=r"is trained with the task owntasks.*, and regression is another"):
        resume(out, task="regression")
    assert run(["train", "--resume", out, *task]) == 0
    assert Run.open(out).rounds == (1, 2)
    with pytest.raises(FedscopeError, match="is your own code, which is never loaded from a file"):
        data_of(Run.open(out))
    assert run(["line", f"{out}@1", f"{out}@2", "--points", "3", "--out", str(tmp_path / "line")]) == 2
    assert run(["line", f"{out}@1", f"{out}@2", "--points", "3", "--out", str(tmp_path / "line"), *task]) == 0
    drawn = Line.load(tmp_path / "line.nc")
    assert drawn.attrs["task"] == "owntasks:Huber(0.5)"
    y = torch.from_numpy(stored_wave("y_test"))
    module = module_of(Run.open(out))
    w = Run.open(out).round(2).read("global").parameters
    torch.nn.utils.vector_to_parameters(torch.tensor(w), module.parameters())
    outputs = module(load_data("npz:wave.npz", Regression()).samples("test").x)[:, 0]
    expected = functional.huber_loss(outputs, y, delta=0.5).item()
    assert drawn.loss[0, list(drawn.beta).index(0.0)] == pytest.approx(expected, rel=1e-5)


def test_a_file_names_no_code_to_train_with(here: Path, tmp_path: Path) -> None:
    config = config_for("wave", model={"task": "owntasks:absolute"})
    with pytest.raises(FedscopeError, match=r"model.task = 'owntasks:absolute': its task .* never loaded from a file"):
        train(config, tmp_path / "run")
    made = train(config, tmp_path / "run", task="owntasks:absolute", workers=1)
    assert np.isfinite(made.metrics()["test_loss"]).all()

    def absolute(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (outputs[:, 0] - y).abs()

    other = train(config_for("wave"), tmp_path / "python", task=absolute, workers=1)
    assert other.config["model"]["task"] == f"{__name__}:absolute"  # type: ignore[index]
    assert other.metrics()["test_loss"].tolist() == made.metrics()["test_loss"].tolist()


@pytest.mark.parametrize(
    ("task", "sentence"),
    [
        ("owntasks:nothing", "--task owntasks:nothing: nothing() returned a int, which is not a task"),
        ("owntasks:missing", "owntasks"),
        ("nowhere:loss", "--task nowhere:loss: there is no module nowhere"),
        ("squared", "--task squared is not a task that fedscope knows"),
    ],
)
def test_tasks_that_are_none(here: Path, task: str, sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["line", "runs/wave@1", "runs/wave@2", "--points", "3", "--out", "figures/none", "--task", task]) == 2
    assert sentence in capsys.readouterr().err


# --- planes, lines and sharpness through the command line ---


@pytest.mark.parametrize("name", ["wave", pytest.param("text", marks=pytest.mark.slow)])
def test_a_plane_a_line_and_sharpness(here: Path, tmp_path: Path, name: str, capsys: Any) -> None:
    models = [f"runs/{name}@1/start", f"runs/{name}@1/global", f"runs/{name}@2/global"]
    assert run(["plane", *models, "--grid", "4", "--out", str(tmp_path / "plane")]) == 0
    surface = Plane.load(tmp_path / "plane.nc")
    stored = Run.open(f"runs/{name}").metrics()["test_loss"]
    assert [model.loss for model in surface.anchors[1:]] == pytest.approx(stored.tolist(), rel=1e-5)
    assert surface.attrs["task"] == {"text": "sequences", "wave": "regression"}[name]
    assert np.isfinite(surface.loss).all()
    assert run(["line", *models[1:], "--points", "5", "--out", str(tmp_path / "line")]) == 0
    drawn = Line.load(tmp_path / "line.nc")
    assert drawn.loss[0, list(drawn.beta).index(0.0)] == pytest.approx(stored[1], rel=1e-5)
    quick = ["--draws", "2", "--probes", "2", "--top", "1", "--split", "test"]
    assert run(["sharpness", models[-1], *quick, "--out", str(tmp_path / "sharp")]) == 0
    (measured,) = Sharpness.load(tmp_path / "sharp").models
    assert measured.measure("loss").value == pytest.approx(stored[1], rel=1e-5)  # type: ignore[union-attr]
    assert (measured.measure("error") is None) == (name == "wave")
    assert np.isfinite(measured.measure("eigenvalue_1").value)  # type: ignore[union-attr, arg-type]
    assert run(["plane", *models, "--grid", "21", "--adaptive", "--out", str(tmp_path / "few")]) == 0
    said = capsys.readouterr().out
    assert "nan" not in said
    assert ("error" in said.replace("standard error", "")) == (name == "text")


def test_a_result_of_another_task_is_another_result(here: Path, tmp_path: Path, capsys: Any) -> None:
    words = ["line", "runs/wave@1", "runs/wave@2", "--points", "3", "--out", str(tmp_path / "line")]
    assert run(words) == 0
    assert run([*words, "--task", "owntasks:absolute"]) == 2
    assert "holds another result, of --task regression (not owntasks:absolute)" in capsys.readouterr().err
    assert run([*words, "--task", "owntasks:absolute", "--force"]) == 0
    text = Path("owntasks.py").read_text()
    Path("owntasks.py").write_text(text.replace(".abs()", ".abs() * 2"))
    sys.modules.pop("owntasks")
    try:
        assert run([*words, "--task", "owntasks:absolute"]) == 2
        assert "the task's code as it was before" in capsys.readouterr().err
    finally:
        Path("owntasks.py").write_text(text)


@pytest.mark.parametrize(
    "command",
    [
        "matrix runs/wave",
        "reaggregate runs/wave@2 --server fedavgm",
        "consensus runs/wave",
        "subsets runs/wave",
        "predictors runs/wave",
        "wima runs/wave --windows 2 --rounds 2",
        "wima runs/wave@2 --checkpoints",
    ],
)
def test_a_result_of_a_run_is_another_one_once_the_tasks_code_has_changed(
    here: Path, tmp_path: Path, capsys: Any, command: str
) -> None:
    words = [*command.split(), "--task", "owntasks:absolute", "--out", str(tmp_path / "r")]
    assert run(words) == 0
    assert run(words) == 0
    assert "already holds this result" in capsys.readouterr().err
    text = Path("owntasks.py").read_text()
    Path("owntasks.py").write_text(text.replace(".abs()", ".abs() * 7"))
    sys.modules.pop("owntasks")
    try:
        assert run(words) == 2
        assert "holds another result, of the task's code as it was before" in capsys.readouterr().err
        assert run([*words, "--force"]) == 0
    finally:
        Path("owntasks.py").write_text(text)


WEIGHED = """
import fedscope

class Weighed(fedscope.Task):
    def loss(self, outputs, y):
        return (outputs[:, 0] - y).abs()

    def error(self, outputs, y):
        return (outputs[:, 0] > y).float()

    def weights(self, y):
        return 1.0 + y.square()
"""
#: another error, other weights, other weights of errors, and a loss that is another one from the fifth sample on
EDITS = [
    ("outputs[:, 0] > y)", "outputs[:, 0] > y + 1)"),
    ("1.0 + y.square()", "2.0 + y.square()"),
    ("y.square()\n", "y.square()\n\n    def error_weights(self, y):\n        return y.abs()\n"),
    ("(outputs[:, 0] - y).abs()", "(outputs[:, 0] - y).abs() * (1.0 + (y > 2.0))"),
]


@pytest.mark.parametrize("command", ["subsets runs/wave", "line runs/wave@1 runs/wave@2 --points 3"])
def test_a_result_is_another_one_once_a_tasks_error_or_weights_have_changed(
    here: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    # compiled code is told by its source's size and second, which an edit of one digit may leave as they are
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    words = [*command.split(), "--task", "weighed.py:Weighed", "--out", str(tmp_path / "r")]
    for before, after in EDITS:
        Path("weighed.py").write_text(WEIGHED)
        sys.modules.pop("weighed", None)
        assert run([*words, "--force"]) == 0
        assert run(words) == 0
        assert "already holds this result" in capsys.readouterr().err
        assert before in WEIGHED
        Path("weighed.py").write_text(WEIGHED.replace(before, after))
        sys.modules.pop("weighed", None)
        assert run(words) == 2
        main = tmp_path / ("r.subsets.json" if command.startswith("subsets") else "r.nc")
        assert capsys.readouterr().err == (
            f"fedscope: {main} holds another result, of the task's code as it was before; give another --out, or "
            "--force to replace it\n"
        )
    sys.modules.pop("weighed")


def test_a_result_that_says_a_tasks_losses_alone_is_read_as_before(here: Path, tmp_path: Path, capsys: Any) -> None:
    """That of an earlier fedscope."""
    words = ["subsets", "runs/wave", "--task", "owntasks:absolute", "--out", str(tmp_path / "r")]
    assert run(words) == 0
    main = tmp_path / "r.subsets.json"
    said = json.loads(main.read_text())
    assert said["attrs"].pop("task_means_behaviour")
    main.write_text(json.dumps(said))
    capsys.readouterr()
    assert run(words) == 0
    assert "already holds this result" in capsys.readouterr().err


def test_a_result_of_an_earlier_fedscope_is_called_so(here: Path, tmp_path: Path, capsys: Any) -> None:
    words = ["subsets", "runs/wave", "--task", "owntasks:absolute", "--out", str(tmp_path / "r")]
    assert run(words) == 0
    main = tmp_path / "r.subsets.json"
    said = json.loads(main.read_text())
    assert said["attrs"].pop("task_behaviour")
    main.write_text(json.dumps(said))
    capsys.readouterr()
    assert run(words) == 2
    expected = (
        f"{main} holds another result, of an earlier fedscope, which kept nothing that tells the task's code; give "
        "another --out, or --force to replace it"
    )
    assert expected in capsys.readouterr().err
    assert run([*words, "--force"]) == 0


def test_theory_of_a_task_whose_code_has_changed_is_another_one(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["train", "--method", "fma", "--clients", "4", "--participation", "0.5", "--rounds", "2", "--epochs", "1"]
    assert run([*words, "--set", "model.hidden=[4]", "--out", "run"]) == 0
    asked = ["theory", "run", "--shrink", "none", "--kernel", "none", "--split", "test", "--task", "own_labels:labels"]
    Path("own_labels.py").write_text(LABELS)
    assert run(asked) == 0
    sys.modules.pop("own_labels")
    Path("own_labels.py").write_text(LABELS.replace("7.0", "0.03"))
    assert run(asked) == 2
    assert "holds another result, of the task's code as it was before" in capsys.readouterr().err
    sys.modules.pop("own_labels")


LABELS = """
import torch
from fedscope import Task

class Labels(Task):
    has_classes = True

    def loss(self, outputs, y):
        return 7.0 * torch.nn.functional.cross_entropy(outputs, y, reduction="none")

def labels():
    return Labels()
"""


def test_a_result_of_a_task_is_none_of_a_classification(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    """Asked for by silence: files without a run, whose data are whole numbers."""
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    np.savez("d.npz", x_test=draw.normal(size=(9, 4)).astype(np.float32), y_test=draw.integers(0, 2, 9))
    (tmp_path / "linear_net.py").write_text("from torch import nn\ndef net():\n    return nn.Linear(4, 2)\n")
    (tmp_path / "own_margin.py").write_text(
        "def margin():\n    return lambda outputs, y: (1 - (2 * y - 1) * outputs[:, 0]).clamp(min=0)\n"
    )
    for seed, name in enumerate("ab"):
        torch.manual_seed(seed)
        torch.save(torch.nn.Linear(4, 2).state_dict(), f"{name}.pt")
    words = ["line", "a.pt", "b.pt", "--data", "npz:d.npz", "--model", "linear_net:net", "--points", "3", "--out", "r"]
    assert run([*words, "--task", "own_margin:margin"]) == 0
    assert run(words) == 2
    assert "holds another result, of --task own_margin:margin (not none)" in capsys.readouterr().err
    assert run([*words, "--force"]) == 0
    assert run([*words, "--task", "own_margin:margin"]) == 2
    assert "holds another result, of --task none (not own_margin:margin)" in capsys.readouterr().err
    for name in ("linear_net", "own_margin"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("name", ["text", pytest.param("wave", marks=pytest.mark.slow)])
def test_other_questions_about_a_run(here: Path, tmp_path: Path, name: str, capsys: Any) -> None:
    """Positions or numbers decompose, layers are compared, and averages of clients say the loss without an error."""
    assert run(["decompose", f"runs/{name}", "--draws", "local:2", "--rounds", "2", "--out", str(tmp_path / "d")]) == 0
    assert run(["cka", f"runs/{name}", "--rounds", "2", "--limit", "12", "--out", str(tmp_path / "c")]) == 0
    capsys.readouterr()
    assert run(["subsets", f"runs/{name}", "--rounds", "2", "--out", str(tmp_path / "s")]) == 0
    said = capsys.readouterr().out
    assert ("test loss of a single client" in said) == (name == "wave")
    assert ("test error of a single client" in said) == (name == "text")
    assert "nan" not in said
    assert run(["line", f"runs/{name}@2", "--clients", "--points", "3", "--out", str(tmp_path / "l")]) == 0
    assert run(["curves", f"runs/{name}", "--out", str(tmp_path / "v")]) == 0
    assert run(["reaggregate", f"runs/{name}@2", "--server", "fedavgm", "--out", str(tmp_path / "r")]) == 0
    said = capsys.readouterr().out
    assert "nan" not in said
    assert ("test loss of the deployed model, mean" in said) == (name == "wave")
    for question in ("forgetting", "theory", "explain"):
        assert run([question, f"runs/{name}", "--rounds", "2", "--out", str(tmp_path / question)]) == 2
        assert "needs a class a sample, and npz:" in capsys.readouterr().err
