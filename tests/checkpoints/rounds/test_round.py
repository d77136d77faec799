"""A round's file: what is written is read, bit for bit, and what is wrong is said."""

from __future__ import annotations

import json
from dataclasses import replace

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedscope.checkpoints import FedscopeError, Layout, Round, RoundRecord, TensorEntry, Weights, write_round

LAYOUT = Layout(
    (
        TensorEntry("conv.weight", (4, 2, 3, 3), "float32", "parameter"),
        TensorEntry("norm.running_mean", (4,), "float32", "buffer"),
        TensorEntry("norm.num_batches_tracked", (), "int64", "buffer"),
        TensorEntry("scale", (), "float32", "parameter"),
        TensorEntry("none", (0, 3), "float32", "parameter"),
        TensorEntry("fc.bias", (5,), "float32", "parameter"),
    )
)
IDS = np.array([3, 8, 11, 20])


def weights(seed: int, *lead: int) -> Weights:
    random = np.random.default_rng(seed)
    parameters = random.standard_normal((*lead, LAYOUT.size)).astype(np.float32)
    parameters.reshape(-1)[:3] = (np.nan, -0.0, np.inf)
    buffers = {
        "norm.running_mean": random.standard_normal((*lead, 4)).astype(np.float32),
        "norm.num_batches_tracked": random.integers(0, 99, lead),
    }
    return Weights(LAYOUT, parameters, buffers)


def record(**changes: object) -> RoundRecord:
    full = RoundRecord(
        round=40,
        start=weights(0),
        clients=weights(1, 4),
        global_=weights(2),
        averaged=weights(3),
        client_ids=IDS,
        client_samples=np.array([10, 20, 30, 40]),
        client_steps=np.array([1, 2, 3, 4]),
        client_loss=np.array([0.1, np.nan, 0.3, np.inf]),
        weights=np.array([0.1, 0.2, 0.3, 0.4]),
        state={"momentum": np.arange(3.0), "count": np.int64(7), "deep": {"v": np.ones((2, 2), np.float32)}},
        client_state={"control": weights(4, 4)},
        metrics={"lr": 0.05, "participants": 4, "test_loss": float("nan"), "train_loss": float("inf"), "seconds": None},
    )
    return replace(full, **changes)


def same(a: Weights, b: Weights) -> bool:
    mine, theirs = a.arrays(), b.arrays()
    return all(mine[n].tobytes() == theirs[n].tobytes() and mine[n].shape == theirs[n].shape for n in LAYOUT.names)


@pytest.fixture(params=["none", "delta"])
def written(request, tmp_path):
    write_round(tmp_path / "00040.h5", record(), request.param)
    return Round(tmp_path / "00040.h5", LAYOUT, "runs/ima")


def test_all_models_come_back_bit_for_bit(written):
    assert written.number == 40
    assert written.models == ("start", "global", "averaged")
    assert written.has_clients
    for which, seed in (("start", 0), ("global", 2), ("averaged", 3)):
        assert same(written.read(which), weights(seed))
    assert same(written.clients(), weights(1, 4))
    assert same(written.client_state("control"), weights(4, 4))


def test_numbers_come_back(written):
    assert written.client_ids.tolist() == [3, 8, 11, 20]
    assert written.client_ids.dtype == written.client_samples.dtype == written.client_steps.dtype == np.int64
    np.testing.assert_array_equal(written.client_loss, [0.1, np.nan, 0.3, np.inf])
    np.testing.assert_array_equal(written.weights, [0.1, 0.2, 0.3, 0.4])
    metrics = written.metrics
    assert (metrics["lr"], metrics["participants"], metrics["train_loss"]) == (0.05, 4, float("inf"))
    assert np.isnan(metrics["test_loss"])
    assert np.isnan(metrics["seconds"])
    state = written.state()
    assert state["momentum"].tolist() == [0, 1, 2]
    assert state["count"] == 7
    assert state["deep"]["v"].dtype == np.float32


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ids=st.lists(st.sampled_from(IDS.tolist()), min_size=1, unique=True))
def test_clients_asked_for_come_in_the_order_asked(written, ids):
    part = written.clients(ids)
    for row, k in enumerate(ids):
        assert same(part.row(row), weights(1, 4).row(IDS.tolist().index(k)))
        assert same(written.client(k), part.row(row))


def test_file_is_laid_out_as_the_format_says(tmp_path):
    write_round(tmp_path / "00040.h5", record())
    with h5py.File(tmp_path / "00040.h5") as file:
        assert (file.attrs["format"], file.attrs["version"], file.attrs["round"]) == ("fedscope-round", 1, 40)
        assert json.loads(file.attrs["metrics"])["test_loss"] is None
        assert file["clients/conv.weight"].shape == (4, 4, 2, 3, 3)
        assert file["clients/conv.weight"].chunks == (1, 4, 2, 3, 3)
        assert file["clients/norm.num_batches_tracked"].dtype == np.int64
        # p and the clients alone give the sum anyone would form
        np.testing.assert_array_equal(file["clients/fc.bias"][:], weights(1, 4).arrays()["fc.bias"])
        assert set(file["client_state/control"]) == set(LAYOUT.names)


def test_delta_is_read_by_stock_h5py_and_smaller(tmp_path):
    layout = Layout((TensorEntry("w", (200, 300), "float32", "parameter"),))
    random = np.random.default_rng(0)
    start = Weights(layout, random.standard_normal(layout.size).astype(np.float32), {})
    rows = (start.parameters + 1e-4 * random.standard_normal((4, layout.size))).astype(np.float32)
    made = record(
        start=start, clients=Weights(layout, rows, {}), global_=start, averaged=None, client_state={}, state={}
    )
    sizes = {}
    for compression in ("none", "delta"):
        write_round(tmp_path / "00001.h5", replace(made, round=1), compression)
        assert Round(tmp_path / "00001.h5", layout, "r").clients().parameters.tobytes() == rows.tobytes()
        sizes[compression] = (tmp_path / "00001.h5").stat().st_size - 2 * 4 * layout.size
    assert sizes["none"] / sizes["delta"] > 1.4
    with h5py.File(tmp_path / "00001.h5") as file:
        coded = file["clients/w"][:].reshape(4, -1).view(np.uint32).astype(np.int64)
        assert file["clients/w"].attrs["encoding"] == "delta"
    difference = rows.view(np.int32).astype(np.int64) - start.parameters.view(np.int32).astype(np.int64)
    wrapped = (difference + 2**31) % 2**32 - 2**31
    np.testing.assert_array_equal(coded, np.where(wrapped >= 0, 2 * wrapped, -2 * wrapped - 1))


def test_delta_without_a_start_and_in_float64_is_stored_as_it_is(tmp_path):
    write_round(tmp_path / "00040.h5", record(start=None), "delta")
    assert same(Round(tmp_path / "00040.h5", LAYOUT, "r").clients(), weights(1, 4))
    layout = Layout((TensorEntry("w", (5,), "float64", "parameter"), TensorEntry("v", (2,), "float32", "parameter")))
    start = Weights(layout, np.arange(7.0), {})
    clients = Weights(layout, np.arange(28.0).reshape(4, 7), {})
    made = record(start=start, clients=clients, global_=None, averaged=None, client_state={})
    write_round(tmp_path / "00041.h5", replace(made, round=41), "delta")
    np.testing.assert_array_equal(Round(tmp_path / "00041.h5", layout, "r").clients().parameters, clients.parameters)


def test_a_model_that_was_left_out_is_refused_with_what_there_is(tmp_path):
    write_round(tmp_path / "00040.h5", record(averaged=None, clients=None))
    round_ = Round(tmp_path / "00040.h5", LAYOUT, "runs/ima")
    assert not round_.has_clients
    with pytest.raises(FedscopeError, match=r"^runs/ima@40/averaged: round 40 recorded start, global$"):
        round_.read("averaged")
    with pytest.raises(FedscopeError, match=r"runs/ima@40: round 40 did not record its clients"):
        round_.clients()


@pytest.mark.parametrize("compression", ["none", "delta"])
def test_a_sample_of_the_clients_is_read_by_their_numbers_with_their_buffers(tmp_path, compression):
    whole, places = record(), np.array([1, 3])
    some = replace(whole, clients=None, client_state={}, sampled=whole.clients.rows(places), sampled_places=places)
    write_round(tmp_path / "00040.h5", some, compression)
    round_ = Round(tmp_path / "00040.h5", LAYOUT, "runs/ima")
    assert (round_.has_clients, round_.has_sample, round_.sampled_ids.tolist()) == (False, True, IDS[places].tolist())
    assert same(round_.sampled(), whole.clients.rows(places))
    for place in places:
        assert same(round_.client(int(IDS[place])), whole.clients.row(int(place)))
    # under its old name there is nothing, for readers that do not know of samples
    with h5py.File(tmp_path / "00040.h5") as file:
        assert "clients" not in file


def test_a_client_that_did_not_take_part_is_refused_with_who_did(written):
    with pytest.raises(FedscopeError, match=r"^runs/ima@40/client-17: round 40 recorded clients 3, 8, 11, 20$"):
        written.client(17)
    with pytest.raises(FedscopeError, match=r"runs/ima@40 has no client state 'h'; it keeps control"):
        written.client_state("h")


def test_a_foreign_run_may_lack_columns(tmp_path):
    write_round(tmp_path / "00040.h5", record())
    with h5py.File(tmp_path / "00040.h5", "a") as file:
        del file["checksums"], file.attrs["checksums"]
        del file["client_steps"], file["client_loss"], file.attrs["metrics"]
    round_ = Round(tmp_path / "00040.h5", LAYOUT, "runs/ima")
    assert round_.metrics == {}
    assert not round_.has("client_steps")
    assert same(round_.clients(), weights(1, 4))
    with pytest.raises(FedscopeError, match=r"runs/ima@40 has no client_loss: the program that recorded it left them"):
        _ = round_.client_loss


@pytest.mark.parametrize("left", [0, 5, 100, 3000])
def test_a_truncated_file_is_said_to_be_truncated(tmp_path, left):
    path = tmp_path / "00040.h5"
    write_round(path, record())
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(FedscopeError, match=rf"00040.h5 is truncated \({left:,} bytes are left of it\)"):
        Round(path, LAYOUT, "runs/ima").read("global")


def test_foreign_and_newer_files_are_refused_with_advice(tmp_path):
    path = tmp_path / "00040.h5"
    path.write_text("round,loss\n1,0.5\n")
    with pytest.raises(FedscopeError, match=r"is not a round of a fedscope run: it is not an HDF5 file"):
        Round(path, LAYOUT, "runs/ima").read("global")
    with h5py.File(path, "w") as file:
        file["x"] = 1
    with pytest.raises(FedscopeError, match=r'it does not say its format, not "fedscope-round"'):
        Round(path, LAYOUT, "runs/ima").read("global")
    write_round(path, record())
    with h5py.File(path, "a") as file:
        file.attrs["version"] = 3
    with pytest.raises(
        FedscopeError, match=r"has version 3 of its format, but this fedscope reads .* up to 2; upgrade it"
    ):
        Round(path, LAYOUT, "runs/ima").read("global")
    with pytest.raises(FedscopeError, match=r"00041.h5 does not exist; it should be a round of a fedscope run"):
        _ = Round(tmp_path / "00041.h5", LAYOUT, "runs/ima").models


def test_encodings_that_cannot_be_undone_are_one_sentence(tmp_path):
    path = tmp_path / "00040.h5"
    write_round(path, record(), "delta")
    with h5py.File(path, "a") as file:
        del file["checksums"], file.attrs["checksums"]
        del file["start"]
        file["client_state/control/scale"].attrs["encoding"] = "zstd"
    round_ = Round(path, LAYOUT, "runs/ima")
    with pytest.raises(FedscopeError, match=r"is damaged: its clients are differences from start, which is missing"):
        round_.clients()
    with pytest.raises(FedscopeError, match=r"is encoded as 'zstd', which this fedscope does not know; upgrade it"):
        round_.client_state("control")
