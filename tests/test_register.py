"""A new analysis is one folder and one command file: a toy one is put into a copy of the package, and all lists have
it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fedscope
from fedscope.analysis.register import analyses

pytestmark = [pytest.mark.programs, pytest.mark.same_elsewhere]

FOLDER = {
    "__init__.py": '''"""How far the clients of a round are from their mean."""

from ...analysis.register import Analysis, ReportSection

ANALYSIS = Analysis(
    name="spread",
    section="Compare clients and models",
    place=15,
    line="How far clients are from their mean.",
    answers=("Spread",),
    reports=(ReportSection("result:Spread", "Dispersion", 15, "How far are clients from their mean?"),),
    how_to="",
    example="spread runs/fma --rounds 2",
)
''',
    "result.py": '''"""The stored result."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

from ...results import Serializable, Table, TableResult, columns_of


@dataclass(frozen=True)
class RoundSpread(Serializable):
    run: str
    round: int
    distance: float


@dataclass(frozen=True)
class Spread(TableResult):
    command = "spread"
    suffixes = (".spread.csv", ".spread.json")
    format = "fedscope-spread"
    tables = (Table(".spread.csv", columns_of(RoundSpread)),)

    rounds: tuple[RoundSpread, ...]
    attrs: dict[str, Any] = field(default_factory=dict)

    def head(self) -> dict[str, Any]:
        return {}

    def rows(self) -> list[list[tuple[Any, ...]]]:
        return [[(one.run, one.round, one.distance) for one in self.rounds]]

    @classmethod
    def of_tables(cls, head: dict[str, Any], *tables: list[dict[str, Any]]) -> Self:
        return cls(tuple(RoundSpread(**row) for row in tables[0]), head["attrs"])

    def summary(self) -> str:
        return "; ".join(f"{one.run}, round {one.round}: {one.distance:.3g}" for one in self.rounds)

    def findings(self) -> dict[str, Any]:
        return {"rounds": [one.to_json() for one in self.rounds]}
''',
    "figure.py": '''"""The figure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...plotting.style import paper_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .result import Spread


def draw(result: Spread, width: float = 3.5, title: str | None = None) -> Figure:
    from matplotlib.figure import Figure

    with paper_style(width):
        figure = Figure(figsize=(width, 2))
        axes = figure.add_subplot()
        axes.plot([one.round for one in result.rounds], [one.distance for one in result.rounds])
        return figure
''',
    "analysis.py": '''"""The question."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...analysis.analysis import PreparedAnalysis, SettingsAndCompute, analysis, single_result
from ...analysis.execution import ROUNDS, Execution, Report, WorkUnit
from ...analysis.rounds import Rounds, client_rounds
from ...analysis.run_identity import identity
from ...analysis.runs import RunLike, resolve_runs
from .result import RoundSpread, Spread


@analysis
def spread(runs: RunLike | Sequence[RunLike], *, rounds: Rounds = None) -> PreparedAnalysis[Spread]:
    """How far clients are from their mean."""
    opened, asked_rounds = resolve_runs(runs, rounds)
    asked = [(run, n) for run, own in zip(opened, asked_rounds, strict=True) for n in client_rounds(run, own)]

    def prepare() -> SettingsAndCompute[Spread]:
        settings: dict[str, Any] = {"run": [identity(run) for run in opened], "rounds": [n for _, n in asked]}

        def compute(attrs: dict[str, Any], work: Execution) -> Spread:
            def task(run: Any, number: int) -> WorkUnit[RoundSpread]:
                def measure(report: Report) -> RoundSpread:
                    import numpy as np

                    rows = run.round(number).clients().parameters.astype(float)
                    return RoundSpread(run.name, number, float(np.linalg.norm(rows - rows.mean(0), axis=1).mean()))

                return WorkUnit(f"{run.path}@{number}", RoundSpread, measure, 1)

            with work.store(settings, *ROUNDS) as store:
                return Spread(tuple(work.each("spread", (task(*one) for one in asked), store)), attrs)

        return settings, compute

    return single_result(Spread, opened[0].path / "figures", "spread", prepare)
''',
}
COMMAND = '''"""``fedscope spread``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..options import Output, output_options, rounds_option


@click.command("spread")
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@rounds_option("the first and last of these")
@output_options
def command(runs: tuple[Path, ...], output: Output, **settings: Any) -> None:
    """How far clients are from their mean."""
    from ...decomposition.spread.analysis import spread as question
    from ..run_analysis import answer

    answer(question.prepare(runs, **settings), output)
'''


@pytest.fixture(scope="module")
def with_toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds a copy of the package with one more folder and one more command file."""
    there = tmp_path_factory.mktemp("with toy")
    package = there / "fedscope"
    shutil.copytree(Path(fedscope.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "decomposition/spread").mkdir()
    for name, text in FOLDER.items():
        (package / "decomposition/spread" / name).write_text(text)
    (package / "cli/commands/spread.py").write_text(COMMAND)
    return there


def told(there: Path, here: Path, *words: str) -> str:
    code = f"import sys; sys.path[:0] = [{str(there)!r}, {str(Path(__file__).parent)!r}]; " + words[0]
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, *words[1:]], cwd=here, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


MAIN = "from fedscope.cli.main import main; main()"


def test_the_help_has_it_in_its_place(with_toy: Path, tmp_path: Path) -> None:
    lines = [line.split() for line in told(with_toy, tmp_path, MAIN, "--help").splitlines()]
    names = [words[0] for words in lines if words]
    assert names[names.index("spread") - 1 : names.index("spread") + 2] == ["cka", "spread", "updates"]
    assert ["spread", "How", "far", "clients", "are", "from", "their", "mean."] in lines


def test_it_is_asked_kept_drawn_and_in_the_report(with_toy: Path, tmp_path: Path, two_rounds: Path) -> None:
    shutil.copytree(two_rounds / "runs", tmp_path / "runs")
    both = (
        "from contextlib import redirect_stdout; from fedscope.cli.main import run; "
        "assert run(['spread', 'runs/fma', '--rounds', '1,2', '--json']) == 0\n"
        "with redirect_stdout(sys.stderr): assert run(['report', 'runs/fma', '--out', 'page']) == 0"
    )
    numbers = json.loads(told(with_toy, tmp_path, both))
    assert [row["round"] for row in numbers["rounds"]] == [1, 2]
    assert {Path(name).suffix for name in numbers["files"]} == {".csv", ".json", ".pdf", ".png"}
    assert all((tmp_path / name).exists() for name in numbers["files"])
    assert "How far are clients from their mean?" in (tmp_path / "page.html").read_text()


def test_the_tests_and_the_reference_have_it(with_toy: Path, tmp_path: Path) -> None:
    found = json.loads(told(with_toy, tmp_path, "import asked, json; print(json.dumps(asked.ASKED))"))
    assert found["spread"] == ["spread runs/fma --rounds 2", "spread.csv pdf png"]
    docs = str(Path(__file__).resolve().parents[1] / "docs")
    code = f"sys.path.insert(0, {docs!r}); import api_page; print(api_page.GROUPS['Ask'][1])"
    assert "'cka', 'spread', 'updates'" in told(with_toy, tmp_path, code)


@pytest.mark.parametrize("one", analyses(), ids=lambda one: one.name)
def test_each_analysis_says_what_is_there(one: Any) -> None:
    docs = Path(__file__).resolve().parents[1] / "docs"
    assert hasattr(fedscope, one.name)
    assert [name for name in one.answers if not hasattr(fedscope, name)] == []
    assert not one.how_to or (docs / "howto" / f"{one.how_to}.md").exists()
    assert one.example.startswith(one.name) or one.name == "embed"
    for report in one.reports:
        assert one.result(report).command.split()[0] in (one.name, "disperse")
