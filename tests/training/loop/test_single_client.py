"""A round of one client averages nothing, which is said."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from fedscope.checkpoints import FedscopeWarning
from fedscope.training import train

pytestmark = [pytest.mark.same_elsewhere, pytest.mark.usefixtures("few_digits")]


@pytest.mark.parametrize(
    ("clients", "share", "remedy"), [(4, 0.1, "1"), (14, 0.1, "0.29"), (4, 0.5, ""), (15, 0.1, ""), (1, 1.0, "")]
)
def test_one_client_a_round_is_warned_of(clients: int, share: float, remedy: str, tmp_path: Path) -> None:
    settings = {"data.clients": clients, "run.participation": share, "data.partition": "iid", "model.hidden": [4]}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run = train({**settings, "client.epochs": 1, "run.evaluate_clients": 0}, tmp_path / "run", rounds=1)
    said = [str(one.message) for one in caught if issubclass(one.category, FedscopeWarning)]
    words = f"run.participation = {share:g} of {clients} clients is one client a round, so that no clients"
    assert [one.startswith(words) for one in said] == [True] * bool(remedy)
    assert (len(run.round(1).client_ids) == 1) is (bool(remedy) or clients == 1)
    assert all(one.endswith(f"run.participation={remedy}") for one in said)
