"""Which results a report shows, in which order, and what it asks of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from ..checkpoints import FedscopeError, Run, real_path
from ..results import ArrayResult, Result, shown
from ..results.arrays import read_netcdf


@dataclass(frozen=True)
class Kind:
    """Results of one question.

    Attributes:
        module, name: of the class.
        section: the heading under which they stand.
        asks: what a reader asks.
    """

    module: str
    name: str
    section: str
    asks: str

    @property
    def cls(self) -> type[Result]:
        """The class, imported now."""
        found: type[Result] = getattr(import_module(f"..{self.module}", __package__), self.name)
        return found


#: in the order of a reader: what the loss is made of, where the models lie, how clients differ
KINDS = (
    Kind("decomposition.explanation.result", "Explanation", "Factors", "What makes up the loss of the averaged model?"),
    Kind("decomposition.factors.result", "Decomposition", "Factors", "What makes up the loss of the averaged model?"),
    Kind("decomposition.subsets.result", "Subsets", "Factors", "How many models does the average need?"),
    Kind("decomposition.windows.result", "WindowMeans", "Factors", "How many rounds does the average need?"),
    Kind("decomposition.theory.result", "Theory", "Factors", "Do Lemma 1 and Theorem 2 hold?"),
    Kind("landscape.planes.result", "Plane", "Surfaces", "Where are the models on the loss surface?"),
    Kind("landscape.lines.result", "Line", "Surfaces", "What is the loss between two models?"),
    Kind("landscape.lines.result", "Connectivity", "Surfaces", "What is the loss between the clients?"),
    Kind("landscape.curvature.result", "Sharpness", "Surfaces", "How flat is the loss around the models?"),
    Kind("decomposition.cka.result", "ClientCKA", "Similarity", "How similar are the clients' outputs?"),
    Kind("decomposition.cka.model_result", "ModelCKA", "Similarity", "How similar are the models' outputs?"),
    Kind("decomposition.updates.result", "ClientUpdates", "Dispersion", "Do the clients' updates cancel?"),
    Kind("decomposition.dispersion.result", "Dispersion", "Dispersion", "Where do clients differ?"),
    Kind("decomposition.embedding.result", "Embedding", "Dispersion", "Where are the models relative to each other?"),
    Kind("decomposition.parameters.result", "Parameters", "Dispersion", "How do single parameters vary over clients?"),
    Kind("decomposition.parameters.result", "ParameterMap", "Dispersion", "Which parameters vary alike?"),
    Kind("decomposition.synergy.result", "Synergy", "Dispersion", "Which parameters do clients disagree about?"),
    Kind("decomposition.forgetting.result", "Forgetting", "Clients", "What do clients forget?"),
    Kind("decomposition.client_data.result", "ClientData", "Clients", "Which data do clients have?"),
    Kind("decomposition.reaggregation.result", "Reaggregation", "Servers", "What would another server have made of it?"),
)
#: in the order of the page
SECTIONS = tuple(dict.fromkeys(kind.section for kind in KINDS))


@dataclass(frozen=True)
class Found:
    """A result beside a run.

    Attributes:
        base: its path without an extension; name: the same within the run's folder, or as its folder was given.
    """

    kind: Kind
    base: Path
    name: str
    result: Result


@dataclass(frozen=True)
class Beside:
    """What lies beside a run.

    Attributes:
        results: in the order of the page.
        left_out: files that are not shown, and why, a clause each.
        closures: by the base of a decomposition how far its factors are from the loss that they add up to, at most and
            relative; of those within a page on the factors, too.
    """

    results: tuple[Found, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)
    closures: Mapping[str, float] = field(default_factory=dict)


def beside(run: Run, folders: Sequence[Path] = ()) -> Beside:
    """The results in ``RUN/figures``, and in further ``folders``, that were made of this run as it is.

    One that is damaged, of a newer fedscope, or of a run that has stood in the same folder before is left out, and said
    to be. In further folders, results of other runs are passed over.

    Raises:
        FedscopeError: one of ``folders`` is no folder.
    """
    found, left_out = list[Found](), dict[str, str]()
    own = run.path / "figures"
    for folder in folders:
        if not folder.is_dir():
            raise FedscopeError(f"{folder} is not a folder, so there are no results in it; give another --results")
    apart = [folder for folder in dict.fromkeys(folders) if real_path(folder) != real_path(own)]
    formats = {path: _format_of(path, left_out) for folder in (own, *apart) for path in sorted(folder.glob("*.nc"))}
    for kind in KINDS:
        for folder in (own, *apart):
            found += _of_kind(run, kind, folder, formats, left_out, strangers=folder == own)
    # a page on the factors holds their decomposition
    explained = {one.base for one in found if one.kind.name == "Explanation"}
    visible = [one for one in found if one.kind.name != "Decomposition" or one.base not in explained]
    closures = {one.name: _closure(one.result) for one in found if one.kind.name == "Decomposition"}
    return Beside(tuple(visible), left_out, closures)


def _of_kind(
    run: Run,
    kind: Kind,
    folder: Path,
    formats: Mapping[Path, str | None],
    left_out: dict[str, str],
    *,
    strangers: bool,
) -> Iterator[Found]:
    """Results of a question in a folder; ``strangers`` among them are said to be left out."""
    end = kind.cls.suffixes[-1]
    for path in sorted(folder.glob(f"*{end}")):
        if issubclass(kind.cls, ArrayResult) and formats[path] != f"fedscope-{kind.cls.kind}":
            continue
        base = path.with_name(path.name.removesuffix(end))
        try:
            result = kind.cls.load(base)
        except FedscopeError as error:
            left_out[path.name] = str(error)
            continue
        if not is_of(run, result.attrs, strangers):
            if strangers:
                left_out[path.name] = "it is of another run, or of one that has stood in this folder before"
            continue
        within = base.is_relative_to(run.path)
        yield Found(kind, base, str(base.relative_to(run.path) if within else base), shown(result))


def _closure(decomposition: Result) -> float:
    errors = [abs(row.get("closure_error") or 0.0) for row in decomposition.numbers()["rounds"]]
    return max(errors, default=0.0)


def _format_of(path: Path, left_out: dict[str, str]) -> str | None:
    """What a file of arrays says that it is; one that cannot be read is left out."""
    try:
        return str(read_netcdf(path)[1].get("format"))
    except FedscopeError as error:
        left_out[path.name] = str(error)
        return None


def is_of(run: Run, attrs: Mapping[str, Any], unless_said: bool = True) -> bool:
    """Whether a result was made of this run: of one that was made at the same moment; ``unless_said`` is the answer
    for a result that does not say."""
    said = attrs.get("run")
    runs = said if isinstance(said, list) else [said]
    moments = [one["created"] for one in runs if isinstance(one, dict) and one.get("created")]
    return run.info.get("created") in moments if moments else unless_said
