"""What a question holds while it is answered."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest

import fedscope
from fedscope.checkpoints import Model
from fedscope.training.inputs import models as given_models

pytestmark = pytest.mark.usefixtures("few_digits")


def test_planes_of_rounds_hold_the_models_of_one_at_a_time(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Models are gone once their plane is measured: planes of many rounds need no more room than that of one."""
    alive: list[weakref.ref[Model]] = []
    most = 0
    loaded = given_models._load

    def watched(*args: Any) -> Model:
        nonlocal most
        model = loaded(*args)
        alive.append(weakref.ref(model))
        if sum(made() is not None for made in alive) > 3:
            gc.collect()  # takes long, and a plane's three are no surprise
        most = max(most, sum(made() is not None for made in alive))
        return model

    monkeypatch.setattr(given_models, "_load", watched)
    fedscope.plane.prepare("runs/fma", rounds=[1, 2], grid=3).answer()
    gc.collect()
    assert len(alive) >= 6
    assert most <= len(alive) // 2
    assert not any(made() is not None for made in alive)
