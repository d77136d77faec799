"""BASE.sharpness.csv, BASE.spectrum.csv and BASE.sharpness.json: a result at rest."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...checkpoints import FedscopeError, write_durably

if TYPE_CHECKING:
    from .result import Sharpness

FORMAT, VERSION = "fedscope-sharpness", 1
COLUMNS = ("run", "round", "model", "split", "samples", "measure", "radius", "value", "stderr")
SPECTRUM_COLUMNS = ("run", "round", "model", "eigenvalue", "density")


def write_tables(result: Sharpness, base: Path) -> list[Path]:
    """Write the files durably, BASE.sharpness.json last, so that a result that can be loaded is whole."""
    table, spectrum, main = (_beside(base, suffix) for suffix in (".sharpness.csv", ".spectrum.csv", ".sharpness.json"))
    table.parent.mkdir(parents=True, exist_ok=True)
    measured_on = result.attrs.get("split"), result.attrs.get("samples")
    _write_csv(
        table,
        COLUMNS,
        (
            (model.run, model.round, model.model, *measured_on, one.name, one.radius, one.value, one.stderr)
            for model, one in result.rows()
        ),
    )
    with_spectrum = [model for model in result.models if model.spectrum is not None]
    if with_spectrum:
        _write_csv(
            spectrum,
            SPECTRUM_COLUMNS,
            (
                (model.run, model.round, model.model, eigenvalue, density)
                for model in with_spectrum
                if model.spectrum is not None
                for eigenvalue, density in zip(
                    model.spectrum.eigenvalue.tolist(), model.spectrum.density.tolist(), strict=True
                )
            ),
        )
    else:
        spectrum.unlink(missing_ok=True)  # an earlier result's
    info = {
        "format": FORMAT,
        "version": VERSION,
        "models": [
            {"run": model.run, "round": model.round, "model": model.model, "spectrum": model.spectrum is not None}
            for model in result.models
        ],
        "attrs": result.attrs,
    }
    with write_durably(main) as temporary:
        temporary.write_text(json.dumps(info, indent=1) + "\n", encoding="utf-8")
    return [table, *([spectrum] if with_spectrum else []), main]


def read_tables(base: Path) -> Sharpness:
    """Read what :func:`write_tables` wrote."""
    from .result import Curvature, Measure, Sharpness, Spectrum

    info = _read_info(_there(base, ".sharpness.json"))
    measures: dict[tuple[str, str, str], list[Measure]] = {}
    for row in _read_csv(_there(base, ".sharpness.csv"), COLUMNS):
        value, radius, stderr = (_number(row[name]) for name in ("value", "radius", "stderr"))
        measures.setdefault((row["run"], row["round"], row["model"]), []).append(
            Measure(row["measure"], value, radius, stderr)
        )
    points: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    if any(one["spectrum"] for one in info["models"]):
        for row in _read_csv(_there(base, ".spectrum.csv"), SPECTRUM_COLUMNS):
            key = row["run"], row["round"], row["model"]
            points.setdefault(key, []).append((float(row["eigenvalue"]), float(row["density"])))
    models = []
    for one in info["models"]:
        key = one["run"], "" if one["round"] is None else str(one["round"]), one["model"]
        spectrum = Spectrum(*np.array(points[key]).T) if one["spectrum"] else None
        models.append(Curvature(one["run"], one["round"], one["model"], tuple(measures.get(key, ())), spectrum))
    return Sharpness(tuple(models), info["attrs"])


def _beside(base: Path, suffix: str) -> Path:
    # Not with_suffix: a base like "run.v2" has a dot that is no suffix.
    return base.with_name(base.name + suffix)


def _there(base: Path, suffix: str) -> Path:
    path = _beside(base, suffix)
    if not path.exists():
        raise FedscopeError(
            f"{path} does not exist: a result of sharpness is {base.name}.sharpness.csv, {base.name}.sharpness.json "
            f"and, where a density was asked for, {base.name}.spectrum.csv; compute it again with --force"
        )
    return path


def _write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    with write_durably(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        # repr is the shortest text that reads back as the same float; None is an empty field
        writer.writerows([repr(value) if isinstance(value, float) else value for value in row] for row in rows)


def _read_csv(path: Path, columns: Sequence[str]) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) != tuple(columns):
            raise FedscopeError(
                f"{path} is not a table of `fedscope sharpness`: its columns must be {', '.join(columns)}"
            )
        return list(reader)


def _read_info(path: Path) -> Any:
    try:
        info = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise FedscopeError(f"{path} is not JSON ({error}); compute it again with --force") from error
    if not isinstance(info, dict) or info.get("format") != FORMAT:
        raise FedscopeError(f'{path} is no result of sharpness: it does not say "format": "{FORMAT}"')
    if info.get("version") != VERSION:
        raise FedscopeError(
            f"{path} has version {info.get('version')}, but this fedscope reads version {VERSION}; update fedscope"
        )
    return info


def _number(text: str) -> float | None:
    return float(text) if text else None
