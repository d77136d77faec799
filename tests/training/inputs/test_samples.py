"""The samples that runs are measured on, and which runs are not measured together."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedscope.analysis.settings import EvaluationConfig
from fedscope.checkpoints import FedscopeError, Run
from fedscope.training import Config, train
from fedscope.training.inputs.samples import common_samples, dataset_of

pytestmark = pytest.mark.usefixtures("few_digits")
TEST, TRAIN = EvaluationConfig("test", device="cpu"), EvaluationConfig("train", device="cpu")


def trained(path: Path, **data: Any) -> Run:
    tables = {"data": {"clients": 4, **data}, "model": {"hidden": [2]}, "run": {"rounds": 1, "evaluate_clients": 0}}
    return train(Config.read(tables), path)


def test_runs_are_measured_on_the_same_samples_or_refused(tmp_path: Path) -> None:
    one, other = trained(tmp_path / "a"), trained(tmp_path / "b", partition="iid")
    assert other.partition is not None
    dataset = dataset_of([one], TEST)
    whole = np.sort(np.concatenate(other.partition.clients))
    for source, indices in ((TEST, dataset.samples("test").indices), (TRAIN, whole)):
        for runs in ([one], [one, other], [other, one]):
            np.testing.assert_array_equal(np.sort(common_samples(runs, dataset, source).indices), indices)
    assert len(common_samples([one, other], dataset, EvaluationConfig("test", limit=9))) == 9

    parts = trained(tmp_path / "parts", client_test=0.25)
    assert len(common_samples([one, parts], dataset, TEST)) == len(dataset.samples("test"))
    why = f"{one.path} and {parts.path} were trained on different parts of the data (their clients keep test parts); "
    with pytest.raises(FedscopeError, match=f"^{re.escape(why)}ask for one of them at a time$"):
        common_samples([one, parts], dataset, TRAIN)

    info = json.loads((other.path / "run.json").read_text())
    del info["files"]
    (other.path / "run.json").write_text(json.dumps(info | {"data": info["data"] | {"sha256": "0" * 64}}))
    for source in (TEST, TRAIN):
        why = f"{one.path} and {other.path} were trained on different data; ask for one of them at a time"
        with pytest.raises(FedscopeError, match=f"^{re.escape(why)}$"):
            common_samples([one, Run.open(other.path)], dataset, source)
