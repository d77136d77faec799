"""Files that code of one's own imports: another text of one is another source of the code, as far as it uses it."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import fedscope
from fedscope import Run
from fedscope.checkpoints import FedscopeError, FedscopeWarning
from fedscope.cli.main import run
from fedscope.training.config.sources import Setup
from fedscope.training.settings.code_source import CodeSource, source_of
from fedscope.training.sweeps.own_code import given_with, source_changed, with_given_code
from fedscope.training.sweeps.plan import plan_sweep
from fedscope.training.user_code.different_sources import sources_among
from fedscope.training.user_code.provided_code import code_of_options

pytestmark = pytest.mark.usefixtures("few_digits")

METHODS = '''
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import drawn
from factors import FACTOR
from fedscope.methods import Served, ServerMethod, weighted_update
from halves import half as halved
from steps import Steps

if TYPE_CHECKING:
    import words


@dataclass(frozen=True)
class Constant(ServerMethod):
    """Σ p_i (θ_i − w), times a constant of another file."""

    def step(self, state, start, clients, cohort):
        moved = start.parameters + FACTOR * weighted_update(start, clients, cohort.p)
        return Served(moved.astype(start.layout.dtype))


@dataclass(frozen=True)
class Helped(ServerMethod):
    """The same, times what a function gives, which asks another one."""

    def step(self, state, start, clients, cohort):
        moved = start.parameters + halved() * weighted_update(start, clients, cohort.p)
        return Served(moved.astype(start.layout.dtype))


@dataclass(frozen=True)
class Derived(Steps):
    """A class of another file."""


def show():
    return drawn.picture()
'''
FILES = {
    "methods1.py": METHODS,
    "factors.py": "FACTOR = 1.0\n",
    "drawn.py": "def picture():\n    return 'drawn'\n",
    "words.py": "WORD = 1\n",
    "halves.py": "from sizes import SIZE\n\nOTHER = 3\n\n\ndef half():\n    return SIZE / 2\n",
    "sizes.py": "SIZE = 2.0\n",
    "steps.py": METHODS[: METHODS.index("import drawn")]
    + METHODS[METHODS.index("from fedscope") :]
    .replace("from halves import half as halved\nfrom steps import Steps\n", "\nFACTOR = 1.0\n")
    .partition("@dataclass(frozen=True)\nclass Helped")[0]
    .replace("class Constant", "class Steps"),
}
SMALL = "--average none --clients 4 --rounds 3 --set client.epochs=1 --set run.participation=1"


def forget() -> None:
    """As a new process."""
    for name in FILES:
        sys.modules.pop(name.removesuffix(".py"), None)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    forget()
    yield tmp_path
    forget()


def trained(name: str, out: str, more: str = "--until 1") -> Run:
    assert run(f"train --server methods1:{name} {SMALL} {more} --out {out}".split()) == 0
    forget()
    return Run.open(out)


def edited(name: str, old: str, new: str) -> None:
    text = Path(name).read_text()
    assert old in text
    Path(name).write_text(text.replace(old, new))
    forget()


def resumed(name: str, out: str, more: str = "") -> int:
    try:
        return run(f"train --resume {out} --code server=methods1:{name} {more}".split())
    finally:
        forget()


@pytest.mark.parametrize(
    ("name", "file", "old", "new", "module"),
    [
        ("Constant", "factors.py", "1.0", "0.1", "factors"),
        ("Helped", "halves.py", "SIZE / 2", "SIZE / 20", "halves"),
        ("Helped", "sizes.py", "2.0", "0.2", "sizes"),
        ("Derived", "steps.py", "FACTOR = 1.0", "FACTOR = 0.1", "steps"),
    ],
)
def test_an_edited_file_that_is_imported_is_another_source(
    here: Path, capsys: pytest.CaptureFixture[str], name: str, file: str, old: str, new: str, module: str
) -> None:
    before = Path(file).read_text()
    trained(name, "r")
    kept = Path("r/code") / f"server-{module}.py"
    assert kept.read_text() == before
    edited(file, old, new)
    capsys.readouterr()
    assert resumed(name, "r") == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"server methods1:{name} has another source of {module}, which it imports, than the run was trained" in said
    assert f"see {kept}); restore it, or give --code-changed" in said
    assert Run.open("r").rounds == (1,)
    assert resumed(name, "r", "--code-changed --until 2") == 0
    (change,) = json.loads(Path("r/code/changed.json").read_text())
    assert (change["after"], Path(f"r/code/server@2-{module}.py").read_text()) == (1, Path(file).read_text())
    assert resumed(name, "r") == 0, "the source that it went on with is the run's by now"
    (sources,) = sources_among([Run.open("r")])
    assert [after for after, _ in sources["server", f"methods1:{name}"]] == [0, 1]
    restored = trained(name, "again")
    edited(file, new, old)
    made = f"train --from again@1 --code server=methods1:{name} --code-changed --rounds 3 --out branch"
    assert run(made.split()) == 0
    forget()
    texts = {path.name: path.read_text() for path in Path("branch/code").glob(f"*{module}.py")}
    assert sorted(texts) == [f"server-before-0-{module}.py", f"server@2-{module}.py"]
    assert texts[f"server@2-{module}.py"] == before != texts[f"server-before-0-{module}.py"]
    assert restored.rounds == (1,)


@pytest.mark.parametrize(
    ("name", "file", "old", "new"),
    [
        ("Constant", "drawn.py", "drawn", "another"),  # another thing of the file asks for it
        ("Constant", "words.py", "1", "2"),  # imported for types alone
        ("Constant", "halves.py", "OTHER = 3", "OTHER = 4"),  # of another method of the file
    ],
)
def test_what_the_code_does_not_use_may_change(here: Path, name: str, file: str, old: str, new: str) -> None:
    trained(name, "r")
    edited(file, old, new)
    assert resumed(name, "r") == 0


def test_a_run_of_an_earlier_version_goes_on(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = CodeSource.said
    with monkeypatch.context() as patched:
        patched.setattr(CodeSource, "said", lambda own: {key: v for key, v in said(own).items() if key != "imports"})
        old = trained("Constant", "old")
    assert "imports" not in old.info["code"][0]
    new = trained("Constant", "new")
    assert new.info["code"][0]["imports"].startswith("factors=")
    one, other = sources_among([old, new])
    assert one == other, "they are one method"
    edited("factors.py", "1.0", "0.1")
    assert resumed("Constant", "old") == 0
    one, other = sources_among([new, trained("Constant", "third")])
    assert one != other


def test_an_edited_comment_or_name_that_is_not_used_makes_no_other_method(here: Path) -> None:
    one = trained("Helped", "one")
    edited("halves.py", "OTHER = 3", "OTHER = 4  # of nobody")
    two = trained("Helped", "two")
    edited("sizes.py", "2.0", "4.0")
    three = trained("Helped", "three")
    first, second, third = sources_among([one, two, three])
    assert first == second != third


def test_a_sweep_keeps_the_files_that_it_began_with(here: Path) -> None:
    axes = [[{"server.method": "methods1:Helped"}]]
    plan = plan_sweep(Setup(), axes, (), {"data": {"clients": 4}, "run": {"rounds": 1}})
    (planned,) = plan.runs
    given = given_with(plan)
    assert source_changed(planned, given) is None
    edited("sizes.py", "2.0", "0.2")
    said = source_changed(planned, given)
    assert said is not None
    assert "sizes.py says another source of what server methods1:Helped imports than the sweep began with" in said
    with pytest.raises(FedscopeError, match=r"server methods1:Helped imports sizes, which has another source than the"):
        with_given_code(plan, code_of_options(["server=methods1:Helped"]))


def test_a_package_imports_from_its_own_files(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(here)
    Path("pkg1").mkdir()
    Path("pkg1/__init__.py").write_text("")
    for name in ("factors", "halves", "sizes", "steps", "drawn", "words"):
        text = FILES[f"{name}.py"].replace("from sizes import", "from . import sizes\nfrom .sizes import")
        Path(f"pkg1/{name}.py").write_text(text)
    own = METHODS.replace("import drawn", "from . import drawn").replace("    import words", "    from . import words")
    for name in ("factors", "halves", "steps"):
        own = own.replace(f"from {name} import", f"from .{name} import")
    Path("pkg1/methods.py").write_text(own)
    try:
        module = import_module("pkg1.methods")
        kinds = (module.Constant, module.Helped, module.Derived)
        found = [[one.module for one in source_of(kind).imports] for kind in kinds]
        assert found == [["pkg1.factors"], ["pkg1.halves", "pkg1.sizes"], ["pkg1.steps"]]
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "pkg1"]:
            del sys.modules[name]


def test_a_network_that_no_number_tells_is_said_to_import_another_file(here: Path) -> None:
    Path("acts.py").write_text("from torch import nn\n\nAct = nn.ReLU\n")
    layers = "nn.Flatten(), nn.Linear(64, 8), Act(), nn.Linear(8, 10)"
    Path("nets1.py").write_text(
        f"from acts import Act\nfrom torch import nn\n\n\ndef net():\n    return nn.Sequential({layers})\n"
    )

    def again() -> None:
        for name in ("acts", "nets1"):
            sys.modules.pop(name, None)

    try:
        assert run(f"train --model nets1:net {SMALL} --out r".split()) == 0
        Path("r/metrics.csv").unlink()
        again()
        with warnings.catch_warnings():
            warnings.simplefilter("error", FedscopeWarning)
            assert "recorded_numbers" not in fedscope.wima("r", model="nets1:net", windows=[2], limit=20).attrs
        again()
        edited("acts.py", "nn.ReLU", "nn.Tanh")
        said = r"nets1.py imports acts, which has another source than the run .*r/code/model-acts.py; no number tells"
        with pytest.warns(FedscopeWarning, match=said):
            fedscope.wima("r", model="nets1:net", windows=[2], limit=20)
    finally:
        again()
