"""A docstring of this package as Markdown.

Docstrings here are prose with code in two backticks, roles as ``:func:`~fedscope.plane` ``, sections (``Args:``,
``Attributes:``, ``Raises:``, ``Returns:``), formulas indented by four, bullets, tables between rows of ``=``, and
examples behind ``>>>``.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Sequence

#: the text of a link to what a role names, given its target and whether only its last part is to be shown
Linker = Callable[[str, bool], str]

SECTION = re.compile(r"(Args|Attributes|Raises|Returns|Yields)( \([^)]*\))?:")
TITLES = {"Args": "Parameters", "Attributes": "Attributes", "Raises": "Raises", "Returns": "Returns"}
ENTRY = re.compile(r"([\w*]+(?:, [\w*]+)*): (.*)")
BULLET = re.compile(r"[*-] ")
RULE = re.compile(r"=+( +=+)+")
CODE_OR_ROLE = re.compile(r":(?:func|class|meth|mod|attr|data):`(~?)([^`]+)`|``(.+?)``|`([^`]+)`")


def markdown(text: str, link: Linker, types: dict[str, str] | None = None) -> str:
    """The whole docstring.

    Args:
        types: of attributes by name, which are told beside them.

    >>> print(markdown("Adds ``a`` to b*.\\n\\n    a + b\\n\\nArgs:\\n    a: one", lambda name, short: name))
    Adds `a` to b\\*.
    <BLANKLINE>
    ```text
    a + b
    ```
    <BLANKLINE>
    **Parameters**
    <BLANKLINE>
    - `a`: one
    >>> print(markdown("== ==\\na  b\\n== ==\\n1  2\\n== ==", lambda name, short: name))
    ```text
    == ==
    a  b
    == ==
    1  2
    == ==
    ```
    """
    return "\n\n".join(blocks(inspect.cleandoc(text).split("\n"), link, types or {}))


def blocks(lines: Sequence[str], link: Linker, types: dict[str, str]) -> Iterator[str]:
    """Paragraph by paragraph; a section is one block."""
    rest = list(lines)
    while rest:
        line = rest[0]
        if not line.strip():
            rest.pop(0)
        elif SECTION.fullmatch(line):
            yield section(rest.pop(0), indented(rest), link, types)
        elif line == "Example::":
            rest.pop(0)
            yield "\n".join(["```python", *indented(rest), "```"])
        elif line.startswith(">>> "):
            yield "\n".join(["```pycon", *until_blank(rest), "```"])
        elif RULE.fullmatch(line):
            yield "\n".join(["```text", *until_blank(rest), "```"])
        elif line.startswith("    "):
            yield "\n".join(["```text", *indented(rest), "```"])
        elif BULLET.match(line):
            yield "\n".join(f"- {inline(item, link)}" for item in items(until_blank(rest)))
        else:
            yield paragraph(until_blank(rest), link)


def paragraph(lines: Sequence[str], link: Linker) -> str:
    """One line; the word before a source stands out."""
    text = inline(" ".join(line.strip() for line in lines), link)
    return re.sub(r"^Source:", "*Source:*", text)


def section(head: str, body: Sequence[str], link: Linker, types: dict[str, str]) -> str:
    """A list of what a section names, or its words."""
    word, added = SECTION.fullmatch(head).groups()  # type: ignore[union-attr]
    title = f"**{TITLES.get(word, word)}**{added or ''}"
    entries = [one for names, text in named(body) for one in parted(names, text, types)]
    if not entries:
        return f"{title}: {paragraph(body, link)}"
    rows = [f"- {entry(names, text, link, types)}" for names, text in entries]
    return "\n".join([title, "", *rows])


def entry(names: Sequence[str], text: str, link: Linker, types: dict[str, str]) -> str:
    """What one of a section's entries says, with the types of its names where these are told."""
    known = list(dict.fromkeys(types[name] for name in names if name in types))
    told = f" (`{'`, `'.join(known)}`)" if known else ""
    return f"{', '.join(f'`{name}`' for name in names)}{told}: {inline(text, link)}"


def named(body: Sequence[str]) -> Iterator[tuple[list[str], str]]:
    """The entries ``name: text`` of a section, each on one line; nothing where it has words alone.

    >>> list(named(["a, b: two", "    numbers", "c: one"]))
    [(['a', 'b'], 'two numbers'), (['c'], 'one')]
    """
    found: list[tuple[list[str], list[str]]] = []
    for line in body:
        begins = ENTRY.fullmatch(line)
        if begins:
            found.append((begins[1].split(", "), [begins[2]]))
        elif found:
            found[-1][1].append(line.strip())
        else:
            return
    yield from ((names, " ".join(filter(None, text))) for names, text in found)


def parted(names: list[str], text: str, types: dict[str, str]) -> Iterator[tuple[list[str], str]]:
    """An entry that tells of a second attribute behind a semicolon, as two.

    >>> list(parted(["a"], "one; or none; b: two", {"a": "int", "b": "int"}))
    [(['a'], 'one; or none.'), (['b'], 'two')]
    """
    start = 0
    for match in re.finditer(r"; (\w+): ", text):
        if match[1] in types:
            yield names, f"{text[start : match.start()]}."
            names, start = [match[1]], match.end()
    yield names, text[start:]


def items(lines: Sequence[str]) -> list[str]:
    """The points of a list, each on one line."""
    found: list[str] = []
    for line in lines:
        if BULLET.match(line):
            found.append(line[2:])
        else:
            found[-1] += f" {line.strip()}"
    return found


def indented(rest: list[str]) -> list[str]:
    """Take off ``rest`` what is indented by four or empty, and give it without that indent."""
    taken = []
    while rest and (rest[0].startswith("    ") or not rest[0].strip()):
        taken.append(rest.pop(0)[4:])
    while taken and not taken[-1].strip():
        taken.pop()
    while taken and not taken[0].strip():
        taken.pop(0)
    return taken


def until_blank(rest: list[str]) -> list[str]:
    """Take off ``rest`` what comes before the next empty line or section."""
    taken = [rest.pop(0)]
    while rest and rest[0].strip() and not SECTION.fullmatch(rest[0]):
        taken.append(rest.pop(0))
    return taken


def inline(text: str, link: Linker) -> str:
    """Code, links and prose of one paragraph.

    >>> inline("``nn.Module`` s, *any* of y* != y and globals_", lambda name, short: name)
    '`nn.Module`s, *any* of y\\\\* != y and globals\\\\_'
    """
    parts, end = [], 0
    for match in CODE_OR_ROLE.finditer(text):
        parts.append(prose(text[end : match.start()]))
        tilde, target, two, one = match.groups()
        parts.append(link(target, bool(tilde)) if target else f"`{(two or one).strip()}`")
        end = match.end()
        # a plural stands apart from its code, as reStructuredText needs it
        end += 1 if re.match(r" s\b", text[end:]) else 0
    return "".join([*parts, prose(text[end:])])


def prose(text: str) -> str:
    """What Markdown would take for markup is made plain, but for *stressed words*."""
    stressed = re.compile(r"(?<![\w*])\*(\w[^*]*\w|\w)\*(?![\w*])")
    pieces, end = [], 0
    for match in stressed.finditer(text):
        pieces += [plain(text[end : match.start()]), f"*{plain(match[1])}*"]
        end = match.end()
    return "".join([*pieces, plain(text[end:])])


def plain(text: str) -> str:
    """Text without markup; an underscore within a word is none."""
    text = text.replace("*", "\\*").replace("<", "&lt;").replace("](", "]\\(")
    text = re.sub(r"(?<!\w)_|_(?!\w)", r"\\_", text)
    return re.sub(r"^#", r"\\#", text)
