"""``fedscope``: the group of commands, and how a command ends."""

from __future__ import annotations

import errno
import os
import re
import signal
import sys
import warnings
from collections.abc import Sequence
from functools import cache, partial
from importlib import import_module
from io import StringIO
from itertools import pairwise
from keyword import iskeyword
from operator import itemgetter
from types import FrameType
from typing import Any, TextIO

import click

from ..analysis.register import SECTIONS, analyses
from ..command_line import speaking_flags
from .printing import say, say_lines
from .streams import STDOUT, ReaderGoneError, describe_unprinted, guard, print_no_more

#: commands that are no analyses: section, place within it, and a line each
OWN = {
    "train": ("Train and look around", 10, "Train a federation and record every round."),
    "ls": ("Train and look around", 30, "List runs, or show one run; --check verifies them."),
    "layers": ("Train and look around", 35, "List the layers of a run's model, with kinds and sizes."),
    "watch": ("Train and look around", 42, "Show a run in the browser while it goes on."),
    "measure": ("Train and look around", 45, "Test a recorded run's models, for its curves and tables."),
    "new": ("Bring your own", 10, "Start a method, model, data set or partition of your own."),
    "report": ("Train and look around", 50, "One page on runs for a co-author: verdict, figures, checks."),
    "bench": ("Train and look around", 60, "How fast this machine trains, evaluates and writes."),
    "check-method": ("Bring your own", 20, "Check that a method, your own or built in, is well-behaved."),
    "demo": ("Train and look around", 70, "Try everything on the embedded digits, in a minute."),
    "recipes": ("Repeat an experiment", 10, "The papers' set-ups, with the published numbers."),
    "sweep": ("Repeat an experiment", 20, "Train a run for every combination of settings and seeds."),
    "table": ("Repeat an experiment", 30, "Compare runs in a table: mean ± deviation over seeds."),
    "import": ("Exchange with other programs", 10, "Make a run from model files, or draw a surface."),
    "export": ("Exchange with other programs", 20, "Write a model or a surface for other programs; feed a tracker."),
}


@cache
def sections() -> dict[str, dict[str, str]]:
    """All commands with a line each, by what one wants, in the order of a first tour."""
    told = [(*said, name) for name, said in OWN.items()]
    told += [(one.section, one.place, one.line, one.name) for one in analyses() if one.line]
    told.sort(key=itemgetter(1))
    return {section: {name: line for at, _, line, name in told if at == section} for section in SECTIONS}


@cache
def commands() -> tuple[str, ...]:
    """Their names."""
    return tuple(name for of in sections().values() for name in of)


#: where a context keeps the sentences on options that were given twice
REPEATS = f"{__name__}.repeats"
#: functions of Python whose command has another name
ELSEWHERE = {"embed": "disperse --embed tsne"}


#: what word processors and web pages make of a hyphen or two
DASHES = tuple("\u2010\u2011\u2012\u2013\u2014\u2015\u2212")

#: letters of a line of help, at most
WIDEST = 100


def help_width(widest: int) -> int:
    """Letters of a line of help, as click has it: two less than the terminal's, 50 at least."""
    columns = os.environ.get("COLUMNS", "")
    wide = int(columns) if columns.isdecimal() else 0
    if not wide:
        try:
            wide = os.get_terminal_size(sys.__stdout__.fileno() if sys.__stdout__ else 1).columns
        except (OSError, ValueError):  # no terminal, or a closed one
            wide = 0
    return max(min(wide or 80, widest) - 2, 50)


def dashed_flag(word: str) -> str:
    """Return a word that begins with a typographic dash as an option is typed.

    >>> dashed_flag("\u2013method"), dashed_flag("\u2014rounds=3"), dashed_flag("\u2013h")
    ('--method', '--rounds=3', '-h')
    """
    name = word.lstrip("".join(("-", *DASHES)))
    return f"-{name}" if len(name) == 1 else f"--{name}"


def find_dashed(params: Sequence[click.Parameter], words: Sequence[str]) -> str:
    """Return the first word that stands where an option may and begins with a typographic dash in place of its
    hyphens, or nothing: not a value of an option, and nothing behind ``--``."""
    options = {
        flag: 0 if param.is_flag or param.count else param.nargs
        for param in params
        if isinstance(param, click.Option)
        for flag in (*param.opts, *param.secondary_opts)
    }
    left = iter(words)
    for word in left:
        if word == "--":
            break
        if word[:1] in DASHES and dashed_flag(word).partition("=")[0] in options:
            return word
        for _ in range(options.get(word, 0)):
            next(left, None)
    return ""


def dashed(word: str, ctx: click.Context) -> click.UsageError:
    """Return the refusal of an option with a typographic dash in place of its hyphens."""
    return click.UsageError(f"{word} begins with a typographic dash; write {dashed_flag(word)}", ctx)


class Tour(click.Group):
    """A group whose commands are files in ``commands``, listed by what one wants, imported when needed."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run a command, whose sentences speak of its flags."""
        with speaking_flags():
            return super().main(*args, **extra)

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Make the context, which knows how wide help is: click would import shutil for that, a tenth of ``--help``."""
        extra.setdefault("terminal_width", help_width(WIDEST))
        return super().make_context(info_name, args, parent, **extra)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All commands."""
        return list(commands())

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands of every section; none is imported for that."""
        widest = max(map(len, commands()))
        for section, lines in sections().items():
            with formatter.section(section):
                formatter.write_dl([(name.ljust(widest), words) for name, words in lines.items()])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of a name; its file is ``NAME.py``, with _ for -, or ``NAME_.py`` where NAME is a
        keyword."""
        if cmd_name not in commands():
            return None
        file = f"{cmd_name}_" if iskeyword(cmd_name) else cmd_name.replace("-", "_")
        command: click.Command = import_module(f"{__package__}.commands.{file}").command
        if command.epilog and not command.epilog.startswith("\b"):
            # a line an example, as it stands, so that it can be copied
            command.epilog = "\b\n" + "\n".join(command.epilog.split("    "))
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """An unknown command is refused with the nearest known one; of options that are given twice it is said which
        counts."""
        try:
            name, command, words = super().resolve_command(ctx, args)
        except click.UsageError as error:
            if args[0][:1] in DASHES:
                raise dashed(args[0], ctx) from None
            from difflib import get_close_matches

            near = get_close_matches(args[0], commands(), 1)
            near = [ELSEWHERE[args[0]]] if args[0] in ELSEWHERE else near
            hint = f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(commands())}"
            raise click.UsageError(error.message.rstrip(".") + hint, ctx) from None
        if command is not None and any(word[:1] in DASHES for word in words):
            own = click.Context(command, info_name=command.name, parent=ctx)
            if wrong := find_dashed(command.get_params(own), words):
                raise dashed(wrong, own)
        if command is not None and len(words) > 1:
            from .repeats import describe_repeats

            ctx.meta[REPEATS] = describe_repeats(command, ctx, words)
        return name, command, words

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; what was given twice is said behind its answer, since a mistake is one sentence alone."""
        try:
            status = super().invoke(ctx)
        except click.BadOptionUsage as error:
            command = self.get_command(ctx, ctx.invoked_subcommand or "")
            for param in () if command is None else command.params:
                if error.option_name in param.opts and param.nargs > 1:
                    values = param.metavar or " ".join("ABCD"[: param.nargs])
                    message = f"{error.message.rstrip('.')}; write {error.option_name} {values}"
                    raise click.BadOptionUsage(error.option_name, message, ctx) from None
            raise
        for sentence in ctx.meta.get(REPEATS, ()):
            say(f"fedscope: {sentence}", err=True)
        return status


@click.group(
    cls=Tour,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": WIDEST},
    epilog="Example:  fedscope train --method ima --rounds 60 && fedscope curves runs/ima",
)
@click.version_option(package_name="fedscope")
@click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error.")
def fedscope() -> None:
    """Find out why model averaging works in federated learning: train, record, and analyse the recorded models."""


def draw_without_windows() -> None:
    """Have matplotlib draw to files: a notebook's cells name a backend that only its own environment has, and
    matplotlib refuses it before anything is drawn."""
    os.environ["MPLBACKEND"] = "agg"


def main() -> None:
    """Run a command. Ends with 0, with 2 and one sentence for a user's mistake, with 130 for Ctrl-C, with 143 for
    SIGTERM, which a scheduler sends before it ends a job."""
    stopped = 0
    guard()
    draw_without_windows()

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal stopped
        stopped = 128 + number
        signal.default_int_handler(number, frame)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, note)
    arguments = [word for word in sys.argv[1:] if word != "--debug"]
    status = run(arguments, debug=len(arguments) < len(sys.argv) - 1)
    # a Ctrl-C that met a library's callback was swallowed there
    sys.exit(stopped if stopped and status in (0, 130) else status)


def run(arguments: list[str], *, debug: bool = False) -> int:
    """Return the exit status of a command line."""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = partial(_say_warning, set())
            status = fedscope.main(arguments, prog_name="fedscope", standalone_mode=False)
        return status if isinstance(status, int) else 0
    except (click.Abort, KeyboardInterrupt):
        if debug:
            raise
        say("fedscope: stopped; what was complete is kept", err=True)
        return 130
    except click.ClickException as error:
        said = StringIO()
        _explained(error).show(said)
        say_lines(said.getvalue().rstrip("\n"), err=True)
        return 2
    except ReaderGoneError:  # `fedscope ls | head`
        print_no_more()
        return 0
    except Exception as error:
        from ..checkpoints import FedscopeError

        if isinstance(error, OSError) and error.filename == STDOUT:
            error = FedscopeError(describe_unprinted(error))
        known = isinstance(error, FedscopeError | OSError) or _is_out_of_memory(error) or _device_is_full(error)
        known = known or _is_out_of_threads(error)
        if debug or not known:
            raise
        say(f"fedscope: {error_line(error, arguments)}", err=True)
        return 2


def _explained(error: click.ClickException) -> click.ClickException:
    """The refusal of a command line, with what an unknown option may have meant."""
    if not isinstance(error, click.NoSuchOption):
        return error
    from .unknown_options import explain

    return explain(error)


def _say_warning(
    said: set[str],
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """fedscope's own in one line and once, others' as Python shows them."""
    if category.__name__ == "FedscopeWarning":
        if str(message) not in said:  # data that are read in two places
            say(f"fedscope: {message}", err=True)
        said.add(str(message))
    else:
        say_lines(warnings.formatwarning(message, category, filename, lineno, line).rstrip("\n"), err=True)


def _is_out_of_memory(error: Exception) -> bool:
    """Check whether memory has run out: torch's allocator on the CPU says so by a RuntimeError."""
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "can't allocate memory" in str(error))


def _is_out_of_threads(error: Exception) -> bool:
    """Check whether no thread or process could be started: Python says the first by a RuntimeError."""
    if isinstance(error, BlockingIOError):
        return error.filename is None and error.errno == errno.EAGAIN
    return isinstance(error, RuntimeError) and "can't start new thread" in str(error)


def _device_is_full(error: Exception) -> bool:
    """Check whether an accelerator's memory has run out; no command has loaded torch for that."""
    if "torch" not in sys.modules:
        return False
    from ..evaluation.accelerators import is_out_of_memory

    return not _is_out_of_memory(error) and is_out_of_memory(error)


def _device_of(arguments: Sequence[str]) -> str:
    """Find the device that a command line names, or the accelerator that is here."""
    from ..evaluation.accelerators import accelerator

    words = " ".join(arguments).replace("--device=", "--device ").replace("run.device=", "--device ").split()
    named = [word for flag, word in pairwise(words) if flag == "--device" and word != "auto"]
    return named[-1] if named else accelerator() or "the device"


def _path_remedy(arguments: Sequence[str]) -> str:
    """Say what to do about a path, as far as the command has an option for another one."""
    command = fedscope.get_command(click.Context(fedscope), arguments[0]) if arguments else None
    names = [one.name for one in command.params] if command is not None else []
    goes_on = any(word.partition("=")[0] == "--resume" for word in arguments)
    instead = next((f"--{name}" for name in ("out", "folder") if name in names), "")
    return (
        f"check the path, or give another {instead}" if instead and not goes_on else "check the path and who may use it"
    )


def error_line(error: Exception, arguments: Sequence[str] = ()) -> str:
    """An error as one sentence; the system's own have a place and a reason. Where a run names code, it ends with the
    whole command line that names it, too."""
    from ..checkpoints.io.errors import sentence

    if _is_out_of_memory(error):
        from ..checkpoints import format_size

        asked = re.search(r"allocate ([0-9]+) bytes", str(error))  # torch's; NumPy has said it in its own units
        what = f" ({format_size(int(asked[1]))} were asked for at once)" if asked else ""
        return f"there is no memory left for this{what}; give a smaller model or fewer samples, or free some memory"
    if _device_is_full(error):  # where nobody has said what the memory was for
        return (
            f"{_device_of(arguments)} has no memory left for this; free some of it, give a smaller model or fewer "
            "samples, or --device cpu"
        )
    if _is_out_of_threads(error):
        return (
            "no more threads or processes can be started here; end some of your programs, or raise their limit "
            "(ulimit -u, or that of the container or the job)"
        )
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename} cannot be read or written: {error.strerror}; {_path_remedy(arguments)}"
    as_command = getattr(error, "as_command", None)  # of an error of asking, which is not imported for that
    return sentence(str(as_command(arguments)) if arguments and as_command is not None else str(error))
