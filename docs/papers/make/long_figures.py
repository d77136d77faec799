"""The pictures of the long runs: of the first seed that is finished, in both federations where a figure has two."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

#: folders of finished units by name
Folders = Mapping[str, Path]


def of_seed(folders: Folders, places: Sequence[str]) -> tuple[int, list[Path]] | None:
    """The first seed of which all of these units are finished, and their folders.

    Args:
        places: names without the seed, or with ``{}`` for it where it stands inside.
    """
    names = [place if "{}" in place else f"{place}-{{}}" for place in places]
    seeds = sorted({int(found[0]) for name in folders if (found := re.findall(r"-(\d+)(?:-ima)?$", name))})
    for seed in seeds:
        own = [name.format(seed) for name in names]
        if all(name in folders for name in own):
            return seed, [folders[name] for name in own]
    return None


def planes(folders: Folders, place: str, name: str) -> tuple[int, Any] | None:
    """A row of planes.

    Args:
        name: of the answer, as ``fig1``.
    """
    from fedscope import Plane
    from fedscope.landscape.planes.figure import draw_panels

    if (found := of_seed(folders, [place])) is None:
        return None
    seed, (folder,) = found
    rounds = sorted(int(path.name.split(".")[1].removeprefix("round-")) for path in folder.glob(f"{name}.round-*.nc"))
    ends = [*(f"round-{t}" for t in rounds), *(["globals"] if (folder / f"{name}.globals.nc").exists() else [])]
    row = [Plane.load(folder / f"{name}.{end}") for end in ends]
    return seed, draw_panels([row], [[end.replace("-", " ") for end in ends]], 7.0, None)


def factors(folders: Folders, panels: Sequence[str]) -> tuple[int, Any] | None:
    """Figures 2 and 3, without and with decay."""
    from fedscope import Explanation

    if (found := of_seed(folders, ["silo", "silo-decay"])) is None:
        return None
    seed, both = found
    made = [Explanation.load(folder / "fig2").decomposition for folder in both]
    runs = tuple(run for one in made for run in one.runs)
    return seed, replace(made[0], runs=runs).figure(panels=list(panels))


def subsets(folders: Folders) -> tuple[int, Any] | None:
    """Figure 4, left."""
    from fedscope import Subsets

    if (found := of_seed(folders, ["silo", "silo-decay"])) is None:
        return None
    seed, both = found
    made = [Subsets.load(folder / "fig4-subsets") for folder in both]
    return seed, replace(made[0], rounds=tuple(own for one in made for own in one.rounds)).figure()


def similarities(folders: Folders) -> tuple[int, Any] | None:
    """Figure 4, right."""
    from fedscope import ClientCKA
    from fedscope.decomposition.cka.figure import draw_clients

    if (found := of_seed(folders, ["silo", "silo-decay"])) is None:
        return None
    seed, both = found
    return seed, draw_clients([ClientCKA.load(folder / "fig4-cka") for folder in both], panels=["rounds", "error"])


def lines(folders: Folders, place: str, name: str) -> tuple[int, Any] | None:
    """Figures 5b and 5c.

    Args:
        name: of the answer; of several that begin so, the one with the latest start.
    """
    from fedscope import Line

    if (found := of_seed(folders, [place])) is None:
        return None
    seed, (folder,) = found
    names = sorted((path.stem for path in folder.glob(f"{name}*.nc")), key=lambda one: (len(one), one))
    return seed, Line.load(folder / names[-1]).figure()


def curves(folders: Folders) -> tuple[int, Any] | None:
    """WIMA's Figure 1, the levels that are finished."""
    from fedscope import Curves

    places = {"wima-a0": "alpha 0", "wima-a0.05": "alpha 0.05"}
    seeds = {place: found for place in places if (found := of_seed(folders, [place])) is not None}
    there = {
        place: Curves.load(folder / "fig1")
        for place, (_, (folder,)) in seeds.items()
        if (folder / "fig1.curves.json").exists()
    }
    if not there:
        return None
    runs = tuple(replace(run, run=places[place]) for place, made in there.items() for run in made.runs)
    made = next(iter(there.values()))
    return seeds[next(iter(there))][0], replace(made, runs=runs, measures=("test_accuracy",)).figure(width=7.0)


def windows(folders: Folders) -> tuple[int, Any] | None:
    """WIMA's Table 4."""
    from fedscope import WindowMeans

    if (found := of_seed(folders, ["wima-a0"])) is None:
        return None
    return found[0], WindowMeans.load(found[1][0] / "table4").figure()
