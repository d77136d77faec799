"""Methods of installed packages: found by their metadata, imported where they run, never from the current folder."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from own_code import MODULE, forget

import fedscope
from fedscope.checkpoints import FedscopeError
from fedscope.cli.main import run
from fedscope.training.settings import entry_points
from fedscope.training.settings.entry_points import installed
from fedscope.training.settings.registry import find, method_name

pytestmark = pytest.mark.same_elsewhere

Install = Callable[..., Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Puts a package into a folder of its own on Python's path, as pip does."""
    made: list[str] = []

    def into(site: str = "site", name: str = "fed-pkg", module: str = "fedpkg", given: str = "") -> Path:
        folder = tmp_path / site
        (folder / f"{name}-1.2.dist-info").mkdir(parents=True)
        (folder / f"{name}-1.2.dist-info/METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
        given = given or f"[fedscope.servers]\nheavy = {module}:Heavy\n"
        (folder / f"{name}-1.2.dist-info/entry_points.txt").write_text(given)
        (folder / f"{module}.py").write_text(MODULE)
        if str(folder) not in sys.path:
            monkeypatch.syspath_prepend(str(folder))
        made.append(module)
        entry_points._scanned.cache_clear()
        return folder

    monkeypatch.chdir(tmp_path)
    yield into
    for module in made:
        forget(module)
    entry_points._scanned.cache_clear()


SMALL: dict[str, Any] = {"clients": 4, "rounds": 2, "epochs": 1}


def test_a_packages_method_is_a_name_like_any_other(
    install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install()
    made = fedscope.train(server="heavy", out="run", **SMALL)
    assert made.config["server"]["method"] == "heavy"  # type: ignore[index]
    (entry,) = made.info["code"]
    assert (entry["kind"], entry["name"], entry["file"]) == ("server", "heavy", "fedpkg.py")
    assert fedscope.train(method="heavy", out="other", **SMALL).config["server"]["method"] == "heavy"  # type: ignore[index]
    assert run(["train", "--help"]) == 0
    assert "--server heavy  fed-pkg 1.2" in capsys.readouterr().out
    assert run(["recipes"]) == 0
    assert "fed-pkg 1.2" in capsys.readouterr().out


def test_help_and_reading_import_nothing(install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install()
    fedscope.train(server="heavy", out="run", **SMALL)
    forget("fedpkg")
    for words in (["train", "--help"], ["recipes"], ["ls", "run"], ["table", "run"], ["ls", "--check", "run"]):
        assert run(words) == 0
    assert "fedpkg" not in sys.modules


def test_a_run_opens_when_its_package_is_gone(install: Install, tmp_path: Path) -> None:
    site = install()
    fedscope.train(server="heavy", out="run", until=1, **SMALL)
    sys.path.remove(str(site))
    entry_points._scanned.cache_clear()
    forget("fedpkg")
    assert fedscope.Run.open("run").rounds == (1,)
    assert len(fedscope.curves("run").runs) == 1
    with pytest.raises(FedscopeError, match=r"run: server\.method = 'heavy' is neither fedscope's nor of an i"):
        fedscope.resume("run")


def test_another_version_is_refused(install: Install, tmp_path: Path) -> None:
    site = install()
    fedscope.train(server="heavy", out="run", until=1, **SMALL)
    (site / "fedpkg.py").write_text(MODULE + "\n# of version 1.3\n")
    forget("fedpkg")
    with pytest.raises(FedscopeError, match=r"run: server heavy has another source than the run was trained with"):
        fedscope.resume("run")
    assert fedscope.resume("run", code_changed=True).rounds == (1, 2)


def test_two_packages_of_one_name_are_refused(install: Install, tmp_path: Path) -> None:
    install()
    install(site="other", name="fed-two", module="fedtwo")
    with pytest.raises(FedscopeError, match=r"'heavy' is given by two packages, .*fed-two.*; name the code itself"):
        find("servers", "heavy")
    assert "fedpkg" not in sys.modules


def test_nothing_of_the_current_folder_is_found_or_imported(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else's bundle of runs may hold metadata and modules, too."""
    bundle = install(site="bundle")
    monkeypatch.chdir(bundle)
    entry_points._scanned.cache_clear()
    assert installed("servers") == {}, "its metadata are not read"
    install(site="real", given="[fedscope.servers]\nheavy = fedpkg2:Heavy\n", name="fed-real", module="unused")
    (bundle / "fedpkg2.py").write_text("raise SystemExit('imported')")
    with pytest.raises(FedscopeError, match=r"'heavy' of the package fed-real 1\.2 \(fedpkg2:Heavy\) cannot be im"):
        find("servers", "heavy")
    assert str(bundle) in sys.path, "the path is what it was"


def test_what_is_no_method_is_said(install: Install, tmp_path: Path) -> None:
    install(given="[fedscope.servers]\na = fedpkg:Pull\nb = fedpkg:net\nc = fedpkg:Missing\n")
    for name, said in (
        ("a", r"server\.method = 'a' \(fedpkg:Pull\): Pull is not a server method; it is a client method"),
        ("b", r"server\.method = 'b' \(fedpkg:net\) is no class; update its package"),
        ("c", r"'c' of the package fed-pkg 1\.2 \(fedpkg:Missing\) cannot be imported: AttributeError"),
    ):
        with pytest.raises(FedscopeError, match=said):
            find("servers", name)


def test_models_data_and_partitions_of_packages(install: Install, tmp_path: Path) -> None:
    groups = ("models", "net"), ("data", "load")
    given = "".join(f"[fedscope.{group}]\npkg-{name} = fedpkg:{name}\n" for group, name in groups)
    install(given=given)
    made = fedscope.train(model="pkg-net", data="pkg-load", partition="iid", out="run", until=1, **SMALL)
    assert made.info["data"]["held_out"]
    assert {entry["kind"] for entry in made.info["code"]} == {"model", "data"}
    assert fedscope.resume("run").rounds == (1, 2)


def test_the_name_of_a_packages_class_is_the_packages(install: Install, tmp_path: Path) -> None:
    install()
    assert method_name(find("servers", "heavy")()) == "heavy"
