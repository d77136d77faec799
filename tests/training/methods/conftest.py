"""What tests of methods share."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    """24 training and 6 test samples of four features in three classes."""
    random = np.random.default_rng(0)
    y = np.arange(30) % 3
    x = (random.normal(size=(30, 4)) + y[:, None]).astype(np.float32)
    path = tmp_path_factory.mktemp("data") / "tiny.npz"
    np.savez(path, x_train=x[:24], y_train=y[:24], x_test=x[24:], y_test=y[24:])
    return f"npz:{path}"
