"""What is given with clients: lists in another order, models that are one in memory, parts of data that are no rows."""

from __future__ import annotations

import contextlib
import copy
import gc
import warnings
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Subset, TensorDataset

from fedscope import Recorder
from fedscope.checkpoints import FedscopeError, FedscopeWarning, Run
from fedscope.checkpoints.recorder import round_models
from fedscope.checkpoints.recorder.coerce_models import coerce_model
from fedscope.checkpoints.recorder.framework_rounds import Contribution, NamedRounds

pytestmark = pytest.mark.same_elsewhere


def model(value: float) -> dict[str, np.ndarray]:
    return {"w": np.full(3, value, np.float32)}


@pytest.mark.parametrize("clients", [[(1, model(1)), (0, model(0))], {1: model(1), 0: model(0)}, {3: model(3)}])
@pytest.mark.parametrize("what", ["samples", "weights", "staleness", "starts"])
def test_a_list_beside_clients_in_another_order_is_refused(clients: Any, what: str, tmp_path: Path) -> None:
    """It was counted from 0: the first of the list was client 0's, though client 1 had come first."""
    own = {"starts": {k: model(9) for k in dict(clients)}} if what == "staleness" else {}
    values: list[Any] = [model(7), model(8)] if what == "starts" else [1, 3]
    came = ", ".join(map(str, dict(clients)))
    with Recorder(tmp_path / "run") as recorder:
        with pytest.raises(FedscopeError) as refused:
            recorder.round(clients=clients, **{**own, what: values[: len(clients)]})
        said = f"{what}= is a list, which counts clients from 0, but they came as {came}; give {what}={{number: ...}}"
        assert str(refused.value).endswith(f"run@1: {said}")
        recorder.round(clients=clients, **{**own, what: dict(zip(dict(clients), values, strict=False))})
    if what in ("samples", "weights") and len(clients) == 2:
        assert Run.open(tmp_path / "run").round(1).weights.tolist() == [0.75, 0.25], "client 0 has the second"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"samples": {"a": 1, "b": 2}}, "samples= has 'a', which is no client's number; number them as clients= does"),
        ({"samples": 5}, "samples= is 5; give one of each client: samples={number: ...}"),
        ({"weights": 0.5}, "weights= is 0.5; give one of each client: weights={number: ...}"),
        ({"metrics": 0.9}, "metrics= is float; give numbers by name, as metrics={'test_error': 0.1}"),
        ({"metrics": {1: 0.9}}, "the metric 1 is not a name; give a word, as 'test_error'"),
        ({"clients": np.zeros((2, 4))}, "clients as ndarray were given; give clients={number: model}, or a list"),
        (
            {"clients": []},
            "no clients were given; leave the round out where nobody has answered, or "
            "give clients={number: model}, or a list",
        ),
        (
            {"clients": [{"w": torch.ones(3, 3).to_sparse()}]},
            "w is sparse_coo, which a run cannot hold; give w.to_dense()",
        ),
    ],
)
def test_what_no_client_has_is_refused_in_a_sentence(given: Any, said: str, tmp_path: Path) -> None:
    with Recorder(tmp_path / "run") as recorder, pytest.raises(FedscopeError) as refused:
        recorder.round(**{"clients": [model(0), model(1)], **given})
    assert said in str(refused.value)


def test_a_source_that_is_no_text_is_refused_before_a_run_is_made(tmp_path: Path) -> None:
    with pytest.raises(FedscopeError, match="source=None is not a name; give a line of text"):
        Recorder(tmp_path / "run", source=None)  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (np.array([True, False]), "client 0 a mask of true and false; give the rows' numbers: np.flatnonzero(mask)"),
        ([0.5], "client 0 the sample 0.5; give whole numbers of rows"),
        (
            Subset(TensorDataset(torch.zeros(2, 1)), [1]),
            "client 0 a Subset; give its rows of x_train, as {0: part.indi",
        ),
    ],
)
def test_parts_that_are_no_rows_are_refused(part: Any, said: str, tmp_path: Path) -> None:
    """A mask was taken for rows 0 and 1, and a Subset's samples for numbers of rows."""
    with pytest.raises(FedscopeError) as refused:
        Recorder(tmp_path / "run", partition={0: part}, labels=[0, 1])
    assert str(refused.value).startswith(f"partition= gives {said}")


def test_parts_of_whole_numbers_in_floats_and_empty_ones_are_rows(tmp_path: Path) -> None:
    with Recorder(tmp_path / "run", partition=[[], np.array([1.0, 0.0])], labels=[0, 1]) as recorder:
        recorder.round(clients={1: model(0)})
    partition = Run.open(tmp_path / "run").partition
    assert partition is not None
    assert [rows.tolist() for rows in partition.clients] == [[], [1, 0]]


def test_models_of_another_architecture_than_the_recorders_are_refused_in_the_first_round(tmp_path: Path) -> None:
    with (
        Recorder(tmp_path / "run", model=nn.Linear(3, 3)) as recorder,
        pytest.raises(
            FedscopeError, match=r"the models have weight of shape \[2, 2\], and the architecture that model="
        ),
    ):
        recorder.round(clients=[nn.Linear(2, 2)])


def told(tmp_path: Path, **round_: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught, Recorder(tmp_path / "run", force=True) as recorder:
        warnings.simplefilter("always")
        recorder.round(**round_)
    return [str(one.message).partition(": ")[2] for one in caught if one.category is FedscopeWarning]


def test_models_that_were_not_copied_are_told(tmp_path: Path) -> None:
    """'state_dict()' holds the module's own tensors, so what was taken before training is what is there after it."""
    server, net, other = nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2)
    for given, said in (
        (
            {"start": server.state_dict(), "clients": [net, other], "global_": server},
            "start= and global_= are the same",
        ),
        ({"start": server, "clients": [net, other], "global_": server}, "start= and global_= are the same tensors, so"),
        ({"start": net.state_dict(), "clients": [net]}, "start= and the only client are the same tensors, so that its"),
        ({"start": server, "clients": [net, net.state_dict()]}, "the models of clients 0 and 1 are the same tensors,"),
        (
            {"starts": [other.state_dict(), net.state_dict()], "clients": [other, net]},
            "starts= and clients= are the same tensors, so that all updates are 0; ",
        ),
    ):
        (one,) = told(tmp_path, **given)
        assert one.startswith(said)
        assert one.endswith("copy each before it is changed: copy.deepcopy(net), copy.deepcopy(net.state_dict())")


def test_a_server_that_averages_into_a_clients_model_is_told(tmp_path: Path) -> None:
    """As ``averaged = models[0]`` does, which is not copied before it is filled."""
    start = nn.Linear(4, 4).state_dict()
    for over in (0, 2):
        models = [{name: values + torch.randn_like(values) for name, values in start.items()} for _ in range(3)]
        averaged = models[over]
        for name in averaged:
            averaged[name] = sum(model[name] for model in models) / 3
        assert told(tmp_path, start=start, clients=models, global_=averaged) == [
            f"global_= and the model of client {over} are the same tensors: where the server has averaged into them, "
            "the client's own model is gone; average into a copy: copy.deepcopy(models[0])"
        ]
    models = [{name: values + torch.randn_like(values) for name, values in start.items()} for _ in range(3)]
    assert told(tmp_path, start=start, clients=models, global_=copy.deepcopy(models[1])) == [], "a robust server"
    assert told(tmp_path, start=start, clients=models[:1], global_=models[0]) == [], "of one client it is the mean"


def test_a_start_or_global_of_another_round_is_told_where_the_server_has_momentum(tmp_path: Path) -> None:
    """A mean of such a start would be told by the clients' moves; of another server start and global are one model."""
    start = {"w": np.arange(16, dtype=np.float32)}
    clients = [{"w": start["w"] + np.random.default_rng(k).normal(1, 1, 16).astype(np.float32)} for k in range(3)]
    assert told(tmp_path, start=start, clients=clients, global_=copy.deepcopy(start)) == [
        "global is start, bit for bit, though the clients have moved; unless the server has left this round out, start "
        "or global_ was taken at the wrong time: give as start a copy of the model that the clients were sent, and as "
        "global_ the server's model after the round"
    ]
    still = [copy.deepcopy(start) for _ in range(2)]
    assert told(tmp_path, start=start, clients=still, global_=copy.deepcopy(start)) == []


def test_models_that_share_frozen_tensors_alone_and_rounds_that_do_nothing_are_not_told(tmp_path: Path) -> None:
    trunk = nn.Linear(2, 2)
    heads = [nn.Sequential(trunk, nn.Linear(2, 2)) for _ in range(4)]
    assert told(tmp_path, start=heads[0], clients=heads[1:3], global_=heads[3]) == []
    assert told(tmp_path, start=trunk, clients=[trunk], global_=trunk) == []
    assert told(tmp_path, start=copy.deepcopy(trunk), clients=[trunk], global_=trunk) == []
    assert told(tmp_path, start=trunk, clients=[trunk, heads[0][1]], global_=heads[1][1]) == [], "one has done nothing"


class Index(list[Any]):
    """An index as pandas has it: labels, and of a default one where it begins and ends."""

    index = None  # type: ignore[assignment]  # of a list it is a function


class Labelled:
    """What pandas' Series can do, as far as it is asked."""

    def __init__(self, values: list[Any], index: Any) -> None:
        self.index, self._values = index, values

    def __iter__(self) -> Any:
        return iter(self._values)

    def items(self) -> Any:
        return zip(self.index, self._values, strict=True)

    def to_numpy(self) -> Any:
        return np.fromiter(self._values, object)


def series(values: list[Any], index: Any = None) -> list[Any]:
    """The stand-in, and pandas' and xarray's own where they are installed."""
    made: list[Any] = [Labelled(values, range(len(values)) if index is None else Index(index))]
    with contextlib.suppress(ImportError):
        import pandas

        made.append(pandas.Series(values, index=index))
    with contextlib.suppress(ImportError):
        import xarray

        coords = None if index is None else {"client": index}
        made.append(xarray.DataArray(values, dims="client", coords=coords))
    return made


def round_of(path: Path, clients: Any, **given: Any) -> Any:
    with Recorder(path, force=True) as recorder:
        recorder.round(clients=clients, **given)
    return Run.open(path).round(1)


@pytest.mark.parametrize("ids", [(0, 1, 2), (3, 7, 9)])
def test_a_series_is_read_by_its_index(ids: tuple[int, ...], tmp_path: Path) -> None:
    """It was counted from 0, so that client 0 had the numbers of the index's first."""
    clients = {k: model(k) for k in ids}
    by_id = dict(zip(ids, (10, 20, 30), strict=True))
    turned = ids[::-1]
    for one in series([by_id[k] for k in turned], list(turned)):
        assert round_of(tmp_path / "run", clients, samples=one).client_samples.tolist() == [10, 20, 30]
        assert round_of(tmp_path / "run", clients, weights=one).weights.tolist() == pytest.approx([1 / 6, 1 / 3, 1 / 2])
        own = {"starts": {k: model(9) for k in ids}, "staleness": one}
        assert round_of(tmp_path / "run", clients, **own).client_staleness.tolist() == [10, 20, 30]


def test_a_series_with_a_default_index_is_a_list(tmp_path: Path) -> None:
    for one in series([10, 20]):
        assert round_of(tmp_path / "run", [model(0), model(1)], samples=one).client_samples.tolist() == [10, 20]
        with pytest.raises(
            FedscopeError, match="samples= is a list, which counts clients from 0, but they came as 3, 7"
        ):
            round_of(tmp_path / "run", {3: model(0), 7: model(1)}, samples=one)


def test_a_series_of_other_clients_or_of_one_twice_is_refused(tmp_path: Path) -> None:
    clients = {3: model(0), 7: model(1)}
    for index, said in (
        ([3, 8], "client 7 has a model, but no samples; give samples of all clients"),
        ([3, 7, 8], "client 8 has samples, but no model"),
        (["a", "b"], "samples= has 'a', which is no client's number"),
        ([3, 7, 7], "samples= has 7 twice in its index; give samples={number: ...}, one of each client"),
    ):
        for one in series([10, 20, 30][: len(index)], index):
            with pytest.raises(FedscopeError) as refused:
                round_of(tmp_path / "run", clients, samples=one)
            assert said in str(refused.value)


def test_what_has_no_order_is_no_list_of_clients(tmp_path: Path) -> None:
    """{30, 10} was enumerated, in the order in which a set happens to keep it."""
    for given, kind in (
        ({30, 10}, "set, which does not say which number is whose"),
        (frozenset({30, 10}), "frozenset, which does not say which number is whose"),
        ({1: 30, 0: 10}.keys(), "dict_keys, which does not say which number is whose"),
        ("12", "str, which is no list"),
    ):
        with pytest.raises(FedscopeError) as refused:
            round_of(tmp_path / "run", [model(0), model(1)], samples=given)
        assert str(refused.value).endswith(f"samples= is a {kind}; give samples={{number: ...}}")


def test_a_column_of_a_table_whose_index_may_be_its_rows_is_refused(tmp_path: Path) -> None:
    """A sorted log: its index are the rows of the log, and no clients."""
    pandas = pytest.importorskip("pandas")
    log = pandas.DataFrame({"client": [2, 0, 1], "n": [30, 10, 20]}).sort_values("client")
    clients = [model(0), model(1), model(2)]
    with pytest.raises(FedscopeError, match=r"samples= is the column 'n' of a table, whose index \(1, 2, 0\) may name"):
        round_of(tmp_path / "run", clients, samples=log["n"])
    for given in (
        log["n"].to_numpy(),
        log.set_index("client")["n"],
        {2: 30, 0: 10, 1: 20},
        {0: 10, 1: 20, 2: 30}.values(),
    ):
        assert round_of(tmp_path / "run", clients, samples=given).client_samples.tolist() == [10, 20, 30]


def test_a_mixing_table_is_read_by_its_index_and_columns(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    clients, own = {k: model(k) for k in (3, 7)}, {"starts": {k: model(9) for k in (3, 7)}}
    matrix = np.array([[0.25, 0.75], [0.5, 0.5]])
    turned = pandas.DataFrame(matrix, index=[3, 7], columns=[3, 7]).loc[[7, 3], [7, 3]]
    for given in (turned, pandas.DataFrame(matrix), matrix):
        assert round_of(tmp_path / "run", clients, **own, mixing=given).mixing.tolist() == matrix.tolist()
    with pytest.raises(FedscopeError, match="samples= is a DataFrame, a table; give"):
        round_of(tmp_path / "run", clients, samples=turned)


def test_a_partition_is_read_by_an_index_and_refuses_the_samples_clients(tmp_path: Path) -> None:
    """Of [0, 1, 1, 0], the client of each sample, client 0 had row 0 and client 1 row 1."""
    parts = Labelled([[2, 3], [0], [1]], Index([2, 0, 1]))
    for one in (parts, Labelled([[0], [1], [2, 3]], range(3))):
        with Recorder(tmp_path / "run", partition=one, labels=[0, 1, 0, 1], force=True) as recorder:
            recorder.round(clients={k: model(k) for k in range(3)})
        partition = Run.open(tmp_path / "run").partition
        assert partition is not None
        assert [rows.tolist() for rows in partition.clients] == [[0], [1], [2, 3]]
    said = "partition= gives client 0 the number 0, and no list of rows; give {0: rows}, of the samples' clients np.fla"
    for owner in ([0, 1, 1, 0], np.array([0, 1, 1, 0]), *series([0, 1, 1, 0])[:2]):
        with pytest.raises(FedscopeError) as refused:
            Recorder(tmp_path / "other", partition=owner, labels=[0, 1, 0, 1])
        assert str(refused.value).startswith(said)


def test_a_client_without_rows_in_the_partition_is_refused(tmp_path: Path) -> None:
    """The run was recorded, and ``fedscope matrix`` of it ended in an IndexError."""
    parts: dict[int, list[int]] = {0: [0], 2: [1], 3: []}
    with Recorder(tmp_path / "run", partition=parts, labels=[0, 1]) as recorder:
        recorder.round(clients={0: model(0), 3: model(0)})
        for other in (1, 5):
            with pytest.raises(FedscopeError) as refused:
                recorder.round(clients={0: model(0), other: model(1)})
            assert (
                f"run@2: client {other} has a model, but no rows in partition= (clients 0, 2, 3 have); number b"
                in str(refused.value)
            )
    with Recorder(tmp_path / "run", resume=True) as recorder:  # a file alone does not say who was named
        recorder.round(clients={1: model(0)})
        with pytest.warns(FedscopeWarning, match="run@3: client 4 has a model, but no rows in partition="):
            recorder.round(clients={4: model(0)})  # a run cannot have another partition any more
    assert Run.open(tmp_path / "run").rounds == (1, 2, 3)


def test_samples_that_are_not_what_the_partition_counts_are_told_once(tmp_path: Path) -> None:
    def told_of(rounds: list[Any], **about: Any) -> list[str]:
        with warnings.catch_warnings(record=True) as caught, Recorder(tmp_path / "run", **about) as recorder:
            warnings.simplefilter("always")
            for samples in rounds:
                recorder.round(clients=[model(0), model(1)], samples=samples)
        return [str(one.message).partition(": ")[2] for one in caught if "partition=" in str(one.message)]

    about = {"partition": [[0, 1], [2]], "labels": [0, 1, 0], "force": True}
    assert told_of([[2, 1], None, [2, 1]], **about) == []
    (said,) = told_of([[2, 1], [1, 2], [1, 2]], **about)
    assert said.startswith(
        "client 0 has 1 samples, and 2 rows in partition= (so 2 of 2 clients); its weight is of the sa"
    )
    (said,) = told_of([[2, 7]], resume=True)
    assert said.startswith("client 1 has 7 samples, and 1 rows in partition=; its weight is of the samples, and what")


def test_tensors_of_bfloat16_that_lie_turned_are_found_where_they_are(tmp_path: Path) -> None:
    """Their numbers are copied when they are read, and each copy was taken for a tensor of its own."""
    turned = torch.ones(3, 2, dtype=torch.bfloat16).T
    one, two = {"w": turned}, {"w": (3 * turned).t().contiguous().t()}
    (said,) = told(tmp_path, start=two, clients=[one, one])
    assert said.startswith("the models of clients 0 and 1 are the same tensors")
    assert told(tmp_path, start={"w": turned * 2}, clients=[one, two]) == []
    assert coerce_model({"a": turned, "b": turned, "c": turned.clone()}).expected().tied == {"a": ("b",), "b": ("a",)}


def test_tensors_that_a_state_dict_makes_are_kept_until_their_places_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU the next one may lie where the last one was, and would be taken for it."""
    made: list[Any] = []

    class Fresh(nn.Linear):
        def state_dict(self, *args: Any, **kwargs: Any) -> Any:
            found = {name: value.clone() for name, value in super().state_dict(*args, **kwargs).items()}
            made.extend(map(weakref.ref, found.values()))
            return found

    alive: list[bool] = []
    monkeypatch.setattr(round_models, "one_memory", lambda *_: alive.extend(one() is not None for one in made) or "")
    told(tmp_path, start=Fresh(2, 2), clients=[Fresh(2, 2), Fresh(2, 2)], global_=Fresh(2, 2))
    assert alive == [True] * 8
    gc.collect()
    assert [one for one in made if one() is not None] == [], "and no longer"


class Masked(nn.Module):
    """A module with a floating buffer that no normalization layer has."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.register_buffer("mask", torch.ones(3))


@pytest.mark.parametrize("module", ["start", "clients", "second client", "global_", "starts", "model"])
def test_one_module_in_a_round_tells_buffers_from_parameters(module: str, tmp_path: Path) -> None:
    """Beside a start as a state_dict, in which both look alike, the clients' buffers counted as parameters."""
    nets = {name: Masked() for name in ("start", "clients", "second client", "global_", "starts", "model")}
    given = {name: net if name == module else net.state_dict() for name, net in nets.items()}
    about = {"model": nets["model"]} if module == "model" else {}
    began = {"starts": [given["starts"], nets["model"].state_dict()]} if module == "starts" else {}
    with Recorder(tmp_path / "run", **about) as recorder:
        recorder.round(
            clients=[given["clients"], given["second client"]],
            global_=given["global_"],
            **(began or {"start": given["start"]}),
        )
    layout = Run.open(tmp_path / "run").layout
    kinds = {"mask": "buffer", "layer.weight": "parameter", "layer.bias": "parameter"}
    assert [(entry.name, entry.kind) for entry in layout.entries] == list(kinds.items())


class _Placeless(torch.Tensor):
    """As tensors of a device that does not say where they lie."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> torch.Tensor:
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)  # type: ignore[attr-defined, no-any-return]

    def __init__(self, inner: torch.Tensor) -> None:
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*[one.inner if isinstance(one, _Placeless) else one for one in args], **(kwargs or {}))
        return _Placeless(out) if isinstance(out, torch.Tensor) else out

    def cpu(self, *_: Any) -> torch.Tensor:
        return self.inner.cpu()


def test_tensors_that_do_not_say_where_they_lie_are_not_taken_for_one_another(tmp_path: Path) -> None:
    def two(by: float) -> dict[str, torch.Tensor]:
        return {"a": _Placeless(torch.ones(3) * by), "b": _Placeless(torch.full((3,), 2.0) * by)}

    made = round_of(tmp_path / "run", {0: two(2), 1: two(3)})
    assert made.client(1).parameters.tolist() == [3, 3, 3, 6, 6, 6]


PARTS = {k: [2 * k, 2 * k + 1] for k in range(6)}
TOPICS = [0, 1] * 6


def told_by(recorder: Recorder, clients: Any, **given: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        recorder.round(clients=clients, **given)
    return [str(one.message) for one in caught]


@pytest.mark.parametrize("starts", [False, True])
def test_a_list_of_the_clients_that_were_drawn_is_refused_where_the_partition_has_more(
    tmp_path: Path, starts: bool
) -> None:
    """A list was taken as clients 0, 1, ..., so that all that is asked of own data was of others' rows."""
    drawn, models = [1, 4, 5], [model(k) for k in range(3)]
    own = {"starts": [model(9)] * 3} if starts else {}
    with Recorder(tmp_path / "run", partition=PARTS, labels=TOPICS) as recorder:
        with pytest.raises(FedscopeError) as found:
            recorder.round(clients=models, samples=[2, 2, 2], **own)
        assert str(found.value).endswith(
            "run@1: clients= is a list of 3, which is numbered from 0, and partition= has rows of others (clients 3, "
            "4, 5), so that the list does not say who took part; give clients={number: model} with the numbers of "
            "partition=, and samples= and weights= alike"
        )
        own = {"starts": dict.fromkeys(drawn, model(9))} if starts else {}
        recorder.round(clients=dict(zip(drawn, models, strict=True)), samples=dict.fromkeys(drawn, 2), **own)
        assert told_by(recorder, list(zip(drawn, models, strict=True))) == []  # pairs say their numbers
    assert Run.open(tmp_path / "run").round(1).client_ids.tolist() == drawn


@pytest.mark.parametrize("start", [False, True])
def test_pairs_of_samples_and_model_are_told_once_where_they_weigh_the_mean(tmp_path: Path, start: bool) -> None:
    """They were clients 30, 50 and 10 of equal weights, and a plain FedAvg was no known server."""
    draw = np.random.default_rng(0)
    first, *trained = ({"w": draw.normal(size=40)} for _ in range(4))
    pairs = list(zip((30, 50, 10), trained, strict=True))
    mean = {"w": sum(n * one["w"] for n, one in pairs) / 90}
    given: dict[str, Any] = {"global_": mean, **({"start": first} if start else {})}
    with Recorder(tmp_path / "run") as recorder:
        (said,) = told_by(recorder, pairs, **given)
        assert told_by(recorder, pairs, **given) == []
    assert said.endswith(
        "run@1: the first parts of clients= were taken for the clients' numbers, but as numbers of samples they make "
        "global the weighted mean; give clients=[model for _, model in pairs], samples=[n for n, _ in pairs]"
    )
    with Recorder(tmp_path / "mended") as recorder:
        told = told_by(recorder, [one for _, one in pairs], samples=[n for n, _ in pairs], **given)
    assert told == []
    assert Run.open(tmp_path / "mended").round(1).weights.tolist() == pytest.approx([3 / 9, 5 / 9, 1 / 9])


@pytest.mark.parametrize("weigh", ["plain", "samples", "momentum"])
def test_pairs_of_number_and_model_are_not_told_of(tmp_path: Path, weigh: str) -> None:
    draw = np.random.default_rng(0)
    first, *trained = (draw.normal(size=40) for _ in range(4))
    weights = {"plain": [1, 1, 1], "samples": [30, 50, 10], "momentum": [1, 1, 1]}[weigh]
    mean = sum(n * one for n, one in zip(weights, trained, strict=True)) / sum(weights)
    end = mean if weigh != "momentum" else mean + 0.9 * draw.normal(size=40)
    pairs = [(k, {"w": one}) for k, one in zip((3, 5, 1) if weigh != "samples" else (30, 50, 10), trained, strict=True)]
    given: dict[str, Any] = {"samples": dict(zip((30, 50, 10), weights, strict=True))} if weigh == "samples" else {}
    with Recorder(tmp_path / "run") as recorder:
        assert told_by(recorder, pairs, start={"w": first}, global_={"w": end}, **given) == []


def reply(k: int, n: int, **others: Any) -> dict[str, Any]:
    return {"client_id": k, "weights": model(k), "num_examples": n, **others}


@pytest.mark.parametrize(
    ("clients", "given", "said"),
    [
        (
            [reply(3, 10), reply(0, 90)],
            {},
            "client_id and num_examples beside 'weights' are not read; give clients={one['client_id']: one['weights'] "
            "for one in clients}, samples={one['client_id']: one['num_examples'] for one in clients}",
        ),
        (
            [reply(3, 10), reply(0, 90)],
            {"samples": [10, 90]},
            "client_id beside 'weights' is not read; give clients={one['client_id']: one['weights'] for one in "
            "clients}, and what is given beside them by the same numbers",
        ),
        (
            {3: reply(3, 10), 0: reply(0, 90)},
            {},
            "num_examples beside 'weights' is not read; give samples={k: one['num_examples'] for k, one in "
            "clients.items()}",
        ),
        (
            [(3, reply(3, 10)), (0, reply(0, 90))],
            {},
            "num_examples beside 'weights' is not read; give samples={by: one['num_examples'] for by, one in clients}",
        ),
        (
            [{"delta": model(3), "n": 10}, {"delta": model(0), "n": 90}],
            {},
            "n beside 'delta' is not read; give samples=[one['n'] for one in clients]",
        ),
        (
            [{"model": model(3), "weight": 0.2}, {"model": model(0), "weight": 0.8}],
            {},
            "weight beside 'model' is not read; give weights=[one['weight'] for one in clients]",
        ),
        (
            [{"model": model(3), "id": 7, "n": 3}, {"model": model(0), "id": 7, "n": 4}],  # of no client alone
            {},
            "n beside 'model' is not read; give samples=[one['n'] for one in clients]",
        ),
        ([{"weight": 0.4, "bias": [0.1, 0.2]}, {"weight": 0.5, "bias": [0.1, 0.2]}], {}, ""),  # a model itself
        ([{"state_dict": model(3), "epoch": 4}, {"state_dict": model(0), "epoch": 4}], {}, ""),
        ({3: reply(3, 10), 0: reply(0, 90)}, {"samples": {3: 10, 0: 90}}, ""),
    ],
)
def test_numbers_beside_the_model_of_a_reply_are_told(
    tmp_path: Path, clients: Any, given: dict[str, Any], said: str
) -> None:
    """Clients 3 and 0 were 0 and 1, and of equal weights."""
    with Recorder(tmp_path / "run") as recorder:
        assert told_by(recorder, clients, **given) == ([f"{tmp_path / 'run'}@1: {said}"] if said else [])
    if not said:
        return
    offered = said.partition("; give ")[2].removesuffix(", and what is given beside them by the same numbers")
    made = eval(f"dict({offered})", {"dict": dict}, {"clients": clients})
    if given:
        made |= {"samples": {3: 10, 0: 90}}
    with Recorder(tmp_path / "mended") as recorder:
        assert told_by(recorder, **{"clients": clients, **given, **made}) == []
    found = Run.open(tmp_path / "mended").round(1)
    by_id = dict(zip(found.client_ids.tolist(), found.weights.tolist(), strict=True))
    if "client_id and" in said or not isinstance(clients, list) or isinstance(clients[0], tuple):
        assert by_id == pytest.approx({3: 0.1, 0: 0.9})


def test_clients_by_words_are_told_to_be_numbered_and_modules_to_be_taken_out(tmp_path: Path) -> None:
    replies = [{"site": f"site-{k}", "weights": model(k), "n": 5} for k in (1, 2)]
    remedy = (
        "clients={numbers[one['site']]: one['weights'] for one in clients}, samples={numbers[one['site']]: one['n'] "
        "for one in clients}"
    )
    with Recorder(tmp_path / "run") as recorder:
        (said,) = told_by(recorder, replies)
    assert said.endswith(
        f"site and n beside 'weights' are not read; give {remedy}, with numbers = {{name: k for k, name in "
        "enumerate(names)} made once before the rounds"
    )
    made = eval(f"dict({remedy})", {"clients": replies, "numbers": {"site-1": 4, "site-2": 9}})
    assert made["samples"] == {4: 5, 9: 5}
    nets = [{"client_id": k, "model": nn.Linear(3, 1), "num_samples": 5} for k in (3, 0)]
    with Recorder(tmp_path / "modules") as recorder:
        with pytest.raises(FedscopeError) as refused:
            recorder.round(clients=nets)
        assert str(refused.value).endswith(
            "modules@1: clients= are dictionaries with a module under 'model'; give clients={one['client_id']: "
            "one['model'] for one in clients}, samples={one['client_id']: one['num_samples'] for one in clients}"
        )
        recorder.round(clients={one["client_id"]: one["model"] for one in nets})


@pytest.mark.parametrize(
    ("clients", "remedy"),
    [
        (
            [(model(1), np.int64(10)), (model(2), np.int64(30))],
            "clients=[model for model, _ in clients], samples=[n for _, n in clients]",
        ),
        ([(model(1), 10), (model(2), 30)], "clients=[model for model, _ in clients], samples=[n for _, n in clients]"),
        (
            {4: ([np.ones(3)], 10, {}), 7: ([np.zeros(3)], 30, {})},
            "clients={k: model for k, (model, _, _) in clients.items()}, samples={k: n for k, (_, n, _) in "
            "clients.items()}",
        ),
    ],
)
def test_tuples_of_model_and_samples_are_refused_with_how_they_are_given(
    tmp_path: Path, clients: Any, remedy: str
) -> None:
    """Of a Flower client's fit(): arrays of several shapes were numpy's traceback."""
    with Recorder(tmp_path / "run", model=nn.Linear(3, 1, bias=False)) as recorder:
        with pytest.raises(FedscopeError) as refused:
            recorder.round(clients=clients)
        assert str(refused.value) == (
            f"{tmp_path / 'run'}@1: each of clients= is a model and its number of samples; give {remedy}"
        )
    made = eval(f"dict({remedy})", {"dict": dict}, {"clients": clients})
    assert list(made) == ["clients", "samples"]
    assert list(made["samples"].values() if isinstance(clients, dict) else made["samples"]) == [10, 30]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([[np.ones((2, 3)), np.ones(2)], np.ones(2)], "weight is a list of several arrays, and no array; give each"),
        ([(torch.ones(2, 3, requires_grad=True), torch.ones(2)), 1], "weight is a tuple of several arrays, and no arr"),
        (list(nn.Linear(3, 2).named_parameters()), "a model was given as pairs of a name and a tensor; give dict(pair"),
    ],
)
def test_nested_arrays_are_refused_in_a_sentence(tmp_path: Path, given: Any, said: str) -> None:
    with Recorder(tmp_path / "run", model=nn.Linear(3, 2)) as recorder, pytest.raises(FedscopeError) as refused:
        recorder.round(clients=[given, given])
    assert f"run@1: client 0: {said}" in str(refused.value)


def test_statistics_of_other_frameworks_are_buffers(tmp_path: Path) -> None:
    """They were parameters, and their moves a part of the clients' updates."""
    names = {
        "dense/kernel": "parameter",
        "batch_normalization/gamma": "parameter",
        "batch_normalization/moving_mean": "buffer",
        "batch_normalization/moving_variance:0": "buffer",
        "batch_stats.BatchNorm_0.mean": "buffer",
        "batch_stats.BatchNorm_0.var": "buffer",
        "params.BatchNorm_0.scale": "parameter",
    }
    with Recorder(tmp_path / "run") as recorder:
        recorder.round(clients=[{name: np.full(2, float(k), np.float32) for name in names} for k in (0, 1)])
    assert {entry.name: entry.kind for entry in Run.open(tmp_path / "run").layout.entries} == names


def test_a_servers_mean_is_taken_in_the_clients_types(tmp_path: Path) -> None:
    """Counters of BatchNorm that torch.div has averaged, and numpy's mean in float64, were refused."""
    nets = [nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)) for _ in range(3)]
    states = [net.state_dict() for net in nets]
    mean = {name: torch.div(sum(state[name] for state in states), 3) for name in states[0]}
    assert mean["1.num_batches_tracked"].dtype == torch.float32
    with Recorder(tmp_path / "run") as recorder:
        assert told_by(recorder, nets, global_=mean) == []
    assert Run.open(tmp_path / "run").layout.entries[-1].dtype == "int64"
    arrays = [{"w": np.full(3, k, np.float32)} for k in (0, 1)]
    with Recorder(tmp_path / "wide") as recorder:
        said = told_by(
            recorder, arrays, global_={"w": np.average([one["w"] for one in arrays], axis=0, weights=[1, 3])}
        )
        assert told_by(recorder, arrays, start={"w": np.zeros(3)}) == []
    assert said[0].endswith("wide@1: global_ is in float64, and recorded in float32, as the clients' models are in")
    found = Run.open(tmp_path / "wide").round(1).read("global")
    assert (found.parameters.dtype, found.parameters.tolist()) == (np.float32, [0.75] * 3)


@pytest.mark.parametrize(
    ("names", "dtype", "said"),
    [
        (
            ("fc.kernel", "fc.offset"),
            np.float32,
            "the models have fc.kernel, fc.offset, and the architecture that model= gives has weight, bias instead, so "
            "that questions refuse them; give the architecture of these models as model=, or name their tensors as it "
            "does",
        ),
        (
            ("weight", "bias"),
            (np.float64, np.float32),
            "the models have weight in float64, and the architecture that model= gives in float32, so that questions "
            "refuse them; give them in float32",
        ),
        (("weight", "bias"), np.float64, ""),
        (("weight", "bias"), np.float32, ""),
        (("weight", "bias"), np.float16, ""),
    ],
)
def test_an_architecture_that_cannot_measure_the_models_is_told(
    tmp_path: Path, names: tuple[str, str], dtype: type | tuple[type, type], said: str
) -> None:
    """The recorder printed a command at its end that was refused."""
    types = dtype if isinstance(dtype, tuple) else (dtype, dtype)
    one = {name: np.ones(shape, own) for name, shape, own in zip(names, ((2, 3), 2), types, strict=True)}
    with Recorder(tmp_path / "run", model=nn.Linear(3, 2)) as recorder:
        found = told_by(recorder, [one, {name: 2 * array for name, array in one.items()}])
    assert found == ([f"{tmp_path / 'run'}@1: {said}"] if said else [])


def test_a_part_of_a_part_is_told_its_rows(tmp_path: Path) -> None:
    """The rows that were offered were places in the part of which it is one."""
    whole = TensorDataset(torch.zeros(12, 3), torch.arange(12) % 2)
    parts = [Subset(whole, range(6)), Subset(whole, range(6, 12))]
    own = [Subset(part, [1, 3]) for part in parts]
    thrice = [Subset(part, [1]) for part in own]
    for given, row, rows in (
        (own, "part.dataset.indices[i]", [[1, 3], [7, 9]]),
        (thrice, "part.dataset.dataset.indices[part.dataset.indices[i]]", [[3], [9]]),
    ):
        with pytest.raises(FedscopeError) as refused:
            Recorder(tmp_path / "run", partition=dict(enumerate(given)), labels=TOPICS)
        remedy = f"{{0: [{row} for i in part.indices]}}"
        assert str(refused.value).endswith(
            f"partition= gives client 0 a part of a part; give its rows of x_train, as {remedy}"
        )
        assert [eval(remedy, {"part": part})[0] for part in given] == rows


def test_a_start_that_was_copied_once_is_told(tmp_path: Path) -> None:
    """The server was "the weighted mean of the clients" in every round, and updates were those of many rounds."""
    draw = np.random.default_rng(0)
    first = draw.normal(size=40)
    told: dict[str, list[list[str]]] = {"stale": [], "fresh": [], "not aggregated": []}
    for name, said in told.items():
        server = first
        with Recorder(tmp_path / name.replace(" ", "-")) as recorder:
            for _ in range(5):
                clients = [{"w": server + draw.normal(size=40)} for _ in range(3)]
                start = server if name == "fresh" else first
                if name != "not aggregated":
                    server = np.mean([one["w"] for one in clients], axis=0)
                said.append(told_by(recorder, clients, start={"w": start.copy()}, global_={"w": server.copy()}))
    assert told["fresh"] == [[]] * 5
    assert not [one for said in told["not aggregated"] for one in said if "start is the same" in one]
    assert [len(one) for one in told["stale"]] == [0, 0, 1, 0, 0]
    assert told["stale"][2][0].endswith(
        "stale@3: start is the same in the last 3 rounds, though global was another model each time; give as start a "
        "copy of the model that the clients of the round were sent, unless all of these began from one"
    )


def test_a_server_that_drops_diverged_rounds_began_from_its_own_model(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    start, nan = {"w": draw.normal(size=40)}, {"w": np.full(40, np.nan)}
    with Recorder(tmp_path / "run") as recorder:
        for _ in range(4):
            clients = [{"w": start["w"] + draw.normal(size=40)}, nan]
            said = told_by(recorder, clients, start={"w": start["w"].copy()}, global_={"w": nan["w"].copy()})
            assert not [one for one in said if "start is the same" in one]


@pytest.mark.parametrize("case", ["steps alone", "another server", "few"])
def test_clients_that_are_alike_for_another_reason_are_not_told(tmp_path: Path, case: str) -> None:
    size = 5 if case == "few" else 40
    start = {"w": np.ones(size), "steps": np.array(0)}
    end = {"w": np.full(size, 1.0 if case == "steps alone" else 2.0), "steps": np.array(5)}
    clients = [{name: array.copy() for name, array in end.items()} for _ in range(3)]
    if case == "another server":
        end = {"w": np.full(size, 3.0), "steps": np.array(5)}
    with Recorder(tmp_path / "run") as recorder:
        said = told_by(recorder, clients, start=start, global_=end)
    assert not [one for one in said if "same weights" in one]


def test_a_server_that_takes_one_client_is_none_of_samples(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    start, one, other = ({"w": draw.normal(size=40)} for _ in range(3))
    with Recorder(tmp_path / "run") as recorder:
        end = {"w": other["w"].copy()}
        assert told_by(recorder, [(0, one), (1, other)], start=start, global_=end) == []


def test_clients_that_were_given_the_servers_model_before_are_told(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    start, *trained = ({"w": draw.normal(size=40)} for _ in range(4))
    end = {"w": np.mean([one["w"] for one in trained], axis=0)}
    copies = [{"w": end["w"].copy()} for _ in trained]
    with Recorder(tmp_path / "run") as recorder:
        (said,) = told_by(recorder, copies, start=start, global_=end)
        assert told_by(recorder, trained, start=start, global_=end) == []
        still = [{"w": start["w"].copy()} for _ in trained]  # of a round in which nobody has moved
        assert not [one for one in told_by(recorder, still, start=start, global_=end) if "same weights" in one]
    assert said.endswith(
        "run@1: all 3 clients have the same weights, and not those of start; take them after their training, before "
        "they are given the server's model"
    )


@pytest.mark.parametrize(("given", "named"), [("start", "start"), ("global_", "global_"), ("both", "start")])
def test_clients_that_keep_a_head_are_told_to_give_what_they_share(tmp_path: Path, given: str, named: str) -> None:
    """FedPer's: the refusal said only to give models of one architecture."""
    shared = {"body": np.ones(3, np.float32)}
    clients = {k: {"body": np.full(3, k, np.float32), "head": np.full(2, k, np.float32)} for k in (0, 1)}
    server = {what: {"body": shared["body"].copy()} for what in (("start", "global_") if given == "both" else (given,))}
    with Recorder(tmp_path / "run") as recorder:
        with pytest.raises(FedscopeError) as refused:
            recorder.round(clients=clients, **server)
        assert str(refused.value).endswith(
            "run@1: client 0 has head, which the run's models do not have; give models of one architecture; of clients "
            f"that keep parts to themselves give those that they share: {{name: weights[name] for name in {named}}}"
        )
        recorder.round(clients={k: {name: w[name] for name in shared} for k, w in clients.items()}, **server)
        with pytest.raises(FedscopeError, match=r"give models of one architecture$"):  # one of them is the odd one out
            recorder.round(clients={0: clients[0], 1: shared}, **server)


def test_a_list_of_fewer_in_a_later_round_is_told_once_and_the_loop_goes_on(tmp_path: Path) -> None:
    everyone = [model(k) for k in range(6)]
    with Recorder(tmp_path / "run", partition=PARTS, labels=TOPICS) as recorder:
        assert told_by(recorder, everyone) == []
        first, again = told_by(recorder, everyone[:4]), told_by(recorder, everyone[:4])
    assert len(first) == 1
    assert "run@2: clients= is a list of 4" in first[0]
    assert again == []
    assert Run.open(tmp_path / "run").rounds == (1, 2, 3)
    with (
        Recorder(tmp_path / "run", resume=True) as recorder,
        pytest.raises(FedscopeError, match="partition= has rows of others"),
    ):
        recorder.round(clients=everyone[:4])


def test_a_list_of_all_clients_that_have_rows_is_silent(tmp_path: Path) -> None:
    some = [model(k) for k in range(6)]
    for name, parts in (("all", PARTS), ("rest-empty", {**PARTS, 6: [], 7: []}), ("fewer", {0: [0], 1: [1]})):
        with Recorder(tmp_path / name, partition=parts, labels=TOPICS) as recorder:
            assert told_by(recorder, some[:2] if name == "fewer" else some) == []
    with Recorder(tmp_path / "none") as recorder:
        assert told_by(recorder, some[:3]) == []


def test_frameworks_tell_where_a_partition_and_their_numbers_may_differ(tmp_path: Path) -> None:
    """Names without a number are counted as they come, which says nothing of the rows of a partition."""
    w = {"w": np.zeros((2, 2), np.float32)}
    for names, given, expected in (
        (("berlin", "paris"), None, True),
        (("site-0", "site-1"), None, False),
        (("berlin", "paris"), ["paris", "berlin"], False),
    ):
        for parts in (PARTS, None):
            labels = None if parts is None else TOPICS
            recorder = Recorder(tmp_path / "run", partition=parts, labels=labels, force=True)
            rounds = NamedRounds(recorder, "A framework", given)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                rounds.begin(w)
                for name in names:
                    rounds.add(Contribution(name, {"w": w["w"] + 1}, 1.0, 2))
                rounds.end(1, {"w": w["w"] + 1})
                rounds.close()
            seen = [str(one.message) for one in caught if "which rows of partition= are whose" in str(one.message)]
            assert bool(seen) == (expected and parts is not None), (names, given, parts)
