"""Data of the user's own code, and arguments for it: literals only, and nothing is run but what was named."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedscope.checkpoints import FedscopeError, FedscopeWarning, Layout
from fedscope.training import Config, build_module, data_of, load_data, model_settings, train
from fedscope.training.data.custom import taken_data
from fedscope.training.import_string import ImportString
from fedscope.training.models.custom import Factory

CODE = """
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from fedscope.training.data.standardize import standardize

X = np.linspace(-2, 2, 8 * 5, dtype=np.float32).reshape(8, 5)
Y = np.arange(8) % 3

def test():
    return X, Y

def tensors():
    return [torch.from_numpy(X).double(), torch.from_numpy(Y)]

def both():
    return (X + 1, Y), (X, Y)

def named(classes=3):
    return {"x_test": X, "y_test": Y, "classes": classes}

def items():
    return TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))

def loader():
    return DataLoader(items(), batch_size=3)

def two():
    return items(), loader()

def whole():
    return standardize("x", "", {"x_train": X, "y_train": Y, "x_test": X, "y_test": Y})

def pixels():
    return (255 * np.ones((8, 2, 2), np.uint8), Y)

def counts():
    return X.astype(int), Y

def nothing():
    pass

def wrong():
    return {"images": X, "y_test": Y}

def half():
    return {"x_train": X, "x_test": X, "y_test": Y}

def text():
    return X, ["a"] * 8

def short():
    return X, Y[:3]

class Broken(Dataset):
    def __len__(self):
        return 3
    def __getitem__(self, i):
        raise KeyError("no file")

class Odd(Broken):
    def __getitem__(self, i):
        return {"x": i}

class Growing(Broken):
    def __getitem__(self, i):
        return torch.ones(i + 1), 0
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a module of data as the current one; what is imported from it is forgotten afterwards."""
    (tmp_path / "mydata.py").write_text(CODE)
    (tmp_path / "mynets.py").write_text(
        "import torch\nfrom torch import nn\n\n"
        "def net(width, depth=1, *, kind='Tanh', half=None):\n"
        "    inner = [m for _ in range(depth) for m in (nn.Linear(width, width), getattr(nn, kind)())]\n"
        "    net = nn.Sequential(nn.Linear(5, width), *inner, nn.Linear(width, 3))\n"
        "    return net.to(getattr(torch, half)) if half else net\n"
    )
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in ("mydata", "mynets", "npzz"):
        sys.modules.pop(name, None)


X = np.linspace(-2, 2, 40, dtype=np.float32).reshape(8, 5)


@pytest.mark.parametrize("name", ["test", "tensors", "named", "items", "loader"])
def test_test_samples_are_taken_as_they_are_returned(here: Path, name: str) -> None:
    data = load_data(f"mydata:{name}")
    assert (data.name, data.path, data.shape, data.classes) == (f"mydata:{name}", "", (5,), 3)
    samples = data.samples("test")
    np.testing.assert_array_equal(samples.x.numpy(), X)
    assert (samples.x.dtype, samples.y.tolist()) == (torch.float32, [0, 1, 2, 0, 1, 2, 0, 1])
    with pytest.raises(FedscopeError, match=rf"mydata:{name} has no training samples .* give --split test, and no"):
        data.samples("train")


@pytest.mark.parametrize(("name", "train_x"), [("both", X + 1), ("two", X)])
def test_training_samples_come_first(here: Path, name: str, train_x: np.ndarray) -> None:
    data = load_data(f"mydata:{name}")
    np.testing.assert_array_equal(data.samples("train").x.numpy(), train_x)
    np.testing.assert_array_equal(data.samples("test").x.numpy(), X)


def test_a_data_set_of_fedscopes_own_keeps_its_scale(here: Path) -> None:
    data = load_data("mydata:whole()")
    assert data.name == "mydata:whole()"
    np.testing.assert_allclose(data.samples("test").x.mean(0).numpy(), 0, atol=1e-6)  # five means of eight in float32
    assert len(data.means) == 5


def test_the_sum_of_the_arrays_tells_data_apart(here: Path) -> None:
    assert load_data("mydata:test").sha256 == load_data("mydata:items").sha256
    assert load_data("mydata:both").sha256 != load_data("mydata:two").sha256


def test_pixels_are_scaled_and_their_axes_stay(here: Path) -> None:
    x = load_data("mydata:pixels").samples("test").x
    assert x.shape == (8, 2, 2)
    assert (x == 1).all()


def test_classes_that_no_sample_is_of_are_said(here: Path) -> None:
    assert load_data("mydata:named(10)").classes == 10
    assert load_data("mydata:named(classes=7)").classes == 7


REFUSED = [
    ("counts", r"x_test has type int64 and is taken as it is; give floats as the network takes them, or uint8 pixels"),
    (
        "nothing",
        r"--data mydata:nothing: nothing\(\) returned nothing, which are not data; return \(x, y\), \(\(x_train",
    ),
    ("wrong", r"wrong\(\) returned images; name them x_train, y_train, x_test, y_test"),
    ("half", r"mydata:half lacks y_train; it has x_test, x_train, y_test, and needs x_test and y_test, and both or"),
    ("text", r"returned a y_test that is a list, names of classes; number the classes, alike in both splits: np\.uniq"),
    ("short", r"mydata:short: x_test has 8 samples, but y_test has 3 labels"),
    ("Broken", r"Broken\(\) returned data that cannot be read: KeyError: 'no file'"),
    ("Odd", r"Odd\(\) returned data whose item 0 is a dict; give pairs \(x, y\)"),
    ("Growing", r"Growing\(\) returned data with items of shapes \[1\] and \[2\]; give all one shape"),
    ("named(2)", r"mydata:named\(2\): classes is 2, but the labels go up to 2; give 3 or more"),
    ("named('no')", r"classes is a str; give tensors or NumPy arrays of numbers"),
    ("nowhere", r"--data mydata:nowhere: mydata \(.*mydata.py\) has no nowhere"),
    ("test(1)", r"test\(\) failed with TypeError: .*; it is called as test\(1\)"),
]


@pytest.mark.parametrize(("name", "sentence"), REFUSED, ids=[name for name, _ in REFUSED])
def test_what_are_no_data_is_refused_in_one_sentence(here: Path, name: str, sentence: str) -> None:
    with pytest.raises(FedscopeError, match=sentence) as refusal:
        load_data(f"mydata:{name}")
    assert "\n" not in str(refusal.value)


def test_a_slip_in_a_data_sets_name_is_told_from_a_module(here: Path) -> None:
    with pytest.raises(FedscopeError, match=r"'npzz' is not a data set that fedscope knows; did you mean \"npz\"\?"):
        load_data("npzz:test")
    (here / "npzz.py").write_text("from mydata import test\n")
    assert load_data("npzz:test").classes == 3
    with pytest.raises(FedscopeError, match=r"--data yourdata:test: there is no module yourdata in "):
        load_data("yourdata:test")


def test_a_configuration_that_names_code_does_not_bring_it(here: Path) -> None:
    with pytest.raises(FedscopeError, match=r"data\.name = 'mydata:both' is code of your own, .* --code data=mydata:b"):
        train(Config.read({"data": {"name": "mydata:both"}}), here / "run")
    assert not (here / "run").exists()

    recorded: Any = SimpleNamespace(path="run", info={"data": {"name": "mydata:both", "sha256": ""}}, code={})
    with pytest.raises(FedscopeError, match=r"run: its data mydata:both come from your own code, which is never lo"):
        data_of(recorded)
    assert "mydata" not in sys.modules


def test_a_model_takes_its_arguments(here: Path) -> None:
    module = build_module(model_settings("mynets:net(7, depth=2, kind='ReLU')"), (), 3)
    assert [type(layer).__name__ for layer in module] == ["Linear", "Linear", "ReLU", "Linear", "ReLU", "Linear"]
    assert Layout.of(module).size == 5 * 7 + 7 + 2 * (7 * 7 + 7) + 7 * 3 + 3
    with pytest.raises(
        FedscopeError, match=r"it is called without arguments: give what it needs, as in 'mynets:net\(16"
    ):
        build_module(model_settings("mynets:net"), (), 3)
    with pytest.raises(
        FedscopeError, match=r"got an unexpected keyword argument 'width2'; it is called as net\(width2=1\)"
    ):
        build_module(model_settings("mynets:net(width2=1)"), (), 3)


def test_a_model_in_half_precision_is_taken_in_single(here: Path) -> None:
    with pytest.warns(
        FedscopeWarning, match=r"net\(4, half='bfloat16'\) returned a model in bfloat16, which is taken in"
    ):
        module = build_module(model_settings("mynets:net(4, half='bfloat16')"), (), 3)
    assert Layout.of(module).dtype == np.float32


LITERALS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.tuples(inner) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=6,
)


@settings(max_examples=40)
@given(
    st.lists(LITERALS, max_size=3), st.dictionaries(st.sampled_from(["width", "depth", "kind"]), LITERALS, max_size=2)
)
def test_every_literal_arrives_as_it_was_written(args: list[object], keywords: dict[str, object]) -> None:
    words = [*map(repr, args), *(f"{name}={value!r}" for name, value in keywords.items())]
    call = ImportString.parse("--model", f"models:Net({', '.join(words)})")
    assert (call.module, call.name, list(call.args), dict(call.keywords)) == ("models", "Net", args, keywords)
    assert ImportString.parse("--model", f"models:{call.spoken}") == ImportString(
        "--model", f"models:{call.spoken}", *_rest(call)
    )


def _rest(call: ImportString) -> tuple[object, ...]:
    return call.module, call.name, call.args, call.keywords


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("models:Net(open('trapped', 'w'))", r"open\('trapped', 'w'\) is not a literal; give numbers, strings, lists"),
        ("models:Net(__import__('os').system('touch trapped'))", r"is not a literal"),
        ("models:Net(*[1])", r"\*\[1\] is not a literal"),
        ("models:Net(**{'a': 1})", r"is not a literal"),
        ("models:Net(width=width)", r"--model models:Net\(width=width\): width is not a literal"),
        ("models:Net(16", r"is not a call of Net; write its arguments as Python does, as in 'models:Net\(16\)'"),
        ("models:Net(16)(2)", r"is not a call of Net"),
        ("models:Net(16).half()", r"is not a call of Net"),
        ("models:Net(16) + open('trapped', 'w')", r"is not a call of Net"),
        ("models:Net(" + "(" * 300 + ")" * 300 + ")", r"is not a call of Net"),
        ("models:Net(" + "9" * 5000 + ")", r"is not a call of Net"),
    ],
    ids=str,
)
def test_arguments_are_never_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, sentence: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FedscopeError, match=sentence):
        Factory(path=text)
    assert not list(tmp_path.iterdir())


class Items(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Ten samples, with noise that is drawn whenever one is read."""

    def __init__(self, noise: float) -> None:
        self.noise = noise

    def __len__(self) -> int:
        return 10

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        return torch.full((3,), float(i)) + self.noise * torch.rand(3), i % 2


@pytest.mark.parametrize("wrap", [lambda items: items, lambda items: torch.utils.data.DataLoader(items, batch_size=4)])
def test_samples_that_are_others_whenever_they_are_read_are_said(wrap: Any) -> None:
    torch.manual_seed(0)
    expected = torch.stack([Items(1.0)[i][0] for i in range(10)]).numpy()
    torch.manual_seed(0)
    with pytest.warns(FedscopeWarning, match="test data that are others whenever they are read"):
        found = taken_data(wrap(Items(1.0)))
    if isinstance(wrap(Items(1.0)), Items):  # a DataLoader draws a seed of its own
        np.testing.assert_array_equal(found.x_test, expected)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FedscopeWarning)
        taken_data(wrap(Items(0.0)))


def test_samples_that_drop_last_leaves_out_are_said() -> None:
    loader = partial(torch.utils.data.DataLoader, Items(0.0), batch_size=4)
    with pytest.warns(FedscopeWarning, match="test data of 8 samples, as drop_last leaves out the last 2;"):
        assert len(taken_data(loader(drop_last=True)).y_test) == 8
    with warnings.catch_warnings():
        warnings.simplefilter("error", FedscopeWarning)
        assert len(taken_data(loader()).y_test) == 10
        taken_data(torch.utils.data.DataLoader(Items(0.0), batch_size=5, drop_last=True))


@pytest.mark.parametrize("where", ["arrays", "npz"])
def test_splits_of_other_scales_are_said(where: str, tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    y = np.arange(60) % 3

    def taken(x_train: np.ndarray, x_test: np.ndarray) -> None:
        if where == "arrays":
            taken_data(((x_train, y), (x_test, y)))
        else:
            np.savez(tmp_path / "d.npz", x_train=x_train, y_train=y, x_test=x_test, y_test=y)
            load_data(f"npz:{tmp_path / 'd.npz'}")

    x = draw.integers(0, 256, (2, 60, 1, 6, 6)).astype(np.uint8)
    with pytest.warns(FedscopeWarning, match=r"x_test varies 2\d\d times as much as x_train"):
        taken(x[0], x[1].astype(np.float32))
    with pytest.warns(FedscopeWarning, match=r"x_test varies 0.00\d+ times as much as x_train"):
        taken(x[0].astype(np.float32), (x[1] / 255).astype(np.float32))
    with warnings.catch_warnings():
        warnings.simplefilter("error", FedscopeWarning)
        taken(x[0], x[1])
        taken(x[0].astype(np.float32), x[1].astype(np.float32))
        taken(x[0] / 255, x[1] / 25500 * 40)
        # heavy tails, of which no two samples have the same deviation
        taken(*(draw.standard_cauchy((2, 60, 5))))
        taken(*(draw.random((2, 60, 5)) * (draw.random((2, 60, 5)) < 0.1)))


def test_axes_that_may_be_read_in_two_ways_are_said(tmp_path: Path) -> None:
    def load(*shape: int) -> tuple[int, ...]:
        x = np.random.default_rng(0).random((12, *shape)).astype(np.float32)
        np.savez(tmp_path / "d.npz", x_train=x, y_train=np.arange(12) % 3, x_test=x, y_test=np.arange(12) % 3)
        return load_data(f"npz:{tmp_path / 'd.npz'}").shape

    with pytest.warns(FedscopeWarning, match="read as 3 x 4 pixels of 4 channels; if these are 4 x 4 pix") as said:
        assert load(3, 4, 4) == (4, 3, 4)
    assert len(said) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error", FedscopeWarning)
        assert load(4, 4, 3) == (3, 4, 4)
        assert load(3, 6, 6) == (3, 6, 6)
        assert load(4, 4, 4) == (4, 4, 4)
