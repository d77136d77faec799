"""Code of the user's own that a recorded run names: no analysis imports it unless the caller names it, too."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..checkpoints import FedscopeError
from ..checkpoints.io.code_words import UNNAMED
from ..checkpoints.io.shell_words import command_line
from ..checkpoints.recorder.stored_data import is_own_code

if TYPE_CHECKING:
    from ..checkpoints import Run
    from .settings import EvaluationConfig


class NamedCodeError(FedscopeError):
    """A run names code, and the caller does not.

    Attributes:
        seen: what the run names, without the remedy.
        given: what is to be given, ``model`` or ``data``, and what the run names.
    """

    def __init__(self, seen: str, given: Mapping[str, str]) -> None:
        self.seen, self.given = seen, dict(given)
        super().__init__(f"{seen}; if you know it, give {shlex.join(self._options())}")

    def _options(self) -> list[str]:
        return [word for name, value in self.given.items() for word in (f"--{name}", value)]

    def as_command(self, words: Sequence[str]) -> str:
        """Return the sentence with the whole command line that asks the same and names the code.

        Args:
            words: of the command, ``fedscope`` apart.

        >>> print(NamedCodeError("run names model nets:net", {"model": "nets:net"}).as_command(["cka", "run"]))
        run names model nets:net; if you know it, give --model nets:net: fedscope cka run --model nets:net
        """
        end = words.index("--") if "--" in words else len(words)
        return f"{self}: {command_line(*words[:end], *self._options(), *words[end:])}"

    def as_call(self, name: str, args: Sequence[Any], settings: Mapping[str, Any]) -> str:
        """Return the same with a call in Python.

        >>> print(NamedCodeError("run names model nets:net", {"model": "nets:net"}).as_call("cka", ["run"], {}))
        run names model nets:net; if you know it, give model='nets:net': fedscope.cka('run', model='nets:net')
        """
        given = {key: _as_object(value) or repr(value) for key, value in self.given.items()}
        own = ", ".join(f"{key}={value}" for key, value in given.items())
        files = [value.partition(":")[0] for value in self.given.values() if _as_object(value)]
        own += f" (imported from {' and '.join(files)})" if files else ""
        others = {key: _format_value(value) for key, value in settings.items()}
        named = [f"{key}={value}" for key, value in {**others, **given}.items()]
        call = f"fedscope.{name}({', '.join([*map(_format_value, args), *named])})"
        return f"{self.seen}; if you know it, give {own}: {call}"


def refuse_named_code(run: Run, source: EvaluationConfig) -> None:
    """Refuse what a run's file names as code: a run may come from anybody, and an import runs it.

    Raises:
        NamedCodeError: a model or data of the user's own, where none were given; says how to ask for both.
        FedscopeError: those that a notebook or a program defined.
    """
    model, data = run.info.get("model"), run.info.get("data", {}).get("name")
    if model is None and run.config is not None:  # trained here
        model = str(run.config.get("model", {}).get("name", ""))
    named = {}
    if source.model is None and model is not None and ":" in model:
        named["model"] = model
    if source.data is None and data is not None and (is_own_code(data) or data.startswith(UNNAMED)):
        named["data"] = data
    if any(value.startswith(UNNAMED) for value in named.values()):
        what = " and ".join(f"{name} {value}" for name, value in named.items())
        ways = " and ".join(f"--{name}" for name in named)
        raise FedscopeError(f"{run.path} was trained with {what}, as Python gave it; give the same again with {ways}")
    if named:
        what = " and ".join(f"{name} {value}" for name, value in named.items())
        raise NamedCodeError(f"{run.path} names {what}, and no code is called as a run's file says it", named)


def _as_object(value: str) -> str:
    """``arch.py:Net(16)`` as Python has it, ``Net(16)``: a file is for command lines alone; "" of anything else."""
    path, _, rest = value.partition(":")
    return rest if path.endswith(".py") and rest else ""


def _format_value(value: Any) -> str:
    """As Python writes it; of what it does not, what kind of thing it is."""
    if value is None or isinstance(value, str | int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_format_value, value))}]"
    path = getattr(value, "path", None)  # of an opened run
    return repr(str(value if path is None else path)) if hasattr(value, "__fspath__") or path is not None else "..."
