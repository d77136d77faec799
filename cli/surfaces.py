"""Panels of `fedscope plane`: which models span each, on which data, computed together, told in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..asking.models import Posed, calibration_of, calibration_settings, pose
from ..asking.runs import open_run, parse_rounds
from ..asking.source import Source
from .options import Output
from .parts import Part, parts_of
from .results import PAGE, kinds, obtain_all

if TYPE_CHECKING:
    from ..landscape import Plane, Span


@dataclass(frozen=True)
class Panel:
    """One plane.

    Attributes:
        name: in names of files; title: above it.
        kind: ``models``, ``clients``, ``trajectory`` or ``random``.
        members: the addresses it is made from; shown: further ones.
    """

    name: str
    title: str
    kind: str
    members: tuple[str, ...]
    shown: tuple[str, ...] = ()


@dataclass(frozen=True)
class Survey:
    """What the command asks of every panel.

    Attributes:
        grid: points a side; margin: as a share of the models' extent; ranges: a from, a to, b from, b to instead.
        adaptive: the share of points that are measured, None for all.
        normalization: policy for normalization statistics.
        data_of: whose data, None for whole splits.
    """

    grid: int
    margin: float
    ranges: tuple[float, float, float, float] | None
    adaptive: float | None
    normalization: str
    data_of: str | None


@dataclass(frozen=True, eq=False)
class Drawn:
    """A computed surface: its panel's and its data's names, where its numbers lie."""

    panel: Panel
    part: Part
    base: Path
    plane: Plane


def compute(panel: Panel, base: Path, survey: Survey, source: Source, output: Output) -> list[Drawn]:
    """A panel's surfaces, one a set of samples, in one pass; or read back."""
    from ..landscape import Plane
    from ..landscape import survey as measure
    from .preview import Preview
    from .progress import progress

    question = pose([*panel.members, *panel.shown], source)
    parts = parts_of(question, source, survey.data_of)
    bases = [Path(f"{base}.{part.name}") if part.name else base for part in parts]
    files = [Path(f"{at}.nc") for at in bases]
    own = {
        **question.settings,
        "kind": panel.kind,
        "grid": survey.grid,
        "margin": survey.margin if survey.ranges is None and panel.kind != "random" else None,
        "range": list(survey.ranges) if survey.ranges else None,
        "adaptive": survey.adaptive,
        "normalization": survey.normalization,
        **calibration_settings(question, source, survey.normalization),
        **({"directions_seed": source.seed} if panel.kind == "random" else {}),
    }

    def compute_all(attrs: list[dict[str, object]], partial: Path) -> list[Plane]:
        count = len(panel.members)
        preview = Preview(bases[0])
        with progress(f"plane {panel.title}".strip()) as report:
            made = measure(
                question.module,
                [part.samples for part in parts],
                span_of(panel.kind, question, count, source.seed),
                shown=question.models[count:],
                provenance=attrs,
                grid=survey.grid,
                margin=survey.margin,
                ranges=_pairs(survey.ranges),
                adaptive=survey.adaptive,
                normalization=survey.normalization,
                calibration=calibration_of(question, source, survey.normalization),
                device=question.settings["device"],
                precision=source.precision,
                progress=report,
                preview=preview,
                partial=partial,
            )
        preview.remove()
        return made

    settings = [{**own, **part.settings} for part in parts]
    taken = [path for at in bases for path in kinds(at, "basin.csv", *PAGE)]
    planes = obtain_all(compute_all, Plane.load, lambda made, file: made.save(file), files, settings, output, taken)
    return [Drawn(panel, part, at, plane) for part, at, plane in zip(parts, bases, planes, strict=True)]


def span_of(kind: str, question: Posed, count: int, seed: int) -> Span:
    """The plane that a panel asks for, from its first ``count`` models."""
    from ..landscape import along_trajectory, near_clients, random_directions, through_models

    models = question.models[:count]
    if kind == "random":
        return random_directions(models[0], seed)
    return {"models": through_models, "clients": near_clients, "trajectory": along_trajectory}[kind](models)


def _pairs(ranges: tuple[float, float, float, float] | None) -> Any:
    return None if ranges is None else (ranges[:2], ranges[2:])


def panels_of(path: str, rounds: str) -> list[Panel]:
    """A run's panels: three clients of each round, then the last three global models with the deployed one shown."""
    from ..checkpoints import FedscopeError, recorded_clients

    run = open_run(Path(path))
    panels = []
    for number in parse_rounds(rounds, run.rounds, path):
        ids = [int(k) for k in recorded_clients(run, number, start=False).client_ids]
        if len(ids) < 3:
            raise FedscopeError(
                f"{path}@{number} has a cohort of {len(ids)}, but a plane needs three clients; train with "
                "more clients a round (--clients, --participation)"
            )
        anchors = tuple(f"{path}@{number}/client-{k}" for k in ids[:3])
        panels.append(Panel(f"{run.name}.round-{number}", f"Round {number}", "models", anchors))
    have = [t for t in run.rounds if "global" in run.round(t).models]
    if len(have) >= 3:
        anchors = tuple(f"{path}@{t}/global" for t in have[-3:])
        last = have[-1]
        shown = (f"{path}@{last}/averaged",) if "averaged" in run.round(last).models else ()
        panels.append(Panel(f"{run.name}.globals", f"Globals {have[-3]}-{last}", "models", anchors, shown))
    return panels


def clients_panel(address: str, shown: Sequence[str]) -> Panel:
    """The plane near all clients of a round, RUN@ROUND."""
    from .line import clients_of

    return Panel("", "", "clients", tuple(clients_of((address,))), tuple(shown))


def trajectory_panel(path: str, rounds: str | None, shown: Sequence[str]) -> Panel:
    """The plane near the global models of a run's rounds."""
    from ..checkpoints import FedscopeError

    run = open_run(Path(path))
    have = tuple(t for t in run.rounds if "global" in run.round(t).models)
    numbers = parse_rounds(rounds or "all", have, path)
    if len(numbers) < 3:
        raise FedscopeError(
            f"a trajectory's plane needs at least three rounds, but --rounds {rounds or 'all'} of {path} are "
            f"{len(numbers)}, and the global models of {len(have)} rounds are recorded; ask for more"
            if len(have) >= 3
            else f"a trajectory's plane needs three rounds' global models, but {path} has recorded {len(have)}; train "
            "with record.globals = all"
        )
    return Panel("", "", "trajectory", tuple(f"{path}@{t}/global" for t in numbers), tuple(shown))


def basin_files(plane: Plane, base: Path, *, redraw: bool) -> list[Path]:
    """Where the plane's models lie about its minimum, as ``BASE.basin.csv``; none where there is no such place.

    Args:
        redraw: leave the file as it lies there.
    """
    from ..landscape import basin_of

    basin, path = basin_of(plane), Path(f"{base}.basin.csv")
    if redraw and path.exists():
        return [path]
    if basin is None:
        path.unlink(missing_ok=True)  # of a result that this one has replaced
        return []
    basin.save(path)
    return [path]
