"""Rounds whose clients start from models of their own: what is recorded of them, read back, and refused."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from fedscope import Recorder
from fedscope.checkpoints import FedscopeError, FedscopeWarning, Run
from fedscope.checkpoints.io.hdf5 import open_hdf5
from fedscope.checkpoints.rounds.columns import read_chunks
from fedscope.checkpoints.rounds.mixing import Mixing, Moments, explain_mixing, identify_mixing
from fedscope.checkpoints.rounds.verify import check_round

pytestmark = pytest.mark.same_elsewhere

IDS = (2, 7, 40)
Arrays = dict[str, np.ndarray]


def model(seed: int, dtype: str = "float32") -> Arrays:
    rng = np.random.default_rng(seed)
    return {
        "a.weight": rng.normal(size=(4, 3)).astype(dtype),
        "norm.running_mean": rng.normal(size=4).astype(dtype),
        "norm.num_batches_tracked": np.array(seed, np.int64),
    }


def some(seed: int) -> dict[int, Arrays]:
    return {k: model(seed + k) for k in IDS}


HALVES = np.array([[0.5, 0.5, 0], [0, 0.5, 0.5], [0.5, 0, 0.5]])


def test_starts_mixing_and_staleness_are_read_back_bit_for_bit(tmp_path: Path) -> None:
    starts, clients = some(0), some(100)
    with Recorder(tmp_path / "run") as recorder:
        # in another order than the clients' numbers, as pairs that have come one by one
        pairs = [(k, clients[k]) for k in (40, 2, 7)]
        recorder.round(starts=starts, clients=pairs, mixing=HALVES, staleness={2: 0, 7: 3, 40: 1})
        for given in (*starts.values(), *clients.values()):
            for value in given.values():
                value[...] = 0  # as soon as the call is back
        recorder.round(starts=some(0), clients=some(100), mixing={2: {2: 1}, 7: {2: 0.5, 40: 0.5}, 40: {40: 1.0}})
        recorder.round(starts=list(some(0).values()), clients=list(some(100).values()))
    run = Run.open(tmp_path / "run")
    first, second, third = map(run.round, run.rounds)
    assert (first.own_starts, first.has_starts, first.models) == (True, True, ())
    assert first.client_ids.tolist() == list(IDS)
    assert first.mixing is not None
    assert first.client_staleness is not None
    np.testing.assert_array_equal(first.mixing, HALVES)
    assert first.client_staleness.tolist() == [0, 3, 1]
    for k in IDS:
        for found, expected in ((first.starts([k]).row(0), model(k)), (first.client(k), model(100 + k))):
            for name, value in found.arrays().items():
                assert value.tobytes() == expected[name].tobytes(), (k, name)
    rows = [chunk.read() for chunk in read_chunks(first, 5, which="starts")]
    np.testing.assert_array_equal(np.concatenate(rows, axis=1), first.starts().parameters)
    np.testing.assert_array_equal(list(first.rows_of("starts", "a.weight")), first.starts().parameters)
    assert second.mixing is not None
    assert second.client_staleness is None
    np.testing.assert_array_equal(second.mixing, [[1, 0, 0], [0.5, 0, 0.5], [0, 0, 1]])
    assert third.mixing is None
    assert third.client_ids.tolist() == [0, 1, 2]
    assert "each from a start of its own" in repr(first)
    assert [check_round(one).faults for one in (first, second, third)] == [(), (), ()]


def test_only_rounds_with_starts_have_the_new_version(tmp_path: Path) -> None:
    with Recorder(tmp_path / "run") as recorder:
        recorder.round(start=model(0), clients=some(100))
        recorder.round(starts=some(0), clients=some(100))
    versions = []
    for path in sorted((tmp_path / "run" / "rounds").iterdir()):
        with h5py.File(path) as file:
            versions.append(int(file.attrs["version"]))
            assert ("starts" in file) == (versions[-1] == 2)
    assert versions == [1, 2]
    run = Run.open(tmp_path / "run")
    assert not run.round(1).own_starts
    assert run.round(1).client_staleness is None
    assert run.round(1).mixing is None
    with pytest.raises(FedscopeError, match=r"run@1: round 1 has one start for all of its clients"):
        run.round(1).starts()


def test_a_fedscope_that_does_not_know_the_version_says_so(tmp_path: Path) -> None:
    with Recorder(tmp_path / "run") as recorder:
        recorder.round(starts=some(0), clients=some(100))
    path = tmp_path / "run" / "rounds" / "00001.h5"
    expected = f"{path} has version 2 of its format, but this fedscope reads versions up to 1; upgrade it"
    with (
        pytest.raises(FedscopeError, match=re.escape(expected)),  # as it opens rounds
        open_hdf5(path, "fedscope-round", 1, "a round of a fedscope run"),
    ):
        pass


def test_starts_are_kept_as_the_clients_are(tmp_path: Path) -> None:
    with Recorder(tmp_path / "run", keep="every:2") as recorder:
        for _ in range(2):
            recorder.round(starts=some(0), clients=some(100), mixing=HALVES)
    run = Run.open(tmp_path / "run")
    first, second = run.round(1), run.round(2)
    assert (first.own_starts, first.has_starts, second.has_starts) == (True, False, True)
    assert first.mixing is not None
    with pytest.raises(FedscopeError, match=r"round 1 did not record the models that its clients started from \(keep"):
        first.starts()


def test_of_a_sample_the_starts_are_kept_with_the_clients_and_all_else_of_all(tmp_path: Path) -> None:
    rounds = [(some(0), some(100)), (some(7), some(200))]
    for keep in ("all", "sample:2", "none"):
        with Recorder(tmp_path / keep, keep=keep) as recorder:
            for starts, clients in rounds:
                about = {"mixing": HALVES, "staleness": {2: 0, 7: 3, 40: 1}, "samples": {2: 1, 7: 2, 40: 5}}
                recorder.round(starts=starts, clients=clients, **about)
    whole, part, none = (Run.open(tmp_path / keep) for keep in ("all", "sample:2", "none"))
    for number in (1, 2):
        round_, full = part.round(number), whole.round(number)
        kept = round_.sampled_ids.tolist()
        assert len(kept) == 2
        assert (round_.own_starts, round_.has_starts, round_.has_sampled_starts) == (True, False, True)
        assert (full.has_starts, full.has_sampled_starts, none.round(number).has_sampled_starts) == (True, False, False)
        for k in kept:
            for found, expected in ((round_.starts([k]), full.starts([k])), (round_.clients([k]), full.clients([k]))):
                for name, value in found.row(0).arrays().items():
                    assert value.tobytes() == expected.row(0).arrays()[name].tobytes()
        np.testing.assert_array_equal(round_.starts(kept[::-1]).parameters, full.starts(kept[::-1]).parameters)
        for name in ("client_ids", "client_staleness", "mixing", "weights", "client_samples"):
            np.testing.assert_array_equal(getattr(round_, name), getattr(full, name))
        (lost,) = set(IDS) - set(kept)
        with pytest.raises(FedscopeError, match=rf"client-{lost}: round {number} recorded the models of clients "):
            round_.starts([lost])
        with pytest.raises(
            FedscopeError,
            match=rf"round {number} kept the models of 2 of its 3 clients .* and what these started from, and the st",
        ):
            round_.starts()
        assert check_round(round_).faults == ()
        with h5py.File(round_.path) as file:
            assert int(file.attrs["version"]) == 2
            assert file["sampled_starts/a.weight"].shape == (2, 4, 3)
            assert "starts" not in file


@pytest.mark.parametrize("keep", ["sample:2", "none", "every:5"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_distances_of_all_are_told_where_not_all_are_kept(keep: str, dtype: str, tmp_path: Path) -> None:
    from fedscope.decomposition.consensus.distances import measure_distances

    def those(seed: int) -> dict[int, Arrays]:
        return {k: model(seed + k, dtype) for k in IDS}

    rounds = [(those(0), those(100)), (those(7), those(200))]
    for name, kept in (("whole", "all"), ("part", keep)):
        with Recorder(tmp_path / name, keep=kept) as recorder:
            for starts, clients in rounds:
                recorder.round(starts=starts, clients=clients)
    whole, part = (Run.open(tmp_path / name) for name in ("whole", "part"))
    assert "consensus_before" not in whole.round(1).metrics
    for number in (1, 2):
        told = part.round(number).metrics
        # sums in float64, in another order
        assert told["consensus_before"] == pytest.approx(measure_distances(whole, number).before, rel=1e-12)
    # the distance after the first round's mixing is that of the second one's starts
    assert part.round(2).metrics["consensus_start"] == pytest.approx(measure_distances(whole, 1).after, rel=1e-12)
    np.testing.assert_array_equal(
        part.all_metrics()["consensus_before"], [part.round(t).metrics["consensus_before"] for t in (1, 2)]
    )


def test_what_needs_all_nodes_says_where_their_distances_are(tmp_path: Path) -> None:
    import fedscope

    for keep in ("sample:2", "none"):
        with Recorder(tmp_path / keep, keep=keep) as recorder:
            recorder.round(starts=some(0), clients=some(100))
        with pytest.raises(
            FedscopeError,
            match=r"its consensus distances were measured while it was recorded \(fedscope curves --measure consensus",
        ):
            fedscope.consensus(tmp_path / keep)
        curves = fedscope.curves([tmp_path / keep], measures=("consensus_before", "consensus_start"))
        assert len(curves.figure().axes) == 2


@pytest.mark.parametrize("what", ["row", "missing", "more"])
def test_damage_to_sampled_starts_is_found(tmp_path: Path, what: str) -> None:
    with Recorder(tmp_path / "run", keep="sample:2") as recorder:
        recorder.round(starts=some(0), clients=some(100))
    round_ = Run.open(tmp_path / "run").round(1)
    with h5py.File(round_.path, "r+") as file:
        if what == "row":
            file["sampled_starts/a.weight"][1, 0, 0] = 9
        elif what == "missing":
            del file["sampled_starts/a.weight"]
        else:
            values = file["sampled_starts/a.weight"][:]
            del file["sampled_starts/a.weight"]
            file["sampled_starts/a.weight"] = np.concatenate([values, values])
    damaged = Run.open(tmp_path / "run").round(1)
    assert any("sampled_starts" in fault for fault in check_round(damaged).faults)
    with pytest.raises(FedscopeError, match=r"sampled_starts/a\.weight"):
        damaged.starts(damaged.sampled_ids)


def edited(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    asked: dict[str, Any] = {"starts": some(0), "clients": some(100), "mixing": HALVES}
    change(asked)
    return asked


NAN = HALVES.copy()
NAN[1, 2] = np.nan
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "never": (
        edited(lambda a: a["clients"].pop(7)),
        r"run@1: client 7 has a start, but no model after its training \(clients 2, 40 have\); leave those that have "
        r"not answered out of starts=",
    ),
    "no start": (
        edited(lambda a: a["starts"].pop(40)),
        r"run@1: client 40 has a model, but no start \(clients 2, 7 have\); give starts= of all clients",
    ),
    "twice": (
        edited(lambda a: a.update(clients=[*a["clients"].items(), (7, model(5))])),
        r"run@1: client 7 is there twice in clients=; give one model of it, and what came later in the next round; "
        r"where 7 is a number of samples, give clients=\[model for _, model in pairs\], samples=\[n for n, _ in "
        r"pairs\]",
    ),
    "a start twice": (
        edited(lambda a: a.update(starts=[*a["starts"].items(), (7, model(5))])),
        r"client 7 is there twice in starts=; give one model of it, and what came later in the next round$",
    ),
    "both": (edited(lambda a: a.update(start=model(0))), r"start= is one model for all clients, and starts= is one"),
    "mixing alone": (
        edited(lambda a: a.pop("starts")),
        r"mixing= is of clients that start from models of their own; give them as starts=, or leave mixing= out",
    ),
    "staleness alone": (
        {"start": model(0), "clients": some(100), "staleness": dict.fromkeys(IDS, 1)},
        r"staleness= is of clients that start",
    ),
    "no starts": (edited(lambda a: a.update(starts={})), r"no starts were given; give starts=\{number: model\}"),
    "rows": (
        edited(lambda a: a.update(mixing=HALVES * 0.9)),
        r"run@1: the weights of client 2 in mixing sum to 0\.9, not 1; row i has the weights",
    ),
    "columns": (
        edited(lambda a: a.update(mixing=np.array([[0.5, 0.9, 0.5], [0.25, 0.05, 0.25], [0.25, 0.05, 0.25]]))),
        r"the weights of client 2 in mixing sum to 1\.9, not 1 \(its columns do; give mixing\.T",
    ),
    "not finite": (
        edited(lambda a: a.update(mixing=NAN)),
        r"run@1: the weights of client 7 in mixing are not finite; give numbers",
    ),
    "shape": (
        edited(lambda a: a.update(mixing=np.eye(4))),
        r"run@1: mixing has shape \[4, 4\], and 3 clients have a model; give \[3, 3\], a row a client",
    ),
    "no matrix": (edited(lambda a: a.update(mixing="ring")), r"mixing is a str that is no matrix of numbers"),
    "a row less": (
        edited(lambda a: a.update(mixing={2: {2: 1}, 7: {7: 1}})),
        r"client 40 has a model, but no row in mixing; give a row of each",
    ),
    "another": (
        edited(lambda a: a.update(mixing={2: {3: 1}, 7: {7: 1}, 40: {40: 1}})),
        r"mixing names client 3, which has no model in this round \(clients 2, 7, 40 have\)",
    ),
    "no row": (
        edited(lambda a: a.update(mixing={2: [1, 0, 0], 7: {7: 1}, 40: {40: 1}})),
        r"the row of client 2 in mixing is a list; give \{client: weight\}",
    ),
    "no weight": (
        edited(lambda a: a.update(mixing={2: {2: "all"}, 7: {7: 1}, 40: {40: 1}})),
        r"mixing has 'all' for clients 2 and 2, which is not a number",
    ),
    "age": (
        edited(lambda a: a.update(staleness={2: 0, 7: -1, 40: 0})),
        r"staleness is 0\.0, -1\.0, 0\.0; give how many rounds old each start was, whole numbers from 0 on",
    ),
    "no age": (
        edited(lambda a: a.update(staleness={2: 0, 7: 1})),
        r"client 40 has a model, but no staleness; give staleness of all clients",
    ),
    "shapes": (
        edited(lambda a: a["starts"][7].update({"a.weight": np.zeros((4, 2), np.float32)})),
        r"run@1: the start of client 7 .*; give models of one architecture",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_does_not_go_together_is_refused_and_nothing_is_recorded(tmp_path: Path, what: str) -> None:
    asked, sentence = REFUSED[what]
    with Recorder(tmp_path / "run") as recorder:
        with pytest.raises(FedscopeError, match=sentence):
            recorder.round(**asked)
        recorder.round(starts=some(0), clients=some(100), mixing=HALVES)
    assert Run.open(tmp_path / "run").rounds == (1,)


def test_a_start_that_is_not_finite_is_recorded_and_said(tmp_path: Path) -> None:
    starts = some(0)
    starts[7]["a.weight"][0, 0] = np.inf
    with (
        Recorder(tmp_path / "run") as recorder,
        pytest.warns(FedscopeWarning, match=r"run@1: the start of client 7 has diverged \(a\.weight is"),
    ):
        recorder.round(starts=starts, clients=some(100))
    assert np.isinf(Run.open(tmp_path / "run").round(1).starts([7]).parameters[0, 0])


def test_models_that_were_trained_in_place_are_told_from_copies(tmp_path: Path) -> None:
    nets = some(0)
    with (
        Recorder(tmp_path / "run") as recorder,
        pytest.warns(
            FedscopeWarning, match=r"run@1: starts= are the very models of clients=, so that nobody has moved"
        ),
    ):
        recorder.round(starts=nets, clients=nets)
    with warnings.catch_warnings(), Recorder(tmp_path / "other") as recorder:
        warnings.simplefilter("error")
        recorder.round(starts={**some(0), 2: nets[2]}, clients={**some(100), 2: nets[2]})  # one that did nothing


def test_what_needs_one_start_while_recording_says_so(tmp_path: Path) -> None:
    with (
        Recorder(tmp_path / "sketched", sketch=16) as recorder,
        pytest.raises(FedscopeError, match=r"sketch = 16 is of updates from one model that all clients"),
    ):
        recorder.round(starts=some(0), clients=some(100))
    with Recorder(tmp_path / "later", sketch=16) as recorder:
        recorder.round(start=model(0), clients=some(100))
        for _ in range(2):  # in the middle of a training no round is lost to it
            with warnings.catch_warnings(record=True) as found:
                warnings.simplefilter("always")
                recorder.round(starts=some(0), clients=some(100))
            said = [str(one.message) for one in found if "sketch" in str(one.message)]
            assert said == (
                [
                    f"{tmp_path}/later@2: no sketches are kept without one start for all clients, which updates are "
                    "made of"
                ]
                if recorder.accepted == 2
                else []
            )
    later = Run.open(tmp_path / "later")
    assert [later.round(t).has_sketch for t in later.rounds] == [True, False, False]
    with pytest.raises(FedscopeError, match=r"round 2 has no sketches \(its clients had no one start\)$"):
        later.round(2).sketch()
    with (
        warnings.catch_warnings(record=True) as found,
        Recorder(tmp_path / "later", sketch=16, resume=True) as recorder,
    ):
        warnings.simplefilter("always")
        recorder.round(starts=some(0), clients=some(100))  # as the loop went on before it was stopped
    assert any("no sketches are kept without one start" in str(one.message) for one in found)
    assert Run.open(tmp_path / "later").rounds == (1, 2, 3, 4)
    with (
        Recorder(tmp_path / "drift", drift=True) as recorder,
        pytest.warns(FedscopeWarning, match=r"no drift is measured without one start for all clients"),
    ):
        recorder.round(starts=some(0), clients=some(100))


def test_a_list_of_models_that_are_tuples_of_arrays_is_still_a_list(tmp_path: Path) -> None:
    """Pairs begin with a number; a model of two arrays does not."""
    from torch import nn

    net = nn.Linear(2, 2)
    arrays = tuple(value.detach().numpy() for value in net.state_dict().values())
    with Recorder(tmp_path / "run", model=net) as recorder:
        recorder.round(clients=[arrays, arrays])
    assert Run.open(tmp_path / "run").round(1).client_ids.tolist() == [0, 1]


@pytest.mark.parametrize("what", ["row", "weight", "age"])
def test_damage_to_the_new_numbers_is_found(tmp_path: Path, what: str) -> None:
    with Recorder(tmp_path / "run") as recorder:
        recorder.round(starts=some(0), clients=some(100), mixing=HALVES, staleness={2: 0, 7: 1, 40: 2})
    path = tmp_path / "run" / "rounds" / "00001.h5"
    with h5py.File(path, "r+") as file:
        if what == "row":
            file["starts/a.weight"][1, 0, 0] = 9
        elif what == "weight":
            file["mixing"][0, 0] = 0.4
        else:
            file["client_staleness"][1] = 5
    round_ = Run.open(tmp_path / "run").round(1)
    named = {"row": "client 7's starts/a.weight", "weight": "mixing", "age": "client_staleness"}[what]
    with pytest.raises(FedscopeError, match=rf"{named} is not what was written"):
        _ = round_.starts()
    assert any(named in fault for fault in check_round(round_).faults)


def foreign(tmp_path: Path, mixing: np.ndarray) -> Any:
    """A round that another program wrote: without checksums."""
    with Recorder(tmp_path / "run") as recorder:
        recorder.round(starts=some(0), clients=some(100), mixing=HALVES)
    path = tmp_path / "run" / "rounds" / "00001.h5"
    with h5py.File(path, "r+") as file:
        del file["checksums"], file["mixing"]
        if "checksums" in file.attrs:
            del file.attrs["checksums"]
        file["mixing"] = mixing
    return Run.open(tmp_path / "run").round(1)


def test_a_matrix_of_another_program_is_checked(tmp_path: Path) -> None:
    with pytest.raises(FedscopeError, match=r"mixing has shape \(2, 2\), not \[3, 3\], a row a client"):
        _ = foreign(tmp_path / "a", np.eye(2)).mixing
    with pytest.raises(FedscopeError, match=r"the rows of mixing sum to 1, but here one sums to 0\.5"):
        _ = foreign(tmp_path / "b", np.eye(3) / 2).mixing
    np.testing.assert_array_equal(foreign(tmp_path / "c", np.eye(3)).mixing, np.eye(3))


# --- which mixing it was ---


def moments(w: np.ndarray, s: np.ndarray) -> Moments:
    mean = w.mean(axis=0)
    d, e = w - mean, s - mean
    return Moments(d @ d.T, e @ d.T, (e**2).sum(axis=1), float((s**2).sum(axis=1).mean()), w.shape[1])


@pytest.mark.parametrize("nodes", [1, 2, 16])
def test_a_matrix_is_found_from_the_next_starts(nodes: int) -> None:
    rng = np.random.default_rng(nodes)
    w = (rng.normal(size=(nodes, 500)) / 10 + rng.normal(size=500)).astype(np.float32)
    mixed = rng.dirichlet(np.ones(nodes), size=nodes)
    s = (mixed @ w.astype(float)).astype(np.float32)
    found = identify_mixing(moments(w.astype(float), s.astype(float)))
    assert found.source == "identified"
    assert found.matrix is not None
    assert found.residual is not None
    assert found.uncertainty is not None
    # as large as what rounding may do is said to be, for the largest of many
    assert abs(found.matrix - mixed).max() <= 10 * found.uncertainty + 1e-9
    np.testing.assert_allclose(found.matrix.sum(axis=1), 1, atol=1e-9)
    assert found.residual < 1e-5 or nodes == 1


def test_starts_that_are_no_mixtures_leave_a_residual() -> None:
    rng = np.random.default_rng(0)
    w = rng.normal(size=(4, 4000))
    s = HALF4 @ w + rng.normal(size=(4, 4000))  # as far off as the models are apart
    found = identify_mixing(moments(w, s))
    assert found.residual is not None
    assert 1.0 < found.residual < 1.3
    right, wrong = explain_mixing(HALF4, moments(w, HALF4 @ w)), explain_mixing(HALF4.T, moments(w, HALF4 @ w))
    assert right.residual is not None
    assert wrong.residual is not None
    assert right.residual < 1e-6
    assert wrong.residual > 0.5


HALF4 = (np.eye(4) + np.roll(np.eye(4), 1, axis=1)) / 2


@pytest.mark.parametrize(
    ("w", "why"),
    [
        (np.random.default_rng(0).normal(size=(4, 4)), r"4 nodes with 4 parameters fit anything"),
        (np.ones((4, 50)), r"all nodes have the same model"),
        (np.random.default_rng(0).normal(size=(2, 50))[[0, 1, 0, 1]], r"ill-conditioned: the smallest singular"),
        (1e4 + np.random.default_rng(0).normal(size=(4, 50)) / 1e3, r"rounding may change a weight by .* \(ill-cond"),
        (np.full((4, 50), np.nan), r"a model is not finite"),
    ],
    ids=["few", "same", "rank", "near", "nan"],
)
def test_it_is_said_where_no_matrix_can_be_found(w: np.ndarray, why: str) -> None:
    found = identify_mixing(moments(w, w))
    assert (found.source, found.matrix, found.residual) == ("unknown", None, None)
    assert re.search(why, found.why)


def test_contraction_is_what_mixing_does_to_distances() -> None:
    rng = np.random.default_rng(0)
    w = rng.normal(size=(4, 1000))
    before, after = (np.sqrt(((v - v.mean(axis=0)) ** 2).sum()) for v in (w, HALF4 @ w))
    contraction = Mixing("given", HALF4, None).contraction
    assert contraction is not None
    assert contraction == pytest.approx(np.cos(np.pi / 4))  # of a ring: |(1 + exp(2πi/4)) / 2|
    assert after <= contraction * before
    assert Mixing("unknown", None, None).contraction is None


@pytest.mark.parametrize("stay", [1, 2, 3, 5])
def test_contraction_is_not_exceeded_where_nodes_leave(stay: int) -> None:
    """Distances are root mean squares, over C nodes before and over the S that stay after: as it reaches it."""
    rng = np.random.default_rng(stay)
    matrix = rng.dirichlet(np.ones(6), size=stay)
    matrix[:2] = np.eye(6)[:2][:stay]  # two keep theirs
    said = Mixing("given", matrix, None).contraction
    assert said is not None
    greatest = 0.0
    centred = np.eye(6) - 1 / 6
    worst = np.linalg.svd((matrix - matrix.mean(axis=0)) @ centred)[2][0]
    for w in (worst[:, None], *rng.normal(size=(20, 6, 50)) * 10.0 ** rng.normal(size=(20, 6, 1))):
        before, after = (np.sqrt(((v - v.mean(axis=0)) ** 2).sum() / len(v)) for v in (w, matrix @ w))
        assert after <= said * before * (1 + 1e-9)
        greatest = max(greatest, after / before)
    assert greatest == pytest.approx(said, abs=1e-9)


def test_recording_a_round_with_one_start_says_nothing_new(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Recorder(tmp_path / "run") as recorder:
            recorder.round(start=model(0), clients=some(100))
