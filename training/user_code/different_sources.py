"""Runs that name the same code, and were trained by other sources of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from typing import Any

from ...checkpoints import Run
from .kept_source import sources_in
from .used_source import digest_of_imports, digest_of_used

#: digests of what made the rounds of a run, each with the last round before it
Sources = tuple[tuple[int, str], ...]
#: kinds whose code says how a run is trained; data and partitions are compared by what the code has made
_METHODS = ("client", "server", "average", "model", "optimiser")


def sources_among(runs: Sequence[Run]) -> list[dict[tuple[str, str], Sources]]:
    """Return the sources of the code of one's own that each run's rounds were trained by, by kind and name; of a branch
    also those of its history. Equal ones say the same, see :func:`~.used_source.digest_of_used`.

    A run that keeps only the SHA-256 of a text has the source of another of these runs with that text. One that knows
    nothing of a source has that of the others, where they have one: nothing says that it is another. So of what the
    source imports.

    Raises:
        FedscopeError: a damaged file.
    """
    told = [sources_in(run, run.rounds[-1] if run.rounds else 0) for run in runs]
    read = [
        {key: [digest_of_used(run, entry) for entry in own] for key, own in of.items()}
        for run, of in zip(runs, told, strict=True)
    ]
    by_text = {
        (key, str(entry.get("sha256", ""))): digest
        for of, digests in zip(told, read, strict=True)
        for key, own in of.items()
        for entry, digest in zip(own, digests[key], strict=True)
        if digest != entry.get("sha256", "")
    }
    imported: dict[tuple[tuple[str, str], str], set[str]] = {}
    for run, of, digests in zip(runs, told, read, strict=True):
        for key, own in of.items():
            for entry, one in zip(own, digests[key], strict=True):
                its = imported.setdefault((key, by_text.get((key, one), one)), set())
                its.update({digest_of_imports(run, entry)} - {""})
    found: list[dict[tuple[str, str], Sources]] = []
    for run, of, digests in zip(runs, told, read, strict=True):
        made = {}
        for key, own in of.items():
            named = [
                (int(entry["after"]), _with_imports(run, entry, key, by_text.get((key, one), one), imported))
                for entry, one in zip(own, digests[key], strict=True)
            ]
            made[key] = tuple(next(alike) for _, alike in groupby(named, key=lambda one: one[1]))
        found.append(made)
    for key in {key for made in found for key in made}:
        known = {made[key] for made in found if key in made and is_known(made[key])}
        if len(known) == 1:
            (only,) = known
            for made in found:
                if key in made and not is_known(made[key]):
                    made[key] = only
    return found


def _with_imports(
    run: Run,
    entry: Mapping[str, Any],
    key: tuple[str, str],
    digest: str,
    imported: Mapping[tuple[tuple[str, str], str], Collection[str]],
) -> str:
    """Return a digest together with that of what is imported; where nothing is said of it, that of the only one that is
    said of this source."""
    known = imported.get((key, digest), ())
    own = digest_of_imports(run, entry) or (next(iter(known)) if len(known) == 1 else "")
    return f"{digest} {own}" if own else digest


def is_known(sources: Sources) -> bool:
    """Check whether it is known what made each of a run's rounds."""
    return all(digest for _, digest in sources)


def unknown_in(run: Run) -> list[tuple[str, str]]:
    """Return the kinds and names of code of which a run does not say the source."""
    (own,) = sources_among([run])
    return [key for key, sources in own.items() if not is_known(sources)]


def methods_among(runs: Sequence[Run]) -> list[dict[tuple[str, str], Sources]]:
    """Return those of them that say how each run is trained."""
    return [{key: own for key, own in of.items() if key[0] in _METHODS} for of in sources_among(runs)]


def method_sources(runs: Sequence[Run]) -> list[dict[str, Sources]]:
    """Return the same under what a sentence calls each: ``the source of server mine:FedX``."""
    return [{f"the source of {kind} {name}": own for (kind, name), own in of.items()} for of in methods_among(runs)]


def other_source(one: Run, other: Run) -> str:
    """Return what a sentence calls the first code of which two runs were trained by other sources; "" for none. Code
    that only one of them names is another method, and no other source; one that is not known is none."""
    ours, theirs = method_sources([one, other])
    return next((name for name, own in ours.items() if theirs.get(name, own) != own), "")
