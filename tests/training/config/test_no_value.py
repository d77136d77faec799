"""Settings that are given as None where that is not their default: a run's files say so, and a resumed run has them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from fedscope.checkpoints import FedscopeError, Run
from fedscope.methods import Served, ServerMethod, mean_update, setting
from fedscope.training import resume, train
from fedscope.training.build import config_of
from fedscope.training.config.config import Config, read_assignments

SMALL: dict[str, Any] = {
    "data": {"clients": 2, "share": 0.2},
    "model": {"hidden": [4]},
    "client": {"epochs": 1},
    "run": {"rounds": 2, "participation": 1.0, "evaluate_clients": 0, "evaluate_every": 2, "engine": "threads"},
}


@dataclass(frozen=True)
class Capped(ServerMethod):
    """A step of at most a length, unless it has none."""

    cap: float | None = setting(0.001, "largest step; none: any", above=0)
    parts: tuple[float, ...] | None = setting((1.0, 0.5), "numbers")
    sure: bool | None = setting(True, "whether it is")

    def step(self, state: Any, start: Any, clients: Any, cohort: Any) -> Served:
        update = mean_update(start, clients)
        if self.cap is not None:
            update = update * min(1.0, self.cap / np.linalg.norm(update))
        return Served((start.parameters + update).astype(start.layout.dtype))


def globals_of(run: Run) -> list[bytes]:
    return [run.round(t).read("global").parameters.tobytes() for t in run.rounds]


def test_a_server_without_a_value_is_trained_recorded_and_resumed_without_it(tmp_path: Path) -> None:
    own = Capped(cap=None, parts=None, sure=None)
    whole = train(SMALL, tmp_path / "whole", server=own)
    assert {whole.config["server"][name] for name in ("cap", "parts", "sure")} == {"none"}
    assert globals_of(whole) != globals_of(train(SMALL, tmp_path / "capped", server=Capped()))
    train(SMALL, tmp_path / "part", server=own, until=1)
    assert globals_of(resume(tmp_path / "part", code={"server": Capped})) == globals_of(whole)


@pytest.mark.parametrize("method", ["fisher", "regmean"])
def test_all_samples_of_a_merge_stay_all(method: str) -> None:
    config = Config.read({**SMALL, "server": {"method": method, "samples": None}})
    assert config.server.validates_on == ("train", None)
    assert Config.read(config.tables()) == Config.recorded(config.tables()) == config
    typed = Config.read({**SMALL, "server": {"method": method, **read_assignments(["server.samples=none"])["server"]}})
    assert typed == config


def test_all_samples_of_fisher_are_resumed(tmp_path: Path) -> None:
    given = {**SMALL, "server": {"method": "fisher", "samples": None}}
    train(given, tmp_path / "run", until=1)
    assert config_of(resume(tmp_path / "run")).server.validates_on == ("train", None)


def test_a_file_without_the_key_means_the_default_as_before() -> None:
    config = Config.recorded({"server": {"method": "fisher", "weighting": "samples"}, "average": {"method": "none"}})
    assert config.server.validates_on == ("train", 200)
    assert "start" not in Config.read({"average": {"method": "none"}}).tables()["average"]


def test_no_value_is_refused_where_a_file_could_not_tell_it() -> None:
    @dataclass(frozen=True)
    class Worded(ServerMethod):
        rule: str | None = setting("all", "a word")
        kind: Literal["none", "one"] | None = setting("one", "a choice")
        free: str | None = setting(None, "a word")

    assert Worded(rule="none", kind="none", free=None).table() == {
        "weighting": "samples",
        "rule": "none",
        "kind": "none",
    }
    for name, default in (("rule", "all"), ("kind", "one")):
        words = rf"server\.{name} = None cannot be told from its default '{default}' in a file, where 'none' is a word"
        with pytest.raises(FedscopeError, match=words):
            Worded(**{name: None})
    with pytest.raises(FedscopeError, match=r"server\.cap = 'nothing' has the wrong type"):
        Capped(cap="nothing")  # type: ignore[arg-type]
