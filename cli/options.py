"""Options that several commands share, each written once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..analysis.settings import NORMALIZATIONS, SPLITS, EvaluationConfig
from ..checkpoints import FedscopeError
from ..evaluation.device import PRECISIONS
from ..training.jobs.job_settings import JOB_KEYS, LAUNCHERS
from .option_types import Count, Formats, HomePath, Inches, InFolder, Number, OwnCodeType, Precision, ResultPath, Words

if TYPE_CHECKING:
    from ..training.jobs.launchers import Launcher


def _by_kind(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> Any:
    from ..training.user_code.provided_code import code_of_options

    return code_of_options(value) if value else {}


code_option = click.option(
    "--code",
    multiple=True,
    callback=_by_kind,
    metavar="KIND=NAME",
    help="Your own code that a file names, as in server=mypkg.fedx:FedX; repeatable. No file says what is imported.",
)
code_changed_option = click.option(
    "--code-changed", is_flag=True, help="Take it although its source is another than the run has."
)


@dataclass(frozen=True)
class Output:
    """The options of where a result goes, how it is drawn, and whether it is computed at all."""

    out: Path | InFolder | None
    force: bool
    as_json: bool
    width: float | None = None
    title: str | None = None
    redraw: bool = False
    labels: tuple[str, ...] = ()
    formats: tuple[str, ...] = ("pdf", "png")


def base_of(out: Path | InFolder | None, default: Path) -> Path:
    """Return where a result is written: as it was typed, else by default.

    >>> base_of(InFolder(Path("figures")), Path("runs/ima/figures/report")).as_posix()
    'figures/report'
    """
    if isinstance(out, InFolder):
        return out.path / default.name
    return out or default


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def choice(name: str, options: Sequence[str], help: str) -> Decorator:
    """An option that takes one of some words, the first where none is given."""
    return click.option(name, type=click.Choice(options), default=options[0], show_default=True, help=help)


align_option = choice(
    "--align",
    ["none", "weights", "activations"],
    "Bring the models' units into the order of the first one's before; see fedscope align.",
)


def rounds_option(default: str, which: str = "Which rounds; all means all that have their clients.") -> Decorator:
    """--rounds, ``which`` of them and those that are taken where none are given, in words."""
    return click.option("--rounds", metavar="1,20,last", help=f"{which}  [default: {default}]")


def panel_option(panels: Sequence[str]) -> Decorator:
    """--panel, some of these, as ``panels``."""
    help = "Draw only this part of the figure; repeatable.  [default: all]"
    return click.option("--panel", "panels", multiple=True, type=click.Choice(panels), help=help)


def pack_into(name: str, into: type[Any]) -> Decorator:
    """Have a command take some options and arguments as one value, a dataclass with a field for each."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def packing(**given: Any) -> Any:
            own = {key.name: given.pop(key.name) for key in fields(into) if key.name in given}
            return function(**{name: into(**own)}, **given)

        return packing

    return decorate


def _pack(function: Callable[..., Any], name: str, into: type[Any], options: Sequence[Any]) -> Callable[..., Any]:
    """Add options to a function that reach it as one argument."""
    wrapped = pack_into(name, into)(function)
    for option in reversed(options):
        wrapped = option(wrapped)
    return wrapped


#: how a recorded run's loop had its samples
standardise_option = click.option(
    "--standardise/--no-standardise",
    default=None,
    help="Whether to standardise the samples by the training split (default: as the run says; a recorded run's own "
    "data are not).",
)
#: goes on where a recorded error is not the measured one
accept_data_option = click.option(
    "--accept-data",
    is_flag=True,
    help="Measure a run although its recorded test_error is not what is measured; every result says so.",
)


def source_options(split: str, *, files: bool, both: bool = False, code: bool = False) -> Decorator:
    """--split, --limit, --seed, --device, --precision, --standardise, --accept-data as ``source``; with ``files`` also
    --model and --data, with ``code`` --code and --code-changed.

    With ``both`` two results can be asked for in one pass: --split both.
    """
    splits = [*SPLITS, *(["both"] if both else [])]
    options: list[Decorator] = [
        click.option("--split", type=click.Choice(splits), default=split, show_default=True, help="Which samples."),
        click.option(
            "--limit",
            type=Count(1),
            metavar="N",
            help="Use a seeded, stratified subset of N samples; the figure says so.",
        ),
        click.option(
            "--seed",
            type=Count(0),
            default=0,
            show_default=True,
            help="Seed of random choices: the subset of --limit, random directions.",
        ),
    ]
    if files:
        options += [
            click.option(
                "--data",
                type=OwnCodeType(),
                metavar="NAME",
                help="Data to measure on: digits, a file.npz, folder:PATH, or what your own module:factory returns "
                "(default: the run's data).",
            ),
            click.option(
                "--model",
                type=OwnCodeType(),
                metavar="NAME",
                help="Architecture of plain .pt, .ckpt, .bin, .safetensors or .npz files: mlp, cnn, resnet18-gn, ... "
                "(docs/methods.md lists all), your own as arch.py:Net, module:factory or 'module:factory(16)', or "
                "hf:FOLDER.",
            ),
            click.option(
                "--base",
                type=click.Path(),
                metavar="FILE",
                help="Of LoRA adapters: the weights that they adapt, as a file or folder.",
            ),
        ]
    options += [
        click.option(
            "--task",
            type=OwnCodeType(),
            metavar="NAME",
            help="What is measured: classification, regression, sequences, sequence-classification, or your own "
            "module:factory (default: the "
            "task that the run was trained for).",
        ),
        click.option("--device", default="auto", show_default=True, help="cpu, cuda, mps, xpu, or auto."),
        click.option(
            "--precision",
            type=Precision(PRECISIONS),
            default=PRECISIONS[0],
            show_default=True,
            help="Arithmetic of the forward passes; tf32 matters only on a GPU.",
        ),
        click.option(
            "--engine",
            metavar="NAME",
            default="threads",
            show_default=True,
            help="threads: one worker per core. ray or ray:ADDRESS: the workers of a cluster compute replays and the "
            "points of lines and planes, with --device cuda each on a GPU; the numbers are the same.",
        ),
        standardise_option,
        accept_data_option,
        *([code_option, code_changed_option] if code else []),
    ]
    return lambda function: _pack(function, "source", EvaluationConfig, options)


def measured_settings(source: EvaluationConfig) -> dict[str, Any]:
    """Return the settings of ``source``; a split that nobody typed is left to the question."""
    typed = click.get_current_context().get_parameter_source("split") is click.core.ParameterSource.COMMANDLINE
    return {name: value for name, value in vars(source).items() if typed or name != "split"}


@dataclass(frozen=True)
class Jobs:
    """The options of where to compute: in this process, or by which jobs with which settings."""

    launcher: str
    job: tuple[str, ...]

    @property
    def words(self) -> list[str]:
        """The options as they are typed."""
        return ["--launcher", self.launcher, *(word for text in self.job for word in ("--job", text))]

    def chosen(self) -> Launcher | None:
        """The launcher; None for this process.

        Raises:
            FedscopeError: settings of jobs that there are not, or without jobs.
        """
        from ..training.jobs.job_settings import read_job
        from ..training.jobs.launchers import chosen_launcher

        return chosen_launcher(self.launcher, read_job(self.job))


def launcher_options(what: str) -> Decorator:
    """--launcher and --job as ``jobs``; ``what`` each job does."""
    where = click.option(
        "--launcher",
        type=click.Choice(LAUNCHERS),
        default=LAUNCHERS[0],
        show_default=True,
        help=f"Where to compute: here, in SLURM jobs, or in jobs that are processes of this machine. Each job {what}.",
    )
    job = click.option(
        "--job",
        multiple=True,
        metavar="KEY=VALUE",
        help=f"A setting of each job: {', '.join(JOB_KEYS)}; repeatable.",
    )
    return lambda function: _pack(function, "jobs", Jobs, [where, job])


#: of analyses that measure combinations of models
normalization_option = choice(
    "--normalization",
    NORMALIZATIONS,
    "How to get BatchNorm statistics; re-estimate measures them on training samples.",
)


#: of analyses that measure averages of a round's clients
statistics_option = choice(
    "--normalization",
    ["averaged", "re-estimate"],
    "How averages get BatchNorm statistics: as the weights, or measured on training samples.",
)


def _draw_in(ctx: click.Context, param: click.Parameter, value: Path | None) -> None:
    """Draw in the style of a file until the command ends."""
    if value is None:
        return
    from ..plotting.user_style import style

    ctx.with_resource(style(file=value))


#: of every command that draws; nothing of it reaches the command
style_option = click.option(
    "--style",
    type=HomePath(),
    metavar="FILE.mplstyle",
    expose_value=False,
    callback=_draw_in,
    help="Draw in the font, size and lines of a style file of matplotlib.",
)


def format_option(name: str = "--format") -> Decorator:
    """--format of figures, as ``formats``."""
    return click.option(
        name,
        "formats",
        type=Formats(),
        default="pdf,png",
        show_default=True,
        metavar="pdf,png,svg",
        help="Formats of the figure.",
    )


_OUT = (
    "Where to write, without an extension; DIR/ keeps the default name (default: RUN/figures/..., without a run "
    "figures/...)."
)


def output_options(function: Callable[..., Any], out: str = _OUT) -> Callable[..., Any]:
    """--out, whose help ``out`` is, --width, --title, --style, --format, --label, --redraw, --force and --json as
    ``output``."""
    drawing = [
        click.option("--width", type=Inches(), metavar="3.5in", help="Width of the figure (default: a column, 3.5in)."),
        click.option("--title", type=Words(), help="Title of the figure (default: none)."),
        style_option,
        format_option(),
        click.option(
            "--label",
            "labels",
            multiple=True,
            type=Words(),
            metavar="NAME",
            help="What a run or model is called in figures and sentences, in their order, or OLD=NEW; repeatable.",
        ),
        click.option("--redraw", is_flag=True, help="Draw an existing result again without computing anything."),
    ]
    where = click.option("--out", type=ResultPath(), metavar="BASE", help=out)
    return _pack(function, "output", Output, [where, *drawing, _FORCE, _JSON])


_COLOUR_SCALE = "Colours, and heights of pages: by the logarithm of the excess over the minimum, or linear."


def colour_scale_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """--colour-scale, as ``colour_scale``."""
    from ..landscape.planes.drawing.color_scales import SCALES

    return choice("--colour-scale", SCALES, _COLOUR_SCALE)(function)


def _usual_colour_scale(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same, None where the planes that are drawn decide."""
    from ..landscape.planes.drawing.color_scales import SCALES

    about = f"{_COLOUR_SCALE}  [default: log; linear with --same-axes]"
    return click.option("--colour-scale", type=click.Choice(SCALES), help=about)(function)


def surface_options(*, panels: bool) -> Decorator:
    """--cmap, --colour-scale, --loss-limits, --error-limits and, of figures with panels, --scale, each under its own
    name."""
    from ..landscape.planes.drawing.color_scales import SHARED

    limits = "Ends of the {} scale{}, to compare figures  [default: of what is drawn]."
    options: list[Decorator] = [
        click.option(
            "--cmap", default="viridis", show_default=True, help="Colour map of surfaces, by its name in matplotlib."
        ),
        _usual_colour_scale if panels else colour_scale_option,
        click.option(
            "--loss-limits", type=Number(), nargs=2, metavar="LOW HIGH", help=limits.format("loss's", " in nats")
        ),
        click.option(
            "--error-limits", type=Number(), nargs=2, metavar="LOW HIGH", help=limits.format("error's", " in per cent")
        ),
    ]
    if panels:
        options.append(choice("--scale", SHARED, "Which panels share a colour scale: all, those of a row, or none."))

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


_FORCE = click.option("--force", is_flag=True, help="Compute again, and replace an existing result.")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print a machine-readable result.")


def refuse_given(names: Sequence[str], why: str) -> None:
    """Refuse options of the command at work that were typed and would be without effect.

    Args:
        names: of the command's parameters.
        why: what follows the option and its value in the sentence.

    Raises:
        FedscopeError: one of them was typed.
    """
    asked = click.get_current_context()
    for option in asked.command.params:
        name = option.name
        if name in names and asked.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            value = asked.params[name]
            typed = "" if value is True else f" {value[0] if isinstance(value, tuple) else value}"
            raise FedscopeError(f"{max(option.opts, key=len)}{typed} {why}")
