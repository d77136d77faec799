"""``fedscope``: the group of commands, and how a command ends."""

from __future__ import annotations

import re
import sys
import warnings
from importlib import import_module
from keyword import iskeyword
from typing import TextIO

import click

#: in the order of a first tour
COMMANDS = (
    *("train", "ls", "curves", "line", "plane", "sharpness"),
    *("decompose", "explain", "cka", "subsets", "forgetting", "theory"),
    *("disperse", "updates", "synergy", "reaggregate", "parameters"),
    *("export", "import", "demo"),
)


class Tour(click.Group):
    """A group whose commands are files beside this one, listed in the order of a first tour, imported when needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name; its file is ``NAME.py``, or ``NAME_.py`` where NAME is a keyword."""
        if cmd_name not in COMMANDS:
            return None
        file = f"{cmd_name}_" if iskeyword(cmd_name) else cmd_name
        command: click.Command = import_module(f"{__package__}.{file}").command
        if command.epilog and not command.epilog.startswith("\b"):
            # a line an example, as it stands, so that it can be copied
            command.epilog = "\b\n" + "\n".join(command.epilog.split("    "))
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """An unknown command is refused with the nearest known one."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches

            near = get_close_matches(args[0], COMMANDS, 1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(COMMANDS)}"
            raise click.UsageError(error.message.rstrip(".") + hint, ctx) from None


@click.group(
    cls=Tour,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Example:  fedscope train --method ima --rounds 60 && fedscope curves runs/ima",
)
@click.version_option(package_name="fedscope")
@click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error.")
def fedscope() -> None:
    """Shows why model averaging works in federated learning: train, record, and ask the recorded models."""


def main() -> None:
    """Run a command. Ends with 0, with 2 and one sentence for a user's mistake, with 130 for Ctrl-C."""
    arguments = [word for word in sys.argv[1:] if word != "--debug"]
    sys.exit(run(arguments, debug=len(arguments) < len(sys.argv) - 1))


def run(arguments: list[str], *, debug: bool = False) -> int:
    """The exit status of a command line."""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _say_warning
            status = fedscope.main(arguments, prog_name="fedscope", standalone_mode=False)
        return status if isinstance(status, int) else 0
    except (click.Abort, KeyboardInterrupt):
        if debug:
            raise
        click.echo("fedscope: stopped; what was complete is kept", err=True)
        return 130
    except click.ClickException as error:
        error.show()
        return 2
    except BrokenPipeError:  # `fedscope ls | head`
        sys.stderr.close()
        return 0
    except Exception as error:
        from ..checkpoints import FedscopeError

        if debug or not isinstance(error, FedscopeError | OSError):
            raise
        click.echo(f"fedscope: {spoken(error)}", err=True)
        return 2


def _say_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """fedscope's own in one line, others' as Python shows them."""
    if category.__name__ == "FedscopeWarning":
        click.echo(f"fedscope: {message}", err=True)
    else:
        click.echo(warnings.formatwarning(message, category, filename, lineno, line), err=True, nl=False)


def spoken(error: Exception) -> str:
    """An error as one sentence; the system's own have a place and a reason.

    A word as long as no path is (a damaged file's value) is cut.
    """
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename} cannot be read or written: {error.strerror}; check the path, or give another --out"
    return re.sub(r"\S{5000,}", lambda word: f"{word[0][:60]}... ({len(word[0]):,} letters)", str(error))
