"""Clients in blocks of columns, against the whole matrix."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedscope.checkpoints import (
    Entry,
    FedscopeError,
    Layout,
    Round,
    RoundRecord,
    Run,
    Weights,
    columns_of,
    read_columns,
    write_round,
)

LAYOUT = Layout(
    (
        Entry("a.weight", (7, 3, 2), "float32", "parameter"),
        Entry("steps", (), "int64", "buffer"),
        Entry("scale", (), "float32", "parameter"),
        Entry("empty", (0, 4), "float32", "parameter"),
        Entry("b.bias", (5,), "float32", "parameter"),
    )
)


def written(folder: Path, compression: Any, layout: Layout = LAYOUT) -> Round:
    rng = np.random.default_rng(3)
    buffers = {entry.name: np.zeros((4, *entry.shape), entry.dtype) for entry in layout.buffers}
    clients = Weights(layout, rng.normal(size=(4, layout.size)).astype(np.float32), buffers)
    clients.parameters[1, 2], clients.parameters[2, 0] = np.nan, -0.0
    one = clients.row(3)
    numbers = np.arange(4)
    path = folder / "00007.h5"
    write_round(
        path,
        RoundRecord(7, one, clients, one, None, *[numbers] * 4, np.full(len(numbers), 1 / len(numbers))),
        compression,
    )
    return Round(path, layout, "runs/toy")


@pytest.mark.parametrize("compression", ["none", "delta"])
@pytest.mark.parametrize("numbers", [1, 30, 60, 10_000])
def test_blocks_are_the_columns_of_the_matrix_each_once(tmp_path: Path, compression: str, numbers: int) -> None:
    round_ = written(tmp_path, compression)
    whole = round_.clients().parameters
    seen = np.zeros(LAYOUT.size, int)
    for block in read_columns(round_, numbers=numbers):
        assert block.values.tobytes() == np.ascontiguousarray(whole[:, block.where]).tobytes()
        assert block.where.start == LAYOUT.slices[block.layer].start + block.start
        seen[block.where] += 1
        assert block.values.size <= max(numbers, 4)  # at least a column
    assert (seen == 1).all()


def test_only_the_layers_asked_for_are_read(tmp_path: Path) -> None:
    blocks = list(read_columns(written(tmp_path, "none"), ["b.bias", "scale"]))
    assert [block.layer for block in blocks] == ["scale", "b.bias"]


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    round_ = written(tmp_path, "none")
    with pytest.raises(FedscopeError, match=r'runs/toy@7 has no parameter \'a\.wight\'; did you mean "a\.weight"\?'):
        list(read_columns(round_, ["a.wight"]))
    with pytest.raises(FedscopeError, match=r"no parameter 'zzz'; it has a\.weight, scale, empty, b\.bias"):
        list(read_columns(round_, ["zzz"]))


def test_rounds_without_clients_are_refused_with_those_that_have_them(tmp_path: Path) -> None:
    from fedscope.training import Config, merge, preset, train

    changes = {
        "data": {"clients": 4},
        "model": {"hidden": [8]},
        "run": {"rounds": 2, "evaluate_clients": 0},
        "record": {"clients": [2]},
    }
    train(Config.read(merge(preset("fma"), changes)), tmp_path / "run")
    run = Run.open(tmp_path / "run")
    with pytest.raises(FedscopeError, match=r"clients of round 1 were not recorded; rounds 2 have them"):
        list(columns_of(run, 1))
    assert sum(block.values.shape[1] for block in columns_of(run, 2)) == run.layout.size
