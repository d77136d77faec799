"""Whether the product still says and writes what it did: ``python tests/hold_still.py FOLDER``, then again elsewhere.

    python -P tests/hold_still.py kept.json          # before a change of the code's shape
    python -P tests/hold_still.py kept.json --against  # after it: what differs; exit 1 if anything does

Keeps every ``--help``, what the commands of :mod:`asked` print with ``--json``, and the SHA-256 of each file that they
and ``train`` write, pictures left out. Times, and sizes of compressed pages, are no part of it. Both are to run on one
processor with one environment, because trained numbers and versions differ elsewhere.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

os.environ.update(MPLBACKEND="Agg", OMP_NUM_THREADS="1", COLUMNS="100", NO_COLOR="1")
sys.path.insert(0, str(Path(__file__).resolve().parent))

TRAIN = "train --method fma --clients 6 --rounds 3 --participation 1 --engine threads --out runs/fma"
MORE = {
    "ls": "ls runs/fma --check",
    "ima": "train --method ima --clients 8 --rounds 3 --participation 0.5 --engine threads --out runs/ima",
    "scaffold": "train --method scaffold --clients 8 --rounds 2 --participation 0.5 --engine threads --out runs/s",
    "branch": "train --engine threads --from runs/fma@2 --average ima --rounds 3 --out runs/branch",
    "table": "table runs/fma runs/ima --out table",
    "recipes": "recipes ima/fig1",
    "export": "export runs/fma@2 model.safetensors",
    "import": "import model.safetensors --out runs/imported",
    "mistake": "decompose runs/nothing",
    "other mistake": "plane runs/fma@9",
}
PICTURES = (".pdf", ".png", ".html")
#: what a clock, a process or a machine's speed says
VOLATILE = re.compile(
    r"(^.*: \d+ % \(.*\n|\d\d\d\d-\d\d-\d\d[T ]?[\d:.+Z]*|\b\d+(\.\d+)?( ?ms| s| min| samples/s)\b|/tmp/\S*?/(?=runs)|"
    r'"(seconds|created)": [^,}\n]*|"identity": "\w+"|"(metrics.csv|partition.h5|run.json)": "\w+")',
    re.M,
)
#: columns of a clock, and sums over them
TIMED = ("seconds", "crc32")
#: addresses in a file, not what is in it
REFERENCES = ("DIMENSION_LIST", "REFERENCE_LIST", "xxh3_64", "identity")


def kept() -> dict[str, Any]:
    """Everything, by what it is of."""
    import asked

    found: dict[str, Any] = {f"help {' '.join(words)}": told(*words, "--help") for words in helped()}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["FEDSCOPE_CACHE"] = f"{folder}/cache"
        os.chdir(folder)
        found["train"] = told(*TRAIN.split())
        for name, words in MORE.items():
            found[name] = told(*words.split())
        for name, (words, _) in asked.ASKED.items():
            found[f"json {name}"] = told(*words.split(), "--json", "--out", f"asked/{name}/m")
        for path in sorted(Path().rglob("*")):
            if path.is_file() and path.suffix not in PICTURES and path.name != ".writer" and "cache" not in path.parts:
                found[f"file {path}"] = sum_of(path)
    return found


def helped() -> Iterator[tuple[str, ...]]:
    """Words of each command."""
    from fedscope.cli.main import fedscope

    yield ()
    for name in fedscope.list_commands(None):  # type: ignore[arg-type]
        yield (name,)


def told(*words: str) -> str:
    """What a command prints, and how it ends."""
    from fedscope.cli.main import run

    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run(list(words))
    return VOLATILE.sub("_", f"{out.getvalue()}\n--\n{err.getvalue()}\n-- {code}")


def sum_of(path: Path) -> str:
    """Of a file without what a clock says and what is summed over that; of HDF5, of all that is in it."""
    if path.suffix in (".h5", ".nc"):
        import h5py

        found: list[str] = []
        with h5py.File(path) as file:
            file.visititems(lambda name, one: found.append(_item(name, one)))
            text = "\n".join([*found, _attributes(file)])
    elif path.suffix == ".csv":
        with path.open(newline="", encoding="utf-8") as file:
            head, *rows = csv.reader(file)
            shown = [k for k, name in enumerate(head) if name not in TIMED]
            text = "\n".join(",".join(row[k] for k in shown if k < len(row)) for row in [head, *rows])
    else:
        text = path.read_bytes().decode("latin-1")
    return hashlib.sha256(VOLATILE.sub("_", text).encode()).hexdigest()


def _item(name: str, one: Any) -> str:
    if name == "checksums":
        return name
    values = one[()] if hasattr(one, "shape") else ""
    if getattr(values, "dtype", None) is not None and values.dtype != object:
        values = values.tobytes().hex()
    return f"{name} {values} {_attributes(one)}"


def _attributes(one: Any) -> str:
    return repr([(key, str(one.attrs[key])) for key in sorted(one.attrs) if key not in REFERENCES])


def differences(before: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    """A line for each thing that is not as it was."""
    for name in sorted(before.keys() | now.keys()):
        if name not in now:
            yield f"{name}: is gone"
        elif name not in before:
            yield f"{name}: is new"
        elif before[name] != now[name]:
            yield f"{name}: differs" + _where(str(before[name]), str(now[name]))


def _where(before: str, now: str) -> str:
    pairs = zip(before.splitlines(), now.splitlines(), strict=False)
    first = next(((a, b) for a, b in pairs if a != b), None)
    return f"\n  was {first[0][:200]}\n  is  {first[1][:200]}" if first and "\n" in before else ""


if __name__ == "__main__":
    target = Path(sys.argv[1]).resolve()
    found_now = kept()
    if "--against" not in sys.argv:
        target.write_text(json.dumps(found_now, indent=1) + "\n", encoding="utf-8")
        sys.exit(0)
    lines = list(differences(json.loads(target.read_text(encoding="utf-8")), found_now))
    print("\n".join(lines) or "nothing differs")
    sys.exit(bool(lines))
