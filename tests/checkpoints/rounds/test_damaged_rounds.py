"""What is spoilt in a round's file is refused in a sentence, whether its checksums see it or its sizes and types do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xxhash

from fedscope.checkpoints import (
    FedscopeError,
    Layout,
    Round,
    RoundRecord,
    TensorEntry,
    Weights,
    read_chunks,
    write_round,
)
from fedscope.checkpoints.io import checksums as sums
from fedscope.checkpoints.rounds.verify import check_round

pytestmark = pytest.mark.same_elsewhere

LAYOUT = Layout(
    (
        TensorEntry("fc.weight", (4, 5), "float32", "parameter"),
        TensorEntry("norm.steps", (), "int64", "buffer"),
        TensorEntry("fc.bias", (4,), "float32", "parameter"),
    )
)
IDS = np.array([3, 8, 11])


def models(seed: int, *lead: int) -> Weights:
    draw = np.random.default_rng(seed)
    rows = draw.normal(size=(*lead, LAYOUT.size)).astype(np.float32)
    return Weights(LAYOUT, rows, {"norm.steps": draw.integers(1, 99, lead)})


def written(folder: Path, compression: Any = "none") -> Round:
    path = folder / "ima" / "rounds" / "00040.h5"
    path.parent.mkdir(parents=True)
    record = RoundRecord(
        round=40,
        start=models(0),
        clients=models(1, 3),
        global_=models(2),
        averaged=models(3),
        client_ids=IDS,
        client_samples=np.array([10, 20, 30]),
        client_steps=np.array([1, 2, 3]),
        client_loss=np.array([0.1, np.nan, 0.3]),
        weights=np.array([1, 2, 3]) / 6,
        state={"m": np.arange(LAYOUT.size, dtype=np.float32), "count": np.int64(0), "average": {"mean": models(5)}},
        client_state={"c": np.ones((3, LAYOUT.size), np.float32), "seen": np.arange(6.0).reshape(3, 2)},
        metrics={"lr": 0.05, "test_loss": float("nan")},
    )
    write_round(path, record, compression)
    return Round(path, LAYOUT, "runs/ima", 20)


def read_all(round_: Round) -> None:
    round_ = Round(round_.path, LAYOUT, round_.run_label, round_.population)
    for which in round_.models:
        round_.read(which)
    round_.clients()
    round_.state()
    for name in round_.client_states:
        round_.client_state(name)


def without_sums(file: Any) -> None:
    """As a program that knows nothing of checksums writes a round."""
    del file[sums.NAME], file.attrs[sums.NAME]


def swap(file: Any, path: str, ids: bool = False) -> None:
    for name in [path, *(["client_ids"] if ids else [])]:
        values = file[name][()]
        file[name][:2] = values[1::-1]


def exchange(file: Any, one: str, other: str) -> None:
    file.move(one, "aside"), file.move(other, one), file.move("aside", other)


def replace(file: Any, path: str, **made: Any) -> None:
    del file[path]
    file.create_dataset(path, **made)


def flip(file: Any, path: str) -> None:
    """One bit of a dataset's first byte."""
    values = file[path][()]
    values = np.atleast_1d(values)
    values.view(np.uint8).reshape(-1)[0] ^= 1
    file[path][...] = values.reshape(file[path].shape)


def half(file: Any) -> None:
    table = file[sums.NAME][()]
    table["client"][0] = 7
    file[sums.NAME][...] = table


CHECKSUMS: dict[str, tuple[Callable[[Any], object], str]] = {
    "a zeroed block": (
        lambda f: f["clients/fc.weight"].__setitem__((1, slice(1, 3)), 0),
        r"00040\.h5 is damaged: client 8's fc\.weight is not what was written \(its checksum is another\); restore it "
        r"from a copy, or train again from the round before: fedscope train --from .*ima@39$",
    ),
    "a flipped bit": (lambda f: flip(f, "global/fc.bias"), r"global/fc\.bias is not what was written"),
    "a flipped bit of a buffer": (lambda f: flip(f, "start/norm.steps"), r"start/norm\.steps is not what was written"),
    "exchanged models": (lambda f: exchange(f, "global", "start"), r"start/fc\.weight is not what was written"),
    "swapped rows": (lambda f: swap(f, "clients/fc.bias"), r"client 3's fc\.bias is not what was written"),
    "swapped rows and ids": (lambda f: swap(f, "clients/fc.bias", True), r"client_ids is not what was written"),
    "other ids": (lambda f: f["client_ids"].__setitem__(2, 12), r"client_ids is not what was written"),
    "a renamed dataset": (lambda f: f.move("global/fc.bias", "global/fc.bais"), r"damaged: it lacks global/fc\.bias"),
    "a renamed model": (lambda f: f.move("averaged", "avg"), r"damaged: it lacks averaged"),
    "a model too many": (lambda f: f.copy("start", "more"), r"damaged: more is not what was written"),
    "a deleted column": (lambda f: f.__delitem__("client_steps"), r"damaged: it lacks client_steps"),
    "p": (lambda f: swap(f, "weights"), r"weights is not what was written"),
    "metrics": (
        lambda f: f.attrs.__setitem__("metrics", f.attrs["metrics"].replace("0.05", "0.06")),
        r"the file's metrics is not what was written",
    ),
    "lost metrics": (lambda f: f.attrs.__delitem__("metrics"), r"it lacks its metrics"),
    "the table": (half, r"its table of checksums is not what was written"),
    "the table's checksum": (
        lambda f: f[sums.NAME].attrs.__setitem__(sums.KIND, np.uint64(1)),
        r"its table of checksums is not what was written",
    ),
    "no table": (lambda f: f.__delitem__(sums.NAME), r"its table of checksums is missing"),
    "a flipped bit and no sign of a table": (
        lambda f: (flip(f, "global/fc.bias"), f.attrs.__delitem__(sums.NAME)),
        r"global/fc\.bias is not what was written",
    ),
    "another table": (
        lambda f: replace(f, sums.NAME, data=np.zeros(3, [("path", "S3"), ("client", "<i8"), ("sha", "<u8")])),
        r"has checksums of the kind sha, which this fedscope does not know; upgrade it",
    ),
    "a table of nothing": (lambda f: replace(f, sums.NAME, data=np.zeros(3)), r"checksums is float64, not numbers"),
    "a state": (lambda f: flip(f, "state/m/fc.bias"), r"state/m/fc\.bias is not what was written"),
    "a state's shape": (lambda f: replace(f, "state/count", data=np.zeros(1, "i8")), r"state/count is not what was wr"),
    "a lost state": (lambda f: f.__delitem__("state/count"), r"it lacks state/count"),
    "a lost mean": (lambda f: f.__delitem__("state/average/mean"), r"it lacks state/average"),
    "another kind": (lambda f: f["state/m"].attrs.__setitem__("kind", "model"), r"state/m's kind is not what was writ"),
    "no kind": (lambda f: f["state/m"].attrs.__delitem__("kind"), r"state/m does not say any more of what kind it is"),
    "a client's vector": (lambda f: flip(f, "client_state/c/fc.bias"), r"client 3's client_state/c/fc\.bias is not wh"),
    "a client's array": (lambda f: swap(f, "client_state/seen"), r"client 3's client_state/seen is not what was writt"),
}


@pytest.mark.parametrize("what", CHECKSUMS)
def test_what_checksums_see_is_refused(tmp_path: Path, what: str) -> None:
    round_ = written(tmp_path)
    spoil, sentence = CHECKSUMS[what]
    with h5py.File(round_.path, "r+") as file:
        spoil(file)
    with pytest.raises(FedscopeError, match=sentence):
        read_all(round_)
    assert check_round(round_).faults


def external(file: Any) -> None:
    made = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    made.set_external(b"elsewhere", 0, 16)
    del file["start/fc.bias"]
    h5py.h5d.create(file["start"].id, b"fc.bias", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple((4,)), made)


def deep(file: Any) -> None:
    file.attrs["metrics"] = "[" * 60_000


def endless(file: Any) -> None:
    file["state/m"].attrs["kind"] = "other"
    file["state/m/again"] = file["state/m"]


GATE: dict[str, tuple[Callable[[Any], object], str]] = {
    "a type": (
        lambda f: replace(f, "start/fc.bias", data=np.zeros(4)),
        r"start/fc\.bias is float64, not float32",
    ),
    "a shape": (
        lambda f: replace(f, "start/fc.bias", data=np.zeros(5, "f4")),
        r"fc\.bias has shape \(5,\), but run.jso",
    ),
    "words": (lambda f: replace(f, "start/fc.bias", data=["a"] * 4), r"start/fc\.bias is object, not float32"),
    "a missing dataset": (lambda f: f.__delitem__("clients/fc.bias"), r"damaged: it lacks clients/fc\.bias"),
    "a group": (
        lambda f: (f.__delitem__("start/fc.bias"), f.create_group("start/fc.bias")),
        r"is not a dataset of "
        "numbe",
    ),
    "a dataset for a group": (lambda f: replace(f, "start", data=1.0), r"damaged: start is not a group"),
    "no client": (lambda f: replace(f, "clients/fc.bias", data=np.zeros((2, 4), "f4")), r"shape \(2, 4\), but run.jso"),
    "a soft link": (
        lambda f: (f.__delitem__("start/fc.bias"), f.__setitem__("start/fc.bias", h5py.SoftLink("/global/fc.bias"))),
        r"start/fc\.bias is a link, but a round's file holds its data itself",
    ),
    "an external link": (
        lambda f: (f.__delitem__("start"), f.__setitem__("start", h5py.ExternalLink("other.h5", "/start"))),
        r"start is a link, but a round's file holds its data itself",
    ),
    "data elsewhere": (external, r"the data of start/fc\.bias are in another file"),
    "a huge column": (
        lambda f: replace(f, "weights", shape=(2**40,), dtype="f8", chunks=(1024,)),
        r"weights declares 8\.8 TB, but the file holds 0 B of it",
    ),
    "a huge state": (
        lambda f: replace(f, "state/count", shape=(2**40,), dtype="i8", chunks=(1024,), compression="gzip"),
        r"state/count declares 8\.8 TB, but the file holds 0 B of it",
    ),
    "NaN in p": (lambda f: f["weights"].__setitem__(0, np.nan), r"weights are p, .* but here they sum to nan"),
    "p below 0": (lambda f: f["weights"].write_direct(np.array([-1.0, 1.0, 1.0])), r"none negative"),
    "p of another sum": (lambda f: f["weights"].__setitem__(0, 0.9), r"their sum 1, but here they sum to 1\.73"),
    "ids that fall": (lambda f: swap(f, "client_ids"), r"client_ids are not ascending \(8, 3, 11\)"),
    "an id twice": (lambda f: f["client_ids"].__setitem__(1, 3), r"client_ids are not ascending"),
    "an id of nobody": (lambda f: f["client_ids"].__setitem__(2, 20), r"goes from 3 to 20, of clients 0 to 19"),
    "an id below 0": (lambda f: f["client_ids"].__setitem__(0, -1), r"client_ids goes from -1 to 11"),
    "ids that are fractions": (
        lambda f: replace(f, "client_ids", data=IDS + 0.5),
        r"client_ids is float64, not whole numbers",
    ),
    "a matrix of ids": (lambda f: replace(f, "client_ids", data=IDS[None]), r"shape \(1, 3\), not one number a client"),
    "a column of another length": (
        lambda f: replace(f, "client_loss", data=np.zeros(2)),
        r"its columns have different lengths \(client_ids 3, client_samples 3, client_steps 3, client_loss 2, weights",
    ),
    "fewer samples than none": (
        lambda f: f["client_samples"].__setitem__(0, -2),
        r"client_samples has -2, which count",
    ),
    "metrics that are not a JSON": (
        lambda f: f.attrs.__setitem__("metrics", "lr 1"),
        r"metrics are not a JSON object \(lr 1",
    ),
    "metrics without end": (deep, r"its metrics are no"),
    "metrics of words": (
        lambda f: f.attrs.__setitem__("metrics", '{"lr": "x"}'),
        r"say 'x' for lr, which is not a "
        "numbe",
    ),
    "a metric of 400 digits": (
        lambda f: f.attrs.__setitem__("metrics", '{"lr": ' + "9" * 400 + "}"),
        r"its metrics say a number of 400 digits for lr",
    ),
    "metrics that are a number": (lambda f: f.attrs.__setitem__("metrics", 3.0), r"metrics are not a text of numbers"),
    "another round": (lambda f: f.attrs.__setitem__("round", 39), r"it holds round 39, though its name says 40"),
    "a state without end": (endless, r"has no end"),
    "an encoding": (
        lambda f: f["start/fc.bias"].attrs.__setitem__("encoding", "delta"),
        r"start/fc\.bias claims to be differences, which only float32 parameters of clients can be",
    ),
}


@pytest.mark.parametrize("what", GATE)
def test_what_sizes_and_types_say_is_refused_without_checksums(tmp_path: Path, what: str) -> None:
    round_ = written(tmp_path)
    spoil, sentence = GATE[what]
    with h5py.File(round_.path, "r+") as file:
        without_sums(file)
        spoil(file)
    with pytest.raises(FedscopeError, match=sentence):
        read_all(round_)
    assert check_round(round_).faults


@pytest.mark.parametrize("compression", ["none", "delta"])
def test_what_is_whole_is_read_with_and_without_checksums(tmp_path: Path, compression: str) -> None:
    round_ = written(tmp_path, compression)
    before = round_.path.read_bytes()
    read_all(round_)
    # 2 attributes, 5 columns, 3 models, 3 clients; m, its kind, count, what it was, mean, its kind; c, its kind, seen
    assert check_round(round_).checksums == 2 + 5 + 9 + 9 + (2 + 1 + 1 + 1 + 3 + 1) + (6 + 1 + 3)
    assert round_.path.read_bytes() == before
    with h5py.File(round_.path, "r+") as file:
        without_sums(file)
    read_all(round_)
    assert check_round(round_).checksums is None
    assert not check_round(round_).faults


def test_checksums_are_what_the_format_says(tmp_path: Path) -> None:
    """With h5py and xxhash alone."""
    with h5py.File(written(tmp_path, "delta").path) as file:
        table = file["checksums"][()]
        assert len(np.unique(table[["path", "client"]])) == len(table)
        for path, client, number in table.tolist():
            place, _, attribute = path.decode().partition("@")
            if attribute:
                value = file[place or "/"].attrs[attribute]
                value = np.frombuffer(value.encode(), np.uint8) if isinstance(value, str) else np.int64(value)
            else:
                row = () if client < 0 else file["client_ids"][:].tolist().index(client)
                value = file[place][row]
            shape = ",".join(map(str, value.shape))
            seed = xxhash.xxh3_64_intdigest(f"{path.decode()} {client} {value.dtype.str} {shape}".encode())
            assert xxhash.xxh3_64_intdigest(value.tobytes(), seed) == number, path
        own = xxhash.xxh3_64_intdigest(table.tobytes())
        assert (file["checksums"].attrs["xxh3_64"], file.attrs["checksums"]) == (own, "xxh3_64")


def test_differences_are_verified_and_so_is_what_they_are_from(tmp_path: Path) -> None:
    for at, (path, words) in enumerate({"start/fc.bias": "start/fc.bias", "clients/fc.bias": "client 3's fc"}.items()):
        round_ = written(tmp_path / str(at), "delta")
        with h5py.File(round_.path, "r+") as file:
            flip(file, path)
        with pytest.raises(FedscopeError, match=rf"{words}.* is not what was written"):
            round_.clients([3])
        with pytest.raises(FedscopeError, match=rf"{words}.* is not what was written"):
            list(read_chunks(round_, 3, ["fc.bias"]))


def test_only_what_is_read_is_verified(tmp_path: Path) -> None:
    round_ = written(tmp_path)
    with h5py.File(round_.path, "r+") as file:
        file["clients/fc.bias"][1] = 0
    assert round_.client(3).parameters.size == LAYOUT.size
    assert len(list(read_chunks(round_, 6, ["fc.weight"]))) == 4
    with pytest.raises(FedscopeError, match=r"client 8's fc\.bias is not what was written"):
        round_.client(8)


def test_rows_are_verified_before_a_piece_of_them_is_handed_out(tmp_path: Path) -> None:
    round_ = written(tmp_path)
    with h5py.File(round_.path, "r+") as file:
        file["clients/fc.weight"][2, 3, 4] = 0  # in the last piece of the last row
    with pytest.raises(FedscopeError, match=r"client 11's fc\.weight is not what was written"):
        next(read_chunks(round_, 2))


def test_a_file_is_verified_once_a_process_and_again_once_it_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    round_, counted, real = written(tmp_path), [], sums.checksum
    monkeypatch.setattr(sums, "checksum", lambda path, *others: counted.append(path) or real(path, *others))
    read_all(round_)
    first = len(counted)
    assert first > 20
    read_all(round_)
    list(read_chunks(round_, 7))
    assert len(counted) == first
    for _ in range(2):  # damage that is there stays found
        with h5py.File(round_.path, "r+") as file:
            file["global/fc.bias"][...] = np.zeros(4) + _
        with pytest.raises(FedscopeError, match=r"global/fc\.bias is not what was written"):
            Round(round_.path, LAYOUT, "runs/ima").read("global")


def test_a_check_says_all_that_is_wrong(tmp_path: Path) -> None:
    round_ = written(tmp_path)
    read_all(round_)
    with h5py.File(round_.path, "r+") as file:
        file["clients/fc.bias"][:2] = 0
        file["weights"][0] = np.nan
        flip(file, "averaged/fc.weight")
        del file["start/norm.steps"]
    found = check_round(round_).faults
    for words in (
        "client 3's fc.bias",
        "client 8's fc.bias",
        "weights",
        "averaged/fc.weight",
        "lacks start/norm.steps",
    ):
        assert sum(words in fault for fault in found) == 1, (words, found)


def test_a_pipe_in_a_rounds_place_is_refused(tmp_path: Path) -> None:
    import os

    round_ = written(tmp_path)
    round_.path.unlink()
    os.mkfifo(round_.path)
    with pytest.raises(FedscopeError, match=r"00040\.h5 is a named pipe, not a round of a fedscope run"):
        read_all(round_)


def test_metrics_are_json_that_others_read(tmp_path: Path) -> None:
    with h5py.File(written(tmp_path).path) as file:
        assert json.loads(file.attrs["metrics"]) == {"lr": 0.05, "test_loss": None}
