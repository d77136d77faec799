"""A table says of which package a method is, and that one name stands for two sources."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from own_code import MODULE, forget, own_module

import fedscope
from fedscope.checkpoints import FedscopeError, FedscopeWarning
from fedscope.training.tables.code_notes import code_notes
from fedscope.training.user_code import different_sources, used_source
from fedscope.training.user_code.different_sources import sources_among
from fedscope.training.user_code.used_source import _used

pytestmark = pytest.mark.same_elsewhere


EDITED = MODULE.replace("w⁺ = w + v⁺", "w⁺ = w + v⁺ / 2").replace("start.parameters + v)", "start.parameters + v / 2)")
#: a comment, a docstring, an empty line, and another method of the file
SAME = (
    MODULE.replace("w⁺ = w + v⁺", "Says it otherwise.").replace("alpha=self.mu", "alpha=2 * self.mu") + "\n# another\n"
)
SMALL = {"clients": 4, "participation": 1.0, "rounds": 1, "epochs": 1}


class Named:
    """Stands for a run."""

    def __init__(self, name: str, *entries: dict[str, str]) -> None:
        self.name, self.path, self.rounds, self.info = name, Path("nowhere"), (1,), {"code": list(entries)}


def test_packages_are_named_with_their_versions() -> None:
    heavy = {"kind": "server", "name": "heavy", "sha256": "a", "distribution": "fed-pkg"}
    runs = [Named("one", {**heavy, "version": "1.2"}), Named("other", {**heavy, "version": "1.3", "sha256": "b"})]
    assert list(code_notes(runs)) == [  # type: ignore[arg-type]
        "heavy is of the package fed-pkg 1.2 and fed-pkg 1.3",
        "the server heavy has 2 different sources in these runs (other): they are not one method",
    ]
    piped = {"kind": "server", "name": "__main__:Heavy"}
    assert list(code_notes([Named("one", piped), Named("two")])) == []  # type: ignore[list-item]
    assert list(code_notes([Named("one", piped), Named("two", piped)])) != []  # type: ignore[list-item]
    own = {"kind": "server", "name": "mine:Heavy", "sha256": "a", "distribution": "mypkg", "version": "1"}
    assert list(code_notes([Named("one", own), Named("two", own)])) == []  # type: ignore[list-item]
    adam = {"kind": "optimiser", "name": "torch.optim:Adam", "distribution": "torch"}
    both = [Named("one", {**adam, "sha256": "a"}), Named("two", {**adam, "sha256": "b"})]
    assert list(code_notes(both)) == [], "another version of PyTorch is no other method"  # type: ignore[arg-type]


def trained(folder: Path, **sources: str) -> None:
    """Runs of ``mine:Heavy`` by these sources, each with the seed that its name ends with."""
    for name, text in sources.items():
        with own_module(folder, text):
            fedscope.train(server="mine:Heavy", seed=int(name[-1]), out=name, **SMALL)
            forget()


def rewrite_entry(run: Path, **changes: str | None) -> None:
    """Change what a run says of its code; None takes it out."""
    info = json.loads((run / "run.json").read_text())
    entry = {**info["code"][0], **changes}
    info["code"][0] = {key: value for key, value in entry.items() if value is not None}
    info["files"].pop("run.json")
    (run / "run.json").write_text(json.dumps(info))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_one_name_with_two_sources_makes_two_rows_and_bands(here: Path) -> None:
    trained(here, a0=MODULE, a1=MODULE, b0=EDITED, b1=EDITED)
    table = fedscope.table(["a0", "a1", "b0", "b1"])
    assert (
        "the server mine:Heavy has 2 different sources in these runs (b0, b1): they are not one method" in table.notes
    )
    seeds = {cell.row: list(cell.values) for cell in table.cells}
    assert seeds == {"mine:Heavy (source of a0)": ["0", "1/0"], "mine:Heavy (source of b0)": ["0", "1/0"]}
    by_server = fedscope.table(["a0", "a1", "b0", "b1"], rows="server.method", columns="client.method")
    assert by_server.rows_named == table.rows_named
    # one seed each is what one wants to compare
    assert len(fedscope.table(["a0", "b0"]).cells) == 2
    with pytest.warns(
        FedscopeWarning, match="a0 and b0 differ in the source of server mine:Heavy, so they are no draws"
    ):
        curves = fedscope.curves(["a0", "a1", "b0", "b1"], bands=True)
    assert [band.seeds for band in curves.bands] == [2, 2]
    with pytest.raises(FedscopeError, match="a0 and b1 differ in the source of server mine:Heavy; train others"):
        fedscope.curves(["a0", "b1"], bands=True)
    with pytest.raises(FedscopeError, match="a0 and b1 differ in the source of server mine:Heavy, but draws may"):
        fedscope.decompose(["a0", "b1"], draws="runs")
    made = fedscope.decompose(["a0", "b0", "a1", "b1"], draws="runs", limit=20)
    assert [run.run for run in made.runs] == ["a0+a1", "b0+b1"]


def test_an_edited_comment_makes_no_other_method(here: Path, recwarn: pytest.WarningsRecorder) -> None:
    trained(here, a0=MODULE, a1=SAME)
    table = fedscope.table(["a0", "a1"])
    assert [list(cell.values) for cell in table.cells] == [["0", "1/0"]]
    assert not any("different sources" in note for note in table.notes)
    assert [band.seeds for band in fedscope.curves(["a0", "a1"], bands=True).bands] == [2]
    assert len(fedscope.decompose(["a0", "a1"], draws="runs", limit=20).runs) == 1
    assert not [one for one in recwarn if "source" in str(one.message)]


def test_a_source_that_was_changed_on_the_way_is_said(here: Path) -> None:
    small = {**SMALL, "rounds": 2}
    with own_module(here, MODULE):
        fedscope.train(server="mine:Heavy", seed=1, out="whole1", **small)
        fedscope.train(server="mine:Heavy", seed=0, out="part0", until=1, **small)
        forget()
    with own_module(here, EDITED):
        fedscope.resume("part0", code={"server": "mine:Heavy"}, code_changed=True)
        forget()
    table = fedscope.table(["part0", "whole1"])
    assert {cell.row for cell in table.cells} == {"mine:Heavy (source of part0)", "mine:Heavy (source of whole1)"}
    assert "part0: the source of the server mine:Heavy was changed after round 1" in table.notes
    assert any("has 2 different sources in these runs (part0)" in note for note in table.notes)


def test_a_source_that_is_not_known_is_no_other_one(here: Path) -> None:
    """That of a program that came from a pipe: its run keeps neither text nor sum. Of several sources it is none."""
    trained(here, a0=MODULE, a1=MODULE, b2=EDITED)
    rewrite_entry(here / "a1", sha256=None, text=None, file=None)
    table = fedscope.table(["a0", "a1"])
    assert [list(cell.values) for cell in table.cells] == [["0", "1/0"]]
    assert "the source of the server mine:Heavy is not known of a1: it may be another" in table.notes
    assert [band.seeds for band in fedscope.curves(["a0", "a1"], bands=True).bands] == [2]
    assert len(fedscope.decompose(["a1", "a0"], draws="runs", limit=20).runs) == 1
    assert len(fedscope.table(["a0", "a1", "b2"]).cells) == 3


def test_a_run_without_its_texts_is_known_by_their_sums(here: Path) -> None:
    trained(here, a0=MODULE, a1=MODULE, b2=EDITED)
    shutil.rmtree(here / "a1/code")
    table = fedscope.table(["a0", "a1", "b2"])
    assert sorted(len(cell.values) for cell in table.cells) == [1, 2]
    assert [band.seeds for band in fedscope.curves(["a1", "a0"], bands=True).bands] == [2]


def test_two_methods_of_one_text_are_each_their_own() -> None:
    """Their file has one sum, of which a run without texts knows no more."""
    entries = [
        {"kind": kind, "name": f"mine:{name}", "sha256": "a"} for kind, name in (("client", "A"), ("server", "B"))
    ]
    one, other = Named("one", *entries), Named("other", *entries)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            different_sources, "digest_of_used", lambda run, entry: entry["name"] if run is one else entry["sha256"]
        )
        ours, theirs = sources_among([one, other])  # type: ignore[list-item]
    assert ours == theirs == {("client", "mine:A"): ((0, "mine:A"),), ("server", "mine:B"): ((0, "mine:B"),)}


def test_a_method_of_a_package_is_what_its_entry_point_names(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another class of its module makes no other method of it."""
    trained(here, a0=MODULE, a1=MODULE + "\n\nclass Another:\n    pass\n", b2=EDITED)
    for name in ("a0", "a1", "b2"):
        rewrite_entry(here / name, name="heavy", distribution="fed-pkg", version="1")
    given = SimpleNamespace(value="mine:Heavy")
    monkeypatch.setattr(
        used_source, "chosen", lambda shelf, name: given if (shelf, name) == ("servers", "heavy") else None
    )
    runs = [fedscope.Run.open(here / name) for name in ("a0", "a1", "b2")]
    one, same, other = (of["server", "heavy"] for of in sources_among(runs))
    assert one == same != other


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("class A: x = 1", "class A:\n    # one\n    x = (1)", True),
        ("class A: x = 1", "class A: x = 2", False),
        ("B = 1\nclass A: x = B", "B = 2\nclass A: x = B", False),
        ("B = 1\nclass A: x = 1", "B = 2\nclass A: x = 1", True),
        ("class B: pass\nclass A(B): pass", "class B: y = 1\nclass A(B): pass", False),
        (
            "def f(): return 1\nclass A:\n def x(self): return f()",
            "def f(): return 2\nclass A:\n def x(self): return f()",
            False,
        ),
        ("class A: x = 1", "class A: x = 1\nA.x = 2", False),
        ("from b import c\nclass A: x = c", "from d import c\nclass A: x = c", False),
        ("class A: x = 1", "class A: x = 1\nfor y in []: A.x = y", False),
        ("class A: x = 1", "class A: x = 1\ndel A.x", False),
        ("class A: x = 1", "class A: x = 1\nfrom b import *", False),
        ("if True:\n class A: x = 1", "if True:\n class A: x = 2", False),
        (
            "class A: x = 1\nif __name__ == '__main__':\n A()",
            "class A: x = 1\nif __name__ == '__main__':\n A.x = 2",
            True,
        ),
        ("class A: x = 1", "'Says.'\nclass A: x = 1\n'More.'", True),
        ("class A: x = 1", "if TYPE_CHECKING:\n import b\nclass A: x = 1", True),
        ("class A: x = 1", "if TYPE_CHECKING:\n import b\nelse:\n b = 1\nclass A: x = 1", False),
        ("import sys\nsys.path.insert(0, 'a')\nclass A: x = 1", "class A: x = 1", True),
        ("import os\nos.environ['A'] = '0'\nclass A: x = 1", "class A: x = 1", True),
        ("import b\nb.path['A'] = '0'\nclass A: x = 1", "class A: x = 1", False),
        ("class A: x: 'B'\nclass B: y = 1", "class A: x: 'B'\nclass B: y = 2", False),
    ],
)
def test_what_a_source_says_is_what_its_code_uses(one: str, other: str, alike: bool) -> None:
    assert (_used(one, "A(1)") == _used(other, "A(1)")) is alike


@pytest.mark.parametrize("text", ["class A", "x = \0", "(" * 9999 + ")" * 9999])
def test_what_is_no_python_is_its_text(text: str) -> None:
    assert _used(text, "A") is None
