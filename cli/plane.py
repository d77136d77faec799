"""``fedscope plane``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..asking.source import Source
from .options import Count, Output, normalization_option, output_options, source_options

if TYPE_CHECKING:
    from .surfaces import Drawn, Panel, Survey


@click.command(
    "plane",
    epilog="Example:  fedscope plane runs/fma@58 runs/fma@59 runs/fma@60 --show runs/ima@60    "
    "Panels:  fedscope plane runs/ima --rounds 1,20,last    "
    "A round's clients:  fedscope plane runs/ima@20 --clients",
)
@click.argument("models", nargs=-1, required=True, metavar="A B C | RUN [RUN ...] | RUN@ROUND")
@click.option(
    "--show",
    multiple=True,
    metavar="MODEL",
    help="Project this model onto the plane too; repeatable, and RUN@all/global is a model a round.",
)
@click.option("--rounds", metavar="1,20,last", help="Panels over the rounds of a run; with --trajectory, its rounds.")
@click.option("--clients", is_flag=True, help="The plane near all clients of RUN@ROUND: their principal components.")
@click.option("--trajectory", is_flag=True, help="The plane near the global models of RUN over its rounds.")
@click.option("--random", is_flag=True, help="Random filter-normalised directions from one model, drawn with --seed.")
@click.option("--data-of", metavar="clients|3,8,11", help="Measure on these clients' own training data, a panel each.")
@click.option("--grid", type=Count(2), default=51, show_default=True, help="Grid points a side.")
@click.option(
    "--margin", type=float, default=0.3, show_default=True, help="Room round the models, as a share of their extent."
)
@click.option(
    "--range", "ranges", type=float, nargs=4, metavar="A A B B", help="Ends of both axes instead, in L2 distance."
)
@click.option(
    "--adaptive",
    is_flag=True,
    help="Measure at most 15 % of a surface's points and interpolate the others; the error is measured and said.",
)
@normalization_option
@source_options("test", files=True, both=True)
@output_options
def command(
    models: tuple[str, ...],
    show: tuple[str, ...],
    rounds: str | None,
    clients: bool,
    trajectory: bool,
    random: bool,
    data_of: str | None,
    grid: int,
    margin: float,
    ranges: tuple[float, float, float, float] | None,
    adaptive: bool,
    normalization: str,
    source: Source,
    output: Output,
) -> None:
    """Losses on the plane through three models; their mean is the white cross.

    A model is RUN@ROUND[/WHICH] or a file: runs/ima@40, runs/ima@last/global, runs/ima@40/client-17, best.pt. Both axes
    are L2 distances; the models and every shown one are measured exactly, besides the grid.

    With --rounds: three clients and their mean in each of these rounds, and the last three global models. With
    --clients, --trajectory or --random: planes near many models, or round one.
    """
    from dataclasses import replace

    from ..asking.models import expand
    from ..checkpoints import FedscopeError
    from .surfaces import Survey

    kinds = [name for name, asked in (("clients", clients), ("trajectory", trajectory), ("random", random)) if asked]
    if len(kinds) > 1:
        raise FedscopeError(f"--{kinds[0]} and --{kinds[1]} are two planes; give one of them")
    survey = Survey(grid, margin, ranges, 0.15 if adaptive else None, normalization, data_of)
    if data_of is not None:
        source = replace(source, split=_training_split(source, data_of))
    shown = tuple(word for address in show for word in expand(address))
    if rounds is not None and not trajectory:
        if kinds or shown:
            other = f"--{kinds[0]}" if kinds else f"--show {show[0]}"
            raise FedscopeError(f"{other} does not go with panels over --rounds; leave out one of them")
        _panels(models, rounds, survey, source, output)
    else:
        _one(_panel(models, kinds, rounds, shown), _name(models, kinds, output), survey, source, output)


def _training_split(source: Source, data_of: str) -> str:
    """The split of clients' own data.

    Raises:
        FedscopeError: another one was asked for.
    """
    from ..checkpoints import FedscopeError

    given = click.get_current_context().get_parameter_source("split")
    if given is click.core.ParameterSource.COMMANDLINE and source.split != "train":
        raise FedscopeError(
            f"--data-of {data_of} is about training data, so --split {source.split} does not go with it; leave it out"
        )
    return "train"


def _panel(models: tuple[str, ...], kinds: list[str], rounds: str | None, shown: tuple[str, ...]) -> Panel:
    """The one plane that is asked for."""
    from ..checkpoints import FedscopeError
    from .surfaces import Panel, clients_panel, trajectory_panel

    wanted = {"clients": "one round, RUN@ROUND", "trajectory": "one run, RUN", "random": "one model"}
    if kinds and len(models) != 1:
        raise FedscopeError(f"--{kinds[0]} takes {wanted[kinds[0]]}, but got {len(models)}: {' '.join(models)}")
    if not kinds and len(models) != 3:
        raise FedscopeError(
            f"a plane goes through three models, but got {len(models)}; give A B C, or a run and --rounds, "
            "RUN@ROUND and --clients, RUN and --trajectory, or a model and --random"
        )
    if kinds == ["clients"]:
        return clients_panel(models[0], shown)
    if kinds == ["trajectory"]:
        return trajectory_panel(models[0], rounds, shown)
    return Panel("", "", kinds[0] if kinds else "models", models, shown)


def _name(models: tuple[str, ...], kinds: list[str], output: Output) -> Path:
    from ..asking.names import base_for

    if kinds == ["trajectory"]:
        return output.out or Path(models[0]) / "figures" / "plane-trajectory"
    return base_for(output.out, "-".join(["plane", *kinds]), models)


def _one(panel: Panel, base: Path, survey: Survey, source: Source, output: Output) -> None:
    """One plane, on one or several sets of samples."""
    from ..landscape import draw_panels
    from .results import figures, say, write_page
    from .surface_words import numbers, sentence
    from .surfaces import compute

    if _joint(base, survey, source) != base:
        _refuse_taken(base, survey, source, output)
    drawn = compute(panel, base, survey, source, output)
    if len(drawn) == 1 and not drawn[0].part.name:
        plane = drawn[0].plane
        written = [
            *_files(drawn, output.redraw),
            *figures(base, plane.figure(output.inches, output.title), plane.page(output.title)),
        ]
        say(sentence(plane), written, as_json=output.as_json, **numbers(plane))
        return
    figure = draw_panels(
        [[one.plane for one in drawn]], [[one.part.title for one in drawn]], output.inches, output.title
    )
    pages = [write_page(one.base, one.plane.page(one.part.title)) for one in drawn]
    said = "\n".join(f"{one.part.title}: {sentence(one.plane)}" for one in drawn)
    written = [*_files(drawn, output.redraw), *pages, *figures(_joint(base, survey, source), figure)]
    say(said, written, as_json=output.as_json, panels=[_numbers(one) for one in drawn])


def _panels(models: tuple[str, ...], rounds: str, survey: Survey, source: Source, output: Output) -> None:
    """Panels over rounds, a row a run and a set of samples."""
    from ..checkpoints import FedscopeError
    from ..landscape import draw_panels
    from .results import figures, say, write_page
    from .surface_words import sentence
    from .surfaces import compute, panels_of

    names = [Path(path).resolve().name for path in models]
    for name in names:
        if names.count(name) > 1:
            raise FedscopeError(f"{names.count(name)} of the runs are called {name!r}; rename a folder")
    if survey.data_of is not None and survey.data_of.strip() == "clients":
        raise FedscopeError(
            "--data-of clients is another set of clients in every round; name the clients: --data-of 3,8,11"
        )
    base = output.out or Path(models[0]) / "figures" / f"plane-rounds-{rounds.replace(',', '-')}"
    _refuse_taken(base, survey, source, output)
    rows: list[list[Drawn]] = []
    heads: list[str] = []
    for path in models:
        panels = panels_of(path, rounds)
        made = [
            compute(panel, _panel_base(base, panel, many=len(models) > 1), survey, source, output) for panel in panels
        ]
        for own in zip(*made, strict=True):
            rows.append(list(own))
            heads.append(", ".join([*([Path(path).name] if len(models) > 1 else []), *_data(own[0])]))
    figure = draw_panels(
        [[one.plane for one in row] for row in rows],
        [[one.panel.title for one in row] for row in rows],
        output.inches,
        output.title,
        rows=heads if any(heads) else [],
    )
    drawn = [one for row in rows for one in row]
    pages = [write_page(one.base, one.plane.page(one.panel.title)) for one in drawn]
    said = "\n".join(f"{', '.join([one.panel.title, *_data(one)])}: {sentence(one.plane)}" for one in drawn)
    written = [*_files(drawn, output.redraw), *pages, *figures(_joint(base, survey, source), figure)]
    say(said, written, as_json=output.as_json, panels=[_numbers(one) for one in drawn])


def _refuse_taken(base: Path, survey: Survey, source: Source, output: Output) -> None:
    """Keep a foreign file where the joint figure of several planes goes, which lie beside it as ``BASE.NAME.nc``."""
    from glob import escape

    from .results import FIGURE, kinds, refuse_taken

    planes = sorted(base.parent.glob(f"{escape(base.name)}.*.nc"))
    refuse_taken(planes or [Path(f"{base}.*.nc")], kinds(_joint(base, survey, source), *FIGURE), output)


def _joint(base: Path, survey: Survey, source: Source) -> Path:
    """Where a figure of several sets of samples lies: beside, and not over, that of one."""
    if survey.data_of is not None:
        return Path(f"{base}.data-of-{survey.data_of.replace(',', '-')}")
    return Path(f"{base}.both") if source.split == "both" else base


def _numbers(one: Drawn) -> dict[str, Any]:
    from .surface_words import numbers

    return {"title": ", ".join(word for word in (one.panel.title, *_data(one)) if word), **numbers(one.plane)}


def _data(one: Drawn) -> list[str]:
    return [one.part.title.lower()] if one.part.name else []


def _files(drawn: list[Drawn], redraw: bool) -> list[Path]:
    from .surfaces import basin_files

    beside = [(Path(f"{one.base}.nc"), basin_files(one.plane, one.base, redraw=redraw)) for one in drawn]
    return [path for main, tables in beside for path in (main, *tables)]


def _panel_base(base: Path, panel: Panel, *, many: bool) -> Path:
    """Where one panel's numbers lie."""
    return Path(f"{base}.{panel.name if many else panel.name.split('.', 1)[1]}")
