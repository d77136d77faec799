"""The papers' figures, redrawn: `make papers`.

    python docs/papers/make [--runs FOLDER] [--quick]

Trains what is lacking into FOLDER (default `papers`, which git ignores), asks what was not asked yet, keeps the
numbers in `docs/papers/results`, and writes the pages and their pictures from them. It goes on after any stop; where
all numbers are there nothing is trained, and no byte of the pages changes. FOLDER needs `cifar10.npz` (x_train,
y_train, x_test, y_test; see docs/howto/own-data.md). `--quick` draws all of it from small runs on the embedded digits
into FOLDER, to try the script.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import ima
from page import commands_of, draw, written
from work import Workplace

PAGES = Path(__file__).resolve().parents[1]
QUICK = ima.Scale("--data digits --model mlp --set data.partition=shards:2", 12, 12, "--limit 200", 7)


def main(runs: Path, quick: bool) -> None:
    """Train, ask, judge, draw and write."""
    scale, pages = (QUICK, runs / "pages") if quick else (ima.Scale(), PAGES)
    place = Workplace(runs, pages / "results" / ima.NAME)
    pictures = pages / ima.NAME
    place.runs.mkdir(parents=True, exist_ok=True)
    place.ask(ima.asked(scale), ima.trained(scale))
    verdicts, statements = ima.judged(place.results, scale), ima.statements(place.results)
    commands = commands_of(place.results)
    figures = []
    pictures.mkdir(parents=True, exist_ok=True)
    for name, figure in ima.pictures(place.results, scale).items():
        draw(figure(), pictures / f"{name}.png")
        figures.append(
            {
                "name": name,
                "heading": ima.HEADINGS[name],
                "setup": ima.setup(name, scale),
                "picture": f"{ima.NAME}/{name}.png",
                "commands": [commands[source] for source in ima.SOURCES[name]],
                "verdicts": verdicts.get(name, []),
                "statements": statements.get(name, []),
            }
        )
    trained = [f"- `{one.command}`" for one in ima.trained(scale)]
    lead = "\n".join([ima.lead(scale), "", "The runs behind it:", "", *trained])
    (pages / f"{ima.NAME}.md").write_text(written(ima.TITLE, lead, figures), encoding="utf-8")


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--runs", type=Path, default=Path("papers"))
    words.add_argument("--quick", action="store_true")
    given = words.parse_args()
    try:
        main(given.runs, given.quick)
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)  # the command has said why
    except KeyboardInterrupt:
        print("make papers: stopped; the same command goes on", file=sys.stderr)
        sys.exit(130)
