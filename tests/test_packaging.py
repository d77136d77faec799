"""The shape of the package: what is installed, who imports whom, what an import costs, which names are public."""

from __future__ import annotations

import ast
import builtins
import importlib
import importlib.metadata
import inspect
import pkgutil
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest

import fedscope
from fedscope.analysis.register import analyses

pytestmark = pytest.mark.same_elsewhere

ROOT = Path(__file__).resolve().parent.parent
SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]

# Each may import what stands to its right.
LINE = ["cli", "reporting", "decomposition", "landscape", "training", "analysis", "evaluation", "distributed"]
LINE += ["plotting", "results", "checkpoints"]
# These lie in core/, which is the package itself.
CORE = ("reporting", "analysis", "evaluation", "distributed", "plotting", "results")
PUBLIC = {name: f"core/{name}" for name in CORE}
FILES = sorted(path for folder in LINE for path in (ROOT / PUBLIC.get(folder, folder)).rglob("*.py"))
HEAVY = {"torch", "torchvision", "matplotlib", "plotly", "sklearn", "scipy", "h5py", "numpy"}


def imports(source: str, package: str) -> Iterator[tuple[int, str, bool]]:
    """Every import of a module in `package`, those inside functions too: line, absolute name, whether relative.

    >>> list(imports("from ..checkpoints import Run", "fedscope.landscape"))
    [(1, 'fedscope.checkpoints.Run', True)]
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name, False) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = [node.module] if node.module else []
            if node.level:
                base = package.split(".")[: len(package.split(".")) + 1 - node.level] + base
            for alias in node.names:
                yield node.lineno, ".".join([*base, alias.name]), node.level > 0


def broken_rules(folder: str, package: str, source: str) -> list[str]:
    """What a module of `folder` imports against the rules: one clause an import."""
    found = []
    for number, name, relative in imports(source, package):
        parts = name.split(".")
        if parts[0] in {*LINE, "core"} and not relative:
            found.append(f"line {number} imports the checkout's folder {parts[0]}")
        elif parts[0] == "fedscope" and not relative:
            found.append(f"line {number} imports {name} absolutely")
        elif parts[0] == "fedscope" and len(parts) > 1 and parts[1] in LINE[: LINE.index(folder)]:
            found.append(f"line {number} imports {name}, against {' -> '.join(LINE)}")
    return found


def package_of(path: Path) -> str:
    parts = path.relative_to(ROOT).parent.parts
    return ".".join(["fedscope", *(parts[1:] if parts[0] == "core" else parts)])


def in_fresh_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def heavy_modules_after(code: str) -> set[str]:
    loaded = in_fresh_python(f"{code}\nimport sys\nprint('LOADED', *sys.modules)").rpartition("LOADED")[2]
    return HEAVY.intersection(loaded.split())


def public_names() -> dict[str, str]:
    """The names in `core/__init__.pyi`, each with the subpackage it is taken from."""
    stub = ast.parse((ROOT / "core" / "__init__.pyi").read_text(encoding="utf-8"))
    return {
        alias.asname or alias.name: f"fedscope.{node.module}"
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def test_headings_of_the_public_names_are_true() -> None:
    """Each ends with the room of all names below it, and no room has two."""
    of_heading: dict[str, set[str]] = {}
    room = ""
    for line in (ROOT / "core" / "__init__.pyi").read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            room = line.rpartition("(")[2].removesuffix(")")
            assert room not in of_heading, room
            of_heading[room] = set()
        elif line.startswith("from ."):
            first = line.split()[1].split(".")[1]
            of_heading[room].add(first if (ROOT / first).is_dir() else f"core/{first}")
    assert of_heading == {room: {room} for room in of_heading}
    assert len(of_heading) > 5


def test_tests_lie_by_the_rooms_that_they_test() -> None:
    """``tests/core/plotting/`` for ``core/plotting/``; what is of no room lies at the top."""
    apart = {"campaign", "gpu", "device"}
    folders = {path.parent.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py")}
    rooms = [folder for folder in folders if folder.parts and folder.parts[0] not in apart]
    assert len(rooms) > 20
    assert [str(folder) for folder in rooms if not (ROOT / folder).is_dir()] == []
    tested = {folder.parts[0] if folder.parts[0] != "core" else "/".join(folder.parts[:2]) for folder in rooms}
    assert {PUBLIC.get(room, room) for room in LINE} <= tested


def test_the_packages_listed_are_the_folders_on_the_disk() -> None:
    folders = {package_of(path) for path in FILES} | {"fedscope"}
    assert sorted(SETUPTOOLS["packages"]) == sorted(folders)
    without = [name for name in folders - {"fedscope"} if not (folder_of(name) / "__init__.py").is_file()]
    assert without == [], "folders without __init__.py"


def folder_of(package: str) -> Path:
    """Where `package-dir` puts a package: its own entry, or below its parent's."""
    mapping: dict[str, str] = SETUPTOOLS["package-dir"]
    parent, _, last = package.rpartition(".")
    return ROOT / mapping[package] if package in mapping else folder_of(parent) / last


def test_every_module_on_the_disk_is_installed_and_no_other() -> None:
    package = Path(fedscope.__file__).parent
    installed = {path.relative_to(package) for path in package.rglob("*.py")}
    on_disk = {path.relative_to(ROOT) for path in FILES if path.relative_to(ROOT).parts[0] != "core"}
    on_disk |= {path.relative_to(ROOT / "core") for path in (ROOT / "core").rglob("*.py")}
    assert installed == on_disk
    assert (package / "py.typed").is_file()
    assert (package / "__init__.pyi").is_file()


def test_nothing_lies_where_it_would_shadow_the_installed_package() -> None:
    shadows = ["__init__.py", "conftest.py", "tests/__init__.py", "fedscope"]
    assert [name for name in shadows if (ROOT / name).exists()] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_one_way(path: Path) -> None:
    folder = package_of(path).split(".")[1]
    assert broken_rules(folder, package_of(path), path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("from ..reporting import report", "line 1 imports fedscope.reporting.report, against cli -> reporting"),
        ("from .. import cli", "line 1 imports fedscope.cli, against cli -> reporting"),
        ("def f():\n    from ..decomposition import cka", "line 2 imports fedscope.decomposition.cka, against cli ->"),
        ("from fedscope.checkpoints import Run", "line 1 imports fedscope.checkpoints.Run absolutely"),
        ("import checkpoints", "line 1 imports the checkout's folder checkpoints"),
    ],
)
def test_the_rule_for_imports_sees(line: str, complaint: str) -> None:
    (found,) = broken_rules("landscape", "fedscope.landscape", line)
    assert found.startswith(complaint)


def test_the_rule_for_imports_allows_what_stands_to_the_right() -> None:
    source = "import torch\nfrom . import planes\nfrom .lines import line\nfrom ..checkpoints.runs import Run"
    assert broken_rules("landscape", "fedscope.landscape", source) == []
    assert broken_rules("training", "fedscope.training.methods.clients", "from ...landscape import Evaluator") == []


def module_of(path: Path) -> str:
    return package_of(path) if path.stem == "__init__" else f"{package_of(path)}.{path.stem}"


def for_types(tree: ast.Module) -> set[ast.AST]:
    """What stands under ``if TYPE_CHECKING``, which nothing runs."""
    blocks = [node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)]
    return {inside for block in blocks for line in block.body for inside in ast.walk(line)}


@cache
def run_time_imports() -> dict[str, set[str]]:
    """Of every module those of ours that it imports when it runs, at its top or in a function.

    A name that a package hands on lazily, as its stub says, counts as the module that has it.
    """
    modules = {module_of(path): path for path in FILES}
    handed_on: dict[str, str] = {}
    for package in modules:
        stub = modules[package].with_suffix(".pyi")
        if stub.is_file():
            for _, name, _ in imports(stub.read_text(encoding="utf-8"), package):
                handed_on[f"{package}.{name.rpartition('.')[2]}"] = name
    found: dict[str, set[str]] = {}
    for module, path in modules.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        left_out = for_types(tree)
        lines = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node not in left_out]
        found[module] = set()
        for line in lines:
            for _, name, _ in imports(ast.unparse(line), package_of(path)):
                while name in handed_on:
                    name = handed_on[name]
                found[module].add(name if name in modules else name.rpartition(".")[0])
    return {module: {name for name in names if name in modules} for module, names in found.items()}


def circles(arrows: Mapping[str, set[str]]) -> list[set[str]]:
    """The largest sets of nodes each of which reaches all others of its set.

    >>> [sorted(circle) for circle in circles({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set()})]
    [['a', 'b', 'c']]
    """
    reached: dict[str, set[str]] = {}
    for node in arrows:
        reached[node], left = set(), list(arrows[node])
        while left:
            if (other := left.pop()) not in reached[node]:
                reached[node].add(other)
                left += arrows.get(other, ())
    sets = [{other for other in reached[node] if node in reached.get(other, ())} for node in arrows]
    return [circle for k, circle in enumerate(sets) if circle and circle not in sets[:k]]


def circles_of(package: str, modules: Mapping[str, set[str]]) -> list[set[str]]:
    """Circles of what lies in a package: its modules, and its folders, each as one with all that lies in it."""

    def member(module: str) -> str:
        return module.removeprefix(f"{package}.").partition(".")[0] if module.startswith(f"{package}.") else ""

    arrows: dict[str, set[str]] = {}
    for module, names in modules.items():
        if own := member(module):
            arrows.setdefault(own, set()).update({member(name) for name in names} - {own, ""})
    return circles(arrows)


def test_no_circles_at_run_time() -> None:
    modules = run_time_imports()
    assert sum(map(len, modules.values())) > 1000, "imports are seen"
    packages = {module.rpartition(".")[0] for module in modules if "." in module}
    strange = {package: [sorted(circle) for circle in circles_of(package, modules)] for package in sorted(packages)}
    assert {package: found for package, found in strange.items() if found} == {}


def test_circles_are_seen_through_folders_functions_and_stubs() -> None:
    modules = {"p.a.one": {"p.b"}, "p.b": {"p.a.two"}, "p.a.two": set()}
    assert circles_of("p", modules) == [{"a", "b"}]
    assert circles_of("p.a", modules) == []
    found = run_time_imports()
    assert "fedscope.training.jobs.worker" in found["fedscope.cli.__main__"], "in a function"
    assert "fedscope.checkpoints.io.errors" in found["fedscope.training.build"], "through the package's stub"
    assert "fedscope.training.config.config" not in found["fedscope.training.methods.clients.mime"], "for types alone"


def test_import_fedscope_loads_nothing_heavy() -> None:
    assert heavy_modules_after("import fedscope; dir(fedscope)") == set()


def test_help_loads_nothing_heavy() -> None:
    code = """
import sys
sys.argv = ["fedscope", "--help"]
from fedscope.cli.main import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
"""
    assert heavy_modules_after(code) == set()


@pytest.mark.parametrize("words", [["recipes"], ["recipes", "ima/fig1"], ["table", "there-is-none"]])
def test_reading_recipes_and_tables_loads_no_torch(words: list[str]) -> None:
    code = f"from fedscope.cli.main import run; run({words})"
    assert heavy_modules_after(code) & {"torch", "matplotlib", "scipy", "plotly"} == set()


@pytest.mark.parametrize(("name", "module"), public_names().items())
def test_public_names_resolve(name: str, module: str) -> None:
    loaded = importlib.import_module(module)
    assert getattr(fedscope, name) is getattr(loaded, name)


def test_the_function_of_an_analysis_is_public_and_lies_in_its_folder() -> None:
    public = public_names()
    assert {one.name: public.get(one.name) for one in analyses()} == {
        one.name: f"{one.package}.analysis" for one in analyses()
    }


def test_all_lists_the_public_names_and_the_version() -> None:
    assert sorted(fedscope.__all__) == sorted([*public_names(), "__version__"])
    assert fedscope.__version__ == importlib.metadata.version("fedscope")
    with pytest.raises(AttributeError, match="plan"):
        _ = fedscope.plan


ROLE = re.compile(r":(?:func|class|mod|meth|attr|data|exc):`~?([^`]+)`")


def inside(scope: object, words: str) -> bool:
    """Whether a scope has a name, as ``Round.clients``: what is there, an annotated field, an attribute that is set."""
    first, _, rest = words.partition(".")
    if isinstance(scope, type) and not rest:
        own = [cls for cls in scope.__mro__ if cls.__module__.startswith("fedscope")]
        if any(first in inspect.get_annotations(cls) for cls in own):
            return True
        if any(re.search(rf"\bself\.{first}\b(?:, self\.\w+)*(?:: .*)? =", inspect.getsource(cls)) for cls in own):
            return True
    return hasattr(scope, first) and (not rest or inside(getattr(scope, first), rest))


def names_absolutely(words: str) -> bool:
    try:
        pkgutil.resolve_name(words)
    except (ImportError, AttributeError, ValueError):
        return False
    return True


def points_at_something(words: str, module: str, package: str, classes: Sequence[str], source: str) -> bool:
    """Whether a reference of a docstring means something where it stands.

    ``fedscope.a.b`` and ``pathlib.Path`` are names as they stand, ``.a.b`` is in the package or of what the module
    imports, ``b`` is of the class, of the module, or of what that imports, be it in a function.

    >>> here = ("fedscope.checkpoints.runs.run", "fedscope.checkpoints.runs", ["Run"], "from ..io import hdf5")
    >>> all(points_at_something(words, *here) for words in ("round", "Run.round", "hdf5", ".addresses.Address"))
    True
    >>> any(points_at_something(words, *here) for words in ("rounded", "Run.rounded", "hdf", ".visible_text.visible"))
    False
    """
    if words.startswith("fedscope."):
        return names_absolutely(words)
    loaded = importlib.import_module(module)
    if words.startswith("."):
        words = words[1:]
        if names_absolutely(f"{package}.{words}"):
            return True
    scopes = [loaded, builtins, *(pkgutil.resolve_name(f"{module}:{name}") for name in classes)]
    if any(inside(scope, words) for scope in scopes):
        return True
    first, _, rest = words.partition(".")
    imported = [name for _, name, _ in imports(source, package) if name.rpartition(".")[2] == first]
    return any(names_absolutely(f"{name}.{rest}" if rest else name) for name in imported) or (
        bool(rest) and names_absolutely(words)
    )


def enclosing_classes(tree: ast.Module, line: int) -> list[str]:
    """The classes around a line, from the outermost on: ``["Run", "Run.Part"]``."""
    found, body = list[str](), list(ast.iter_child_nodes(tree))
    while node := next((one for one in body if getattr(one, "lineno", line + 1) <= line <= one.end_lineno), None):  # type: ignore[attr-defined]
        if isinstance(node, ast.ClassDef):
            found.append(".".join([*found[-1:], node.name]))
        elif not isinstance(node, ast.If):
            break
        body = list(ast.iter_child_nodes(node))
    return found


def test_what_docstrings_refer_to_is_there() -> None:
    broken = []
    for path in (*FILES, *sorted((ROOT / "core").glob("*.py"))):
        source = path.read_text("utf-8")
        tree = ast.parse(source)
        for reference in ROLE.finditer(source):
            line = source.count("\n", 0, reference.start()) + 1
            where = (module_of(path), package_of(path), enclosing_classes(tree, line), source)
            if not points_at_something(reference[1], *where):
                broken.append(f"{path.relative_to(ROOT)}:{line}: {reference[1]}")
    assert not broken, "\n".join(broken)


def test_the_way_of_a_number_is_that_of_the_code() -> None:
    """What CONTRIBUTING names on the way stands in the files that it names there, and its decorators decorate."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = page.partition("## Where a number comes from\n")[2].partition("\n## ")[0]
    named = re.findall("`([^`]+)`", section)
    files = [ROOT / name for name in named if name.endswith(".py")]
    assert len(files) >= 6
    there = "\n".join(path.read_text(encoding="utf-8") for path in files)
    names = {name for words in named if "/" not in words for name in re.findall(r"[A-Za-z_]\w+", words)} - {"csv"}
    assert [name for name in sorted(names) if not re.search(rf"\b{name}\b", there)] == []
    code = "\n".join(path.read_text(encoding="utf-8") for path in FILES)
    decorators = set(re.findall(r"`@(\w+)`", page))
    assert decorators >= {"analysis", "drawing"}
    assert [name for name in decorators if not re.search(rf"^@{name}\b", code, re.M)] == []


def test_the_package_run_as_a_module_is_the_command_line(tmp_path: Path) -> None:
    def ended(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, *words], capture_output=True, text=True, cwd=tmp_path)

    script = str(Path(sys.executable).with_name("fedscope"))
    module, command = (ended("-P", *words, "--help") for words in (("-m", "fedscope"), (script,)))
    assert (module.returncode, module.stdout) == (0, command.stdout)
    refused = ended("-P", "-m", "fedscope", "plane", "--gird", "5")
    assert refused.returncode == 2
    assert "'--grid'" in refused.stderr


def test_the_command_is_installed() -> None:
    (entry,) = importlib.metadata.entry_points(group="console_scripts", name="fedscope")
    assert entry.value == "fedscope.cli.main:main"
    assert callable(entry.load())


def test_every_dependency_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {line.partition("==")[0] for line in lines if not line.startswith("#")}
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    asked = {need.partition(">=")[0].lower().replace("_", "-") for group in groups for need in group}
    assert {need for need in asked if not need.startswith("fedscope[")} <= pinned
