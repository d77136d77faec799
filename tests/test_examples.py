"""The methods in ``docs/examples`` are well-behaved, and the trimmed mean is SciPy's."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import trim_mean

from fedscope.testing import check_method

EXAMPLES = Path(__file__).resolve().parent.parent / "docs" / "examples"


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize(("file", "name"), [("trimmed_mean", "TrimmedMean"), ("l1_pull", "L1Pull"), ("ema", "EMA")])
def test_an_example_is_well_behaved(file: str, name: str) -> None:
    check_method(getattr(example(file), name)).raise_for_failures()


def test_the_trimmed_mean_is_scipys(small: Any) -> None:
    clients = small.clients(7)
    served = example("trimmed_mean").TrimmedMean(share=0.2).step({}, small.start, clients, small.cohort((1,) * 7))
    expected = trim_mean(clients.parameters, 0.2, axis=0)
    # both are float64 means of five numbers, added up in two orders
    assert np.allclose(served.parameters, expected, rtol=1e-13, atol=1e-15)
