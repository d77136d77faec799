"""Draw the pictures of the pages from a folder that `fedscope demo` has filled, into `docs/figures/`.

    fedscope demo --out demo && python docs/make_figures.py demo

Each is a figure of the demo as the program draws it, at a page's width, stored with fewer pixels than for print.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from fedscope.decomposition import Decomposition
from fedscope.landscape import Plane, draw_panels
from fedscope.training import Curves

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES = Path(__file__).resolve().parent / "figures"
DPI, LEAST, PRINT, MOST_BYTES = 170, 100, 300, 200_000


def planes(demo: Path) -> Figure:
    """The panels of `fedscope plane demo/ima --rounds 1,20,last --grid 41 --width 7in`, the README's command."""
    files = sorted(demo.glob("planes.round-*.nc"), key=lambda file: int(file.stem.rpartition("-")[2]))
    titles = [f"Round {file.stem.rpartition('-')[2]}" for file in files]
    last = Plane.load(demo / "planes.globals.nc")
    rounds = [model.label.partition("@")[2].partition("/")[0] for model in last.anchors]
    return draw_panels(
        [[*map(Plane.load, files), last]], [[*titles, f"Globals {rounds[0]}-{rounds[-1]}"]], 7.0, None, rows=[]
    )


def save(figure: Figure, name: str) -> Path:
    """A PNG small enough to live in a repository: in full colour, a palette would lose the small markers. Drawn for
    print and made smaller, so that axes have the numbers that the command gives them."""
    from PIL import Image

    print_ = io.BytesIO()
    figure.savefig(print_, format="png", dpi=PRINT, metadata={"Software": None})
    image = Image.open(print_).convert("RGB")
    path = FIGURES / f"{name}.png"
    path.parent.mkdir(exist_ok=True)
    for dpi in range(DPI, LEAST, -10):
        size = round(image.width * dpi / PRINT), round(image.height * dpi / PRINT)
        image.resize(size, Image.Resampling.LANCZOS).save(path, optimize=True)
        if path.stat().st_size <= MOST_BYTES:
            return path
    sys.exit(f"{path} has {path.stat().st_size:,} bytes, more than {MOST_BYTES:,}, at {LEAST + 10} dots an inch")


def main(demo: Path) -> None:
    """Draw all."""
    figures = {
        "planes": planes(demo),
        "curves": Curves.load(demo / "curves").figure(3.5),
        "decompose": Decomposition.load(demo / "decompose").figure(3.5),
    }
    for name, figure in figures.items():
        path = save(figure, name)
        print(f"{path} ({path.stat().st_size / 1000:.0f} kB)")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
