"""Settings that would be without effect are refused in Python as the command line refuses their options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import fedscope
from fedscope.checkpoints import FedscopeError

X = torch.arange(12.0).reshape(6, 2)
DATA = X.numpy(), (X[:, 0] > 5).long().numpy()
HESSIAN = "is of the Hessian, which hessian=False leaves out; leave one out"
MAP = "belongs to tsne=True; give both, or neither"


@pytest.mark.parametrize(("name", "value"), [("top", 3), ("probes", 2), ("density", 8)])
def test_sharpness_without_the_hessian(name: str, value: int) -> None:
    how: dict[str, Any] = {"data": DATA, "hessian": False, "draws": 1}
    with pytest.raises(FedscopeError, match=f"^{name}={value} {HESSIAN}$"):
        fedscope.sharpness(torch.nn.Linear(2, 2), **how, **{name: value})
    default = {"top": 5, "probes": 10, "density": 0}[name]
    fedscope.sharpness(torch.nn.Linear(2, 2), **how, **{name: default})


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"sample": 50}, f"sample=50 {MAP}"),
        ({"perplexity": 5.0}, f"perplexity=5.0 {MAP}"),
        ({"backend": "torchdr"}, f"backend='torchdr' {MAP}"),
        ({"tsne": True, "top": 2}, "top=2 belongs to densities, and tsne=True maps a sample of all parameters; leave"),
    ],
)
def test_parameters(two_rounds: Path, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(FedscopeError) as caught:
        fedscope.parameters(two_rounds / "runs" / "fma", **settings)
    assert str(caught.value).startswith(said)


def test_a_device_may_be_said_of_every_question(two_rounds: Path) -> None:
    """A script gives it to all of them; densities are computed on the processor."""
    assert fedscope.parameters(two_rounds / "runs" / "fma", device="cpu").names


def test_a_tracker_has_no_file_to_replace(two_rounds: Path) -> None:
    with pytest.raises(FedscopeError, match=r"^force=True replaces a file, and to='mlflow' writes none; leave it out$"):
        fedscope.export_metrics(two_rounds / "runs" / "fma", to="mlflow", force=True)
