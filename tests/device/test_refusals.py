"""What a device cannot do is said before anything is computed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import fedscope
from fedscope.checkpoints import FedscopeError

pytestmark = pytest.mark.device


def test_theory_needs_float64(
    few_digits: None, recorded: Callable[..., Path], tmp_path: Path, without_float64: str
) -> None:
    run = recorded(tmp_path / "r", "--method", "fma", "--clients", "4", "--rounds", "1", "--device", "cpu")
    sentence = r"^theory is computed in float64, which pretend does not have; give device='cpu'"
    with pytest.raises(FedscopeError, match=sentence):
        fedscope.theory(str(run), device=without_float64)
