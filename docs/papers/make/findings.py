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
from page import WORDS
from paper import Figure, Paper
from verdicts import NOT, REPRODUCED, SMALL

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
        "What a client has never seen is nearly all of the loss",
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
        "What gains in IMA is the average, not the exploration",
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
        "Clients' models do not gather on IID data either",
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
        "allow. Every number comes from a run, and the paper's page has the command of that run. Each figure's claim "
        "was judged by a rule that was fixed before. If a rule was changed later, its page says so. These are the "
        "findings.",
    ]
    for i, finding in enumerate(FINDINGS, 1):
        own = results / finding.paper
        figures = {figure.name: figure for figure in papers[finding.paper].figures}
        seen = ", ".join(_link(finding.paper, figures[name]) for name in finding.figures)
        parts += [f"## {i}. {finding.title}", f"{' '.join(finding.said(own))} ({seen})"]
    parts += ["## All verdicts", _counted(papers, results)]
    return "\n\n".join(parts) + "\n"


def _link(paper: str, figure: Figure) -> str:
    name = figure.heading.partition(":")[0]
    # as Python's Markdown names a heading; the site is built strictly, so another name would be seen
    anchor = re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", figure.heading).strip().lower())
    return f"[{name}]({paper}.md#{anchor})"


def _counted(papers: Mapping[str, Paper], results: Path) -> str:
    """How many claims of each paper came out how."""
    rows = [f"| page | {REPRODUCED} | {NOT} | {SMALL} |", "| --- | --- | --- | --- |"]
    for name, paper in papers.items():
        own = results / name
        verdicts = [one.verdict for figure in paper.figures for one in figure.judged(own)]
        verdicts += [WORDS[one.verdict] for figure in paper.figures for one in figure.stated(own)]
        counts = " | ".join(str(verdicts.count(word)) for word in (REPRODUCED, NOT, SMALL))
        rows.append(f"| [{paper.title}]({name}.md) | {counts} |")
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
