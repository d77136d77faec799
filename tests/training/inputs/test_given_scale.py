"""Data in the scale that a program had them in, there and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import fedscope
from fedscope.checkpoints import FedscopeError
from fedscope.checkpoints.io.errors import FedscopeWarning
from fedscope.evaluation.standard_tasks import CLASSIFICATION
from fedscope.evaluation.uint8_images import Uint8Images
from fedscope.training.data.custom import taken_data
from fedscope.training.data.standardize import standardize
from fedscope.training.inputs.given_scale import arrays_in_scale, as_given, data_in_scale, standardised_as_given
from fedscope.training.tasks import given_task


def arrays(x: np.ndarray) -> dict[str, np.ndarray]:
    """A data set of two splits."""
    y = np.arange(len(x)) % 2
    return {"x_train": x[:-3], "y_train": y[:-3], "x_test": x[-3:], "y_test": y[-3:]}


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from([(9, 4), (9, 5, 5), (9, 5, 5, 3), (9, 1, 5, 5)]),
    st.sampled_from([np.uint8, np.float32, np.float64, np.uint16]),
    st.integers(0, 99),
)
def test_what_was_standardised_comes_back(shape: tuple[int, ...], dtype: type, seed: int) -> None:
    draw = np.random.default_rng(seed)
    x = draw.integers(0, 256, shape).astype(dtype)
    made = standardize("data", "", arrays(x))
    plain = standardize("data", "", arrays(x), scale=False)
    back = as_given(made)
    assert made.means
    assert back.means == plain.means == plain.deviations == ()
    for split in ("x_train", "x_test"):
        expected = x[:-3] if split == "x_train" else x[-3:]
        expected = expected / np.iinfo(dtype).max if np.issubdtype(dtype, np.integer) else expected
        moved = np.moveaxis(expected, 3, 1) if shape[-1] == 3 else expected[:, None] if len(shape) == 3 else expected
        found, kept = (np.asarray(getattr(one, split)) for one in (back, plain))
        np.testing.assert_allclose(kept, moved, rtol=1e-6)
        # of floats up to the rounding of what was standardised
        np.testing.assert_allclose(found, moved, rtol=1e-5, atol=1e-5 * np.abs(moved).max())
        if dtype is np.uint8:
            assert isinstance(getattr(back, split), Uint8Images)
            np.testing.assert_array_equal(found, kept)


@pytest.mark.parametrize("shape", [(9, 4), (9, 3, 5, 5), (9, 1, 5, 5)])
def test_arrays_are_standardised_as_a_files_are(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).normal(5, 3, shape).astype(np.float32)
    own = arrays(x)
    made, from_file = standardised_as_given(taken_data(own)), standardize("data", "", own)
    np.testing.assert_allclose(np.asarray(made.x_test), np.asarray(from_file.x_test), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(made.means, from_file.means, rtol=1e-6)
    np.testing.assert_allclose(made.deviations, from_file.deviations, rtol=1e-6)
    twice = standardised_as_given(made)
    np.testing.assert_allclose(np.asarray(twice.x_train), np.asarray(made.x_train), rtol=1e-4, atol=1e-5)


def test_a_constant_feature_is_not_divided_and_rows_of_images_are_one() -> None:
    x = np.ones((9, 2), np.float32) * [3, 0] + np.arange(9)[:, None] * [0, 1]
    made = standardised_as_given(taken_data(arrays(x.astype(np.float32))))
    assert made.deviations[0] == 1
    np.testing.assert_array_equal(made.x_train[:, 0], 0)
    flat = np.random.default_rng(0).normal(size=(9, 4, 4)).astype(np.float32)
    made = standardised_as_given(taken_data(arrays(flat)))
    assert made.x_test.shape == (3, 4, 4)
    assert made.means == pytest.approx([flat[:-3].mean()], rel=1e-5)


def test_whole_numbers_that_are_no_pixels_have_no_scale() -> None:
    with pytest.raises(FedscopeError, match=r"or uint8 pixels .*, or have them standardised \(--standar"):
        standardize("data", "", arrays(np.arange(36).reshape(9, 4)), scale=False)
    with pytest.raises(FedscopeError, match="has no training samples to standardise by"):
        data_in_scale((np.ones((2, 3), np.float32), [0, 1]), CLASSIFICATION, True)


@pytest.mark.parametrize(
    "task", ["torch.nn:CrossEntropyLoss(weight=[1.0, 2.0])", "torch.nn:CrossEntropyLoss", "regression"]
)
def test_whole_numbers_that_count_as_tokens_are_not_standardised_without_a_word(task: str) -> None:
    own, known = arrays(np.arange(36).reshape(9, 4)), given_task(task)
    sentence = (
        "arrays: x_test has type int64, which is taken as tokens and cannot be standardised; give measurements as "
        "floats, or leave standardising out (--no-standardise, standardise=False) where they are token ids"
    )
    for made in (lambda: data_in_scale(own, known, True), lambda: arrays_in_scale("arrays", own, known, True)):
        with pytest.raises(FedscopeError) as refused:
            made()
        assert str(refused.value) == sentence
    assert data_in_scale(own, known, False).x_test.dtype == np.int64
    floats = {**own, **{name: own[name].astype(np.float32) for name in ("x_train", "x_test")}}
    assert data_in_scale(floats, known, True).means
    tokens = given_task("sequence-classification")
    assert data_in_scale(own, tokens, True).x_test.dtype == np.int64


def test_of_an_own_task_it_is_said_that_tokens_are_not_standardised() -> None:
    own = arrays(np.arange(36).reshape(9, 4))

    class Tokens(fedscope.Task):
        tokens = True

        def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
            return outputs.mean(dim=1) - y

    for make in (lambda task: data_in_scale(own, task, True), lambda task: arrays_in_scale("arrays", own, task, True)):
        with pytest.warns(FedscopeWarning) as said:
            assert make(given_task(lambda outputs, y: outputs[:, 0] - y)).x_test.dtype == np.int64
        assert [str(one.message) for one in said] == [
            "arrays: x_test has type int64, which is taken as tokens and is not standardised; give measurements as "
            "floats, or leave standardising out (--no-standardise, standardise=False) where they are token ids"
        ]
        assert make(given_task(Tokens())).x_test.dtype == np.int64  # a warning would be an error here


@pytest.mark.parametrize(
    ("task", "remedy", "more"),
    [
        ("classification", "task='sequence-classification'", {"task": "sequence-classification"}),
        (
            "torch.nn:CrossEntropyLoss(weight=[1.0, 2.0])",
            "leave standardising out (standardise=False; to train on them, give a function for data=, which is taken "
            "as it is)",
            {"standardise": False},
        ),
    ],
)
def test_tokens_that_were_standardised_are_told_how_to_stay_tokens(
    task: str, remedy: str, more: dict[str, Any], tmp_path: Path
) -> None:
    np.savez(tmp_path / "d.npz", **arrays(np.arange(36).reshape(9, 4)))
    nets = [nn.Sequential(nn.EmbeddingBag(36, 4), nn.Linear(4, 2)) for _ in range(2)]
    asked: dict[str, Any] = {"data": f"npz:{tmp_path}/d.npz", "points": 3, "task": task}
    with pytest.raises(FedscopeError) as refused:
        fedscope.line(nets, **asked)
    sentence = str(refused.value)
    assert "): its embedding takes token ids, which are whole numbers [n, L]; give them so, and " in sentence
    assert sentence.endswith(remedy)
    assert np.isfinite(fedscope.line(nets, **{**asked, **more}).loss).all()
