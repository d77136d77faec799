"""fedscope align: models in one order, their means, and the step of other questions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedscope
from fedscope.checkpoints import FedscopeError
from fedscope.cli.main import run
from fedscope.landscape.alignment.result import AverageRow, MovedRow


def wide(width: int = 128) -> nn.Module:
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))


@pytest.fixture(scope="module")
def digits() -> tuple[torch.Tensor, torch.Tensor]:
    from sklearn.datasets import load_digits

    found = load_digits()
    x = torch.tensor(found.data, dtype=torch.float32)
    return (x - x.mean()) / x.std(), torch.tensor(found.target)


def fitted(digits: tuple[torch.Tensor, torch.Tensor], width: int, count: int) -> list[nn.Module]:
    x, y = digits
    nets = []
    for seed in range(count):
        torch.manual_seed(seed)
        net = wide(width)
        optimiser = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
        for _ in range(10):
            for batch in torch.randperm(len(x)).split(50):
                optimiser.zero_grad()
                nn.functional.cross_entropy(net(x[batch]), y[batch]).backward()
                optimiser.step()
        nets.append(net.eval())
    return nets


@pytest.fixture(scope="module")
def nets(digits: tuple[torch.Tensor, torch.Tensor]) -> list[nn.Module]:
    return fitted(digits, 128, 3)


def error(net: nn.Module, digits: tuple[torch.Tensor, torch.Tensor]) -> float:
    return float((net(digits[0]).argmax(1) != digits[1]).float().mean())


@pytest.mark.parametrize("how", [{}, {"by": "activations"}, {"to": "mean"}])
def test_networks_trained_apart_have_a_mean_once_their_units_are_in_one_order(
    nets: list[nn.Module], digits: tuple[torch.Tensor, torch.Tensor], how: dict[str, Any]
) -> None:
    found = fedscope.align(nets, data=digits, **how)
    singles, (plain, aligned, repaired) = found.averages[:3], found.averages[3:]
    single = np.mean([row.loss for row in singles])
    assert plain.loss > aligned.loss + 0.1
    assert repaired.loss < aligned.loss
    assert repaired.error < 0.05
    assert plain.barrier == pytest.approx(plain.loss - single)
    assert plain.stderr is not None
    assert 0 < plain.stderr < plain.barrier
    assert all(row.barrier is None for row in singles)
    shares = found.shares()
    assert set(shares) == {"0.weight", "2.weight"}
    assert min(shares.values()) > 0.8, "of units from another start nearly none is where it was"


def test_an_aligned_network_computes_what_it_did(
    nets: list[nn.Module], digits: tuple[torch.Tensor, torch.Tensor]
) -> None:
    found = fedscope.align(nets, data=digits)
    *aligned, repaired = found.models.values()
    for net, weights in zip(nets, aligned, strict=True):
        other = wide()
        other.load_state_dict({name: torch.from_numpy(values.copy()) for name, values in weights.arrays().items()})
        torch.testing.assert_close(other(digits[0]), net(digits[0]), rtol=1e-4, atol=1e-4)
    mean = wide()
    mean.load_state_dict({name: torch.from_numpy(values.copy()) for name, values in repaired.arrays().items()})
    assert error(mean, digits) == pytest.approx(found.averages[-1].error, abs=1e-6)


def test_labels_are_those_of_the_models_in_the_order_in_which_they_were_given(
    nets: list[nn.Module], digits: tuple[torch.Tensor, torch.Tensor], tmp_path: Path
) -> None:
    """No unit of the first model moves, so the table of moved units begins with the second."""
    plain = fedscope.align(nets[:2], data=digits, limit=100)
    before, after = plain.list_names()
    assert (plain.averages[0].model, plain.moved[0].model) == (before, after)
    for named in (
        fedscope.align({"one": nets[0], "two": nets[1]}, data=digits, limit=100),
        fedscope.align(nets[:2], data=digits, limit=100, labels=["one", "two"]),
        plain.renamed({before: "one", after: "two"}),
    ):
        assert named.list_names() == ("one", "two")
        assert [(row.model, row.loss) for row in named.averages[:2]] == [
            ("one", plain.averages[0].loss),
            ("two", plain.averages[1].loss),
        ]
        assert {row.model for row in named.moved} == {"two"}
        assert "units of two move" in named.summary()
        assert named.summary().splitlines()[0].endswith("matched by weights to one")
        assert list(named.models) == ["one", "two", "repaired"]
        for name, was in (("one", before), ("two", after), ("repaired", "repaired")):
            np.testing.assert_array_equal(named.models[name].parameters, plain.models[was].parameters)
    named.save(tmp_path / "named")
    loaded = fedscope.load(tmp_path / "named")
    assert (loaded.summary(), list(loaded.models)) == (named.summary(), list(named.models))


def test_narrow_networks_that_stay_bad_are_said_to(digits: tuple[torch.Tensor, torch.Tensor]) -> None:
    said = fedscope.align(fitted(digits, 6, 3), data=digits).summary()
    assert "the repaired mean is still much worse than the models: their layers are narrow, or they differ" in said


def averages(single: float, means: Sequence[float], stderr: float | None) -> fedscope.Alignment:
    rows = [AverageRow(name, single, 0.1, None, None) for name in ("a", "b")]
    labels = ("mean", "mean of aligned", "mean repaired")
    rows += [AverageRow(name, loss, 0.1, loss - single, stderr) for name, loss in zip(labels, means, strict=True)]
    return fedscope.Alignment((MovedRow("b", "u", 4, 1),), tuple(rows), {"by": "weights", "reference": "a"})


@pytest.mark.parametrize(
    ("single", "means", "stderr", "bad"),
    [
        (1.0, [2.0, 1.8, 1.6], 0.01, True),
        (1.0, [2.0, 1.8, 1.4], 0.01, False),
        (1.0, [2.0, 1.8, 1.6], 0.4, False),
        # below 0 half as much again is less
        (-2.0, [-1.9, -1.99, -2.0], 0.01, False),
        (-2.0, [-0.2, -0.3, -0.5], 0.01, True),
        (0.0, [0.1, 0.02, 0.01], 0.01, False),
        (1.0, [2.0, np.nan, np.nan], 0.01, True),
    ],
)
def test_a_mean_is_much_worse_by_half_of_the_models_loss(
    single: float, means: list[float], stderr: float, bad: bool
) -> None:
    assert ("still much worse" in averages(single, means, stderr).summary()) == bad


def test_the_sentence_says_what_its_errors_are() -> None:
    said = averages(1.0, [2.0, 1.8, 1.6], 0.1).summary()
    assert "barrier +0.6 ± 0.2\n" in said
    assert "on the same samples (± 1.96 standard errors)" in said
    assert "±" not in averages(1.0, [2.0, 1.8, 1.6], None).summary()


def test_the_command_writes_models_that_import_takes(
    nets: list[nn.Module],
    digits: tuple[torch.Tensor, torch.Tensor],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("wide_net.py").write_text(
        "from torch import nn\n\ndef net():\n    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), "
        "nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))\n"
    )
    x, y = (values.numpy() for values in digits)
    np.savez("d.npz", x_train=x, y_train=y, x_test=x[:300], y_test=y[:300])
    for k, net in enumerate(nets):
        torch.save(net.state_dict(), f"{k}.pt")
    about = ["--model", "wide_net.py:net", "--data", "npz:d.npz"]
    assert run(["align", "0.pt", "1.pt", "2.pt", *about, "--out", "m"]) == 0, capsys.readouterr().err
    said = capsys.readouterr().out
    assert "matched by weights to 0" in said
    assert "mean repaired: loss" in said
    assert run(["import", *(f"m.{k}.safetensors" for k in range(3)), *about, "--out", "run"]) == 0
    assert run(["align", "0.pt", "1.pt", *about, "--out", "m"]) == 2
    assert "holds another result" in capsys.readouterr().err
    for words in (
        ["line", "0.pt", "1.pt", "--points", "3", *about],
        ["plane", "0.pt", "1.pt", "2.pt", "--grid", "3", *about],
    ):
        found = {}
        for align in ("none", "weights"):
            assert run([*words, "--align", align, "--out", f"{words[0]}-{align}"]) == 0, capsys.readouterr().err
            found[align] = fedscope.load(f"{words[0]}-{align}")
        worst = {align: float(result.loss.max()) for align, result in found.items()}
        assert worst["weights"] != worst["none"]
        assert found["weights"].attrs["align"] == "weights"
        assert "align" not in found["none"].attrs
        if words[0] == "line":
            assert found["weights"].barrier[0] < 0.3 * found["none"].barrier[0]
    errors = {}
    for align in ("none", "activations"):
        assert run(["import", *(f"{k}.pt" for k in range(3)), *about, "--out", f"soup-{align}"]) == 0
        asked = fedscope.subsets(f"soup-{align}", align=align, model=__import__("wide_net").net, data="npz:d.npz")
        errors[align] = asked.rounds[0].sizes[-1].loss_mean
    assert errors["activations"] < 0.5 * errors["none"]


def test_models_that_cannot_be_aligned_are_refused(digits: tuple[torch.Tensor, torch.Tensor]) -> None:
    with pytest.raises(FedscopeError, match="alone cannot be aligned; give two models or more, or RUN@ROUND"):
        fedscope.align([wide()], data=digits)
    with pytest.raises(FedscopeError, match=r"^one\.pt is given twice, and its units are in its own order; give each"):
        fedscope.align(["one.pt", "other.pt", "one.pt"], data=digits)
    net = wide()
    assert "0 % of 256 units of Sequential 2 move; matched" in fedscope.align([net, net], data=digits).summary()
    with pytest.raises(FedscopeError, match="does not fit the architecture of"):
        fedscope.align([wide(32), wide(16)], data=digits)
    with pytest.raises(FedscopeError, match=r"by='words' is none of weights, activations"):
        fedscope.align([wide(), wide()], data=digits, by="words")
    broken = wide()
    nn.init.constant_(broken[2].bias, float("nan"))  # type: ignore[index]
    with pytest.raises(FedscopeError, match="holds a NaN or an infinity, so its units cannot be matched; leave it out"):
        fedscope.align([wide(), broken], data=digits)


@pytest.mark.slow
def test_five_wide_networks_of_digits_have_a_mean_as_good_as_each_of_them(
    digits: tuple[torch.Tensor, torch.Tensor],
) -> None:
    """The bar of the how-to: at most 5 % error, on samples that no network was trained on."""
    x, y = digits
    held = torch.arange(len(x)) % 4 == 1
    found = fedscope.align(fitted((x[~held], y[~held]), 512, 5), data=(x[held], y[held]))
    plain, aligned, repaired = found.averages[-3:]
    assert plain.error > 0.08
    assert aligned.error < 0.05
    assert repaired.error <= aligned.error


def test_a_model_that_is_called_repaired_is_not_the_repaired_mean(
    digits: tuple[torch.Tensor, torch.Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = [wide(8), wide(8)]
    for name, net in zip(("repaired", "other"), given, strict=True):
        torch.save(net.state_dict(), f"{name}.pt")
    found = fedscope.align(["repaired.pt", "other.pt"], model=lambda: wide(8), data=digits)
    assert list(found.models) == ["repaired", "other", "mean repaired"]
    found.save("a")
    loaded: Any = fedscope.load("a")
    assert list(loaded.models) == list(found.models)
    for one, weights in found.models.items():
        again = loaded.models[one].arrays()
        assert all(np.array_equal(again[name], values) for name, values in weights.arrays().items())
    own = given[0].state_dict()
    assert all(np.array_equal(found.models["repaired"].arrays()[name], own[name].numpy()) for name in own)
    renamed = loaded.renamed({"repaired": "A", "other": "B"})
    assert list(renamed.models)[:2] == ["A", "B"]


def test_one_sample_has_no_statistics_to_repair_a_mean_by(digits: tuple[torch.Tensor, torch.Tensor]) -> None:
    nets = [nn.Sequential(nn.Linear(64, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 10)) for _ in range(2)]
    with pytest.raises(FedscopeError, match=r"BatchNorm statistics need at least 2 samples, but got 1; give more data"):
        fedscope.align(nets, data=digits, limit=1)
    assert fedscope.align(nets, data=digits, limit=2).averages
