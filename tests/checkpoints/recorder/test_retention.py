"""Loops that record sketches of all clients, and the models of some."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedscope
from fedscope import Recorder
from fedscope.checkpoints import FedscopeError, Layout, Run, TensorEntry
from fedscope.checkpoints.recorder.coerce_models import coerce_model
from fedscope.checkpoints.recorder.retention import ClientRetention
from fedscope.checkpoints.rounds import sketches as module
from fedscope.checkpoints.rounds.retention import draw_kept_clients
from fedscope.checkpoints.rounds.sketches import reader, sketch, sketch_whole
from fedscope.checkpoints.rounds.verify import check_round
from fedscope.cli.main import run as command
from fedscope.training import Config, train

# the loops here have no server: what stands as global is any model
pytestmark = pytest.mark.filterwarnings("ignore:.*statistics were not averaged")

Arrays = dict[str, np.ndarray]
SIZES = {"a.weight": (40, 3), "a.bias": (40,), "norm.running_mean": (40,), "norm.num_batches_tracked": ()}


def model(seed: int, dtype: str = "float32") -> Arrays:
    """A small model with a BatchNorm's statistics, which are no parameters."""
    rng = np.random.default_rng(seed)
    floats = {name: rng.normal(size=shape).astype(dtype) for name, shape in SIZES.items() if shape}
    return {**floats, "norm.num_batches_tracked": np.array(seed, np.int64)}


def record(path: Path, rounds: int = 3, clients: int = 5, **kept: Any) -> Run:
    with Recorder(path, **kept) as recorder:
        for t in range(rounds):
            given = {10 * k: model(100 * t + k) for k in range(clients)}
            recorder.round(start=model(100 * t + 99), clients=given, global_=model(100 * t + 98))
    return Run.open(path)


@settings(max_examples=15)
@given(seed=st.integers(0, 2**16), k=st.integers(16, 200), dtype=st.sampled_from(["float16", "float32", "float64"]))
def test_sketches_are_those_of_the_parameters_alone_in_any_precision(
    tmp_path_factory: pytest.TempPathFactory, seed: int, k: int, dtype: str
) -> None:
    """Against the vectors [P] of the same numbers: statistics are in none, and halves count as what they are."""
    start, clients = model(seed, dtype), [model(seed + 1 + i, dtype) for i in range(3)]
    path = tmp_path_factory.mktemp("recorded") / "run"
    with Recorder(path, sketch=k) as recorder:
        recorder.round(start=start, clients=clients)
    own = Layout(tuple(TensorEntry(name, SIZES[name], "float64", "parameter") for name in ("a.weight", "a.bias")))

    def flat(arrays: Arrays) -> np.ndarray:
        return np.concatenate([arrays[name].reshape(-1).astype(np.float64) for name in own.names])

    expected = sketch(own, flat(start), np.stack([flat(client) for client in clients]), k)
    assert Run.open(path).round(1).sketch().tobytes() == expected.tobytes()


def test_blocks_of_a_parameter_are_drawn_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK", 16)
    start, client = model(0), model(1)
    own = coerce_model(start).layout()
    single = {"start": coerce_model(start), "global": None}
    found = ClientRetention(sketch=32).sketches(own, single, [coerce_model(client)], "a run@1")
    assert found is not None
    vectors = [own.flatten(arrays).parameters for arrays in (start, client)]
    assert found[0].tobytes() == sketch(own, vectors[0], vectors[1][None], 32).tobytes()
    assert list(found[1]) == ["start"]
    assert found[1]["start"].tobytes() == sketch_whole(own, [reader(own, vectors[0])], 32).tobytes()


def test_a_loop_records_what_training_records_of_the_same_models(tmp_path: Path) -> None:
    """The same sketches, and with ``data.seed = 0`` the same few, bit for bit."""
    settings: dict[str, Any] = {
        "data": {"clients": 8},
        "model": {"hidden": [8]},
        "client": {"epochs": 1},
        "run": {"rounds": 3, "participation": 0.75, "evaluate_clients": 0},
    }
    whole = train(Config.read(settings), tmp_path / "whole")
    few = train(Config.read({**settings, "record": {"clients": "sample:2", "sketch": 64}}), tmp_path / "few")
    with Recorder(tmp_path / "loop", keep="sample:2", sketch=64) as recorder:
        for t in whole.rounds:
            round_ = whole.round(t)
            clients = {int(k): round_.client(int(k)).arrays() for k in round_.client_ids}
            samples = dict(zip(round_.client_ids.tolist(), round_.client_samples.tolist(), strict=True))
            ends = {"start": round_.read("start").arrays(), "global_": round_.read("global").arrays()}
            recorder.round(clients=clients, samples=samples, **ends)
    loop = Run.open(tmp_path / "loop")
    for t in loop.rounds:
        one, other = few.round(t), loop.round(t)
        assert one.sketch().tobytes() == other.sketch().tobytes()
        for which in ("start", "global"):
            assert one.whole_sketch(which).tobytes() == other.whole_sketch(which).tobytes()
        assert one.sampled_ids.tolist() == other.sampled_ids.tolist()
        assert one.sampled().parameters.tobytes() == other.sampled().parameters.tobytes()
        assert one.client_ids.tolist() == other.client_ids.tolist()
        assert check_round(other).faults == ()
    ours, theirs = (fedscope.updates(run).findings()["rounds"] for run in (few, loop))
    assert [row["cosine_mean"] for row in ours] == pytest.approx([row["cosine_mean"] for row in theirs], rel=1e-12)


@settings(max_examples=20)
@given(
    seed=st.integers(0, 2**16),
    clients=st.integers(1, 6),
    count=st.integers(1, 7),
    dtype=st.sampled_from(["float16", "float32", "float64"]),
)
def test_the_few_are_bit_for_bit_what_they_are_among_all(
    tmp_path_factory: pytest.TempPathFactory, seed: int, clients: int, count: int, dtype: str
) -> None:
    folder = tmp_path_factory.mktemp("recorded")
    for name, kept in {"all": {}, "few": {"keep": f"sample:{count}", "sketch": 16}}.items():
        with Recorder(folder / name, **kept) as recorder:
            for t in (1, 2):
                given_models = {7 * k + 1: model(seed + 10 * t + k, dtype) for k in range(clients)}
                recorder.round(start=model(seed, dtype), clients=given_models)
    whole, few = (Run.open(folder / name) for name in ("all", "few"))
    for t in (1, 2):
        one, other = whole.round(t), few.round(t)
        ids = other.client_ids if other.has_clients else other.sampled_ids
        assert len(ids) == min(count, clients)
        for name, rows in one.clients(ids).arrays().items():
            assert other.clients(ids).arrays()[name].tobytes() == rows.tobytes(), name
        np.testing.assert_array_equal(one.client_ids, other.client_ids)


@pytest.mark.parametrize("keep", ["all", "none", "sample:2", "every:2", "1,3", "sample:9"])
def test_what_is_kept_of_clients(keep: str, tmp_path: Path) -> None:
    run = record(tmp_path / "run", keep=keep)
    for t in run.rounds:
        round_ = run.round(t)
        expected = {
            "all": range(5),
            "none": (),
            "sample:2": draw_kept_clients(5, 2, seed=0, round=t).tolist(),
            "every:2": range(5) if t == 2 else (),
            "1,3": range(5) if t != 2 else (),
            "sample:9": range(5),
        }[keep]
        assert round_.has_clients == (len(expected) == 5)
        assert round_.has_sample == (len(expected) == 2)
        for place in expected:
            found = round_.client(10 * place).arrays()
            for name, value in model(100 * (t - 1) + place).items():
                assert found[name].tobytes() == value.tobytes(), name
        assert round_.client_ids.tolist() == [0, 10, 20, 30, 40]
        assert round_.models == ("start", "global")
        assert round_.metrics["server_rule"] is not None  # the server was looked at with all of them
        assert check_round(round_).faults == ()


def test_bfloat16_is_kept_and_sketched_as_what_it_says(tmp_path: Path) -> None:
    import torch

    torch.manual_seed(0)
    models = [{"w": torch.randn(50).to(torch.bfloat16)} for _ in range(4)]
    with Recorder(tmp_path / "run", keep="sample:1", sketch=16) as recorder:
        recorder.round(start=models[0], clients=models[1:])
    round_ = Run.open(tmp_path / "run").round(1)
    vectors = np.stack([one["w"].float().numpy() for one in models])
    own = Layout((TensorEntry("w", (50,), "float32", "parameter"),))
    assert round_.sketch().tobytes() == sketch(own, vectors[0], vectors[1:], 16).tobytes()
    (client,) = round_.sampled_ids.tolist()
    np.testing.assert_array_equal(round_.client(client).parameters, vectors[1 + client])
    assert round_.is_packed


def test_a_recorder_goes_on_behind_a_resume_with_the_same_draws(tmp_path: Path) -> None:
    whole = record(tmp_path / "whole", rounds=4, keep="sample:2", sketch=16)
    record(tmp_path / "cut", rounds=2, keep="sample:2", sketch=16)
    with Recorder(tmp_path / "cut", keep="sample:2", sketch=16, resume=True) as recorder:
        for t in (2, 3):
            given = {10 * k: model(100 * t + k) for k in range(5)}
            recorder.round(start=model(100 * t + 99), clients=given, global_=model(100 * t + 98))
    cut = Run.open(tmp_path / "cut")
    for t in whole.rounds:
        assert cut.round(t).sketch().tobytes() == whole.round(t).sketch().tobytes()
        assert cut.round(t).sampled().parameters.tobytes() == whole.round(t).sampled().parameters.tobytes()


def test_questions_say_what_such_a_run_lacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(tmp_path / "few", keep="sample:2", sketch=64)
    record(tmp_path / "none", keep="none", sketch=64)
    assert command(["updates", str(tmp_path / "none"), "--out", str(tmp_path / "u")]) == 0
    assert "rounds 1-3 from sketches of 64 numbers a client" in capsys.readouterr().out
    assert command(["disperse", str(tmp_path / "few"), "--rounds", "2"]) == 2
    said = capsys.readouterr().err
    assert "round 2 kept the models of 2 of its 5 clients" in said
    assert "no round of this run has all: record it with keep='all', or ask about single models as" in said
    assert command(["disperse", str(tmp_path / "none"), "--rounds", "2"]) == 2
    assert "no round of this run has them: record it with keep='all'" in capsys.readouterr().err
    assert command(["ls", str(tmp_path / "few")]) == 0
    assert "sampled 1-3 (the models of 2 of 5 clients)" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        ({"keep": "some"}, r'keep = "some" is not a recording policy.* "all", "none", "every:N", or a list of rounds'),
        ({"keep": "sample:0"}, r'keep = "sample:0" needs a whole number from 1 on, as in "sample:10"'),
        ({"keep": "last:3"}, r"keep = 'last:3' counts from the last round, which a loop does not say before it; give"),
        ({"keep": "1,last"}, r"keep = '1,last' counts from the last round"),
        (
            {"sketch": 15},
            r"^sketch = 15 is not a size for a sketch, .* give 16 to 1,000,000 numbers a client, or 0 for",
        ),
        ({"sketch": 20.0}, r"sketch = 20\.0 is not a size; give a whole number, or 0 for none"),
        ({"sketch": True}, r"sketch = True is not a size"),
    ],
)
def test_what_cannot_be_kept_is_refused_before_anything_is_made(
    kept: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(FedscopeError, match=said):
        Recorder(tmp_path / "run", **kept)
    assert not (tmp_path / "run").exists()


def test_without_start_there_is_no_update_to_sketch(tmp_path: Path) -> None:
    with Recorder(tmp_path / "run", sketch=16) as recorder:
        said = r"run@1: sketch = 16 is of updates from the model that was sent, which was not given; give start=, or"
        with pytest.raises(FedscopeError, match=said):
            recorder.round(clients=[model(0)])
        recorder.round(start=model(1), clients=[model(0)])
    assert Run.open(tmp_path / "run").rounds == (1,)


def test_a_client_that_diverged_spoils_no_other(tmp_path: Path) -> None:
    broken = model(2)
    broken["a.weight"][0, 0] = np.inf
    with Recorder(tmp_path / "run", keep="none", sketch=16) as recorder, pytest.warns(match="client 1 has diverged"):
        recorder.round(start=model(0), clients=[model(1), broken])
    rows = Run.open(tmp_path / "run").round(1).sketch()
    assert np.isfinite(rows).all(axis=1).tolist() == [True, False]


def test_what_keep_offers_is_what_a_loop_can_keep(tmp_path: Path) -> None:
    with pytest.raises(FedscopeError, match="is not a recording policy") as refused:
        fedscope.Recorder(tmp_path / "run", keep=10)  # type: ignore[arg-type]
    offered = str(refused.value)
    assert "last" not in offered
    assert '"1,20"' in offered
    fedscope.Recorder(tmp_path / "run", keep="1,20").close()
