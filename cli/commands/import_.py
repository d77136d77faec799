"""``fedscope import``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from ...checkpoints.io.shell_words import command_line
from ..option_types import Count, InFolder, Number, OwnCodeType, Words
from ..options import Output, base_of, output_options, surface_options
from ..printing import say, say_json

#: options that models have and surfaces have not, and the other way round
_OF_MODELS = (
    *("start", "global_", "samples", "model", "data", "standardise"),
    *("method", "seed", "lora_alpha", "base", "align", "server", "server_settings"),
)
_COLOURS = ("cmap", "colour_scale", "loss_limits", "error_limits")
_OF_SURFACES = ("split", "width", "title", "redraw", *_COLOURS)


@click.command(
    "import",
    epilog="Example:  fedscope import surface.h5 --out figures/old    "
    "A plane of a curve:  fedscope import plane.npz --split test    "
    "Models:  fedscope import checkpoints/*.safetensors --start base.safetensors --out runs/soup    "
    "Rounds:  fedscope import 'ckpt/round-{round}/client-{client}.pt' --out runs/mine",
)
@click.argument("files", nargs=-1, required=True, metavar="SURFACE | MODEL... | FOLDER | PATTERN")
@click.option(
    "--start", metavar="FILE", help="Models: the model that the clients started from, or a pattern with {round}."
)
@click.option(
    "--global",
    "global_",
    metavar="FILE",
    help="Models: the model made from the clients, or a pattern with {round}.  [default: their mean, weighted with p]",
)
@click.option(
    "--samples",
    metavar="10,20,30",
    help="Models: the clients' numbers of samples, in order, or a .csv with columns (round,)client,samples.  "
    "[default: all weigh the same]",
)
@click.option(
    "--model",
    type=OwnCodeType(),
    metavar="NAME",
    help="Models: their architecture, stored in the run: mlp, module:factory or hf:FOLDER.",
)
@click.option(
    "--data",
    type=OwnCodeType(),
    metavar="NAME",
    help="Models: the data to measure them on, stored in the run: digits, a file.npz, ...",
)
@click.option(
    "--method",
    type=Words(),
    metavar="NAME",
    help="Models: what ls and table call the run.  [default: fedscope import]",
)
@click.option("--seed", type=Count(0), help="Models: the seed that they were trained with, stored in the run.")
@click.option(
    "--lora-alpha",
    type=Number(),
    metavar="ALPHA",
    help="Models: of LoRA adapters the alpha of their scale alpha / rank, where no adapter_config.json is beside them.",
)
@click.option("--base", type=click.Path(), metavar="FILE", help="Models: of LoRA adapters the weights that they adapt.")
@click.option(
    "--align",
    type=click.Choice(["none", "weights", "activations"]),
    help="Models: bring the clients' units into the order of the model that they were sent, or of the first client, "
    "before anything is made of them; see fedscope align.  [default: none]",
)
@click.option(
    "--server",
    multiple=True,
    metavar="NAME",
    help="Models: the server method that makes the model of each round's clients: ties, fedavgm, ... or your own.  "
    "[default: their mean]",
)
@click.option(
    "--set",
    "server_settings",
    multiple=True,
    metavar="server.KEY=VALUE",
    help="Models: a setting of --server; repeatable.",
)
@click.option(
    "--standardise/--no-standardise",
    default=None,
    help="Models: whether they were trained on samples standardised by the training split, where --data are not "
    "(default: a set that fedscope knows by name is, your own data are not).",
)
@click.option(
    "--split",
    type=click.Choice(["train", "test"]),
    help="Surfaces: which losses (default: those that the file has; if both, test of an .h5, train of a plane.npz).",
)
@surface_options(panels=False)
@partial(
    output_options,
    out="Models: folder of the run, which has to be given. Surfaces: where to write, without an extension (default: "
    "figures/import-FILE).",
)
def command(files: tuple[str, ...], output: Output, split: str | None, **given: Any) -> None:
    """Make a run from models that another program has trained, or draw a surface that it has computed.

    MODELS (.pt, .pth, .ckpt, .bin, .safetensors, Flower's .npz; FILE:KEY for one of several in a file; a folder with
    one model) become the clients of a new run with one round. The clients are numbered from 0, and --out is the run's
    folder. In a quoted PATTERN, {round} and {client} stand for
    numbers, and the run has several rounds. All commands that need only models (subsets, line, plane, cka, updates,
    ...) work on such a run.

    A SURFACE is the .h5 of tomgoldstein's loss-landscape, or the plane.npz of dnn-mode-connectivity. It is drawn and
    stored as a plane's .nc. Points that were not computed (-1) become holes, which are hatched and counted.
    """
    from ...checkpoints import FedscopeError
    from ...landscape.interchange.import_models import is_surface

    models = {name: value for name, value in given.items() if name not in _COLOURS} | {"server": _one(given["server"])}
    surfaces = [file for file in files if is_surface(file)]
    if surfaces and len(files) > 1:
        other = next((file for file in files if file not in surfaces), None)
        beside = f"{other} is a model" if other else f"so is {surfaces[1]}"
        raise FedscopeError(
            f"{surfaces[0]} is a surface, and {beside}; import surfaces one by one, models with --out runs/NAME"
        )
    if surfaces or not _are_models(files, output, models):
        _refuse(_OF_MODELS, f"is for models, but {files[0]} is not a model; leave it out")
        _surface(files[0], split, output, {name: given[name] for name in _COLOURS})
    else:
        _refuse(_OF_SURFACES, f"is for a surface, but {files[0]} is not a surface; leave it out")
        _models(files, output, models)


def _one(servers: Sequence[str]) -> str | None:
    """Return the server that was typed, of which there is one at most."""
    from ...checkpoints import FedscopeError

    if len(servers) > 1:
        raise FedscopeError(
            f"--server {servers[0]} and --server {servers[1]} would each make the run's model; give one of them, and "
            "`fedscope reaggregate RUN@1` compares several"
        )
    return servers[0] if servers else None


def _refuse(names: Sequence[str], why: str) -> None:
    """Refuse options that were typed and would be without effect."""
    from ...checkpoints import FedscopeError

    asked = click.get_current_context()
    for name in names:
        if asked.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            given = asked.params[name]
            value = "" if given is True else f" {' '.join(map(str, given)) if isinstance(given, tuple) else given}"
            flag = next(max(one.opts, key=len) for one in asked.command.params if one.name == name)
            raise FedscopeError(f"{flag}{value} {why}")


def _are_models(files: tuple[str, ...], output: Output, models: dict[str, Any]) -> bool:
    """Check whether a run is to be made; a single model is one where --out or an option of models says so."""
    from ...checkpoints.models.files import file_and_key, is_file_name
    from ...checkpoints.recorder.match_files import is_pattern

    several = len(files) > 1 or is_pattern(files[0]) or Path(files[0]).is_dir() or any(s in files[0] for s in "*?[")
    asked = any(value not in (None, ()) for value in models.values())
    return several or asked or (output.out is not None and is_file_name(file_and_key(files[0])[0]))


def _surface(file: str, split: str | None, output: Output, drawing: dict[str, Any]) -> None:
    from ...checkpoints import FedscopeError
    from ...landscape import Plane
    from ...landscape.interchange.import_models import import_surface
    from ...landscape.planes.drawing.color_scales import SurfaceColours
    from ..run_analysis import answer, width_of

    colours = SurfaceColours(**drawing)
    colours.refuse_unused(width_of(output))
    question = import_surface.prepare(Path(file), split=split)
    target = Path(f"{base_of(output.out, question.folder / question.name)}.nc")
    if output.redraw and target.exists() and Plane.load(target).span != "surface":
        raise FedscopeError(
            f"{target} holds no imported surface but a plane that fedscope has computed; draw it again with the "
            "command that made it, or give another --out"
        )
    answer(question, output, **vars(colours))


def _models(files: tuple[str, ...], output: Output, models: dict[str, Any]) -> None:
    from ...checkpoints import FedscopeError
    from ...checkpoints.recorder.identify_server import describe_server
    from ...checkpoints.recorder.stored_data import is_own_code
    from ...checkpoints.rounds.metrics import read_table
    from ...landscape.interchange.import_models import import_models
    from ..progress import progress
    from ..streams import say_if_unprinted

    if output.out is None:
        raise FedscopeError(f"a run is made of {files[0]}, and its folder is missing; give --out runs/NAME")
    out = output.out.path if isinstance(output.out, InFolder) else output.out
    models["align"] = models["align"] or "none"
    with progress("reading models") as report:
        run = import_models(files, out, **models, force=output.force, progress=report)
    # of a mean that was just made there is nothing to find out
    server = "" if models["global_"] is None else describe_server(read_table(run.path / "metrics.csv", run.identity))
    cohorts = [run.round(number).client_ids.tolist() for number in run.rounds]
    types = sorted({entry.stored or entry.dtype for entry in run.layout.parameters})
    with say_if_unprinted(f"the run {run.path} is whole"):
        if output.as_json:
            said = {"run": str(run.path), "rounds": list(run.rounds), "clients": cohorts}
            made = server or run.info.get("served", {}).get("server")
            say_json({**said, "parameters": run.layout.size, "dtypes": types, "server": made})
            return
        say(
            f"{run.path}: {_describe_cohorts(cohorts)}, {run.layout.size:,} parameters in {' and '.join(types)}"
            f"{f'; {server}' if server else ''}"
        )
        named = {"model": run.info.get("model", ""), "data": run.info.get("data", {}).get("name", "")}
        own = {"model": ":" in named["model"], "data": is_own_code(named["data"])}
        # a run's file never says what code is run
        lacks = [(f"--{name}", value or "NAME") for name, value in named.items() if own[name] or not value]
        given = [word for option in lacks for word in option]
        if min(map(len, cohorts)) > 1:
            say(f"  {command_line('subsets', run.path, *given)}")
            say(f"  {command_line('plane', f'{run.path}@1', '--clients', *given)}")


def _describe_cohorts(cohorts: Sequence[Sequence[int]]) -> str:
    """``3 rounds of 8 to 10 clients``."""
    least, most = min(map(len, cohorts)), max(map(len, cohorts))
    sizes = f"{most}" if least == most else f"{least} to {most}"
    return f"{len(cohorts)} round{'s' if len(cohorts) > 1 else ''} of {sizes} client{'s' if most > 1 else ''}"
