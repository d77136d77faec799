"""Write the reference from the code: `reference/cli.md` from every command's --help, `reference/settings.md` from the
registry and the settings' own documentation.

    python docs/generate.py            write what has changed
    python docs/generate.py --check    write nothing, and end with 1 where a page is stale
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, Field, fields
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from fedscope.cli.main import COMMANDS
from fedscope.cli.main import fedscope as group
from fedscope.cli.train import command as train
from fedscope.training import Config, preset, presets
from fedscope.training.architectures import Architecture
from fedscope.training.config import DataConfig, RecordConfig, RunConfig
from fedscope.training.methods import AverageMethod, ClientMethod, ServerMethod
from fedscope.training.registry import Shelf, find, names

DOCS = Path(__file__).resolve().parent
WRITTEN = "<!-- Written by docs/generate.py from the code: do not edit. -->"
DASH = "–"
METHOD = "ima"  # what `fedscope train` takes without --method

#: sections that a method or model fills: the shelf, what all of them share, the key that chooses, the words for one
SHELVES: dict[str, tuple[Shelf, type[Any], str, str]] = {
    "model": ("models", Architecture, "name", "an architecture"),
    "client": ("clients", ClientMethod, "method", "a client method"),
    "server": ("servers", ServerMethod, "method", "a server method"),
    "average": ("averages", AverageMethod, "method", "an average over rounds"),
}


def pages() -> dict[Path, str]:
    """Every generated page and what it must contain."""
    return {DOCS / "reference" / "cli.md": cli_page(), DOCS / "reference" / "settings.md": settings_page()}


# --- the command line ---


def cli_page() -> str:
    """The help of `fedscope` and of each of its commands."""
    parts = [
        WRITTEN,
        "# Commands",
        "What `fedscope --help` and `fedscope COMMAND --help` print. Exit status: 0; 2 for a mistake, with one "
        "sentence that names it (`fedscope --debug COMMAND` shows the traceback); 130 after Ctrl-C.",
        f"## fedscope\n\n```text\n{help_of()}\n```",
    ]
    parts += [f"## fedscope {name}\n\n```text\n{help_of(name)}\n```" for name in COMMANDS]
    return "\n\n".join(parts) + "\n"


def help_of(*words: str) -> str:
    """The help text, 100 columns wide whatever the terminal."""
    from click.testing import CliRunner

    result = CliRunner().invoke(group, [*words, "--help"], prog_name="fedscope", terminal_width=100)
    if result.exit_code:
        raise SystemExit(f"fedscope {' '.join(words)} --help ended with {result.exit_code}: {result.output}")
    return "\n".join(line.rstrip() for line in result.output.strip().splitlines())


# --- the settings ---


def settings_page() -> str:
    """Every key of a configuration, by section and method."""
    parts = [
        WRITTEN,
        "# Settings",
        "A configuration has seven sections. Every key can stand in a TOML file (`fedscope train CONFIG.toml`) and on "
        "the command line (`--set section.key=value`, written as in TOML; bare words are strings); some have a flag "
        "of their own. What counts: method preset < CONFIG.toml < flag < `--set`. A run keeps the resolved settings "
        "in its `config.toml`.",
        methods_part(),
        *section_part("data", DataConfig),
        *data_parts(),
    ]
    for section in SHELVES:
        parts += list(shelf_parts(section))
    parts += [*section_part("run", RunConfig), *section_part("record", RecordConfig)]
    return "\n\n".join(parts) + "\n"


def methods_part() -> str:
    """What `--method` stands for."""
    rows = [
        [f"`{name}`", *(f"`{chosen[section]['method']}`" for section in ("client", "server", "average"))]
        for name in presets()
        for chosen in [preset(name)]
    ]
    return "## Methods\n\n`--method` chooses a client, a server and an average at once.\n\n" + table(
        ["`--method`", "`client.method`", "`server.method`", "`average.method`"], rows
    )


def section_part(section: str, settings: type[Any]) -> Iterator[str]:
    """A section with keys of its own."""
    yield f"## {section}"
    yield first_line(settings).partition(": ")[2].capitalize()
    yield keys_table(section, settings, fields(settings))


def data_parts() -> Iterator[str]:
    """What `data.name` and `data.partition` can be."""
    rows = [[f"`{name}`", first_line(sys.modules[find("data", name).__module__])] for name in names("data")]
    yield "### data.name\n\n" + table(["name", "data set"], rows)
    rows = []
    for name in names("partitions"):
        partition = find("partitions", name)
        values = ", ".join(key.name for key in fields(partition))
        written = f"`{name}:{','.join(str(key.default) for key in fields(partition))}`" if values else f"`{name}`"
        limits = "; ".join(f"{key.name}: {key.metadata['doc']}, {range_of(key)}" for key in fields(partition))
        rows.append([written, first_line(partition), limits or DASH])
    yield "### data.partition\n\n" + table(["written", "split", "behind the colon"], rows)


def shelf_parts(section: str) -> Iterator[str]:
    """A section that a method fills: what all share, then each one's own keys."""
    shelf, base, selector, words = SHELVES[section]
    choices = ", ".join(f"`{name}`" for name in names(shelf))
    default = f"`{Config.read({}).tables()[section][selector]}`"
    if selector == "method":
        default = f"what `--method` chooses; without it that is `{preset(METHOD)[section]['method']}`"
    yield f"## {section}"
    yield f"`{section}.{selector}`{flag_words(f'{section}.{selector}')} is {words}: {choices}. Default: {default}."
    shared = {key.name: key for key in fields(base)}
    if shared:
        yield f"All of them have:\n\n{keys_table(section, base, list(shared.values()))}"
    for name in names(shelf):
        method = find(shelf, name)
        own = [k for k in fields(method) if k.name not in shared or k.default != shared[k.name].default]
        yield f"### {section}.{selector} = {name}"
        yield first_line(method)
        yield keys_table(section, method, own) if own else "No settings of its own."


def keys_table(section: str, settings: type[Any], keys: Sequence[Field[Any]]) -> str:
    """Key, type, default, range and meaning."""
    hints = get_type_hints(settings)
    rows = [
        [
            f"`{section}.{key.name}`",
            type_of(hints[key.name]),
            default_of(key),
            range_of(key) or DASH,
            key.metadata["doc"] + flag_words(f"{section}.{key.name}"),
        ]
        for key in keys
    ]
    return table(["key", "type", "default", "range", "meaning"], rows)


def flag_words(place: str) -> str:
    """`` (`--lr`)`` for a key that has a flag."""
    flags = {(option.name or "").replace("__", "."): option.opts[0] for option in train.params}
    return f" (`{flags[place]}`)" if place in flags else ""


def type_of(hint: Any) -> str:
    """A type in words."""
    if get_origin(hint) is UnionType:
        return " or ".join(type_of(part) for part in get_args(hint) if part is not type(None))
    if get_origin(hint) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(hint))
    if get_origin(hint) is tuple:
        return f"list of {type_of(get_args(hint)[0])}s"
    return {int: "whole number", float: "number", str: "string", bool: "`true`, `false`"}[hint]


def default_of(key: Field[Any]) -> str:
    """A default as TOML writes it; a dash where it depends on something else."""
    if key.default is MISSING or key.default is None:
        return DASH
    if isinstance(key.default, str):
        return f'`"{key.default}"`'
    value = list(key.default) if isinstance(key.default, tuple) else key.default
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def range_of(key: Field[Any]) -> str:
    """``≥ 0, < 1``."""
    signs = (("least", "≥"), ("above", ">"), ("most", "≤"), ("below", "<"))
    limits = [f"{sign} {key.metadata[name]:g}" for name, sign in signs if key.metadata.get(name) is not None]
    return ", ".join(limits)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def first_line(documented: Any) -> str:
    """The first paragraph of a docstring, on one line, in Markdown."""
    text = " ".join((documented.__doc__ or "").strip().split("\n\n")[0].split())
    return text.replace("``", "`")


def main(words: Sequence[str]) -> None:
    """Write or check all pages."""
    stale = [path for path, text in pages().items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        if "--check" in words:
            print(f"{path} is stale: run python docs/generate.py", file=sys.stderr)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(pages()[path], encoding="utf-8")
        print(path)
    if stale and "--check" in words:
        sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
