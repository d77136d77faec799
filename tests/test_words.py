"""The pages in plain words: no sentence of more than thirty words, and none of the phrases that readers stumbled over.

A sentence is one of a paragraph, an item of a list, a heading, or a cell of a table. Code blocks are left out. Words
in backticks count as one word, a link as its text, and a sign without letters or digits as none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.same_elsewhere

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted((ROOT / "docs" / "howto").glob("*.md"))
MOST = 30
PHRASES = (
    "a path is a path",
    "all else",
    "are said",
    "by itself",
    "for want of",
    "hangs on",
    "in place of",
    "is said",
    "of its own",
    "of one's own",
    "which is no",
)
#: code blocks and comments
UNREAD = re.compile(r"^ *```.*?^ *```$|<!--.*?-->", re.MULTILINE | re.DOTALL)
#: a line that begins another part than the one before
STARTS = re.compile(r"[-*+] |\d+\. |[#|>]")
#: the dot of an abbreviation, unless a sentence begins behind it
ENDS = re.compile(r"(?<!\bal\.)(?<!\be\.g\.)(?<!\bi\.e\.)(?<=[.!?])[)\"*_]*\s+|(?<=\bal\.)\s+(?=[A-Z])")


def parts_of(text: str) -> Iterator[tuple[int, str]]:
    """The first line and the words of every paragraph, item, heading and cell of a page."""
    text = UNREAD.sub(lambda found: "\n" * found[0].count("\n"), text)
    text = re.sub(r"`[^`\n]+`", "code", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    first, words = 0, ""
    for number, line in enumerate([*text.splitlines(), ""], 1):
        line = line.strip()
        if words and (not line or STARTS.match(line)):
            yield first, words
            words = ""
        if line.startswith(("|", "#")):
            yield from ((number, cell) for cell in re.split(r"(?<!\\)\|", line))
        elif line:
            first, words = (first if words else number), f"{words} {line}"


def length_of(sentence: str) -> int:
    """How many words have a letter or a digit.

    >>> length_of("Σ p ‖Δ‖ = 1, at most")
    6
    """
    return sum(re.search(r"\w", word) is not None for word in sentence.split())


def too_long(text: str) -> list[str]:
    """A page's sentences of more than MOST words, each after its line."""
    sentences = ((number, sentence) for number, part in parts_of(text) for sentence in ENDS.split(part))
    return [f"{number}: {sentence.strip()}" for number, sentence in sentences if length_of(sentence) > MOST]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_sentences_are_short(page: Path) -> None:
    long = too_long(page.read_text(encoding="utf-8"))
    assert not long, f"{page.name}: make two sentences of each that has more than {MOST} words\n" + "\n".join(long)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_words_are_modern(page: Path) -> None:
    parts = parts_of(page.read_text(encoding="utf-8"))
    odd = [f"{n}: {phrase}" for n, part in parts for phrase in PHRASES if re.search(rf"\b{phrase}\b", part, re.I)]
    assert not odd, f"{page.name}: say it in everyday words\n" + "\n".join(odd)


def test_only_prose_is_measured() -> None:
    words = " ".join(["word"] * 20)
    assert len(PAGES) > 25
    assert too_long(f"## {words}\n{words}\n{words}.") == [f"2: {words} {words}."]
    assert too_long(f"{words}. {words}\n\n- {words}\n- {words}\n\n| {words} | {words} |\n") == []
    assert too_long(f"```sh\n{words} {words}\n```\n`{words} {words}` {'= – ' * 40}") == []
    assert len(too_long(f"{words}, as in Zhou et al. (2024), {words}.")) == 1
    assert too_long(f"{words}, as in Zhou et al. The {words}.") == []
