"""Surfaces as tables: every point once, in the order that pgfplots takes, and exact."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from drawable import surface

from fedscope.cli.main import run
from fedscope.landscape.interchange.points import write_points

pytestmark = pytest.mark.same_elsewhere


def plane_of() -> object:
    plane = surface()
    loss = plane.loss[:5, :7].copy()
    loss[1, 2], loss[3, 0] = np.nan, np.inf
    return replace(plane, a=plane.a[:7], b=plane.b[:5], loss=loss, error=plane.error[:5, :7])


def test_a_csv_has_every_point_once_and_reads_back_exactly(tmp_path: Path) -> None:
    plane: object = plane_of()
    write_points(tmp_path / "x.csv", plane)  # type: ignore[arg-type]
    with (tmp_path / "x.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["a", "b", "loss", "error"]
    read = {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}
    a, b = np.meshgrid(plane.a, plane.b)  # type: ignore[attr-defined]
    for name, values in (("a", a), ("b", b), ("loss", plane.loss), ("error", plane.error)):  # type: ignore[attr-defined]
        np.testing.assert_array_equal(read[name], values.ravel())


def test_a_dat_has_an_empty_line_after_each_row_of_the_surface(tmp_path: Path) -> None:
    plane: object = plane_of()
    write_points(tmp_path / "x.dat", plane)  # type: ignore[arg-type]
    head, rest = (tmp_path / "x.dat").read_text().split("\n", 1)
    assert head.split() == ["a", "b", "loss", "error"]
    blocks = [[line.split() for line in block.splitlines()] for block in rest.split("\n\n")]
    assert [len(block) for block in blocks] == [7] * 5
    assert all(len({row[1] for row in block}) == 1 for block in blocks), "one b a block"
    values = np.array([[float(row[2]) for row in block] for block in blocks])
    np.testing.assert_array_equal(values, plane.loss)  # type: ignore[attr-defined]


def test_a_plane_without_an_error_has_no_such_column(tmp_path: Path) -> None:
    plane = surface()
    write_points(tmp_path / "x.dat", replace(plane, error=np.full_like(plane.error, np.nan)))
    assert (tmp_path / "x.dat").read_text().splitlines()[0] == "a b loss"


def test_the_command_writes_them_and_says_how_a_file_may_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    surface().save(tmp_path / "plane")
    for end in ("csv", "dat"):
        assert run(["export", f"{tmp_path}/plane.nc", f"{tmp_path}/x.{end}"]) == 0
        assert "21 x 21 points of loss and error" in capsys.readouterr().out
        assert (tmp_path / f"x.{end}").stat().st_size > 21 * 21 * 10
    assert run(["export", f"{tmp_path}/plane.nc", f"{tmp_path}/x.txt"]) == 2
    assert "is a surface, so" in (said := capsys.readouterr().err)
    assert "must end in .csv, .dat or .h5" in said
