"""The page ahead of the papers' pages: what their verdicts come to, three sentences each, for somebody who reads
nothing else. A number in a sentence is read from the kept results, and a sentence that they no longer bear stops the
script."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import findings_fed
import findings_ima
import findings_wima
from long_pages import groups
from outcomes import CONTRADICTED, MIXED, REPRODUCED, UNDECIDED, UNTESTED, Outcome
from page import claims_of
from paper import Figure, Paper

KINDS = (REPRODUCED, CONTRADICTED, MIXED, UNDECIDED, UNTESTED)
MEANT = {
    REPRODUCED: "every interval, or the pooled one where the claim is of methods or rounds in general, says it.",
    CONTRADICTED: "some intervals say the contrary, corrected for how many there are (Holm), and none says it.",
    MIXED: "some intervals say it and some the contrary, both so corrected, or a bound of ours turns the outcome; the "
    "page says which way and how often.",
    UNDECIDED: "intervals leave it open, or one seed has none; the page says how many seeds, of how many rounds and "
    "hours, would decide it.",
    UNTESTED: "nothing here bears on it: it was not run, or the models have learnt too little; the page says what a "
    "first test would take.",
}
#: of a finding's sentences
Said = tuple[str, str, str]


@dataclass(frozen=True)
class Finding:
    """A finding.

    Attributes:
        title: the finding itself, without a stop; paper: whose results it is read from.
        figures: names of those that show it; said: its sentences, from the folder of the results.
    """

    title: str
    paper: str
    figures: tuple[str, ...]
    said: Callable[[Path], Said]


FINDINGS = (
    Finding(
        "Averaging weights raises the loss at first and lowers it in the end",
        "ima",
        ("fig3",),
        findings_ima.locality,
    ),
    Finding(
        "Heterogeneous bias is nearly all of the ensemble's loss, and falls below that of clients that know nothing in "
        "long runs",
        "ima",
        ("fig2",),
        findings_ima.bias,
    ),
    Finding(
        "The mean of three clients is not always better than each of them",
        "ima",
        ("fig1", "fig4a"),
        findings_ima.three,
    ),
    Finding(
        "A round's mean misses the minimum, and a mean over rounds is lower",
        "ima",
        ("fig1", "fig5b"),
        findings_ima.basin,
    ),
    Finding(
        "IMA gains over eight methods together, and by its average, not its exploration",
        "ima",
        ("table1", "table3"),
        findings_ima.gain,
    ),
    Finding(
        "The mean over the last rounds is better and steadier, and costs no training",
        "wima",
        ("fig1", "table4"),
        findings_wima.window,
    ),
    Finding(
        "After 30 rounds clients' models have not gathered on IID data either",
        "fedsa",
        ("fig1",),
        findings_fed.gathers,
    ),
    Finding(
        "FedSA is close to an average with equal weights",
        "fedsa",
        ("table1", "fig2"),
        findings_fed.synergy,
    ),
    Finding(
        "FedSWA starts behind FedAvg, and FedMoSWA's lead is not proven",
        "fedswa",
        ("table2", "ablation"),
        findings_fed.swa_starts,
    ),
    Finding(
        "The flattest surface may be that of the model that has learnt least",
        "fedswa",
        ("surface", "rises"),
        findings_fed.flatness,
    ),
)


def written(papers: Mapping[str, Paper], results: Path) -> str:
    """The page in Markdown.

    Args:
        results: the folder of all papers' results.
    """
    parts = [
        "# Findings",
        "Four papers say why averages of federated models work. We repeated their figures at the size that two cores "
        "allow. Every number comes from a run, and the paper's page has the command of that run. Each claim is judged "
        "by a rule. Many of these rules were changed after the results were seen, because they were unfair to the "
        "papers or to the numbers; each such rule says so on its page. These are the findings.",
    ]
    for i, finding in enumerate(FINDINGS, 1):
        own = results / finding.paper
        figures = {figure.name: figure for figure in papers[finding.paper].figures}
        seen = ", ".join(_link(finding.paper, figures[name]) for name in finding.figures)
        parts += [f"## {i}. {finding.title}", f"{' '.join(finding.said(own))} ({seen})"]
    parts += ["## All outcomes", _counted(papers, results), "\n".join(f"- *{kind}*: {MEANT[kind]}" for kind in KINDS)]
    return "\n\n".join(parts) + "\n"


def _link(paper: str, figure: Figure) -> str:
    name = figure.heading.partition(":")[0]
    # as Python's Markdown names a heading; the site is built strictly, so another name would be seen
    anchor = re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", figure.heading).strip().lower())
    return f"[{name}]({paper}.md#{anchor})"


def outcomes(papers: Mapping[str, Paper], results: Path) -> dict[str, list[Outcome]]:
    """By paper what became of its claims, each once."""
    found = {}
    for name, paper in papers.items():
        long = groups(results / "long", name)
        found[name] = [
            one.outcome for figure in paper.figures for one in claims_of(paper, figure, results / name, long)
        ]
    return found


def counts(found: Mapping[str, list[Outcome]]) -> dict[str, int]:
    """Of all papers' claims, how many came out how; ours are left out."""
    every = [one for own in found.values() for one in own if not one.ours]
    return {kind: sum(one.kind == kind for one in every) for kind in KINDS}


def _counted(papers: Mapping[str, Paper], results: Path) -> str:
    """How many claims of each paper came out how, and of ours."""
    found = outcomes(papers, results)
    rows = [f"| page | {' | '.join(KINDS)} |", "| --- |" + " --- |" * len(KINDS)]
    for name, paper in papers.items():
        own = [one.kind for one in found[name] if not one.ours]
        rows.append(f"| [{paper.title}]({name}.md) | {' | '.join(str(own.count(kind)) for kind in KINDS)} |")
    rows.append(f"| all papers | {' | '.join(map(str, counts(found).values()))} |")
    ours = [one.kind for own in found.values() for one in own if one.ours]
    rows.append(f"| claims of ours | {' | '.join(str(ours.count(kind)) for kind in KINDS)} |")
    return "\n".join(rows)


def has_all(papers: Mapping[str, Paper]) -> bool:
    """Whether every finding's figures are measured."""
    for finding in FINDINGS:
        known: set[str] = (
            {figure.name for figure in papers[finding.paper].figures} if finding.paper in papers else set()
        )
        if not known >= set(finding.figures):
            return False
    return True
