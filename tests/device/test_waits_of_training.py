"""How often local training waits for the device, and what it copies: counted, and held as numbers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from device.pretend import Seen, watch

from fedscope.training import Config, merge, train

pytestmark = [pytest.mark.device, pytest.mark.usefixtures("few_digits")]

CLIENTS, EPOCHS, ROUNDS = 6, 3, 2
SMALL: dict[str, Any] = {
    "data": {"clients": CLIENTS},
    "model": {"hidden": [16]},
    "client": {"epochs": EPOCHS, "batch": 5},
    "run": {"rounds": ROUNDS, "participation": 1.0, "evaluate_clients": 0, "device": "pretend"},
}


def seen(tables: dict[str, Any], out: Path) -> Seen:
    with watch("fedscope") as found:
        train(Config.read(merge(SMALL, tables)), out)
    return found


def waits(found: Seen, *where: str) -> Counter[str]:
    """How often it was waited for the device or copied from it in these parts of the package, by place."""
    places: Counter[str] = Counter()
    for (kind, _, place), count in found.places.items():
        if kind in ("wait", "from device") and place.startswith(where):
            places[place] += count
    return places


@pytest.mark.parametrize("method", ["sgd", "fedprox", "scaffold", "fedsam", "fedmoswa", "mime"])
@pytest.mark.parametrize("engine", ["device", "cohort"])
def test_a_client_waits_at_most_twice_an_epoch(method: str, engine: str, tmp_path: Path) -> None:
    found = seen({"client": {"method": method}, "run": {"engine": engine}}, tmp_path / "run")
    places = waits(found, "training/local", "training/methods/clients")
    assert 0 < sum(places.values()) <= 2 * CLIENTS * EPOCHS * ROUNDS, places
    # and none of these is in a step: a client has at least four steps an epoch
    steps = sum(count for place, count in places.items() if place.endswith((" loss", " decayed", " step")))
    assert steps == 0, places
