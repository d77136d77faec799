"""Layouts, rows and their means."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedscope.checkpoints import FedscopeError, Layout, TensorEntry, Weights, mean, stack, weighted_mean
from fedscope.checkpoints.rounds.writer import decode, encode

pytestmark = pytest.mark.same_elsewhere

LAYOUT = Layout(
    (
        TensorEntry("conv.weight", (2, 1, 3), "float32", "parameter"),
        TensorEntry("norm.running_mean", (2,), "float32", "buffer"),
        TensorEntry("norm.num_batches_tracked", (), "int64", "buffer"),
        TensorEntry("scale", (), "float32", "parameter"),
    )
)


def model(seed: int, tracked: int = 0) -> Weights:
    random = np.random.default_rng(seed)
    buffers = {
        "norm.running_mean": random.standard_normal(2).astype(np.float32),
        "norm.num_batches_tracked": np.array(tracked),
    }
    return Weights(LAYOUT, random.standard_normal(7).astype(np.float32), buffers)


def test_layout_of_a_module_is_its_state_dict():
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    layout = Layout.of(module)
    assert layout.names == tuple(module.state_dict())
    assert [entry.name for entry in layout.buffers] == ["1.running_mean", "1.running_var", "1.num_batches_tracked"]
    assert layout.size == sum(p.numel() for p in module.parameters())
    assert layout.dtype == np.float32
    assert Layout.from_json(json.loads(json.dumps(layout.to_json()))) == layout


def test_layout_counts_tied_parameters_by_each_of_their_names():
    module = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    module[1].weight = module[0].weight
    assert [entry.name for entry in Layout.of(module).parameters] == ["0.weight", "0.bias", "1.weight", "1.bias"]


def test_layout_refuses_what_numpy_cannot_hold():
    with pytest.raises(FedscopeError, match=r"weight is bfloat16, which a run cannot hold; keep the model in float32"):
        Layout.of(torch.nn.Linear(2, 2).to(torch.bfloat16))


def test_flatten_and_arrays_are_inverse_and_copy():
    arrays = {name: np.array(value) for name, value in model(1).arrays().items()}
    flat = LAYOUT.flatten(arrays)
    for name, value in flat.arrays().items():
        np.testing.assert_array_equal(value, arrays[name])
        assert value.dtype == arrays[name].dtype
        assert not np.shares_memory(value, arrays[name])
    assert list(flat.arrays()) == list(LAYOUT.names)


def test_views_of_a_matrix_are_views():
    clients = np.arange(14, dtype=np.float32).reshape(2, 7)
    views = LAYOUT.views(clients)
    assert views["conv.weight"].shape == (2, 2, 1, 3)
    assert views["scale"].tolist() == [6, 13]
    assert np.shares_memory(views["conv.weight"], clients)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda a: a.pop("scale"), "scale missing"),
        (lambda a: a.update(bias=np.zeros(2)), "bias unexpected"),
        (lambda a: a.update(scale=np.zeros(2)), r"scale has shape \(2,\), but the expected model has \(\)"),
    ],
)
def test_flatten_names_what_does_not_fit(change, sentence):
    arrays = model(1).arrays()
    change(arrays)
    with pytest.raises(FedscopeError, match=sentence):
        LAYOUT.flatten(arrays)


def test_difference_names_the_first_one():
    entries = LAYOUT.entries
    assert LAYOUT.difference(Layout(entries)) is None
    wider = Layout((TensorEntry("conv.weight", (2, 1, 5), "float32", "parameter"), *entries[1:]))
    assert LAYOUT.difference(wider) == "conv.weight has shape (2, 1, 3), the other's (2, 1, 5)"
    assert LAYOUT.difference(Layout(entries[:-1])) == "the other lacks scale"
    assert Layout(entries[:-1]).difference(LAYOUT) == "the other also has scale"
    assert LAYOUT.difference(Layout(entries[1:])) == "conv.weight stands where the other has norm.running_mean"


def test_stack_and_row_are_inverse():
    models = [model(seed, tracked=seed) for seed in range(3)]
    clients = stack(models)
    assert len(clients) == 3
    assert len(models[0]) == 1
    for i, one in enumerate(models):
        for name, value in clients.row(i).arrays().items():
            np.testing.assert_array_equal(value, one.arrays()[name])


def test_stack_refuses_other_layouts_by_name():
    other = Layout((TensorEntry("scale", (7,), "float32", "parameter"),))
    with pytest.raises(FedscopeError, match=r"models 0 and 1 have different layouts: conv.weight stands where"):
        stack([model(0), Weights(other, np.zeros(7, np.float32), {})])


def test_weighted_mean_is_repeatable_by_anyone_bit_for_bit():
    clients = stack([model(seed, tracked=seed) for seed in range(5)])
    p = np.array([3, 1, 7, 2, 2]) / 15
    total = np.zeros(7)
    for k in range(5):
        total += p[k] * clients.parameters[k].astype(np.float64)
    result = weighted_mean(clients, p, integer_from=2)
    assert result.parameters.tobytes() == total.astype(np.float32).tobytes()
    assert result.buffers["norm.num_batches_tracked"] == 2
    statistics = sum(p[k] * clients.buffers["norm.running_mean"][k].astype(float) for k in range(5))
    np.testing.assert_array_equal(result.buffers["norm.running_mean"], statistics.astype(np.float32))
    assert weighted_mean(clients, list(p)).parameters.tobytes() == result.parameters.tobytes()


def test_weighted_mean_refuses_other_numbers_of_weights():
    with pytest.raises(FedscopeError, match=r"p has shape \(2,\), but there are 3 clients"):
        weighted_mean(stack([model(0), model(1), model(2)]), [0.5, 0.5])


FLOATS = arrays(np.float32, (3, 4), elements=st.floats(-(2.0**99), 2.0**99, width=32))


@given(FLOATS)
def test_mean_is_the_exact_mean_rounded(rows):
    layout = Layout((TensorEntry("w", (4,), "float32", "parameter"),))
    result = mean(Weights(layout, rows, {})).parameters
    for j in range(4):
        exact = sum(Fraction(float(x)) for x in rows[:, j]) / 3
        assert abs(Fraction(float(result[j])) - exact) <= Fraction(float(np.abs(rows[:, j]).max())) / 2**23 + Fraction(
            1, 2**150
        )


@given(arrays(np.uint32, 6))
def test_mean_of_one_row_is_that_row_bit_for_bit(bits):
    row = bits.view(np.float32)
    layout = Layout((TensorEntry("w", (6,), "float32", "parameter"),))
    result = mean(Weights(layout, row[None], {})).parameters
    whole = ~np.isnan(row)
    assert result[whole].tobytes() == row[whole].tobytes()
    assert np.isnan(result[~whole]).all()


BITS = arrays(np.uint32, (2, 9))


@given(BITS, arrays(np.uint32, 9))
def test_delta_is_bit_exact_for_all_bit_patterns(clients, start):
    coded = encode(start.view(np.float32), clients.view(np.float32))
    assert coded.dtype == np.int32
    assert decode(start.view(np.float32), coded).tobytes() == clients.tobytes()


def test_delta_codes_small_steps_of_either_sign_as_small_numbers():
    start = np.float32([1.0, 1.0, -2.0])
    clients = np.nextafter(start, np.float32([2, 0, -3]))
    assert encode(start, clients).tolist() == [2, 1, 2]
    assert encode(start.astype(float), clients.astype(float)).dtype == np.float64


def test_a_model_is_shown_by_its_size() -> None:
    """Not by its numbers, which fill a notebook."""
    layout = Layout.of(torch.nn.BatchNorm1d(2))
    one = Weights(layout, np.arange(4, dtype=np.float32), {name: np.zeros(2) for name in ("a", "b", "c")})
    assert repr(one) == "Weights(one model, 4 parameters, 3 buffers; .arrays() by name)"
    assert repr(stack([Weights(Layout.of(torch.nn.Linear(1, 1)), np.ones(2, np.float32), {})] * 3)).startswith(
        "Weights(3 models, 2 parameters, 0 buffers"
    )
