"""A table says of which package a method is, and that one name stands for two sources."""

from __future__ import annotations

from pathlib import Path

import pytest
from own_code import MODULE, forget, own_module

import fedscope
from fedscope.training.tables.code_notes import code_notes

pytestmark = pytest.mark.same_elsewhere


class Named:
    """Stands for a run."""

    def __init__(self, name: str, *entries: dict[str, str]) -> None:
        self.name, self.info = name, {"code": list(entries)}


def test_packages_are_named_with_their_versions() -> None:
    heavy = {"kind": "server", "name": "heavy", "sha256": "a", "distribution": "fed-pkg"}
    runs = [Named("one", {**heavy, "version": "1.2"}), Named("other", {**heavy, "version": "1.3", "sha256": "b"})]
    assert list(code_notes(runs)) == [  # type: ignore[arg-type]
        "heavy is of the package fed-pkg 1.2 and fed-pkg 1.3",
        "the server heavy has 2 different sources in these runs (other): they are not one method",
    ]
    own = {"kind": "server", "name": "mine:Heavy", "sha256": "a", "distribution": "mypkg", "version": "1"}
    assert list(code_notes([Named("one", own), Named("two", own)])) == []  # type: ignore[list-item]


def test_one_name_with_two_sources_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    small = {"clients": 4, "rounds": 1, "epochs": 1}
    for k, text in enumerate((MODULE, MODULE + "\n# another\n")):
        with own_module(tmp_path, text):
            fedscope.train(server="mine:Heavy", seed=k, out=f"run-{k}", **small)
            forget()
    table = fedscope.table(["run-0", "run-1"])
    assert "the server mine:Heavy has 2 different sources in these runs (run-1): they are not one method" in table.notes
