"""Every method on real data for a few rounds: the table of docs/methods.md.

The same cohorts, batch orders and initial model for all (docs/methods.md says the set-up); the methods' own settings
are their defaults, nothing is tuned. Rates are effectively equal: MIME's and MIMELite's momentum has (1 − β) before the
gradient, so they get 1/(1 − β) times the others' rate. Writes one row a method and seed, as soon as it is measured, so
that an interrupted table goes on where it stopped.

    python docs/measure_methods.py mnist PATH.npz docs/results/mnist.csv
    python docs/measure_methods.py cifar10 PATH.npz docs/results/cifar10.csv
"""

from __future__ import annotations

import csv
import math
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

COLUMNS = (
    "method",
    "seed",
    "rounds",
    "test_error_mean",
    "test_error_std",
    "client_test_error",
    "client_test_error_std",
    "parameters_a_round",
    "seconds_a_round",
    "note",
)

#: what both tables share, and what each has of its own
SHARED: dict[str, Any] = {
    "data": {"client_test": 0.25},
    "client": {"epochs": 1, "momentum": 0.9, "weight_decay": 1e-3},
    "run": {"evaluate_clients": 0},
    "record": {"clients": "none", "globals": "none"},
}
SETUPS: dict[str, dict[str, Any]] = {
    "mnist": {
        "data": {"clients": 100, "partition": "shards:2"},
        "model": {"name": "mlp"},
        "client": {"lr": 0.02, "batch": 50},
        "run": {"participation": 0.1, "rounds": 40},
        "seeds": 3,
    },
    "cifar10": {
        "data": {"clients": 40, "partition": "dirichlet:0.3"},
        "model": {"name": "cnn", "channels": 16, "hidden": [64]},
        "client": {"lr": 0.01, "batch": 25},
        "run": {"participation": 0.125, "rounds": 20},
        "seeds": 1,
    },
}
#: what does not fit into so few rounds at its default
OWN: dict[str, dict[str, Any]] = {"swa": {"average": {"cycle": 5}}}


def own_settings(method: str, lr: float) -> dict[str, dict[str, Any]]:
    """What a method has of its own in these tables, at the common rate ``lr``.

    With θ ← θ − η((1 − β) g + βm) steps are 1 − β times as long as with v ← βv + g; their momentum is the server's.
    """
    from fedscope.training.methods.clients.mime import Mimicry
    from fedscope.training.settings.registry import find, names

    kind = find("clients", method) if method in names("clients") else None
    if kind is not None and issubclass(kind, Mimicry):
        return {"client": {"momentum": 0.0, "lr": lr / (1 - kind().beta)}}
    return OWN.get(method, {})


def measure(name: str, data: str, method: str, seed: int) -> dict[str, Any]:
    """One run of one method: its row."""
    from fedscope.checkpoints import FedscopeError
    from fedscope.training import Config, Curves, merge, preset, train

    setup = {key: value for key, value in SETUPS[name].items() if key != "seeds"}
    own = {"data": {"name": f"npz:{data}"}, "run": {"seed": seed}}
    config = Config.read(merge(preset(method), SHARED, setup, own, own_settings(method, setup["client"]["lr"])))
    row: dict[str, Any] = {"method": method, "seed": seed, "rounds": config.run.rounds, "note": ""}
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        try:
            run = train(config, Path(folder) / "run")
        except FedscopeError as error:
            return {**row, "note": str(error).partition("; ")[0]}
        curve = Curves.of([run]).runs[0]
        metrics = run.metrics()
    mean, deviation, _ = curve.tail("test_error", 10)
    last = slice(-10, None)
    return {
        **row,
        "test_error_mean": mean,
        "test_error_std": deviation,
        "client_test_error": float(metrics["client_test_error_mean"][last].mean()),
        "client_test_error_std": float(metrics["client_test_error_std"][last].mean()),
        "parameters_a_round": int(metrics["parameters_down"][-1] + metrics["parameters_up"][-1]),
        "seconds_a_round": (time.perf_counter() - began) / config.run.rounds,
    }


def main(name: str, data: str, out: str, *only: str) -> None:
    """Measure all methods that the table lacks."""
    from fedscope.training import presets

    path = Path(out)
    path.parent.mkdir(parents=True, exist_ok=True)
    done: set[tuple[str, int]] = set()
    if path.exists():
        with path.open(encoding="utf-8", newline="") as file:
            done = {(row["method"], int(row["seed"])) for row in csv.DictReader(file)}
    else:
        path.write_text(",".join(COLUMNS) + "\n", encoding="utf-8")
    for seed in range(SETUPS[name]["seeds"]):
        for method in only or presets():
            if (method, seed) in done:
                continue
            row = measure(name, data, method, seed)
            with path.open("a", encoding="utf-8", newline="") as file:
                csv.DictWriter(file, COLUMNS, lineterminator="\n").writerow(
                    {key: _cell(row.get(key)) for key in COLUMNS}
                )
            print(row, flush=True)


def _cell(value: Any) -> Any:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return f"{value:.5g}" if isinstance(value, float) else value


if __name__ == "__main__":
    main(*sys.argv[1:])
