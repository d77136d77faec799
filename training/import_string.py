"""Code of the user's own, named ``module:factory`` or ``module:factory(16, "relu")``: read as text, then called."""

from __future__ import annotations

import ast
import hashlib
import importlib
import inspect
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from sysconfig import get_path
from traceback import extract_tb
from types import ModuleType
from typing import Any

from ..checkpoints import FedscopeError, expand_home, nearest, real_path
from ..checkpoints.io.errors import list_few
from ..distributed.torchvision_import import beside_torchvision, is_torchvisions, remedy


def written(option: str, text: str) -> str:
    """Where a text was typed, for sentences.

    >>> written("--model", "nets:Net"), written("--code client=", "mine:Mine")
    ('--model nets:Net', '--code client=mine:Mine')
    """
    return f"{option}{text}" if option.endswith("=") else f"{option} {text}"


class CodeFile(str):
    """``path/to/arch.py:Net``: code in a file, as somebody typed it on a command line, and nobody else may say it.

    A run's file holds plain texts, and of a plain text no file is ever run: only this class, which the options of
    commands alone make, gives leave to. See :meth:`ImportString.parse`.
    """

    __slots__ = ()

    @staticmethod
    def typed(option: str, text: str) -> str:
        """Take the value of an option; what names no file stays a plain text.

        Raises:
            FedscopeError: a file that is not there, or no name in it; says which names there are.

        >>> type(CodeFile.typed("--model", "mlp")), type(CodeFile.typed("--model", "nets:Net"))
        (<class 'str'>, <class 'str'>)
        """
        place = _in_file(text)
        if place is None:
            return text
        path, name = place
        if not path.is_file():
            beside = [one.name for one in path.parent.glob("*.py")] if path.parent.is_dir() else []
            offers = {name: str(path.with_name(name)) for name in beside}
            near = (
                nearest(path.name, beside, offers)
                or "; give the path of a Python file, or a module as Python imports it"
            )
            raise FedscopeError(f"{written(option, text)}: there is no file {path}{near}")
        if not name:
            known = _defined_in(path)
            offer = f"{path}:{known[0]}" if known else f"{path}:NAME"
            more = f"; it defines {list_few(known, 6)}" if len(known) > 1 else ""
            raise FedscopeError(f"{written(option, text)} names a file and nothing in it; write {offer}{more}")
        return CodeFile(text)


def offer_file(name: str, kinds: tuple[type[ast.stmt], ...] = (ast.ClassDef, ast.FunctionDef)) -> str:
    """Offer what a Python file of the current folder defines, in a clause, where somebody named the file as a word:
    ``fedx`` or ``fedx.FedX`` for ``fedx:FedX``; "" where there is no such file, or nothing in it. Nothing is run.

    Args:
        kinds: of definitions.
    """
    stem, _, own = name.rpartition(".") if "." in name else (name, "", "")
    if not all(part.isidentifier() for part in stem.split(".")):
        return ""
    known = _defined_in(Path(*stem.split(".")).with_suffix(".py"), kinds)
    if not known or (own and own not in known):
        return ""
    return f"; did you mean {stem}:{own or known[0]}?"


def names_a_file(text: str) -> bool:
    """Check whether a text names code in a file, by its form: what a command line would run.

    >>> names_a_file("./nets.py:net(16)"), names_a_file("nets.py"), names_a_file("npz:nets.py")
    (True, True, False)
    """
    return _in_file(text) is not None


def _in_file(text: str) -> tuple[Path, str] | None:
    """Return the file and the rest, of ``arch.py:Net(16)`` or ``arch.py``; None of a text that names no file."""
    found = re.match(r"([^:()]*\.py)(?::(.*))?$", text, re.DOTALL)
    return None if found is None else (expand_home(found[1]), found[2] or "")


def _defined_in(path: Path, kinds: Sequence[type[ast.stmt]] = (ast.ClassDef, ast.FunctionDef)) -> list[str]:
    """List the classes and functions that a file defines, classes first; nothing of it is run."""
    try:
        body = ast.parse(path.read_bytes()).body
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    return [
        node.name
        for kind in kinds
        for node in body
        if isinstance(node, kind) and isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name[0] != "_"
    ]


@dataclass(frozen=True)
class ImportString:
    """A function or a class in a module, and what it is called with.

    Attributes:
        option: that named it, for sentences: ``--model``.
        text: as it was typed.
        module, name: where it is found, as Python imports it.
        file: in place of the module, the file that holds it; "" elsewhere.
        args, keywords: literals, what ``ast.literal_eval`` takes; nothing in them is run.
    """

    option: str
    text: str
    module: str
    name: str
    args: tuple[Any, ...] = ()
    keywords: tuple[tuple[str, Any], ...] = ()
    file: str = ""

    @property
    def place(self) -> str:
        """Where it was typed, for sentences."""
        return written(self.option, self.text)

    @classmethod
    def parse(cls, option: str, text: str) -> ImportString:
        """Read what was typed; nothing is imported.

        A file is taken of a :class:`CodeFile` alone: any other text may come from a run's file.

        Raises:
            FedscopeError: it has another form; an argument is no literal.

        >>> call = ImportString.parse("--model", "mypkg.nets:resnet(20, width=1.5)")
        >>> call.module, call.name, call.args, call.keywords
        ('mypkg.nets', 'resnet', (20,), (('width', 1.5),))
        """
        module, _, rest = text.partition(":")
        name, bracket, _ = rest.partition("(")
        file = module if isinstance(text, CodeFile) else ""
        importable = all(part.isidentifier() for part in module.split(".")) and not module.endswith(".py")
        if not ((importable or file) and name.isidentifier()):
            raise FedscopeError(
                f"{written(option, text)} is not a module:factory; write the module as Python imports it, as in "
                f"mypkg.nets:resnet20 or 'mypkg.nets:resnet(20)'{_other_form(module, rest)}"
            )
        if not bracket:
            return cls(option, text, module, name, file=file)
        try:
            parsed = ast.parse(rest, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            parsed = None
        if not isinstance(parsed, ast.Call) or not isinstance(parsed.func, ast.Name):
            raise FedscopeError(
                f"{written(option, text)} is not a call of {name}; write its arguments as Python does, as in "
                f"'{module}:{name}(16)'"
            )
        args = tuple(_literal(option, text, argument) for argument in parsed.args)
        keywords = [(word.arg, _literal(option, text, word.value if word.arg else word)) for word in parsed.keywords]
        return cls(option, text, module, name, args, tuple((str(word), value) for word, value in keywords), file)

    @property
    def spoken(self) -> str:
        """As Python would write it, for sentences."""
        words = [*map(repr, self.args), *(f"{word}={value!r}" for word, value in self.keywords)]
        return f"{self.name}({', '.join(words)})"

    @property
    def importable(self) -> str:
        """As a run's file names it, with the arguments: of a file, the module that it is.

        >>> ImportString.parse("--task", CodeFile("my nets/losses.py:huber(0.5)")).importable
        'losses:huber(0.5)'
        >>> ImportString.parse("--task", CodeFile("my-losses.py:huber")).importable
        'my_losses:huber'
        """
        if not self.file:
            return str(self.text)
        stem = Path(self.file).stem
        if self.option == "--task":  # which a run's file names as a setting, and that has a module's form
            stem = re.sub(r"\W|^(?=\d)", "_", stem)
        return f"{stem}:{self.text.partition(':')[2]}"

    def __call__(self) -> Any:
        """Call it. The module is looked for in the current folder, then in the environment; a file's neighbours first
        of all.

        Raises:
            FedscopeError: no such module or name, nothing that can be called, an exception or an exit in it.
        """
        factory = self.found()
        with self._folder():
            if not callable(factory):
                raise FedscopeError(
                    f"{self.place}: {self.name} is {describe_type(factory)} and cannot be called; name a "
                    "function or a class"
                )
            if not inspect.isclass(factory) and callable(getattr(factory, "named_parameters", None)):
                raise FedscopeError(
                    f"{self.place}: {self.name} is a {type(factory).__name__} that is made already; name "
                    "its class, or a function that returns it"
                )
            try:
                return beside_torchvision(lambda: factory(*self.args, **dict(self.keywords)))
            except SystemExit as error:
                raise FedscopeError(f"{self.place}: {self.spoken} {_ends(error)}") from error
            except Exception as error:
                if is_torchvisions(error):
                    raise FedscopeError(
                        f"{self.place}: {self.name}() failed with {describe_error(error)}{remedy()}"
                    ) from error
                raise FedscopeError(
                    f"{self.place}: {self.name}() failed with {describe_error(error)}{self._remedy(factory, error)}"
                ) from error

    def _remedy(self, factory: Any, error: Exception) -> str:
        """Say what to do where a call failed for its arguments; elsewhere name the line that raised."""
        if takes(factory, self.args, dict(self.keywords)) is not False:
            return describe_line(error)
        how = f"as {self.spoken}" if self.args or self.keywords else "without arguments"
        if self.option == "--task" and not (self.args or self.keywords) and takes(factory, (0, 0), {}):
            return (
                f"; it is called {how} and returns the loss: if it is the loss itself, name a function that returns "
                f"it, as in def make(): return {self.name}"
            )
        return f"; it is called {how}: give what it needs, as in '{self.module}:{self.name}(16)'"

    def found(self) -> Any:
        """Import what is named, and do not call it. Raises as a call, but for what the call itself raises."""
        with self._folder():
            return self._named(self._imported())

    def _folder(self) -> AbstractContextManager[None]:
        return _folder_first(expand_home(self.file).parent if self.file else Path.cwd())

    def _imported(self) -> ModuleType:
        place = self.place
        try:
            if self.file:
                return beside_torchvision(lambda: _run_file(expand_home(self.file)))
            return beside_torchvision(lambda: importlib.import_module(self.module))
        except ModuleNotFoundError as error:
            if not self.file and error.name is not None and f"{self.module}.".startswith(f"{error.name}."):
                raise FedscopeError(
                    f"{place}: there is no module {error.name} in {Path.cwd()} or in this Python; go to "
                    "the folder that holds it, or install it"
                ) from None
            raise FedscopeError(f"{place}: {self.module} needs {error.name}, which is not installed") from error
        except SystemExit as error:
            raise FedscopeError(f"{place}: importing {self.module} {_ends(error)}") from error
        except Exception as error:
            why = remedy() if is_torchvisions(error) else ""
            what = describe_error(error) + describe_line(error)
            raise FedscopeError(f"{place}: {self.module} cannot be imported: {what}{why}") from error

    def _named(self, module: ModuleType) -> Any:
        if not hasattr(module, self.name):
            known = sorted(key for key, value in vars(module).items() if callable(value) and not key.startswith("_"))
            raise FedscopeError(
                f"{self.place}: {self.module} ({getattr(module, '__file__', None) or 'built in'}) has no "
                f"{self.name}{nearest(self.name, known)}"
            )
        return getattr(module, self.name)


def takes(factory: Any, args: Sequence[Any], keywords: Mapping[str, Any]) -> bool | None:
    """Check whether something may be called with arguments; None where Python does not know it.

    >>> takes(len, ("a",), {}), takes(len, (), {})
    (True, False)
    """
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):
        return None
    try:
        signature.bind(*args, **keywords)
    except TypeError:
        return False
    return True


def is_call(text: str) -> bool:
    """Check whether a text has the form ``module:factory`` or ``module:factory(...)``, or is a :class:`CodeFile`.

    >>> is_call("mydata:load(2)"), is_call("npz:mine.npz"), is_call("digits")
    (True, False, False)
    """
    return isinstance(text, CodeFile) or re.fullmatch(r"[^\W\d][\w.]*:[^\W\d]\w*(\(.*\))?", text, re.DOTALL) is not None


def is_there(module: str) -> bool:
    """Check whether the first part of a module's name can be imported."""
    with _folder_first(Path.cwd()), suppress(ImportError, ValueError):
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
            f"{written(option, text)}: {shown} is not a literal; give numbers, strings, lists or dictionaries of "
            "them, True, False or None, and make everything else in the function"
        ) from None


def _other_form(module: str, rest: str) -> str:
    """Offer the file that is meant, where somebody wrote its path as a module's, or as Python cannot import it."""
    path = module if module.endswith(".py") else f"{module}.py"
    there = bool(rest) and "\0" not in path and len(path) < 200 and Path(path).is_file()
    return f"; on a command line the file {path} is {path}:{rest}" if there else ""


def _run_file(path: Path) -> ModuleType:
    """Run a file as the module of its name, once; as another name where a module of that name is there already."""
    path = real_path(path).absolute()
    for name in (path.stem, f"{path.stem}_{hashlib.sha256(bytes(path)).hexdigest()[:8]}"):
        found = sys.modules.get(name)
        if found is not None and getattr(found, "__file__", None) == str(path):
            return found
        if found is None and find_spec_of(name) in (None, str(path)):
            break
    spec = spec_from_file_location(name, path)
    assert spec is not None, "it ends with .py"
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module  # its classes are found by it when they are copied
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def find_spec_of(name: str) -> str | None:
    """Return the file of the module that Python would import by a name, or a word for one without; None for none."""
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return None
    return None if spec is None else spec.origin or "built in"


@contextmanager
def _folder_first(folder: Path) -> Iterator[None]:
    """Imports look into a folder first, which a command's own search path does not have."""
    here = str(folder.absolute())
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


def describe_line(error: BaseException) -> str:
    """Name the line of somebody's file in which an exception came up: `` (line 3 of fedx.py)``; "" where none did."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f" (line {error.lineno} of {Path(error.filename).name})"
    here = None
    for frame in extract_tb(error.__traceback__):
        if is_elsewhere(frame.filename) and frame.lineno:
            here = frame
    return "" if here is None else f" (line {here.lineno} of {Path(here.filename).name})"


def is_elsewhere(file: str) -> bool:
    """Check whether code of a file is neither fedscope's, nor Python's or that of an installed package."""
    others = (str(Path(__file__).parents[1]), "<", *(get_path(kind) for kind in ("stdlib", "purelib", "platlib")))
    # code that was compiled from Cython names its files without a folder
    return not file.startswith(others) and not file.endswith((".pyx", ".pxd", ".pxi"))


def describe_error(error: BaseException) -> str:
    """An exception in one line."""
    first = str(error).strip().splitlines()
    return f"{type(error).__name__}: {first[0]}" if first else type(error).__name__
