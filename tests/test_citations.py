"""Whom fedscope cites, and that its paper says what its own pages say."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import fedscope

pytestmark = pytest.mark.same_elsewhere

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PAPER = (ROOT / "paper" / "paper.md").read_text(encoding="utf-8")
HEAD, BODY = PAPER.split("---\n", 2)[1:]
#: the pages that the paper may take numbers from
SOURCES = ["README.md", "docs/index.md", "docs/papers/findings.md", "docs/performance.md", "docs/methods.md"]


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


# --- the two sources of the decomposition, and everyone else's ---


@pytest.mark.parametrize("name", ["README.md", "docs/index.md", "docs/methods.md", "docs/howto/decomposition.md"])
def test_the_decomposition_is_cited_with_what_came_first(name: str) -> None:
    for words in ("Zhou", "DiWA", "2205.09739", "came first"):
        assert words in page(name), words


def test_every_method_has_a_source() -> None:
    """A name and a year in its row's last column; no average at all is no method, and the mean of products is ours."""
    text = page("docs/methods.md")
    tables = text[text.index("## Clients") : text.index("## Models")]
    rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in tables.splitlines() if "| `" in line]
    assert len(rows) > 35
    unsourced = [row[0] for row in rows if not re.search(r"[A-Z].*\b(19|20)\d\d$", row[-1])]
    assert unsourced == ["`lora`", "`none`"]


@pytest.mark.parametrize(
    "path",
    [ROOT / "README.md", ROOT / "paper" / "paper.md", *sorted((ROOT / "docs").rglob("*.md"))],
    ids=lambda p: p.name,
)
def test_a_comparison_with_loss_landscapes_names_its_version(path: Path) -> None:
    """Each sentence or row of a table that has the package, which is not tomgoldstein's loss-landscape."""
    sentences = re.split(r"\n|(?<=[.;]) ", path.read_text(encoding="utf-8"))
    named = [words for words in sentences if "`loss_landscapes`" in words]
    assert [words for words in named if "3.0.6" not in words] == []


def test_the_readme_says_what_fedscope_is_not() -> None:
    part = page("README.md").partition("## What it is not")[2].partition("\n## ")[0]
    assert "FederatedScope" in part
    assert "Office of Personnel Management" in part


# --- how fedscope is cited ---


def test_the_citation_is_of_this_package() -> None:
    cited: dict[str, Any] = yaml.safe_load(page("CITATION.cff"))
    assert cited["cff-version"] == "1.2.0"
    assert cited["type"] == "software"
    assert {"message", "title", "authors"} <= cited.keys(), "what CFF 1.2 needs"
    assert str(cited["version"]) == fedscope.__version__
    assert cited["license"] == PROJECT["license"]
    assert cited["authors"] == PROJECT["authors"]
    assert cited["keywords"] == PROJECT["keywords"]
    for reference in cited["references"]:
        assert {"type", "title", "authors"} <= reference.keys()
    assert [str(reference["year"]) for reference in cited["references"]] == ["2024", "2022"]


# --- the paper ---


def test_the_paper_has_the_sections_of_its_journal() -> None:
    wanted = ["Summary", "Statement of need", "State of the field", "Software design"]
    wanted += ["Research impact and how it is tested", "Limitations", "Acknowledgements", "References"]
    assert re.findall(r"^# (.+)$", BODY, re.MULTILINE) == wanted
    assert 750 <= len(BODY.split()) <= 1300
    head = yaml.safe_load(HEAD)
    assert {"title", "tags", "authors", "affiliations", "date", "bibliography"} <= head.keys()
    assert [author["name"] for author in head["authors"]] == [author["name"] for author in PROJECT["authors"]]


def test_what_the_paper_cites_is_in_its_bibliography_and_nothing_else() -> None:
    entries = re.findall(r"^@\w+\{(\w+),$", page("paper/paper.bib"), re.MULTILINE)
    assert len(entries) == len(set(entries))
    assert set(re.findall(r"@([a-z]\w+)", BODY)) == set(entries)


def test_every_number_of_the_paper_is_one_of_the_pages() -> None:
    """Decimals and what follows ±; counts of verdicts are summed below."""
    pages = "".join(map(page, SOURCES))
    numbers = re.findall(r"-?\d+\.\d+(?:\.\d+)?(?: ± \d+\.\d+)?(?: %)?|\d+e-\d+", BODY)
    assert len(numbers) >= 9
    assert [number for number in numbers if number not in pages] == []


def test_the_papers_counts_of_outcomes_are_the_sums_of_the_findings() -> None:
    table = page("docs/papers/findings.md").partition("## All outcomes")[2]
    rows = [list(map(int, row)) for row in re.findall(r"\| (\d+) " * 5 + r"\|", table)]
    assert len(rows) == 6, "four papers, their sum, and our own claims"
    total = [sum(column) for column in zip(*rows[:4], strict=True)]
    assert rows[4] == total
    done, contradicted, mixed, undecided, untested = total
    few = {0: "none is", 1: "1 is"}.get(contradicted, f"{contradicted} are")
    assert (
        f"{done} are reproduced, {few} contradicted, {mixed} are mixed, {undecided} are undecided, and "
        f"{untested} are not tested at this size"
    ) in BODY
    assert f"{undecided} of the papers' claims are undecided and {untested} are not tested" in BODY
