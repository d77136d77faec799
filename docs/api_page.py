"""The pages `reference/python.md`, every public name with its signature, docstring, fields and methods, and
`reference/formulas.md`, what their docstrings name and is not public."""

from __future__ import annotations

import inspect
import pkgutil
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, ForwardRef

from docstrings import markdown

import fedscope
from fedscope.analysis.register import analyses
from fedscope.results import ArrayResult, Collection, Result, TableResult

HOW_TOS = Path(__file__).resolve().parent / "howto"
#: every public name, by what one wants of it
GROUPS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "Train": (
        "Federations, sweeps of them, and the tables of their results.",
        ("train", "resume", "sweep", "table", "recipe", "recipe_names", "download", "Config", "Sweep", "Recipe"),
    ),
    "Bring models of your own": (
        "Runs of other programs are recorded or imported; every question that needs models alone can be asked of them.",
        (
            "Recorder",
            "record",
            "partition_mod",
            "record_nvflare",
            "record_pfl",
            "record_blazefl",
            "import_models",
            "measure",
            "MeasuredRun",
        ),
    ),
    "Open what is recorded": (
        "A run has rounds, a round has models, and an address names one of them.",
        ("Run", "Round", "load", "load_model", "Model", "Layout", "export_metrics", "Exported"),
    ),
    "Ask": (
        "Each question is a function, and has a command of the same name. Runs and models come first; all else is "
        "given by keyword.",
        (*(one.name for one in analyses()), "report"),
    ),
    "Look of figures": ("How every figure is drawn, in one place.", ("style",)),
    "Answers": (
        "What questions give. All of them also have what [every answer](#what-every-answer-can-do) has.",
        (*(name for one in analyses() for name in one.answers), "Comparison", "Report"),
    ),
    "Measure by hand": (
        "What questions are built of: losses of many models, planes, the decomposition of one round, tasks.",
        (
            *("Evaluator", "Samples", "Task", "Classification", "Regression", "Sequences", "survey"),
            *("through_models", "near_clients", "along_trajectory", "random_directions"),
            *("on_same_axes",),
            *("decompose_round", "decompose_loss"),
        ),
    ),
    "Errors and long computations": (
        "",
        ("FedscopeError", "Execution"),
    ),
}
#: the page that explains a question with pictures and what not to read into it
HOW_TO = {
    "train": "own-methods",
    "resume": "resume",
    "sweep": "experiments",
    "table": "experiments",
    "recipe": "experiments",
    "Recorder": "record-own-loop",
    "record": "record-flower",
    "record_nvflare": "record-nvflare",
    "record_pfl": "record-pfl",
    "record_blazefl": "record-blazefl",
    "import_models": "soup",
    "measure": "measure",
    "report": "report",
    "export_metrics": "trackers",
    "Task": "any-loss",
    "style": "figures",
    **{one.name: one.how_to for one in analyses() if one.how_to},
}
HEAD = """\
Every public name of `import fedscope`: its signature, its docstring, its fields and methods. \
[Ask from Python](../python.md) is the introduction.

Examples behind `>>>` are run with the tests. The page of a question shows it on a recorded run, and is run with the \
tests too. In Python, `help(fedscope.plane)` says the same as here."""

WORDS = """\
| in a signature | what it takes |
| --- | --- |
| `RunLike` | a [`Run`](#class-fedscoperun), or its folder; `runs/ima@60` is the run with `rounds=60` |
| `Rounds` | a number, `"1,20,last"`, `"last:10"`, `"every:20"`, `"all"`, a list of numbers, or nothing |
| `ModelLike` | an address (`runs/ima@40/client-17`), a file, an `nn.Module`, or a `state_dict` |
| `Unpack[EvaluationSettings]` | the keywords below, which most questions share |"""

ANSWER = """\
`Curves`, `Plane`, `Decomposition` and all others have these. `BASE` is a path without an extension."""

BEHIND = """\
Formulas and settings that [the public functions](python.md) name: what is computed, with shapes and sources. \
These names are not public: they may move between versions. Their examples run in the module in which they stand."""

#: the settings that questions share stand beside the public names
SHARED = "fedscope.analysis.settings.EvaluationSettings"
PUBLIC, FORMULAS = "python.md", "formulas.md"


def api_pages(written: str) -> dict[str, str]:
    """Both pages by their names; ``written`` is what a generated page begins with."""
    refuse_forgotten()
    parts = [written, "# Every function and class", HEAD, "## Contents", *contents()]
    for title, (about, names) in GROUPS.items():
        parts += [f"## {title}", *([about] if about else [])]
        if title == "Ask":
            parts += [WORDS, *entry(SHARED, PUBLIC)]
        for name in names:
            parts += entry(path_of(name), PUBLIC)
        if title == "Answers":
            parts += ["### What every answer can do", ANSWER, "\n".join(members(Result, (), PUBLIC))]
    behind = [written, "# Formulas behind the functions", BEHIND]
    for path in referred():
        behind += entry(path, FORMULAS)
    return {page: "\n\n".join(lines) + "\n" for page, lines in ((PUBLIC, parts), (FORMULAS, behind))}


def refuse_forgotten() -> None:
    """Every public name stands in one group."""
    told = sorted(public_names())
    public = sorted(set(fedscope.__all__) - {"__version__"})
    if told != public:
        wrong = sorted(set(told) ^ set(public)) or told
        raise SystemExit(f"docs/api_page.py: each public name stands once in GROUPS, but not {', '.join(wrong)}")


def contents() -> Iterator[str]:
    """A line a name."""
    for title, (_, names) in GROUPS.items():
        yield f"[{title}](#{slug(title)})"
        yield "\n".join(f"- [`{name}`](#{anchor(path_of(name))}): {summary(name)}" for name in names)


def summary(name: str) -> str:
    """The first sentence of a public name's docstring."""
    told = getattr(fedscope, name)
    first = " ".join((told.__doc__ or "").strip().split("\n\n")[0].split())
    return text_of(told, re.split(r"(?<=[.]) (?=[A-Z])", first)[0], PUBLIC)


def entry(path: str, page: str) -> list[str]:
    """Heading, signature, docstring, fields and members of one thing."""
    told = pkgutil.resolve_name(path)
    is_class, is_answer = inspect.isclass(told), inspect.isclass(told) and issubclass(told, Result)
    parts = [f"### {'class ' if is_class else ''}{path}"]
    if not is_answer and has_signature(told):
        parts.append(f"```python\n{signature(told, path)}\n```")
    types = types_of(told) if is_class else {}
    first, gap, rest = text_of(told, told.__doc__ or "", page, types).partition("\n\n")
    parts += [first, *explained(path), *([rest] if gap else [])]
    if is_answer:
        parts += undocumented(told, types)
    if is_class and not issubclass(told, Exception):
        own = members(told, (Result, TableResult, ArrayResult, Collection) if is_answer else (dict,), page)
        parts += ["**Methods and properties**", "\n".join(own)] if own else []
    return parts


def explained(path: str) -> list[str]:
    """The page of a question, where it has one."""
    name = HOW_TO.get(path.removeprefix("fedscope."))
    return [f"How to: [{title_of(name)}](../howto/{name}.md)."] if name else []


def text_of(told: Any, doc: str, page: str, types: dict[str, str] | None = None) -> str:
    """A docstring, or a part of it, of what is told on a page."""
    return markdown(doc, lambda target, short: link(target, short, told, page), types)


# --- fields and methods ---


def types_of(kind: type[Any]) -> dict[str, str]:
    """The types of a dataclass' fields, or of a dictionary's keys."""
    if is_dataclass(kind):
        return {field.name: type_text(field.type) for field in fields(kind) if not field.name.startswith("_")}
    return {name: type_text(hint) for name, hint in getattr(kind, "__annotations__", {}).items() if name[0] != "_"}


def undocumented(kind: type[Any], types: dict[str, str]) -> list[str]:
    """The fields that the docstring has no line for."""
    doc = inspect.cleandoc(kind.__doc__ or "")
    lines = re.findall(r"^\s+([\w, ]+): ", doc, re.MULTILINE)
    told = {name for line in lines for name in line.split(", ")}
    rest = [f"- `{name}` (`{hint}`)" for name, hint in types.items() if name not in told] if is_dataclass(kind) else []
    return ["**Fields**", "\n".join(rest)] if rest else []


def members(kind: type[Any], apart: tuple[type[Any], ...], page: str) -> list[str]:
    """A line each public method and property, but for those that all answers have and those that keep them."""
    lines = []
    taken = {name for base in apart for name in dir(base)} | set(types_of(kind))
    for name, member in everything(kind):
        if name.startswith("_") or (name in taken and not asks_more(kind, name)):
            continue
        if apart == () and name in (
            "command",
            "suffixes",
            "derived",
            "drawn",
            "paged",
            "drawing",
            "paging",
            "paths",
            "derive",
        ):
            continue  # how answers are kept and named, which is for those who write questions
        inner = getattr(member, "fget", None) or getattr(member, "func", None)
        if inner is not None:
            hint = inspect.get_annotations(inner).get("return", "")
            shown = f"`{name}`{f' (`{type_text(hint)}`)' if hint else ''}"
        elif callable(getattr(kind, name)) and not inspect.isclass(member):
            shown = f"`{name}{parameters_of(asked_of(kind, name), member)}`"
        else:
            continue
        about = inspect.getdoc(inner or asked_of(kind, name)) or inspect.getdoc(getattr(Result, name, None)) or ""
        first = " ".join(about.split("\n\n")[0].split())
        lines.append(f"- {shown}: {text_of(kind, first, page)}")
    return lines


def everything(kind: type[Any]) -> Iterator[tuple[str, Any]]:
    """The members that this package's classes give a class, in the order in which they stand there."""
    seen = set()
    for base in kind.__mro__:
        if not base.__module__.startswith("fedscope"):
            continue
        for name, member in vars(base).items():
            if name not in seen:
                seen.add(name)
                yield name, member


def asks_more(kind: type[Any], name: str) -> bool:
    """Whether what all answers have takes more of this one: settings of its figure."""
    common, own = getattr(Result, name, None), asked_of(kind, name)
    if not callable(common) or name not in ("figure", "figures", "pages"):
        return False
    return set(list(inspect.signature(own).parameters)[1:]) - {"width", "title", "drawing"} != set()


def asked_of(kind: type[Any], name: str) -> Any:
    """What takes the settings of a method: of a figure the function that draws it, which its folder has."""
    own = getattr(kind, name)
    if own is Result.figure and kind is not Result and kind.drawn:
        return kind.drawing(next(iter(kind.drawn)))
    return own


def parameters_of(function: Any, member: Any) -> str:
    """``(width, title=None)``, without types, so that a line stays a line."""
    own = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.name not in ("self", "cls") or isinstance(member, staticmethod)
    ]
    if member is Result.figure and function is not member:
        own = own[1:]  # the result itself, of a function that draws it
    return f"({', '.join(spelled(own, typed=False))})"


# --- signatures ---


def has_signature(told: Any) -> bool:
    """Whether it is called by users: no module, no error, no dictionary of keywords."""
    return callable(told) and not (inspect.isclass(told) and issubclass(told, Exception | dict))


def signature(told: Any, path: str) -> str:
    """As one would write it: on one line where it fits, else a parameter a line."""
    found = inspect.signature(told)
    shown = spelled(found.parameters.values(), typed=True)
    gives = ""
    if not inspect.isclass(told) and found.return_annotation is not found.empty:
        gives = f" -> {answer_text(told, type_text(found.return_annotation))}"
    name = path.rpartition(".")[2] if path.count(".") > 1 else path
    line = f"{name}({', '.join(shown)}){gives}"
    if len(line) <= 88:
        return line
    return "\n".join([f"{name}(", *(f"    {one}," for one in shown), f"){gives}"])


def spelled(parameters: Iterable[inspect.Parameter], *, typed: bool) -> list[str]:
    """Parameters as they are written in the source, with a star before those that are given by keyword alone."""
    shown, star = [], False
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            shown.append("*")
            star = True
        marks = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}
        star = star or parameter.kind is parameter.VAR_POSITIONAL
        hint = f": {type_text(parameter.annotation)}" if typed and parameter.annotation is not parameter.empty else ""
        default = ""
        if parameter.default is not parameter.empty:
            default = f" = {default_text(parameter.default)}" if hint else f"={default_text(parameter.default)}"
        shown.append(f"{marks.get(parameter.kind, '')}{parameter.name}{hint}{default}")
    return shown


def answer_text(told: Any, hint: str) -> str:
    """A question's function is written as one that prepares it, and gives the answer."""
    asks = re.fullmatch(r"Question\[(.*)\]", hint)
    return asks[1] if asks and hasattr(told, "prepare") else hint


def type_text(hint: Any) -> str:
    """A type as it is written in the source."""
    if isinstance(hint, ForwardRef):  # of a TypedDict
        return hint.__forward_arg__
    return hint if isinstance(hint, str) else getattr(hint, "__name__", str(hint))


def default_text(value: Any) -> str:
    """A default that reads the same in every process."""
    if inspect.isfunction(value):
        return value.__name__
    shown = f'"{value}"' if isinstance(value, str) else repr(value)
    if shown == "<factory>":
        return "..."
    return f"{type(value).__name__}()" if " at 0x" in shown else shown


# --- links ---


def title_of(page: str) -> str:
    """The heading of a page on how to do something."""
    return (HOW_TOS / f"{page}.md").read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def path_of(name: str) -> str:
    return f"fedscope.{name}"


def slug(heading: str) -> str:
    """The anchor of a heading, the same on the site and where Markdown is read in a repository."""
    return re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading.lower())).strip("-")


def anchor(path: str) -> str:
    """Of an entry."""
    return slug(f"{'class ' if inspect.isclass(pkgutil.resolve_name(path)) else ''}{path}")


def link(target: str, short: bool, told: Any, page: str) -> str:
    """A role's target as a link to its entry, or as code where it has none."""
    path, name = entry_of(target, told), target.rpartition(".")[2]
    if path is None:
        return f"`{name if short else target}`"
    home = PUBLIC if path == SHARED or path.removeprefix("fedscope.") in public_names() else FORMULAS
    shown = path if home == PUBLIC and not short and "." in target else name
    return f"[`{shown}`]({'' if home == page else home}#{anchor(path)})"


def entry_of(target: str, told: Any) -> str | None:
    """The path under which the pages have what a docstring names."""
    found = resolved(target, told)
    if found is None:
        return None
    paths = (*map(path_of, public_names()), SHARED, *referred())
    return next((path for path in paths if pkgutil.resolve_name(path) is found), None)


def resolved(target: str, told: Any) -> Any:
    """What a role's target is: absolute, or a name of the module that the docstring stands in."""
    if target.startswith("fedscope."):
        try:
            return pkgutil.resolve_name(target)
        except (ImportError, AttributeError):
            return None
    home = inspect.getmodule(told)
    return getattr(home, target, None) if home is not None and "." not in target else None


@cache
def public_names() -> tuple[str, ...]:
    return tuple(name for _, names in GROUPS.values() for name in names)


@cache
def referred() -> tuple[str, ...]:
    """What docstrings of public names name by its whole path and is not public: where formulas and settings stand."""
    found: dict[str, None] = {}
    public = {id(getattr(fedscope, name)) for name in public_names()}
    for name in public_names():
        for target in re.findall(r":(?:func|class):`~?(fedscope\.[\w.]+)`", getattr(fedscope, name).__doc__ or ""):
            thing = pkgutil.resolve_name(target)
            if id(thing) not in public and thing.__doc__ and target != SHARED:
                found.setdefault(target)
    return tuple(sorted(found))
