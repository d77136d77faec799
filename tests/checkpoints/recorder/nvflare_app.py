"""Jobs of NVFlare, with the real package, in its simulator; test_nvflare_long.py compares what they recorded.

Runs in an environment with NVFlare and what recording needs. Every client writes what it sends into ``sent/``, and the
aggregators are as different as NVFlare's own.

    python nvflare_app.py FOLDER CASE
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

CLIENTS, ROUNDS = 4, 3
#: factors of two clients, which do not sum to 1 with the others' 1
FACTORS = {"site-1": 0.5, "site-3": 2.0}
CASES = ("fedavg", "differences", "scatter", "scatter-differences", "scaffold", "careless", "sampled")

CLIENT = """
import sys
import numpy as np
import nvflare.client as flare
from nvflare.app_common.abstract.fl_model import FLModel

folder, case = sys.argv[1:]
flare.init()
name = flare.get_site_name()
k = int(name.rpartition("-")[2])
while flare.is_running():
    got = flare.receive()
    draw = np.random.default_rng(10 * got.current_round + k)
    sent = {}
    for key, value in got.params.items():
        change = draw.normal(size=value.shape)
        # the mean of a counter is a float, which a module loads as a whole number
        counts = key.endswith("tracked")
        sent[key] = np.array(value + k, np.int64) if counts else (value + change).astype(value.dtype)
    np.savez(f"{folder}/sent/{got.current_round}-{k}.npz", **sent)
    meta = {} if k == 4 else {"NUM_STEPS_CURRENT_ROUND": 10 * k}
    if case == "scaffold":
        meta["scaffold_c_diff"] = {key: np.zeros_like(value) for key, value in sent.items() if value.dtype.kind == "f"}
    if case.endswith("differences"):
        changed = {key: sent[key] - value for key, value in got.params.items()}
        np.savez(f"{folder}/sent/changed-{got.current_round}-{k}.npz", **changed)
        flare.send(FLModel(params=changed, params_type="DIFF", meta=meta))
    else:
        flare.send(FLModel(params=sent, metrics={"train_loss": float(k)}, meta=meta))
"""


def initial() -> dict[str, np.ndarray]:
    """The model before the first round."""
    draw = np.random.default_rng(0)
    return {
        "a.weight": draw.normal(size=(6, 5)).astype(np.float32),
        "a.bias": draw.normal(size=6).astype(np.float64),
        "norm.num_batches_tracked": np.array(3, np.int64),
    }


def make(case: str, folder: Path) -> Any:
    """A job of a case."""
    from nvflare.apis.dxo import DataKind
    from nvflare.app_common.aggregators.intime_accumulate_model_aggregator import InTimeAccumulateWeightedAggregator
    from nvflare.app_common.shareablegenerators.full_model_shareable_generator import FullModelShareableGenerator
    from nvflare.app_common.workflows.fedavg import FedAvg
    from nvflare.app_common.workflows.scaffold import Scaffold
    from nvflare.app_common.workflows.scatter_and_gather import ScatterAndGather
    from nvflare.client.config import ExchangeFormat
    from nvflare.job_config.api import FedJob
    from nvflare.job_config.script_runner import ScriptRunner
    from nvflare_parts import Careless, FromFile

    job = FedJob(name=case, min_clients=CLIENTS)
    job.to_server(FromFile(str(folder)), id="persistor")
    asked = CLIENTS - (case == "sampled")
    many: dict[str, Any] = {"num_clients": asked, "num_rounds": ROUNDS, "persistor_id": "persistor"}
    if case.startswith("scatter"):
        kind = DataKind.WEIGHT_DIFF if case.endswith("differences") else DataKind.WEIGHTS
        averaged = InTimeAccumulateWeightedAggregator(expected_data_kind=kind, aggregation_weights=FACTORS)
        job.to_server(averaged, id="aggregator")
        job.to_server(FullModelShareableGenerator(), id="shareable_generator")
        words = {"min_clients": CLIENTS, "num_rounds": ROUNDS, "wait_time_after_min_received": 0}
        job.to_server(ScatterAndGather(**words, persistor_id="persistor", train_task_name="train"))
    elif case == "scaffold":
        job.to_server(Scaffold(**many))
    elif case == "careless":
        job.to_server(FedAvg(**many, aggregator=Careless()))
    else:
        job.to_server(FedAvg(**many, aggregation_weights=FACTORS if case == "fedavg" else None))
    (folder / "client.py").write_text(CLIENT, encoding="utf-8")
    runner = ScriptRunner(
        script=str(folder / "client.py"),
        script_args=f"{folder} {case}",
        server_expected_format=ExchangeFormat.NUMPY,
        framework="raw",
    )
    job.to_clients(runner)
    return job


def main(folder: Path, case: str) -> None:
    """Play it."""
    import fedscope

    here = folder / case
    (here / "sent").mkdir(parents=True)
    os.chdir(here)
    job = fedscope.record_nvflare(make(case, here), "run", data="digits", method="Mine", seed=3)
    job.simulator_run(str(here / "workspace"), n_clients=CLIENTS, threads=CLIENTS)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
