"""Code of the user's own, named ``module:factory`` or ``module:factory(16, "relu")``: read as text, then called."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from ..checkpoints import FedscopeError, nearest
from ..distributed.torchvision_import import beside_torchvision, is_torchvisions, remedy


@dataclass(frozen=True)
class ImportString:
    """A function or a class in a module, and what it is called with.

    Attributes:
        option: that named it, for sentences: ``--model``.
        text: as it was typed.
        module, name: where it is found, as Python imports it.
        args, keywords: literals, what ``ast.literal_eval`` takes; nothing in them is run.
    """

    option: str
    text: str
    module: str
    name: str
    args: tuple[Any, ...] = ()
    keywords: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def parse(cls, option: str, text: str) -> ImportString:
        """Read what was typed; nothing is imported.

        Raises:
            FedscopeError: it has another form; an argument is no literal.

        >>> call = ImportString.parse("--model", "mypkg.nets:resnet(20, width=1.5)")
        >>> call.module, call.name, call.args, call.keywords
        ('mypkg.nets', 'resnet', (20,), (('width', 1.5),))
        """
        module, _, rest = text.partition(":")
        name, bracket, _ = rest.partition("(")
        importable = all(part.isidentifier() for part in module.split(".")) and not module.endswith(".py")
        if not (importable and name.isidentifier()):
            raise FedscopeError(
                f"{option} {text} is not a module:factory; write the module as Python imports it, as in "
                "mypkg.nets:resnet20 or 'mypkg.nets:resnet(20)'"
            )
        if not bracket:
            return cls(option, text, module, name)
        try:
            parsed = ast.parse(rest, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            parsed = None
        if not isinstance(parsed, ast.Call) or not isinstance(parsed.func, ast.Name):
            raise FedscopeError(
                f"{option} {text} is not a call of {name}; write its arguments as Python does, as in "
                f"'{module}:{name}(16)'"
            )
        args = tuple(_literal(option, text, argument) for argument in parsed.args)
        keywords = [(word.arg, _literal(option, text, word.value if word.arg else word)) for word in parsed.keywords]
        return cls(option, text, module, name, args, tuple((str(word), value) for word, value in keywords))

    @property
    def spoken(self) -> str:
        """As Python would write it, for sentences."""
        words = [*map(repr, self.args), *(f"{word}={value!r}" for word, value in self.keywords)]
        return f"{self.name}({', '.join(words)})"

    def __call__(self) -> Any:
        """Call it. The module is looked for in the current folder, then in the environment.

        Raises:
            FedscopeError: no such module or name, nothing that can be called, an exception or an exit in it.
        """
        with _current_folder_first():
            factory = self._named(self._imported())
            if not callable(factory):
                raise FedscopeError(
                    f"{self.option} {self.text}: {self.name} is {describe_type(factory)} and cannot be called; name a "
                    "function or a class"
                )
            try:
                return beside_torchvision(lambda: factory(*self.args, **dict(self.keywords)))
            except SystemExit as error:
                raise FedscopeError(f"{self.option} {self.text}: {self.spoken} {_ends(error)}") from error
            except Exception as error:
                if is_torchvisions(error):
                    raise FedscopeError(
                        f"{self.option} {self.text}: {self.name}() failed with {describe_error(error)}{remedy()}"
                    ) from error
                how = f"as {self.spoken}" if self.args or self.keywords else "without arguments"
                raise FedscopeError(
                    f"{self.option} {self.text}: {self.name}() failed with {describe_error(error)}; it is called "
                    f"{how}: give what it needs, as in '{self.module}:{self.name}(16)'"
                ) from error

    def _imported(self) -> ModuleType:
        place = f"{self.option} {self.text}"
        try:
            return beside_torchvision(lambda: importlib.import_module(self.module))
        except ModuleNotFoundError as error:
            if error.name is not None and f"{self.module}.".startswith(f"{error.name}."):
                raise FedscopeError(
                    f"{place}: there is no module {error.name} in {Path.cwd()} or in this Python; go to "
                    "the folder that holds it, or install it"
                ) from None
            raise FedscopeError(f"{place}: {self.module} needs {error.name}, which is not installed") from error
        except SystemExit as error:
            raise FedscopeError(f"{place}: importing {self.module} {_ends(error)}") from error
        except Exception as error:
            why = remedy() if is_torchvisions(error) else ""
            raise FedscopeError(f"{place}: {self.module} cannot be imported: {describe_error(error)}{why}") from error

    def _named(self, module: ModuleType) -> Any:
        if not hasattr(module, self.name):
            known = sorted(key for key, value in vars(module).items() if callable(value) and not key.startswith("_"))
            raise FedscopeError(
                f"{self.option} {self.text}: {self.module} ({getattr(module, '__file__', None) or 'built in'}) has no "
                f"{self.name}{nearest(self.name, known)}"
            )
        return getattr(module, self.name)


def is_call(text: str) -> bool:
    """Check whether a text has the form ``module:factory`` or ``module:factory(...)``.

    >>> is_call("mydata:load(2)"), is_call("npz:mine.npz"), is_call("digits")
    (True, False, False)
    """
    return re.fullmatch(r"[^\W\d][\w.]*:[^\W\d]\w*(\(.*\))?", text, re.DOTALL) is not None


def is_there(module: str) -> bool:
    """Check whether the first part of a module's name can be imported."""
    with _current_folder_first(), suppress(ImportError, ValueError):
        return find_spec(module.partition(".")[0]) is not None
    return False


def describe_type(thing: object) -> str:
    """Describe the type of a thing, for sentences."""
    return f"a {type(thing).__name__}" if thing is not None else "nothing"


def _literal(option: str, text: str, node: ast.AST) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        shown = ast.unparse(node)
        raise FedscopeError(
            f"{option} {text}: {shown} is not a literal; give numbers, strings, lists or dictionaries of them, True, "
            "False or None, and make everything else in the function"
        ) from None


@contextmanager
def _current_folder_first() -> Iterator[None]:
    """Imports look into the current folder first, which a command's own search path does not have."""
    here = str(Path.cwd())
    sys.path.insert(0, here)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        with suppress(ValueError):  # the imported code may have changed it too
            sys.path.remove(here)


def _ends(error: SystemExit) -> str:
    return (
        f"ends the program ({describe_error(error)}), as a script does that reads its arguments; move what it runs "
        'under if __name__ == "__main__", or name a module that only defines things'
    )


def describe_error(error: BaseException) -> str:
    """An exception in one line."""
    first = str(error).strip().splitlines()
    return f"{type(error).__name__}: {first[0]}" if first else type(error).__name__
