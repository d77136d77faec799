"""``fedscope.train`` with objects: what they mean, what a run keeps of them, and how it goes on."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from own_code import own_module
from torch import nn

import fedscope
import fedscope.training.config.from_python
import fedscope.training.sweeps.plan
from fedscope import Run
from fedscope.checkpoints import FedscopeError, FedscopeWarning
from fedscope.training.data.arrays import say_own_scale

SMALL: dict[str, Any] = {"clients": 4, "rounds": 2, "epochs": 1, "participation": 0.5}


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module of one's own, imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with own_module(tmp_path):
        import mine  # type: ignore[import-not-found]

        yield mine


def last(run: Run) -> np.ndarray:
    return run.round("last").read("global").parameters


def test_an_object_a_class_and_a_name_with_settings_are_the_same_run(mine: Any) -> None:
    one = fedscope.train(server=mine.Heavy(beta=0.25), out="object", **SMALL)
    ways: list[dict[str, Any]] = [
        {"config": {"server": mine.Heavy(beta=0.25)}},
        {"config": {"server": {"method": mine.Heavy, "beta": 0.25}}},
        {"config": {"server.method": mine.Heavy, "server.beta": 0.25}},
        {"server": "mine:Heavy(beta=0.25)"},
    ]
    for k, way in enumerate(ways):
        other = fedscope.train(**way, out=f"way-{k}", **SMALL)
        assert other.config == one.config, way
        assert np.array_equal(last(other), last(one)), way
    assert not np.array_equal(last(fedscope.train(server=mine.Heavy, out="plain", **SMALL)), last(one))


def test_a_server_without_momentum_is_fma(mine: Any) -> None:
    own, fma = (fedscope.train(server=one, out=str(k), **SMALL) for k, one in enumerate((mine.Heavy(beta=0.0), "fma")))
    norm = np.linalg.norm(last(fma))
    # the mean update is rounded once to float32 in each round, as FMA's mean is
    assert np.linalg.norm(last(own) - last(fma)) <= 1e-6 * norm


def test_a_network_arrays_and_a_method_in_a_notebook_cell(mine: Any) -> None:
    class Net(nn.Sequential):
        def __init__(self) -> None:
            super().__init__(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))

    x, y = mine.load()
    made = fedscope.train(model=Net, data=(x, y), server="fedadam", rounds=5, clients=4, out="run")
    assert made.rounds == (1, 2, 3, 4, 5)
    assert (made.info["data"]["train"], made.info["data"]["test"]) == (72, 18)
    assert made.layout.size == 4 * 5 + 5 + 5 * 3 + 3
    with pytest.raises(FedscopeError, match=r"trained with model .*Net and data python:arrays, .* model= and data="):
        fedscope.plane("run", grid=3)
    plane = fedscope.plane("run", trajectory=True, grid=3, model=Net, data=(x, y), split="test")
    assert plane.attrs["samples"] == 18, "of the same arrays the same are for tests"


def test_a_module_is_where_training_begins(mine: Any) -> None:
    torch.manual_seed(1)
    net = nn.Linear(4, 3)
    run = fedscope.train(model=net, data=mine.load, out="run", **SMALL)
    start = run.round(1).read("start").parameters
    assert np.array_equal(start, np.concatenate([value.detach().numpy().ravel() for value in net.parameters()]))


def test_arguments_of_a_function_are_in_its_name(mine: Any) -> None:
    run = fedscope.train(model=partial(mine.net, width=3), data=partial(mine.load, 60), out="run", **SMALL)
    config = run.config or {}
    assert (config["model"]["name"], config["data"]["name"]) == ("mine:net(width=3)", "mine:load(60)")
    with pytest.raises(FedscopeError, match=r"with a object among its arguments, which a run cannot keep"):
        fedscope.train(model=partial(mine.net, width=object()), data=mine.load, out="no", **SMALL)


def test_arrays_are_needed_again_and_are_compared(mine: Any) -> None:
    x, y = mine.load()
    fedscope.train(model=mine.net, data=(x, y), out="run", until=1, **SMALL)
    code: dict[str, Any] = {"model": mine.net}
    with pytest.raises(FedscopeError, match=r"its data python:arrays come from your own code"):
        fedscope.resume("run", code=code)
    with pytest.raises(FedscopeError, match=r"run: python:arrays gives other data than the run saw"):
        fedscope.resume("run", code={**code, "data": (x + 1, y)})
    assert fedscope.resume("run", code={**code, "data": (x, y)}).rounds == (1, 2)


def test_a_list_of_classes_is_given_for_several(mine: Any) -> None:
    fedscope.train(server=mine.Heavy, out="run", until=1, **SMALL)
    with pytest.raises(FedscopeError, match=r"code=\{'server': 'mine:Heavy'\}"):
        fedscope.resume("run")
    with pytest.raises(FedscopeError, match=r"needs no code for it, its client\.method is sgd"):
        fedscope.resume("run", code={"server": mine.Heavy, "client": mine.Pull})
    assert fedscope.resume("run", code={"server": [mine.Heavy]}).rounds == (1, 2)


def test_sweeps_take_classes_of_modules(mine: Any) -> None:
    axes = {"server.method": ["fma", mine.Heavy]}
    plan = fedscope.training.sweeps.plan.plan_sweep(  # type: ignore[attr-defined]
        fedscope.training.Setup(), [[{key: value} for value in values] for key, values in axes.items()]
    )
    assert [run.name for run in plan.runs] == ["fma", "heavy"]
    assert plan.runs[1].arguments[-1] == "server.method=mine:Heavy"

    slow = {"rounds": 1, "epochs": 1, "clients": 4, "model": mine.net, "data": "mine:load"}
    with pytest.raises(FedscopeError, match=r"rnds= is no setting; did you mean \"rounds\"\?"):
        fedscope.sweep(axes, out="s", rnds=1)
    laid = fedscope.training.config.from_python.tables_of_keywords(slow)  # type: ignore[attr-defined]
    plan = fedscope.training.sweeps.plan.plan_sweep(  # type: ignore[attr-defined]
        fedscope.training.Setup(), [[{"server.method": mine.Heavy}]], settings=laid
    )
    (only,) = plan.runs
    assert {"model.name=mine:net", "data.name=mine:load", "run.rounds=1"} <= set(only.arguments)

    class Here(mine.Heavy):  # type: ignore[misc,name-defined]
        pass

    Here.__module__ = "__main__"
    with pytest.raises(FedscopeError, match=r"server __main__:Here is defined in a program or a notebook"):
        fedscope.sweep({"server.method": [Here]}, out="s")
    with pytest.raises(FedscopeError, match=r"given with settings; vary them by themselves, as in server\.beta=0\.1"):
        fedscope.sweep({"server.method": [mine.Heavy(beta=0.1)]}, out="s")


@pytest.mark.parametrize(
    ("keywords", "said"),
    [
        ({"servr": "fma"}, r"servr= is no setting; did you mean \"server\"\?; it takes method, client, server"),
        ({"server": 3}, r"server= is a int, not a server method; give a name, a class derived from fedscope\.methods"),
        ({"server": nn.Linear}, r"server=: Linear is not a server method; derive it from"),
        ({"model": 3}, r"model= is a int, not a model; give a name, a class or a function that makes"),
        ({"model": lambda: 3}, r"returned a int, not a torch\.nn\.Module"),
        ({"model": nn.Linear}, r"Linear\(\) failed with TypeError: .*; it is called without arguments"),
        ({"data": lambda: None}, r"--data|data=.* returned"),
        ({"data": (np.zeros((5, 2)), np.zeros(4, int))}, r"5 .* 4"),
        ({"rounds": "many"}, r"run\.rounds = 'many' has the wrong type"),
    ],
)
def test_slips_are_said(tmp_path: Path, keywords: dict[str, Any], said: str) -> None:
    with pytest.raises(FedscopeError, match=said):
        fedscope.train(out=tmp_path / "run", **keywords)
    assert not (tmp_path / "run").exists()


def test_out_is_asked_for() -> None:
    with pytest.raises(FedscopeError, match=r"out= is missing: the folder of the run"):
        fedscope.train(rounds=1)


def scale_notes(**given: Any) -> list[str]:
    """What a training of one round says of the scale of its samples."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fedscope.train(model=nn.Linear(4, 3), clients=4, participation=0.5, rounds=1, epochs=1, force=True, **given)
    return [str(one.message) for one in caught if "have mean" in str(one.message)]


def test_samples_far_from_standard_ones_are_said_and_either_remedy_works(mine: Any, tmp_path: Path) -> None:
    x, y = mine.load()
    rows = np.repeat(np.linspace(0, 16, len(x), dtype=np.float32)[:, None], 4, axis=1)
    train, test = (slice(0, None, 2), slice(1, None, 2))
    given = ((rows[train], y[train]), (rows[test], y[test]))
    mean, deviation = rows[train].mean(), rows[train].std()
    assert scale_notes(data=given, out="run") == [
        f"python:arrays: the training samples have mean {mean:.3g} and deviation {deviation:.3g}, and are taken as "
        "they are; unless your model scales them itself, give both splits less the training samples' mean and divided "
        "by their deviation, or all four arrays as npz:FILE, which is standardised"
    ]
    scaled = (rows - mean) / deviation
    assert scale_notes(data=((scaled[train], y[train]), (scaled[test], y[test])), out="run") == []
    np.savez("mine.npz", x_train=rows[train], y_train=y[train], x_test=rows[test], y_test=y[test])
    assert scale_notes(data="npz:mine.npz", out="run") == []


@pytest.mark.parametrize(
    "x",
    [
        np.random.default_rng(0).standard_normal((500, 4)),
        np.random.default_rng(0).random((500, 4)),
        np.eye(500, 300),
        np.eye(500, 20_000),
        np.random.default_rng(0).random((500, 4)) * 1e-3,
        np.random.default_rng(0).standard_t(3, (500, 4)) / 3**0.5,
        np.full((500, 4), 2.0),
        np.zeros((500, 4)),
    ],
    ids=["standardised", "from 0 to 1", "one place", "one word of many", "small", "heavy tails", "one number", "zeros"],
)
def test_samples_of_usual_scales_are_not_said(x: np.ndarray) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        say_own_scale("arrays", x.astype(np.float32))


@pytest.mark.parametrize("factor", [16.0, 255.0])
def test_samples_of_scales_far_off_are_said(factor: float) -> None:
    x = np.random.default_rng(0).random((500, 4)).astype(np.float32) * np.float32(factor)
    with pytest.warns(FedscopeWarning, match=f"have mean {x.mean():.3g} and deviation {x.std():.3g}, and are taken as"):
        say_own_scale("arrays", x)
