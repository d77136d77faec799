"""The sdist and the wheel: the one holds what git tracks, the other the packages, and works by itself."""

from __future__ import annotations

import doctest
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

import distributions
import pytest
from distributions import ROOT, build, different_wheels, in_sdist, tracked, wrong_sdist, wrong_tag, wrong_wheel

import fedscope

pytestmark = [pytest.mark.programs, pytest.mark.same_elsewhere]

pytest.importorskip("build", reason="it is in the extra dev")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What git tracks, elsewhere: setuptools leaves folders beside what it builds."""
    names = tracked(ROOT)
    if names is None:
        pytest.skip("an unpacked sdist is not a checkout to build one from")
    folder = tmp_path_factory.mktemp("checkout")
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)
    return folder


def test_its_examples_hold() -> None:
    assert doctest.testmod(distributions).failed == 0


def test_the_sdist_holds_what_git_tracks(checkout: Path, tmp_path: Path) -> None:
    (sdist,) = build(checkout, tmp_path, "--sdist")
    assert sdist.name == f"fedscope-{fedscope.__version__}.tar.gz"
    assert wrong_sdist(sdist, ROOT) == []
    assert {
        "Makefile",
        "constraints.txt",
        "mkdocs.yml",
        ".ci/run",
        "tests/conftest.py",
        "docs/generate.py",
    } <= in_sdist(sdist)


def archive(path: Path, names: Iterable[str], contents: bytes = b"") -> Path:
    """A `.whl` with these files, or a `.tar.gz` that has them in a folder."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path, "w") as wheel:
            for name in names:
                wheel.writestr(name, contents)
    else:
        with tarfile.open(path, "w:gz") as sdist:
            for name in names:
                sdist.addfile(tarfile.TarInfo(f"fedscope-0/{name}"))
    return path


def test_a_file_too_few_or_too_many_is_seen(tmp_path: Path, checkout: Path) -> None:
    names = tracked(ROOT)
    assert names is not None
    sdist = archive(tmp_path / "a.tar.gz", [*names - {"Makefile"}, "PKG-INFO", "notes.txt"])
    assert wrong_sdist(sdist, ROOT) == [
        "the sdist lacks Makefile: name it in MANIFEST.in",
        "the sdist has notes.txt, which git ignores",
    ]
    modules = distributions.packaged(ROOT)
    assert {"fedscope/py.typed", "fedscope/__init__.pyi", "fedscope/checkpoints/__init__.py"} <= modules.keys()
    assert any(name.endswith(".toml") for name in modules)
    empty = [name for name, path in modules.items() if not path.read_bytes()]
    wheel = archive(tmp_path / "a.whl", [*empty, "fedscope/new.py", "fedscope-0.dist-info/METADATA"])
    wrong = wrong_wheel(wheel, ROOT)
    assert "the wheel has fedscope/new.py, which no package has" in wrong
    assert "the wheel lacks fedscope/__init__.pyi" in wrong
    assert len(wrong) == len(modules) - len(empty) + 1
    wheel = archive(tmp_path / "b.whl", modules, b"other")
    assert wrong_wheel(wheel, ROOT)[0].startswith("the wheel's fedscope/__init__.py is not the one on the disk")
    assert "fedscope/new.py differs between the two wheels" in different_wheels(tmp_path / "a.whl", wheel)


def test_a_tag_of_another_version_is_refused() -> None:
    assert wrong_tag(f"v{fedscope.__version__}", fedscope.__version__) == []
    (sentence,) = wrong_tag("v9.9", fedscope.__version__)
    assert sentence == f"the tag v9.9 is not v{fedscope.__version__}, the version of the package"


@pytest.mark.slow
def test_the_wheel_works_in_an_empty_environment(checkout: Path, tmp_path: Path) -> None:
    """Built as a release is, an sdist and from it the wheel; with the versions of constraints.txt, and nothing else."""
    sdist_and_wheel = build(checkout, tmp_path / "dist")
    wheel = next(path for path in sdist_and_wheel if path.suffix == ".whl")
    assert wrong_wheel(wheel, ROOT) == []
    assert different_wheels(wheel, *build(checkout, tmp_path / "direct", "--wheel")) == []
    place = tmp_path / "empty"
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
    said = run(place, "python", "-m", "pip", "install", "-q", "-c", str(ROOT / "constraints.txt"), str(wheel))
    (tmp_path / "work").mkdir()
    version = run(place, "fedscope", "--version", cwd=tmp_path / "work")
    assert version.split()[-1] == fedscope.__version__, said
    trained = run(place, "fedscope", "train", "--method", "fma", "--rounds", "2", cwd=tmp_path / "work")
    assert "runs/fma: 2 rounds" in trained
    assert "2 of 2" in run(place, "fedscope", "ls", cwd=tmp_path / "work")
    where = run(place, "python", "-P", "-c", "import fedscope; print(fedscope.__file__)", cwd=tmp_path / "work")
    assert Path(where.strip()).is_relative_to(place)


def run(place: Path, program: str, *words: str, cwd: Path | None = None) -> str:
    """A program of an environment, which sees nothing of the one that the tests run in."""
    known = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [str(place / "bin" / program), *words], cwd=cwd, env=known, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, (
        f"{program} {' '.join(words)} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    )
    return done.stdout
