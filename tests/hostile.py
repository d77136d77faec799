"""Texts that a file or a folder may hold to be more than text where they are shown; and what reads a page back."""

from __future__ import annotations

import base64
import hashlib
import re
import unicodedata
from html.parser import HTMLParser

TEXTS = {
    "script": "</title><script src=x.js></script>",
    "attribute": '"><img src=x onerror=alert(1)>',
    "quotes": "' onload='x' \" style=\"x",
    "comment": "<!--<script>",
    "cdata": "]]><b>",
    "entity": "&lt;b&gt;&quot;",
    "line": "a\u2028b\u2029c\x85d",
    "url": "javascript:alert(1)",
    "link": '<a href="https://x.org">b</a>',
    "null": "a\x00b",
    "mathematics": "$\\frac$ and $L_2$",
    "hidden": "_hidden",
    "escape": "\x1b[2J\x1b]0;t\x07\x9b31m",
    "turned": "abc\u202egnp.exe\u2066",
    "rows": "a\nb|c\td\r\x08e\x7f",
    "formula": '=HYPERLINK("http://x")',
    "surrogate": "a\udcffb",
    "script of others": "平均 é \U0001f600",
    "long": "x" * 3000,
}


def steers(text: str, keep: str = "\n") -> set[str]:
    """The characters of a text by which a terminal would do more than show it, or could not be written."""
    marks = {"\u2028", "\u2029", "\u200e", "\u200f", "\u061c"}
    turning = {chr(code) for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}
    return {
        sign
        for sign in text
        if sign not in keep and (unicodedata.category(sign) in ("Cc", "Cs") or sign in marks | turning)
    }


class Page(HTMLParser):
    """A page's elements with their attributes, its title, all its text, and its scripts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.title, self.text, self.scripts, self.comments = "", "", list[str](), list[str]()
        self._in = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        self._in = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._in = ""

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)

    def handle_data(self, data: str) -> None:
        if self._in == "script":
            self.scripts[-1] += data
        elif self._in == "title":
            self.title += data
        elif self._in != "style":
            self.text += data

    @property
    def shape(self) -> list[tuple[str, tuple[str, ...]]]:
        """Its elements, each with the names of its attributes: what no text may change."""
        return [(tag, tuple(sorted(attrs))) for tag, attrs in self.elements]

    @property
    def policy(self) -> dict[str, list[str]]:
        """What it may do, by directive."""
        said = [
            attrs["content"] for tag, attrs in self.elements if attrs.get("http-equiv") == "Content-Security-Policy"
        ]
        assert len(said) == 1
        return {words[0]: words[1:] for part in said[0].split(";") if (words := part.split())}

    def refuse_open(self) -> None:
        """Make sure that nothing runs but the page's own scripts, and that nothing is fetched."""
        policy = self.policy
        assert policy["default-src"] == policy["base-uri"] == policy["form-action"] == ["'none'"]
        assert policy["img-src"] == ["data:", "blob:"]
        assert policy.keys() == {"default-src", "img-src", "style-src", "script-src", "base-uri", "form-action"}
        tags = [attrs for tag, attrs in self.elements if tag == "script"]
        allowed = set()
        for attrs, script in zip(tags, self.scripts, strict=True):
            if "src" in attrs:
                assert re.fullmatch(r"plotly-[\d.]+\.min\.js", attrs["src"])
                assert not script
                allowed.add(f"'nonce-{attrs['nonce']}'")
            elif attrs.get("type") != "application/json":
                digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
                allowed.add(f"'sha256-{digest}'")
        assert set(policy["script-src"]) == (allowed or {"'none'"})
        for tag, attrs in self.elements:
            assert tag not in ("link", "iframe", "object", "embed", "base", "form")
            assert not [name for name in attrs if name.startswith("on")]
            assert attrs.get("src", "data:").startswith(("data:", "plotly-"))
            assert attrs.get("href", "#").startswith("#")
