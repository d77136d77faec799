"""The papers' figures, redrawn: `make papers`.

    python docs/papers/make [PAPER ...] [--runs FOLDER] [--quick] [--pages]

Trains what is lacking into FOLDER (default `papers`, which git ignores), asks what was not asked yet, keeps the
numbers in `docs/papers/results`, and writes the pages and their pictures from them. It goes on after any stop; where
all numbers are there nothing is trained, and no byte of the pages changes. PAPER is one of ima, wima, fedsa, fedswa;
by default it is all of them. FOLDER needs `cifar10.npz` and `mnist.npz` (x_train, y_train, x_test, y_test; see
docs/howto/own-data.md). Where numbers of long runs are kept (`make papers-long`), the pages show them first.
`--quick` draws all of it from small runs on the embedded digits into FOLDER, to try the script. `--pages` trains and
asks nothing: what is not measured yet is left out of the pages, and said there.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import fedsa
import fedswa
import findings
import ima
import wima
from kept import damaged
from page import answered, make
from paper import Paper
from work import Workplace

PAGES = Path(__file__).resolve().parents[1]
PAPERS: Mapping[str, Callable[[bool], Paper]] = {
    "ima": ima.paper,
    "wima": wima.paper,
    "fedsa": fedsa.paper,
    "fedswa": fedswa.paper,
}


def main(names: list[str], runs: Path, quick: bool, only_pages: bool) -> None:
    """Train, ask, judge, draw and write, one paper after the other."""
    if runs.exists() and not runs.is_dir():
        sys.exit(f"make papers: {runs} is a file; name a folder for the runs with --runs")
    pages = runs / "pages" if quick else PAGES
    for name in names or PAPERS:
        paper = PAPERS[name](quick)
        place = Workplace(runs, pages / "results" / name)
        with told_of_damage(place.results):
            if not only_pages:
                runs.mkdir(parents=True, exist_ok=True)
                place.ask(paper.asked, paper.runs)
            if (place.results / "commands.json").exists():
                make(paper, place.results, pages)
    if not quick:
        with told_of_damage(*(pages / "results" / name for name in PAPERS)):
            page = page_of_findings(pages)
        if page:
            (pages / "findings.md").write_text(page, encoding="utf-8")


@contextmanager
def told_of_damage(*folders: Path) -> Iterator[None]:
    """Numbers that cannot be read end the script with a sentence where a file of them is damaged.

    Args:
        folders: of the numbers, beside those of the long runs.
    """
    try:
        yield
    except subprocess.CalledProcessError:
        raise
    except Exception:
        for folder in (*folders, *sorted(folders[0].parent.glob("long/*/*"))):
            if words := damaged(folder):
                sys.exit(f"make papers: {words}")
        raise


def page_of_findings(pages: Path) -> str:
    """The page ahead of the others; "" where a figure of it is not measured yet."""
    results = pages / "results"
    papers = {
        name: answered(make_paper(False), results / name)
        for name, make_paper in PAPERS.items()
        if (results / name / "commands.json").exists()
    }
    return findings.written(papers, results) if findings.has_all(papers) else ""


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("papers", nargs="*", metavar="PAPER")
    words.add_argument("--runs", type=Path, default=Path("papers"))
    words.add_argument("--quick", action="store_true")
    words.add_argument("--pages", action="store_true")
    given = words.parse_args()
    if unknown := [name for name in given.papers if name not in PAPERS]:
        words.error(f"{unknown[0]!r} is no paper here; give {', '.join(PAPERS)}, or none for all")
    try:
        main(given.papers, given.runs, given.quick, given.pages)
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)  # the command has said why
    except SystemExit as error:
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
            sys.exit(2)
        raise
    except KeyboardInterrupt:
        print("make papers: stopped; the same command goes on", file=sys.stderr)
        sys.exit(130)
