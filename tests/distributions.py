"""What the sdist and the wheel hold, beside what they should: `make dist` builds both and runs this.

python tests/distributions.py DIST                 check the sdist and the wheel in that folder
python tests/distributions.py DIST --tag v0.1.0    and that this tag names their version
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = [sys.executable, "-P", "-m", "build", "--no-isolation"]


def tracked(root: Path) -> set[str] | None:
    """What git tracks, or would; None where `root` is no checkout, as in an unpacked sdist."""
    words = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    if not (root / ".git").exists():
        return None
    listed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    return {name for name in listed.split("\0") if name and (root / name).is_file()}


def written_by_setuptools(name: str) -> bool:
    """Whether a file of an sdist is metadata that no repository holds.

    >>> written_by_setuptools("fedscope.egg-info/SOURCES.txt"), written_by_setuptools("mkdocs.yml")
    (True, False)
    """
    return name in ("PKG-INFO", "setup.cfg") or name.startswith("fedscope.egg-info/")


def in_sdist(sdist: Path) -> set[str]:
    """The files of an sdist, from its own folder on."""
    with tarfile.open(sdist) as archive:
        names = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    return {name for name in names if not written_by_setuptools(name)}


def packaged(root: Path) -> dict[str, Path]:
    """What the wheel should hold, by its name there: modules, stubs, the mark of types, recipes."""
    folders: dict[str, str] = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"][
        "package-dir"
    ]
    kept = {".py", ".pyi", ".typed", ".toml"}
    return {
        f"{package.replace('.', '/')}/{path.relative_to(root / folder).as_posix()}": path
        for package, folder in folders.items()
        for path in (root / folder).rglob("*")
        if path.suffix in kept and "__pycache__" not in path.parts
    }


def in_wheel(wheel: Path) -> dict[str, bytes]:
    """The files of a wheel, metadata too, but for the list of their checksums."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith(("/", "/RECORD"))}


def wrong_sdist(sdist: Path, root: Path) -> list[str]:
    """Where an sdist and what git tracks differ: one sentence a file."""
    wanted, found = tracked(root), in_sdist(sdist)
    if wanted is None:
        return []
    lacks = [f"the sdist lacks {name}: name it in MANIFEST.in" for name in sorted(wanted - found)]
    return lacks + [f"the sdist has {name}, which git ignores" for name in sorted(found - wanted)]


def wrong_wheel(wheel: Path, root: Path) -> list[str]:
    """Where a wheel and the packages on the disk differ: one sentence a file."""
    wanted, found = packaged(root), in_wheel(wheel)
    code = {name for name in found if ".dist-info/" not in name}
    lacks = [f"the wheel lacks {name}" for name in sorted(wanted.keys() - code)]
    more = [f"the wheel has {name}, which no package has" for name in sorted(code - wanted.keys())]
    other = [name for name in sorted(code & wanted.keys()) if found[name] != wanted[name].read_bytes()]
    return lacks + more + [f"the wheel's {name} is not the one on the disk" for name in other]


def different_wheels(one: Path, other: Path) -> list[str]:
    """Files in which two wheels differ, metadata too."""
    first, second = in_wheel(one), in_wheel(other)
    names = sorted(first.keys() | second.keys())
    return [f"{name} differs between the two wheels" for name in names if first.get(name) != second.get(name)]


def wrong_tag(tag: str, version: str) -> list[str]:
    """A tag names the version that it releases.

    >>> wrong_tag("v0.1.0", "0.1.0"), wrong_tag("v0.2.0", "0.1.0")
    ([], ['the tag v0.2.0 is not v0.1.0, the version of the package'])
    """
    return [] if tag == f"v{version}" else [f"the tag {tag} is not v{version}, the version of the package"]


def version_of(wheel: Path) -> str:
    """A wheel's version, by its metadata."""
    (name,) = (name for name in in_wheel(wheel) if name.endswith(".dist-info/METADATA"))
    lines = in_wheel(wheel)[name].decode("utf-8").splitlines()
    return next(line.removeprefix("Version: ") for line in lines if line.startswith("Version: "))


def build(root: Path, into: Path, *kinds: str) -> list[Path]:
    """Build from a folder; without a kind an sdist, and a wheel from that sdist."""
    words = [*BUILD, *kinds, "--outdir", str(into), str(root)]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise RuntimeError(f"`{' '.join(words)}` ended with {done.returncode}:\n{done.stdout}")
    return sorted(into.iterdir())


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("dist", type=Path)
    words.add_argument("--tag")
    given = words.parse_args()
    (sdist,), (wheel,) = given.dist.glob("*.tar.gz"), given.dist.glob("*.whl")
    with tempfile.TemporaryDirectory() as folder:
        (direct,) = build(ROOT, Path(folder), "--wheel")
        wrong = wrong_sdist(sdist, ROOT) + wrong_wheel(wheel, ROOT) + different_wheels(wheel, direct)
    if given.tag:
        wrong += wrong_tag(given.tag, version_of(wheel))
    if wrong:
        sys.exit("\n".join(wrong))
    print(f"{sdist.name}: {len(in_sdist(sdist)):,} files; {wheel.name}: {len(in_wheel(wheel)):,} files, as on the disk")


if __name__ == "__main__":
    main()
