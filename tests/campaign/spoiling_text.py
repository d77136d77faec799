"""Ways to spoil JSON, TOML and CSV."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .drawing import Draw

VALUES = (
    *('"word"', "-1", "0", "3.5", "[]", "{}", "true", "[1, 2]", '""', "1e400", "nan", "9" * 5000, "9" * 25, "[" * 3000),
    *('{"a": 1}', "null", '"\\u0000"', "[" * 3000 + "]" * 3000, '"' + "x" * 10**6 + '"', '"../../../etc/passwd"'),
)


def value(path: Path, draw: Draw) -> None:
    """Another value, of whatever type, in the place of one."""
    lines = path.read_text().split("\n")
    mark = {".json": ":", ".toml": "=", ".csv": ","}[path.suffix]
    at = [i for i, line in enumerate(lines) if mark in line]
    i = at[int(draw.integers(len(at)))]
    new = VALUES[int(draw.integers(len(VALUES)))]
    if mark == ",":
        cells = lines[i].split(",")
        cells[int(draw.integers(len(cells)))] = new.replace(",", "")
        lines[i] = ",".join(cells)
    else:
        lines[i] = lines[i].split(mark, 1)[0] + f"{mark} {new}" + ("," if lines[i].rstrip().endswith(",") else "")
    path.write_text("\n".join(lines))


def _places(tree: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [place for key, below in items for place in ((*at, key), *_places(below, (*at, key)))]


def member(path: Path, draw: Draw) -> None:
    """Another value, or none, somewhere in a JSON file that stays one."""
    if path.suffix != ".json":
        return value(path, draw)
    tree = json.loads(path.read_text())
    places = _places(tree)
    *way, last = places[int(draw.integers(len(places)))]
    holder = tree
    for key in way:
        holder = holder[key]
    values = (None, "word", -1, 0, 3.5, [], {}, True, [1, 2], [[1]], float("nan"), 2**70, {"a": {"b": 1}}, [None], "")
    if draw.random() < 0.2:
        del holder[last]
    else:
        holder[last] = values[int(draw.integers(len(values)))]
    path.write_text(json.dumps(tree, indent=1))
    return None


def digit(path: Path, draw: Draw) -> None:
    """One digit for another: the least change that is believed most easily."""
    text = path.read_text()
    at = [i for i, letter in enumerate(text) if letter.isdigit()]
    i = at[int(draw.integers(len(at)))]
    path.write_text(text[:i] + str((int(text[i]) + int(draw.integers(1, 10))) % 10) + text[i + 1 :])


def line_gone(path: Path, draw: Draw) -> None:
    lines = path.read_text().split("\n")
    del lines[int(draw.integers(len(lines)))]
    path.write_text("\n".join(lines))


def no_text(path: Path, draw: Draw) -> None:
    path.write_bytes(path.read_bytes().replace(b"1", b"\xff\xfe", 1))


def deep(path: Path, draw: Draw) -> None:
    inside = "[" * 100_000 + "]" * 100_000
    path.write_text({".json": f'{{"format": {inside}}}', ".toml": f"x = {inside}"}.get(path.suffix, inside))


TEXT = (value, value, value, member, member, member, digit, digit, line_gone, no_text, deep)
