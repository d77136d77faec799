"""The modules of the papers' script, which lie outside of the package and are found by their folder alone."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace

PAPERS = Path(__file__).parents[1] / "docs" / "papers"
MAKE = PAPERS / "make"
NAMES = sorted({path.stem for folder in ("make", "long") for path in (PAPERS / folder).glob("*.py")} - {"__main__"})


@contextmanager
def imported() -> Iterator[SimpleNamespace]:
    """All of them by their names, and the script itself as ``script``."""
    before = list(sys.path), set(sys.modules)
    sys.path[:0] = [str(MAKE), str(PAPERS / "long")]
    try:
        yield SimpleNamespace(**{name: importlib.import_module(name) for name in NAMES}, script=_script())
    finally:
        sys.path[:] = before[0]
        for name in set(NAMES) - before[1]:
            sys.modules.pop(name, None)


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("papers_main", MAKE / "__main__.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
