"""Texts in tables that a spreadsheet opens: none is taken for a formula, and all read back as they were.

A spreadsheet computes a cell that begins with =, +, - or @, and with it may call a program or send other cells away
(OWASP, "CSV Injection"). So a text that begins so, and is no number, has a single quote before it. A text that had
quotes and then such a sign gets one more, so that reading, which takes one away, is the inverse.
"""

from __future__ import annotations

import re

# also their wide forms, which some spreadsheets take for the same
_FORMULA = re.compile(r"'*\s*[=+\-@＝＋－＠]")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?|-inf")


def cell(text: str) -> str:
    """A text as it stands in a table.

    >>> cell("=HYPERLINK(1)"), cell("-0.5"), cell("-inf"), cell("ima"), cell("'=x")
    ("'=HYPERLINK(1)", '-0.5', '-inf', 'ima', "''=x")
    """
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def text_of(written: str) -> str:
    """Undo :func:`cell`; what an earlier fedscope wrote reads as it stands.

    >>> text_of("'=HYPERLINK(1)"), text_of("=HYPERLINK(1)"), text_of("''=x"), text_of("'tis")
    ('=HYPERLINK(1)', '=HYPERLINK(1)', "'=x", "'tis")
    """
    return written[1:] if written.startswith("'") and _FORMULA.match(written) else written
