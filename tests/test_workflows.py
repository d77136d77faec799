"""The workflows agree with the package: its Pythons, its checks, and a tag that names its version."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import fedscope

pytestmark = pytest.mark.same_elsewhere

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".github" / "workflows"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def workflow(name: str) -> dict[Any, Any]:
    """A workflow; YAML 1.1 reads its key `on` as True."""
    read: dict[Any, Any] = yaml.safe_load((FOLDER / f"{name}.yml").read_text(encoding="utf-8"))
    return read


def steps(name: str) -> list[tuple[str, dict[str, Any]]]:
    """Every step of a workflow, with its job."""
    return [(job, step) for job, told in workflow(name)["jobs"].items() for step in told.get("steps", [])]


def test_the_tests_run_on_every_python_that_the_package_names() -> None:
    pythons = workflow("ci")["jobs"]["test"]["strategy"]["matrix"]["python"]
    line = "Programming Language :: Python :: "
    named = [entry.removeprefix(line) for entry in PROJECT["classifiers"] if re.fullmatch(line + r"3\.\d+", entry)]
    assert pythons == named
    assert PROJECT["requires-python"] == f">={pythons[0]}"
    assert f"for Python {pythons[0]} to {pythons[-1]}:" in (ROOT / "constraints.txt").read_text(encoding="utf-8")


def test_they_run_what_a_change_must_pass_on_the_python_asked_for() -> None:
    told = workflow("ci")["jobs"]["test"]
    assert told["runs-on"] == "ubuntu-latest"
    assert told["env"]["PYTHON"] == "python${{ matrix.python }}"
    assert [step["run"] for job, step in steps("ci") if job == "test" and "run" in step] == [".ci/run"]
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o100


def test_the_site_is_built_and_kept() -> None:
    site = [step for job, step in steps("ci") if job == "site"]
    assert [step["run"] for step in site if "run" in step] == ["make site"]
    assert site[-1]["with"]["path"] == "site"
    assert "\nsite: " in (ROOT / "Makefile").read_text(encoding="utf-8")


def test_a_tag_is_tested_then_built_and_compared_then_published() -> None:
    release = workflow("release")
    assert release[True] == {"push": {"tags": ["v*"]}}
    jobs = release["jobs"]
    assert jobs["test"]["uses"] == "./.github/workflows/ci.yml"
    assert "workflow_call" in workflow("ci")[True]
    assert (jobs["build"]["needs"], jobs["publish"]["needs"]) == ("test", "build")
    commands = [step["run"] for job, step in steps("release") if job == "build" and "run" in step]
    assert commands[-1] == 'make dist "TAG=$GITHUB_REF_NAME"'
    assert "$(if $(TAG),--tag $(TAG))" in (ROOT / "Makefile").read_text(encoding="utf-8")


def test_only_the_publishing_job_may_ask_for_an_identity() -> None:
    jobs = workflow("release")["jobs"]
    assert {job for job, told in jobs.items() if "id-token" in told.get("permissions", {})} == {"publish"}
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert jobs["publish"]["environment"] == "pypi"
    assert [step["uses"] for job, step in steps("release") if job == "publish"][-1].startswith(
        "pypa/gh-action-pypi-publish@"
    )
    for name in ("ci", "release"):
        assert workflow(name)["permissions"] == {"contents": "read"}


@pytest.mark.parametrize("name", ["ci", "release"])
def test_actions_are_pinned_by_their_major_version(name: str) -> None:
    used = [step["uses"] for _, step in steps(name) if "uses" in step]
    assert used
    assert [words for words in used if not re.fullmatch(r"[\w-]+/[\w-]+@(release/)?v\d+", words)] == []


def test_the_version_is_one_that_a_tag_can_name() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", fedscope.__version__)
