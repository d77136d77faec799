"""A decomposition and what it says: numbers, statements, and a page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from ...checkpoints import FedscopeError, write_durably
from ...checkpoints.io.untrusted import expand_home
from ...results import Result
from ...results.pictures import picture_of
from ...results.tables import AGAIN, read_info, write_info
from ..factors.result import Decomposition
from .dominant_factor import with_names
from .intervals import Reading
from .statements import Statement
from .wording import label

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMAT, VERSION = "fedscope-explanation", 2


@dataclass(frozen=True)
class Explanation(Result):
    """Statements on a decomposition, claim by claim; made by
    :func:`~fedscope.decomposition.explanation.explain.explain`.

    Attributes:
        decomposition: that is explained; its files are part of this result's.
        statements: run after run, then those between runs.
        notes: what the numbers are of and what they cannot say.
        early: by run, the last round of early training.
    """

    command = "explain"
    suffixes = (*Decomposition.suffixes, ".explain.json")
    derived = (".md",)
    paged: ClassVar = {"": ""}  # made here

    decomposition: Decomposition
    statements: tuple[Statement, ...]
    notes: tuple[str, ...]
    early: Mapping[str, int] = field(default_factory=dict)

    @property
    def attrs(self) -> Mapping[str, Any]:  # type: ignore[override]
        """Provenance, the decomposition's."""
        return self.decomposition.attrs

    @property
    def runs(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(label(run) for run in self.decomposition.runs)

    def of(self, claim: str, run: str | None = None) -> Statement:
        """Return the statement of a claim. KeyError where there is none."""
        for one in self.statements:
            if one.claim == claim and run in (None, one.run):
                return one
        raise KeyError((claim, run))

    def save(self, base: Path | str) -> list[Path]:
        """Write the decomposition, BASE.md and BASE.explain.json; returns their paths. Floats survive."""
        base = expand_home(base)
        path = self.paths(base)[-1]
        written = [*self.decomposition.save(base), *self.derive(base), path]
        content = {
            "runs": self.runs,
            "statements": [asdict(one) for one in self.statements],
            "notes": self.notes,
            "attrs": dict(self.attrs),
            "early": dict(self.early),
        }
        write_info(path, FORMAT, VERSION, content)
        return written

    @classmethod
    def load(cls, base: Path | str) -> Self:
        """Read what :meth:`save` wrote.

        Raises:
            FedscopeError: there is no such file, or it is no such result, or of another decomposition.
        """
        kept = cls.beside(base, Decomposition.load(base), {}, again=True)
        assert kept is not None, "only another one is made again"
        return kept

    @classmethod
    def beside(
        cls, base: Path | str, decomposition: Decomposition, early: Mapping[str, int], *, again: bool
    ) -> Self | None:
        """Load the statements that are stored with their decomposition; None where there are none yet, those of another
        decomposition, or with other last ``early`` rounds.

        Args:
            again: as they were made, however early was; what would be None is refused.

        Raises:
            FedscopeError: what lies there is no such result, or damaged; with ``again`` as above.
        """
        from .claims import paper_says

        path = cls.paths(base)[-1]
        if not path.exists():
            if not again:
                return None
            raise FedscopeError(f"{path} does not exist; run `fedscope explain` again without --redraw")
        info = read_info(path, FORMAT, VERSION, cls.command)
        try:
            statements = tuple(
                Statement(**{**one, "readings": tuple(Reading(**reading) for reading in one["readings"])})
                for one in info["statements"]
            )
            # what a paper says is not measured: words that were mended since are not taken from the file
            statements = tuple(replace(one, paper=paper_says(one.claim, one.paper)) for one in statements)
            kept = cls(decomposition, statements, tuple(info["notes"]), info["early"])
            same = dict(info["attrs"]) == dict(decomposition.attrs)
        except (LookupError, TypeError, ValueError) as error:
            raise FedscopeError(f"{path} is damaged ({type(error).__name__}: {error}); {AGAIN}") from error
        if again and not same:
            raise FedscopeError(
                f"{path} explains another result than {Decomposition.paths(base)[-1]} holds; leave out --redraw"
            )
        return kept if same and (again or dict(kept.early) == dict(early)) else None

    def derive(self, base: Path | str, *, again: bool = True) -> list[Path]:
        """Write BASE.md, which shows BASE.png."""
        path = self.paths(base)[-1]
        name = path.name.removesuffix(self.suffixes[-1])
        page = path.with_name(f"{name}.md")
        with write_durably(page) as temporary:
            temporary.write_text(self.as_markdown(f"{name}.png"), encoding="utf-8")
        return [page]

    def list_names(self) -> tuple[str, ...]:
        """List the decomposition's: statements name the same runs, and what is averaged of one by a name of its own."""
        return self.decomposition.list_names()

    def renamed(self, labels: Mapping[str, str]) -> Self:
        """Rename runs in the statements, the notes and the decomposition; see :meth:`.Result.renamed`."""
        made = super().renamed(labels)
        runs = made.decomposition.runs
        names = {label(old): label(new) for old, new in zip(self.decomposition.runs, runs, strict=True)}

        def rename_note(note: str) -> str:
            run, colon, rest = note.partition(": ")
            return f"{names.get(run, run)}{colon}{rest}"

        first, *others = names
        between = {f"{first}, {other}": (first, other) for other in others}
        statements = tuple(
            with_names(one, *between[one.run], names)
            if one.claim == "differs-most" and one.run in between
            else replace(one, run=names.get(one.run, one.run))
            for one in self.statements
        )
        early = {new.run: self.early[old.run] for old, new in zip(self.decomposition.runs, runs, strict=True)}
        return replace(made, statements=statements, notes=tuple(map(rename_note, self.notes)), early=early)

    def figure(self, width: float | None = None, title: str | None = None, *more: Any, **drawing: Any) -> Figure:
        """Return the decomposition's."""
        return self.decomposition.figure(width, title, *more, **drawing)

    def pages(self, title: str | None = None, **drawing: Any) -> dict[str, str]:
        """Return the page with its figure."""
        return {"": self.as_html(picture_of(self.figure(title=title), dpi=300))}

    def summary(self) -> str:
        """Return the page for a terminal."""
        return self.as_text() + "\n"

    def told(self, width: int) -> str:
        """Return the page for a terminal so wide."""
        return self.as_text(width)

    def findings(self) -> dict[str, Any]:
        """Every statement."""
        names = ("claim", "run", "title", "verdict", "sentence", "decide")
        return {"statements": [{name: getattr(one, name) for name in names} for one in self.statements]}

    def to_pandas(self) -> Any:
        """Return the decomposition's tables as data frames."""
        return self.decomposition.to_pandas()

    def to_xarray(self) -> Any:
        """Return the decomposition's tables as a data set."""
        return self.decomposition.to_xarray()

    def as_text(self, width: int = 100) -> str:
        """Write the page for a terminal, without the table of numbers."""
        from .text_page import as_text

        return as_text(self, width)

    def as_markdown(self, figure: str | None = None) -> str:
        """Write the page as Markdown; `figure` is the figure's path, seen from it."""
        from .text_page import as_markdown

        return as_markdown(self, figure)

    def as_html(self, png: bytes | None = None) -> str:
        """Write the page as HTML that needs no other file; `png` is the figure."""
        from .html_page import as_html

        return as_html(self, png)
