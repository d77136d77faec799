"""What an import makes of files, piece by piece."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedscope.checkpoints import FedscopeError, Layout, stack, weighted_mean
from fedscope.checkpoints.models.expected import tied_names
from fedscope.checkpoints.recorder.coerce_models import coerce_model
from fedscope.checkpoints.recorder.match_files import find_files, natural
from fedscope.checkpoints.recorder.record_files import mean_of

pytestmark = pytest.mark.same_elsewhere


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**16), counts=st.lists(st.integers(0, 5), min_size=1, max_size=5).filter(any))
def test_a_mean_is_the_one_that_training_makes(seed: int, counts: list[int]) -> None:
    rng = np.random.default_rng(seed)
    states = {
        3 * k: {
            "w": rng.normal(size=(3, 2)).astype(np.float32),
            "norm.running_var": rng.random(4),
            "norm.num_batches_tracked": np.array(k),
            "mask": np.array([k % 2 == 0]),
        }
        for k in range(len(counts))
    }
    samples = {3 * k: n for k, n in enumerate(counts)}
    # given in another order than they are summed in
    made = mean_of({k: coerce_model(states[k]) for k in sorted(states, reverse=True)}, samples).arrays
    layout = coerce_model(states[0]).layout()
    p = np.array(counts) / sum(counts)
    clients = stack([Layout(layout.entries).flatten(state) for state in states.values()])
    expected = weighted_mean(clients, p, integer_from=int(p.argmax())).arrays()
    assert set(made) == set(expected)
    for name, values in expected.items():
        assert made[name].tobytes() == values.tobytes(), name
        assert made[name].dtype == values.dtype


@settings(max_examples=50, deadline=None)
@given(bits=st.lists(st.integers(0, 2**16 - 1), min_size=2, max_size=2), n=st.integers(1, 2**20))
def test_a_mean_of_bfloat16_is_the_nearest_one(bits: list[int], n: int) -> None:
    """Of all neighbours none is nearer, and of two that are as near it is the even one."""
    one, other = torch.tensor(np.array(bits, np.uint16).view(np.int16)).view(torch.bfloat16)
    made = mean_of({0: coerce_model({"w": one.reshape(1)}), 1: coerce_model({"w": other.reshape(1)})}, {0: n, 1: 2**20})
    exact = float(one) * (n / (n + 2**20)) + float(other) * (2**20 / (n + 2**20))
    assert made.dtypes == {"w": "bfloat16"}
    (found,) = made.arrays["w"].tolist()
    if not math.isfinite(exact):
        value = float(torch.tensor(np.array(found, np.uint16).view(np.int16)).view(torch.bfloat16))
        assert value == exact or (math.isnan(value) and math.isnan(exact))
        return
    near = [value for value in (found - 1, found, found + 1) if 0 <= value < 2**16]
    off = {
        b: abs(float(torch.tensor(np.array(b, np.uint16).view(np.int16)).view(torch.bfloat16)) - exact) for b in near
    }
    finite = {b: value for b, value in off.items() if math.isfinite(value)}
    if found in finite:
        least = min(finite.values())
        assert finite[found] == least
        assert found % 2 == 0 or list(finite.values()).count(least) == 1
    else:  # beyond the largest number
        assert abs(exact) > 3.3e38


def test_a_rounding_in_two_steps_would_be_another() -> None:
    """½ + 2⁻⁹ + 2⁻⁴⁰ lies above the middle of two bfloat16s, but is the middle in single precision."""
    high, low = torch.tensor([2.0], dtype=torch.bfloat16), torch.tensor([2.0**-7], dtype=torch.bfloat16)
    tiny = torch.tensor([2.0**-38], dtype=torch.bfloat16)
    states = [high, low, tiny, torch.zeros_like(high)]
    made = mean_of({k: coerce_model({"w": value}) for k, value in enumerate(states)}).arrays["w"]
    (found,) = torch.from_numpy(made.view(np.int16)).view(torch.bfloat16).tolist()
    assert found == 0.5 + 2.0**-8


def test_tensors_are_tied_where_they_are_one_and_not_where_they_are_equal() -> None:
    w, v = np.zeros((3, 3), np.float32), np.zeros((3, 3), np.float32)
    found = tied_names({"a": w, "b": w, "c": v, "row": w[0], "turned": w.T, "none": np.zeros(0), "empty": np.zeros(0)})
    assert found == {"a": ("b",), "b": ("a",)}


def test_placeholders_may_stand_twice_and_must_then_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("r1/r01-c2.pt", "r1/r2-c3.pt", "r2/r2-c4.pt", "r2/r2-c4.pt.old", "r2/r2-cx.pt", "r3/other.pt"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).touch()
    Path("r2/r2-c9.pt").mkdir()
    for pattern in ("r{round}/r{round}-c{client}.pt", f"{tmp_path}/r{{round}}/r{{round}}-c{{client}}.pt"):
        rounds = find_files([pattern]).rounds
        assert [(own.number, list(own.clients)) for own in rounds] == [(1, [2]), (2, [4])]
    Path("{client}.pt").touch()  # a strange name, but a file's
    assert find_files(["{client}.pt"]).rounds[0].clients == {0: Path("{client}.pt")}
    with pytest.raises(FedscopeError, match=r"r\(\{client\}\.pt matches no file; \. holds r1, r2, r3"):
        find_files(["r({client}.pt"])  # no regular expression


def test_numbers_in_names_are_numbers() -> None:
    names = ["c10.pt", "c9b1.pt", "c9.pt", "10.pt", "9.pt", "C1.pt"]
    assert sorted(names, key=natural) == ["9.pt", "10.pt", "C1.pt", "c9.pt", "c9b1.pt", "c10.pt"]


def test_signs_in_the_names_of_folders_that_are_there_are_no_pattern(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("my dir [1]", "my dir 1", "a*/b?"):
        Path(folder).mkdir(parents=True)
        for k in range(2):
            torch.save({"w": torch.full((2,), float(k))}, Path(folder) / f"c-{k}.pt")
    for pattern, folder in (
        ("my dir [1]/c-*.pt", "my dir [1]"),
        ("my dir [1]/c-[01].pt", "my dir [1]"),
        (str(tmp_path / "a*/b?/c-*.pt"), "a*/b?"),
        ("my dir [12]/c-*.pt", "my dir 1"),  # no such folder, so it is a pattern
    ):
        (found,) = find_files([pattern]).rounds
        assert [path.resolve() for path in found.clients.values()] == [
            (tmp_path / folder / f"c-{k}.pt") for k in range(2)
        ]
    with pytest.raises(FedscopeError, match=r"d-\*.pt matches no file; my dir \[1\] holds c-0.pt, c-1.pt"):
        find_files(["my dir [1]/d-*.pt"])
