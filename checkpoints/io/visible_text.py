"""Text of unknown origin, such that it can be read and can do nothing else: names of folders, labels, what a file says.

A terminal obeys control characters, a page and a row of a table end at some, and text that turns its direction shows
other words than it holds. Files may hold all of them, so whatever is shown passes here first.
"""

from __future__ import annotations

import re

# C0 and C1 controls and DEL; what turns the direction of text; what else ends a line; marks without a look of their own
# (ZERO WIDTH JOINER and NON-JOINER belong to scripts and stay); bytes of names that are no UTF-8; tags
_STEERING = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def visible(text: object, keep: str = "") -> str:
    r"""``text`` with every character that steers rather than shows written as Python writes it.

    Args:
        keep: characters that stay as they are, as ``"\n"`` of text in lines.

    >>> visible("ima\x1b[2J\nfma"), visible("a\nb\r", keep="\n")
    ('ima\\x1b[2J\\nfma', 'a\nb\\r')
    >>> visible("Größe ± 3 µ, 平均") == "Größe ± 3 µ, 平均"
    True
    """

    def written(found: re.Match[str]) -> str:
        sign = found[0]
        if sign in keep:
            return sign
        code = ord(sign)
        return _SHORT.get(sign) or (
            f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
        )

    return _STEERING.sub(written, str(text))


def brief(text: object, most: int = 200) -> str:
    """Shorten a value of a file for a line of words: visible, and no longer than that.

    >>> brief("2026-11-25"), brief("7" * 10_000, 12)
    ('2026-11-25', '777777777777... (10,000 characters)')
    """
    whole = str(text)
    # a character is written as ten at most, so no more of a long one is looked at than can be shown
    shown = visible(whole[:most])
    return shown if len(whole) <= most else f"{shown}... ({len(whole):,} characters)"


def in_markdown(word: str, *, cell: bool = True) -> str:
    r"""Write a word of a file in Markdown, where it is that word and no more: no emphasis, link or element, and no end
    of a cell where it stands in one.

    >>> in_markdown("a|b <i> local_epochs [x](y)"), in_markdown("|b| < _c_", cell=False)
    ('a\\|b \\<i> local_epochs \\[x\\](y)', '|b| \\< \\_c\\_')
    """
    signs = r"\\|`*\[\]<&~" if cell else r"\\`*\[\]<&~"
    return re.sub(rf"[{signs}]|(?<![^\W_])_|_(?![^\W_])", r"\\\g<0>", visible(word))
