"""What a run keeps of the files that code of one's own imports: their SHA-256 in the entry of the code, and their texts
beside its own. Runs of earlier versions keep neither: of them nothing is compared."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..settings.code_source import CodeSource


def imports_of(entry: Mapping[str, Any]) -> dict[str, str]:
    """Return the SHA-256 by module of what an entry says was imported.

    >>> imports_of({"imports": f"helpers={'a' * 64} ../x=b"}) == {"helpers": "a" * 64}, imports_of({})
    (True, {})
    """
    return dict(re.findall(r"(?<!\S)([\w.]+)=([0-9a-f]{64})(?!\S)", str(entry.get("imports", ""))))


def other_import(entry: Mapping[str, Any], now: Mapping[str, str]) -> str:
    """Return the first module whose file is another now than an entry says; "" for none.

    A module that one of them alone imports is none: the text that imports it is another, too.
    """
    return next((name for name, before in imports_of(entry).items() if now.get(name, before) != before), "")


def is_alike(entry: Mapping[str, Any], source: CodeSource) -> bool:
    """Check whether an entry says a source, as far as it says what that imports."""
    return entry.get("sha256") == source.sha256 and not other_import(entry, source.sums)


def text_name(of: str, module: str) -> str:
    """Name the text of an imported module beside that of the code.

    >>> text_name("server@5.py", "pkg.helpers")
    'server@5-pkg-helpers.py'
    """
    return f"{of.removesuffix('.py')}-{module.replace('.', '-')}.py"


def imported_texts(source: CodeSource) -> dict[str, str]:
    """Return the texts of what a source imports, by module."""
    return {one.module: one.text for one in source.imports}


def named_texts(of: str, texts: Mapping[str, str]) -> dict[str, str]:
    """Return texts of imported modules by the names of their files, beside that of the code."""
    return {text_name(of, module): text for module, text in texts.items()}
