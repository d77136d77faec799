"""Statements of the pages that a change of the code would make false, compared with the code: nothing is trained."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from fedscope.analysis.register import result_classes
from fedscope.checkpoints.recorder.identify_server import Rule, ServerStep
from fedscope.checkpoints.rounds import metrics
from fedscope.checkpoints.runs import folders, info
from fedscope.decomposition.client_data import result as client_data
from fedscope.decomposition.parameters.tsne import MOST
from fedscope.decomposition.theory.lemma1 import Gap
from fedscope.decomposition.theory.result import Theory
from fedscope.decomposition.theory.theorem2 import ClientBound
from fedscope.decomposition.updates import result as updates
from fedscope.landscape.planes import basins
from fedscope.results import ArrayResult, Result, TableResult
from fedscope.training.config.sources import Setup
from fedscope.training.curves import bands
from fedscope.training.settings.registry import find, names, preset

pytestmark = pytest.mark.same_elsewhere

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
FORMATS = DOCS / "formats.md"
PAGES = [ROOT / "README.md", ROOT / "AGENTS.md", *sorted(DOCS.rglob("*.md")), *sorted(DOCS.rglob("*.ipynb"))]
#: of a page, everything between backticks on a line, and every line of a block of code
CODE = re.compile(r"`([^`\n]+)`|^(?:\$ )?(fedscope .*)$", re.MULTILINE)


def commands_of(text: str) -> Iterator[list[str]]:
    """The words of every command of fedscope that a page shows."""
    for found in CODE.finditer(text.replace("\\\n", " ")):
        line = found[1] or found[2]
        if line.startswith("fedscope "):
            try:
                yield shlex.split(line, comments=True)[1:]
            except ValueError:  # a quote that the line does not close
                yield line.split()[1:]


def lacks_average(words: list[str]) -> bool:
    """Whether a training names a client or a server alone, so that it is averaged over rounds, which nothing says.

    >>> lacks_average(["train", "--server", "fedx:FedX"]), lacks_average(["train", "--client=fedsam"])
    (True, True)
    >>> lacks_average(["train", "--server", "fedx:FedX", "--average", "none"]), lacks_average(["train"])
    (False, False)
    """
    given = {word.partition("=")[0] for word in words}
    says = {"--method", "--average", "--recipe", "--from", "--resume"}
    return words[:1] == ["train"] and bool(given & {"--client", "--server"}) and not given & says


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_training_is_averaged_over_rounds_where_nothing_says_so(page: Path) -> None:
    assert not [words for words in commands_of(page.read_text(encoding="utf-8")) if lacks_average(words)]


def test_what_stands_in_for_a_method_that_nobody_names_is_what_help_and_page_say() -> None:
    from fedscope.cli.commands.train import command

    alone = Setup().methods(None, {"client": {"method": "fedsam"}})
    assert (alone["server"], alone["average"]) == ("fma", "ima")
    assert Setup().methods("fedsam")["average"] == "none"
    help_ = next(str(one.help) for one in command.params if "--average" in one.opts)
    assert "Without --method and --recipe, ima if nothing names another." in help_
    said = "is IMA's: the client `sgd`, the server `fma` and the average `ima`."
    assert said in (DOCS / "methods.md").read_text(encoding="utf-8")


def test_a_method_goes_before_a_file_and_drops_what_is_its_methods_alone() -> None:
    stored = {"client": {"method": "fedprox", "mu": 0.3, "lr": 0.2}, "server": {"method": "fedadam"}}
    table = Setup(stored=stored).config("scaffold").tables()
    assert {name: table[name]["method"] for name in ("client", "server", "average")} == preset_names("scaffold")
    assert (table["client"]["lr"], "mu" in table["client"]) == (0.2, False)
    said = "CONFIG.toml < `--method` < flag < `--set`"
    assert said in (DOCS / "reference" / "settings.md").read_text(encoding="utf-8")


def preset_names(method: str) -> dict[str, str]:
    """The client, the server and the average of a method."""
    return {section: str(table["method"]) for section, table in preset(method).items()}


def test_commands_of_a_page_are_seen() -> None:
    text = (
        "Say `fedscope train --server fedx:FedX`.\n```console\n$ fedscope train --client fedsam\nruns/x: 3 rounds\n```"
    )
    assert [lacks_average(words) for words in commands_of(text)] == [True, True]


def named_in(text: str) -> set[str]:
    """The words between backticks."""
    return {word for code in re.findall(r"`([^`\n]+)`", text) for word in re.findall(r"\w+", code)}


def described(*marks: str) -> str:
    """The lines of the page of files that have one of these marks, of a table with such a head all rows, and the pages
    to which they link."""
    lines = FORMATS.read_text(encoding="utf-8").splitlines()
    kept: list[str] = []
    for number, line in enumerate(lines):
        if not any(mark in line for mark in marks):
            continue
        kept.append(line)
        if line.startswith("|") and lines[number + 1].startswith("| ---"):
            rest = lines[number + 1 :]
            kept += rest[: next((end for end, row in enumerate(rest) if not row.startswith("|")), len(rest))]
    pages = {page for line in kept for page in re.findall(r"\]\((howto/[\w-]+\.md)", line)}
    return "\n".join([*kept, *((DOCS / page).read_text(encoding="utf-8") for page in sorted(pages))])


def unnamed(columns: Iterable[str], *marks: str) -> list[str]:
    """Those that no such line names."""
    found = named_in(described(*marks))
    return [column for column in columns if column not in found]


def section(heading: str) -> str:
    """What stands under a heading of the page of files, up to the next one."""
    text = FORMATS.read_text(encoding="utf-8")
    _, _, rest = text.partition(f"{heading}\n")
    assert rest, heading
    return re.split(r"^##+ ", rest, maxsplit=1, flags=re.MULTILINE)[0]


@pytest.mark.parametrize("kind", result_classes(), ids=lambda kind: kind.__name__)
def test_everything_that_a_result_keeps_is_named_on_the_page_of_files(kind: type[Result]) -> None:
    if kind.command == "curves":  # whose columns are those of metrics.csv
        assert unnamed(("run", "round"), ".curves.csv", ".bands.csv") == []
    elif issubclass(kind, TableResult):
        assert {table.suffix: unnamed(table.columns, table.suffix) for table in kind.tables} == {
            table.suffix: [] for table in kind.tables
        }
    elif kind.command in ("line", "plane", "import"):
        found = named_in(section("### Planes and lines"))
        assert not [name for name in (*kind.needed, *kind.optional) if name not in found]
    elif issubclass(kind, ArrayResult):
        assert unnamed((*kind.needed, *kind.optional), f"`.nc` of `{kind.command}") == []


@pytest.mark.parametrize(
    ("suffix", "columns"),
    [
        (".basin.csv", basins.COLUMNS),
        (".updates.csv", updates.COLUMNS),
        (".counts.csv", client_data.COLUMNS),
        (".bands.csv", bands.COLUMNS),
    ],
)
def test_a_table_beside_a_result_is_described(suffix: str, columns: tuple[str, ...]) -> None:
    assert unnamed(columns, suffix) == []


def test_every_quantity_of_the_theory_is_described() -> None:
    gaps = [
        Gap(round, shrink, 0.1 * shrink * round, round * shrink, shrink, 1.0)
        for round in (1, 2, 3)
        for shrink in (1.0, 0.5, 0.25)
    ]
    clients = [ClientBound(1, k, 3, 1.0, 2.0, 0.1 * k, k, k**0.5, 3.0, k, 1.0, 1.0, k) for k in range(5)]
    theory = Theory("fedswa", tuple(gaps), tuple(clients), {"fedswa": {"steps": [3, 4], "rounds": 3}})
    found = named_in(described(".theory.csv"))
    variances = re.compile("(gp|replay)_variance_(equation_3_|mmd2_)?")  # the correlations of each have one name
    told = {variances.sub("", quantity) for *_, quantity, _ in theory.values()}
    assert {"gap", "slope_points", "shrink_slope_last", "fedswa_factor_most_steps", "pearson_low"} <= told
    assert sorted(told - found - {""}) == []


def test_every_column_of_the_table_of_metrics_is_described() -> None:
    recorded = [
        f"{group}_{name}"
        for group, rest in re.findall(r"(\w+)_\(([\w|]+)\)", metrics._RECORDED)
        for name in rest.split("|")
    ]
    assert {*ServerStep(Rule.MEAN).metrics()} <= {*recorded}
    found = named_in(section("### Columns of metrics.csv"))
    assert [name for name in (*metrics.COLUMNS, *recorded, metrics.CHECK) if name not in found] == []


def test_every_rule_of_a_server_has_its_number_on_the_page_of_files() -> None:
    row = next(line for line in FORMATS.read_text(encoding="utf-8").splitlines() if line.startswith("| `server_rule`"))
    assert [int(number) for number in re.findall(r"\b(\d+):", row)] == [int(rule) for rule in Rule]


def test_every_key_of_a_runs_file_and_everything_in_its_folder_is_named() -> None:
    found = named_in(section("### Contents of run.json"))
    keys = {**info._ENTRIES, **info._DATA, **info._BRANCH, **info._WEIGHTS}
    assert [key for key in ("format", "version", *keys) if key not in found] == []
    files = section("## A run")
    assert [name for name in (*folders.FILES, f"{folders.CODE}/") if f"| `{name}` |" not in files] == []


def test_servers_that_need_no_start_are_listed_alike() -> None:
    free = {name for name in names("servers") if find("servers", name).forgets_start}
    for page, before in (("merges", "Without `--start` only "), ("what-if", "(`start`) only ")):
        sentence = (
            (DOCS / "howto" / f"{page}.md").read_text(encoding="utf-8").partition(before)[2].partition(" work")[0]
        )
        assert named_words(sentence) == free, page


def test_servers_that_do_not_take_blocks_are_listed() -> None:
    by = {
        kind: {name for name in names("servers") if find("servers", name).reads == kind} for kind in ("layers", "rows")
    }
    for page, layers, rows in (
        (
            "models",
            "(?<=Most servers are given blocks of columns. ).*?(?= hold the largest)",
            "(?<=less is free. ).*?(?= read whole)",
        ),
        (
            "what-if",
            "(?<=take well below 1 GB. ).*?(?= hold the largest)",
            "(?<=before it starts. ).*?(?= read models)",
        ),
    ):
        text = (DOCS / "howto" / f"{page}.md").read_text(encoding="utf-8")
        for kind, pattern in (("layers", layers), ("rows", rows)):
            sentence = re.search(pattern, text)
            assert sentence is not None, (page, kind)
            assert named_words(sentence[0]) == by[kind], (page, kind)


def named_words(sentence: str) -> set[str]:
    """What stands between backticks, as it is."""
    return set(re.findall(r"`([^`]+)`", sentence))


def test_the_help_says_how_many_parameters_a_map_takes() -> None:
    from fedscope.cli.commands.parameters import command

    option = next(one for one in command.params if one.name == "sample")
    assert f"at most {MOST['sklearn']} ({MOST['torchdr']} with torchdr)" in str(option.help)


def test_the_help_of_import_says_where_each_of_its_two_goes() -> None:
    from fedscope.cli.commands.import_ import command

    said = next(str(one.help) for one in command.params if one.name == "output" or "--out" in one.opts)
    assert "Models: folder of the run, which has to be given." in said
    assert "figures/import-FILE" in said


def test_what_is_installed_comes_from_a_copy_of_the_code() -> None:
    """The package is in no index yet, and a name without one may be somebody else's: what is there is called by its
    place. ``fedscope[...]`` adds to what is installed already."""
    for page in PAGES:
        assert not re.findall(r"pip install [^`\n]*\bfedscope\b(?!\[)", page.read_text(encoding="utf-8")), page
