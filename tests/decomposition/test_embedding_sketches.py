"""Maps of models from sketches, against the distances of the models themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedscope
from fedscope import Recorder
from fedscope.checkpoints import FedscopeError, Run
from fedscope.checkpoints.rounds.sketches import sketch
from fedscope.cli.main import run as command
from fedscope.decomposition.embedding.gram import distances, gram
from fedscope.decomposition.embedding.result import Embedding
from fedscope.decomposition.embedding.sketched_gram import sketched_gram
from fedscope.training import Config, merge, train

SIZE, CLIENTS = 6000, 5
# a loop without a server: what stands as global is any model
pytestmark = pytest.mark.filterwarnings("ignore:.*no known server")


def record(path: Path, rounds: int = 3, *, seed: int = 0, far: float = 5.0, size: int = SIZE, **kept: Any) -> Run:
    """Clients at a distance of about √P from their start, which goes ``far`` times as far from round to round."""
    rng = np.random.default_rng(seed)
    start = 20 * rng.normal(size=size)
    with Recorder(path, **kept) as recorder:
        for _ in range(rounds):
            clients = {k: {"w": start + rng.normal(size=size)} for k in range(CLIENTS)}
            end = start + far * rng.normal(size=size)
            recorder.round(start={"w": start}, clients=clients, global_={"w": end})
            start = end
    return Run.open(path)


def test_the_matrix_is_that_of_the_sketches_of_the_differences(tmp_path: Path) -> None:
    run = record(tmp_path / "run", sketch=128)
    asked = [(run, 2), (run, 3)]
    found = sketched_gram(asked)
    start = run.round(2).read("start").parameters
    models = [*run.round(2).clients().parameters, *run.round(3).clients().parameters]
    models += [run.round(t).read("global").parameters for t in (2, 3)]
    rows = sketch(run.layout, start, np.stack(models), 128).astype(np.float64)
    np.testing.assert_allclose(found.matrix, rows @ rows.T, rtol=1e-5, atol=1e-4 * np.diagonal(found.matrix).max())
    np.testing.assert_array_equal(found.matrix, found.matrix.T)
    assert [point.label for point in found.points] == [point.label for point in gram(asked).points]


@given(seed=st.integers(0, 2**16), k=st.sampled_from([128, 512, 2048]), far=st.sampled_from([0.0, 1.0, 30.0]))
def test_distances_within_and_between_rounds_are_within_their_error(
    tmp_path_factory: pytest.TempPathFactory, seed: int, k: int, far: float
) -> None:
    """Relative errors of Gaussian models' distances are about normal with deviation 1/√(2k); of 40 examples with 136
    pairs, about 17 of them free, none strays 5 deviations (hypothesis' seeds are fixed)."""
    run = record(tmp_path_factory.mktemp("run") / "run", seed=seed, far=far, sketch=k)
    asked = [(run, t) for t in run.rounds]
    exact, told = distances(gram(asked)), distances(sketched_gram(asked))
    pairs = np.triu_indices(len(exact), 1)
    apart = exact[pairs] > 0  # with far = 0 the global models are one
    assert (told[pairs][~apart] == 0).all()
    errors = told[pairs][apart] / exact[pairs][apart] - 1
    assert np.abs(errors).max() < 5 / np.sqrt(2 * k)


def test_errors_of_distances_scatter_as_much_as_they_say(tmp_path: Path) -> None:
    """1/√(2k), over 60 distances that do not share models: of 60 values the deviation is off by 9 %."""
    k, errors = 128, []
    run = record(tmp_path / "run", 120, size=2000, sketch=k)
    for t in range(1, 120, 2):
        asked = [(run, t), (run, t + 1)]
        (i, j), (exact, told) = (0, CLIENTS), (distances(made) for made in (gram(asked), sketched_gram(asked)))
        errors.append(told[i, j] / exact[i, j] - 1)
    assert np.std(errors) == pytest.approx(1 / np.sqrt(2 * k), rel=0.28)  # three deviations
    assert abs(np.mean(errors)) < 3 / np.sqrt(2 * k * len(errors))


SMALL: dict[str, Any] = {
    "data": {"clients": 8, "partition": "shards:2"},
    "client": {"epochs": 1},
    "average": {"method": "ima", "start": 2, "window": 2},
    "run": {"rounds": 3, "participation": 0.5, "evaluate_clients": 0},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    """One that keeps all, and one that keeps nothing but sketches and the last globals."""
    folder = tmp_path_factory.mktemp("trained")
    sketched = {"record": {"clients": "none", "globals": "none", "sketch": 4096}}
    return train(Config.read(SMALL), folder / "exact"), train(Config.read(merge(SMALL, sketched)), folder / "told")


def test_a_run_without_models_is_mapped_and_says_how_exactly(runs: tuple[Run, Run]) -> None:
    exact, told = (fedscope.embed(run, "pca", rounds="all") for run in runs)
    assert [(p.round, p.which, p.labels) for p in told.points] == [(p.round, p.which, p.labels) for p in exact.points]
    assert {point.which for point in told.points} >= {"global", "averaged"}
    for one, other in zip(exact.spreads, told.spreads, strict=True):
        assert other[1:] == (one[1], pytest.approx(one[2], rel=5 / np.sqrt(2 * 4096)))
        assert other[2] != one[2]
    assert np.corrcoef(exact.places[:, 0], told.places[:, 0])[0, 1] > 0.98
    assert (told.attrs["sketch"], told.findings()["sketch"], exact.findings().get("sketch")) == (4096, 4096, None)
    sentence = "from sketches of 4,096 numbers a model: a distance is off by 1.1 % (one standard deviation)"
    assert told.summary().splitlines()[0].endswith(f"; {sentence}")
    assert "sketch" not in exact.summary()
    caption = "from sketches of 4,096 numbers a model, distances off by 1.1 %, one standard deviation"
    drawn, plain = (" ".join(" ".join(t.get_text() for t in m.figure().texts).split()) for m in (told, exact))
    assert caption in drawn
    assert "sketch" not in plain
    assert "from sketches of 4,096 numbers a model" in told.page()


def test_both_methods_are_kept_read_back_and_repeated(
    runs: tuple[Run, Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for method in ("tsne", "pca"):
        words = ["disperse", str(runs[1].path), "--embed", method, "--out", str(tmp_path / method)]
        assert command(words) == 0
        printed = capsys.readouterr().out
        assert "a distance is off by 1.1 %" in printed
        assert command([*words, "--redraw", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["sketch"] == 4096
        assert Embedding.load(str(tmp_path / method)).sketch == 4096
        table = (tmp_path / f"{method}.embedding.csv").read_bytes()
        assert command([*words, "--force"]) == 0
        assert (tmp_path / f"{method}.embedding.csv").read_bytes() == table


def test_two_runs_with_one_history_meet_on_the_map(tmp_path: Path) -> None:
    """Sketches of two runs have the same buckets: what is the same in both is one point."""
    one = record(tmp_path / "one", 2, keep="none", sketch=64)
    other = record(tmp_path / "other", 3, keep="none", sketch=64)
    made = sketched_gram([(one, 1), (one, 2), (other, 1), (other, 2)])
    apart = distances(made)
    n = 2 * CLIENTS
    assert (np.diagonal(apart[:n, n : 2 * n]) == 0).all()
    assert (apart[:CLIENTS, CLIENTS:n] > 0).all()


def test_models_are_taken_where_all_rounds_have_them(tmp_path: Path) -> None:
    both = record(tmp_path / "both", sketch=64)
    assert fedscope.embed(both, "pca").sketch == 0
    some = record(tmp_path / "some", 4, keep="every:2", sketch=64)
    alone = fedscope.embed(some, "pca")
    assert (alone.rounds, alone.sketch) == ((2, 4), 0)
    assert (fedscope.embed(some, "pca", rounds="1,2").sketch, fedscope.embed(some, "pca", rounds="2").sketch) == (64, 0)
    few = record(tmp_path / "few", keep="sample:2", sketch=64)
    made = fedscope.embed(few, "pca")
    assert made.sketch == 64
    assert sum(point.is_client for point in made.points) == 3 * CLIENTS


def test_what_sketches_cannot_tell_is_refused_in_one_sentence(tmp_path: Path) -> None:
    told = record(tmp_path / "told", keep="none", sketch=64)
    wider = record(tmp_path / "wider", keep="none", sketch=128)
    exact, bare = record(tmp_path / "exact"), record(tmp_path / "bare", keep="none")
    broken = tmp_path / "broken"
    w = np.ones(SIZE)
    with Recorder(broken, keep="none", sketch=64) as recorder, pytest.warns(match="has diverged"):
        recorder.round(start={"w": w}, clients=[{"w": w + 1}, {"w": np.nan * w}, {"w": w - 1}])
    for asked, how, said in [
        (
            [told],
            {"layers": "w"},
            r"^layers='w': .*told is computed from sketches, which add up all parameters of a "
            "model",
        ),
        ([told, wider], {}, r"told@1 has sketches of 64 numbers, .*wider@1 of 128, .* show them one by one$"),
        (
            [told, exact],
            {},
            r"exact@1 has its clients' models and no sketches, .*told@1 sketches and not all models, be",
        ),
        ([bare], {}, r"bare recorded no round's clients; record it with keep='all', or with sketches of their updates"),
        ([bare], {"rounds": "2"}, r"bare@2: the clients of round 2 were not recorded; no round of this run has them"),
        ([broken], {}, r"broken@1/client-1 has parameters that are not finite, so its sketch has no distance to"),
    ]:
        with pytest.raises(FedscopeError, match=said):
            fedscope.embed(asked, "pca", **how)


@pytest.mark.parametrize("name", ["disperse {}", "synergy {}@2", "parameters {} --round 2", "line {}@2 --clients"])
def test_questions_that_need_models_say_what_sketches_tell(
    runs: tuple[Run, Run], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(name.format(runs[1].path).split()) == 2
    said = capsys.readouterr().err
    assert "no round of this run has them: train with record.clients = 'all'; its sketches tell lengths" in said
    assert "(fedscope updates, fedscope disperse --embed)" in said
