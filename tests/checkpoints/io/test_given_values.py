"""Values of public functions: NumPy's numbers and iterators are taken, and what is of another kind is one sentence."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedscope
from fedscope.analysis.settings import EvaluationSettings
from fedscope.checkpoints import FedscopeError, Run
from fedscope.checkpoints.io.given_values import SAY_MORE, taken

KINDS = ("int", "float", "bool", "str")


def functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """The public functions; what records runs says by itself what it takes."""
    for name in sorted(fedscope.__all__):
        value = getattr(fedscope, name)
        is_own = inspect.isfunction(value) and hasattr(value, "__wrapped__") and not name.startswith("record")
        if is_own and value.__code__.co_name != "inner":  # of a context manager alone, which takes what it is given
            yield name, value


def parameters() -> Iterator[tuple[str, str, str]]:
    for name, function in functions():
        kinds = {one.name: str(one.annotation) for one in inspect.signature(function).parameters.values()}
        if any(one.kind is one.VAR_KEYWORD for one in inspect.signature(function).parameters.values()):
            shared = EvaluationSettings.__annotations__ if name != "sweep" and name != "train" else {}
            kinds |= {key: str(getattr(kind, "__forward_arg__", kind)) for key, kind in shared.items()}
        for key, kind in kinds.items():
            if kind.removesuffix(" | None") in KINDS and key not in SAY_MORE:
                yield name, key, kind


#: of another kind than a parameter's; and what the sentence says
WRONG: dict[str, list[tuple[Any, str]]] = {
    "int": [
        (1.0, "1.0 is not a whole number; give one, as {}=1"),
        (np.float32(2.5), "2.5 is not a whole number"),
        ("3", "'3' is not a whole number"),
        (True, "True is not a whole number"),
        (np.bool_(1), "True is not a whole number"),
        ([1], r"[1] is not a whole number"),
    ],
    "float": [("0.5", "'0.5' is not a number"), (True, "True is not a number"), ([0.5], "[0.5] is not a number")],
    "bool": [("no", "'no' is neither True nor False"), (2, "2 is neither True nor False")],
    "str": [(1, "1 is not a text"), (["a"], "['a'] is not a text")],
}


def test_there_are_many() -> None:
    asked = list(parameters())
    assert len({name for name, _, _ in asked}) > 30
    assert {"points", "limit", "seed", "until", "workers", "smooth", "fdr", "force"} <= {key for _, key, _ in asked}


@pytest.mark.parametrize(("name", "key", "kind"), list(parameters()))
def test_a_value_of_another_kind_is_refused_before_anything_is_done(name: str, key: str, kind: str) -> None:
    function = dict(functions())[name]
    wrong = WRONG[kind.removesuffix(" | None")] + (
        [] if "None" in kind or kind == "bool" else [(None, "None is not a")]
    )
    first = [one for one in inspect.signature(function).parameters if one != key][:1]
    # there is no such run, which would be said next
    where = dict.fromkeys(first, "no/such")
    for value, said in wrong:
        with pytest.raises(FedscopeError, match=f"^{re.escape(f'{key}={said.format(key)}')}"):
            function(**{**where, key: value})


@pytest.mark.parametrize(("name", "key", "kind"), [one for one in parameters() if "int" in one[2]])
def test_a_number_of_numpys_is_taken(name: str, key: str, kind: str) -> None:
    for number in (np.int64(3), np.uint8(3), np.array(3), torch.tensor(3)):
        value = taken(key, number, kind)
        assert (type(value), value) == (int, 3)


def test_of_a_list_each_number_is_taken() -> None:
    for given in ([np.int64(1), 2], (np.int64(1), 2), np.array([1, 2]), iter([np.int64(1), 2]), {1: 0, 2: 0}.keys()):
        value = taken("sizes", given, "str | Sequence[int] | None")
        assert list(value) == [1, 2]
        assert {type(one) for one in value} == {int}
    for given in (0.25, np.float64(0.25), np.float32(0.25), np.array(0.25), torch.tensor(0.25)):
        assert (type(taken("fdr", given, "float")), taken("fdr", given, "float")) == (float, 0.25)
    assert type(taken("fdr", 1, "float")) is int, "as it was, for what is stored"
    assert taken("force", np.bool_(0), "bool") is False


def test_of_models_nothing_is_changed() -> None:
    states = [{"w": np.int64(3)}, {"w": np.int64(4)}]
    assert taken("models", states, "ModelLike | Sequence[ModelLike]") is states
    assert taken("data", states[0], "Any") is states[0]


@pytest.mark.parametrize("given", [["a", 1], 1.5, [None]])
def test_texts_are_no_numbers(given: Any) -> None:
    with pytest.raises(FedscopeError, match=r"^measures=.* is not a text; give a list of texts$"):
        taken("measures", given, "Sequence[str]")
    assert taken("measures", "test_error", "Sequence[str]") == "test_error"
    assert taken("settings", {"lr": 1}, "Mapping[str, Any] | Sequence[str]") == {"lr": 1}


@pytest.fixture(scope="module")
def run(recorded_small: Path) -> Run:
    return Run.open(recorded_small)


@pytest.fixture(scope="module")
def recorded_small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("small") / "run"
    x, y = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32), np.arange(12) % 3
    with fedscope.Recorder(path, data=(x, y)) as recorder:
        for t in range(3):
            torch.manual_seed(t)
            nets = [torch.nn.Linear(3, 3) for _ in range(2)]
            recorder.round(clients=nets, start=nets[0])
    return path


def ask(run: Run, **settings: Any) -> Any:
    return fedscope.subsets(run, model=torch.nn.Linear(3, 3), **settings)


@pytest.mark.parametrize("rounds", [1.0, np.float64(1), True, np.bool_(1), [1.0], [True]])
def test_rounds_are_whole_numbers(run: Run, rounds: Any) -> None:
    said = r" neither a whole number nor a text(, and no list of them; give one, as rounds=|; give some, as rounds=\[1)"
    for asks in (ask, lambda run, **how: fedscope.measure(run, model=torch.nn.Linear(3, 3), **how)):
        with pytest.raises(FedscopeError, match=f"^rounds=.* is{said}"):
            asks(run, rounds=rounds)


@pytest.mark.parametrize(
    ("rounds", "said"),
    [
        (slice(1, 3), "rounds=slice(1, 3, None) is neither a whole number nor a text, and no list of them; give one, "),
        ({1: "a"}, "rounds={1: 'a'} is neither"),
        (2.0, "rounds=2.0 is neither a whole number nor a text, and no list of them; give one, as rounds=2"),
        (b"1", "rounds=b'1' is neither"),
        (object, "rounds=<class 'object'> is neither"),
        ([[1, 2]], "rounds=[[1, 2]] holds [1, 2], which is neither a whole number nor a text"),
        (np.array([[1, 2]]), "rounds=[array([1, 2])] holds array([1, 2]), which is neither"),
        ([], "rounds=[] holds nothing; give one or more, as rounds=[1, 2]"),
    ],
)
def test_what_is_no_rounds_is_shown_as_it_was_given(run: Run, rounds: Any, said: str) -> None:
    with pytest.raises(FedscopeError, match=f"^{re.escape(said)}"):
        ask(run, rounds=rounds)


def test_several_rounds_are_taken_from_what_holds_numbers(run: Run) -> None:
    expected = [one.round for one in ask(run, rounds=[1, 3]).rounds]
    for rounds in (range(1, 4, 2), frozenset({3, 1}), (1, "last"), torch.tensor([1, 3]), np.array([3, 1])):
        assert [one.round for one in ask(run, rounds=rounds).rounds] == expected


def test_devices_and_types_of_torch_are_words(run: Run) -> None:
    for device in (torch.device("cpu"), [torch.device("cpu")], "cpu"):
        assert ask(run, rounds=1, device=device).attrs["device"] == "cpu"
    for precision in ("fp32", "float32", torch.float32):
        assert ask(run, rounds=1, precision=precision).attrs["precision"] == "float32"
    for precision in ("bf16", "bfloat16", torch.bfloat16):
        assert ask(run, rounds=1, precision=precision).attrs["precision"] == "bf16"
    for precision in (torch.float16, "float16"):
        with pytest.raises(FedscopeError, match=r"^precision='float16' is none of float32, tf32, bf16$"):
            ask(run, rounds=1, precision=precision)
    assert taken("device", [torch.device("cuda", 1), "cuda:0"], "str") == "cuda:1,cuda:0"
    assert taken("device", torch.device("cuda", 0), "str | None") == "cuda:0"
    from fedscope.evaluation.device import Compute
    from fedscope.training import Config

    assert Compute(torch.device("cpu"), "fp32") == Compute()
    own = Config.read({"run": {"device": torch.device("cpu"), "precision": torch.bfloat16}}).run
    assert (own.device, own.precision) == ("cpu", "bf16")


def test_rounds_of_numpy_and_of_iterators_are_those_of_a_list(run: Run) -> None:
    expected = [one.round for one in ask(run, rounds=[1, 3]).rounds]
    assert expected == [1, 3]
    for rounds in (np.array([1, 3]), (np.int64(t) for t in (1, 3)), {1: "", 3: ""}.keys(), {1, 3}, map(int, "13")):
        assert [one.round for one in ask(run, rounds=rounds).rounds] == expected
    assert [one.round for one in ask(run, rounds=np.int64(2)).rounds] == [2]


def test_sizes_and_runs(run: Run) -> None:
    for sizes in (2, np.int64(2), [np.int64(2)], iter([2]), "2"):
        assert ask(run, rounds=1, sizes=sizes, subsets=np.int64(3)).rounds == ask(run, rounds=1, sizes=[2]).rounds
    with pytest.raises(
        FedscopeError,
        match=r"^sizes=2.0 is neither a whole number nor a text, and no list of them; give one, as sizes=2$",
    ):
        ask(run, rounds=1, sizes=2.0)
    addresses = [f"{run.path}@{t}/client-0" for t in (1, 2)]
    how: dict[str, Any] = {"points": np.int64(3), "model": torch.nn.Linear(3, 3)}
    expected = fedscope.line(addresses, **how).loss
    for models in (iter(addresses), (one for one in addresses), dict.fromkeys(addresses).keys()):
        np.testing.assert_array_equal(fedscope.line(models, **how).loss, expected)


def test_windows_and_draws(run: Run) -> None:
    with pytest.raises(FedscopeError, match=r"^draws=1.5: the variance here is one over replays; use local:R"):
        fedscope.theory(run, draws=1.5, model=torch.nn.Linear(3, 3), split="test")
    with pytest.raises(FedscopeError, match=r"^windows=1.0: that is no number of checkpoints from 2 on"):
        fedscope.wima(f"{run.path}@1", checkpoints=True, windows=1.0, model=torch.nn.Linear(3, 3))


@pytest.mark.parametrize("number", [1.5, "1", True, np.bool_(1), None, [1]])
def test_a_rounds_and_a_clients_number(run: Run, number: Any) -> None:
    for asks in (run.round, run.numbers, run.files_of):
        with pytest.raises(FedscopeError, match=r"is not a round; give a whole number, as round\(1\)"):
            asks(number)
    of_round = run.round(np.int64(2))
    for asks in (of_round.client, lambda k: of_round.clients([k])):
        with pytest.raises(FedscopeError, match=r"is not a client's number; give a whole number, as client\(0\)"):
            asks(number)
    for one in (np.int64(1), 1.0, np.float64(1)):  # a table's column with gaps has floats
        np.testing.assert_array_equal(of_round.client(one).parameters, of_round.client(1).parameters)


def test_the_last_rounds_numbers_have_what_was_measured(tmp_path: Path) -> None:
    x, y = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32), np.arange(12) % 3
    net = torch.nn.Linear(3, 3)
    with fedscope.Recorder(tmp_path / "run", data=(x, y)) as recorder:
        recorder.round(clients=[net], global_=net)
    fedscope.measure(tmp_path / "run", model=net)
    run = Run.open(tmp_path / "run")
    assert run.numbers("last") == run.numbers(1)  # type: ignore[arg-type]
    assert "test_error" in run.numbers(1)


def test_settings_take_numbers_of_numpy() -> None:
    tables = {"run": {"rounds": np.int64(2), "participation": np.float32(0.5)}, "model": {"hidden": [np.int64(2)]}}
    config = fedscope.Config.read(tables)
    plain = fedscope.Config.read({"run": {"rounds": 2, "participation": 0.5}, "model": {"hidden": [2]}})
    assert config == plain
    assert type(config.run.rounds) is int


@pytest.mark.parametrize("seeds", [1, 1.0, True, None])
def test_seeds_are_a_list(tmp_path: Path, seeds: Any) -> None:
    with pytest.raises(FedscopeError, match=r"^seeds is .*, which is not a list of whole numbers; give one, as seeds="):
        fedscope.sweep((), out=tmp_path / "sweep", seeds=seeds)


def test_values_of_a_sweep_are_a_list(tmp_path: Path) -> None:
    with pytest.raises(
        FedscopeError, match=r"^client.lr has 0.1, which is not a list of values; give one, as in \[0.1\]"
    ):
        fedscope.sweep({"client.lr": 0.1}, out=tmp_path / "sweep")  # type: ignore[dict-item]


def test_planes_take_iterators(run: Run) -> None:
    models = [fedscope.load_model(f"{run.path}@{t}/client-{k}") for t in (1, 2) for k in (0, 1)]
    for plane in (fedscope.near_clients, fedscope.along_trajectory):
        assert plane(iter(models)).places(models) == plane(models).places(models)  # type: ignore[arg-type]
    corners = fedscope.through_models(iter(models[:3]))  # type: ignore[arg-type]
    assert corners.places(models) == fedscope.through_models(models[:3]).places(models)


def test_a_text_of_a_form_of_its_own_is_shown() -> None:
    """``draws=2`` was refused with "give one", and then ``draws="2"``, too."""
    with pytest.raises(FedscopeError) as told:
        taken("draws", 2, "str | None")
    assert str(told.value) == "draws=2 is not a text; give one, as draws='local:4'"


@pytest.mark.parametrize("kind", [set, frozenset])
def test_a_set_of_texts_has_one_order_in_every_session(kind: type) -> None:
    """Sums of strings' hashes gave the models of a plane, and the first measure of a table, another place each time."""
    words = [f"runs/{letter}" for letter in "hgfedcba"]
    for annotation in ("RunLike | Sequence[RunLike]", "Sequence[ModelLike]", "str | Sequence[str]"):
        assert taken("runs", kind(words), annotation) == sorted(words)
        assert taken("runs", dict.fromkeys(words).keys(), annotation) == words
    paths = kind(map(Path, words))
    assert taken("runs", paths, "Sequence[RunLike]") == sorted(map(Path, words))
