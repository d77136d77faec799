"""What a table says of methods that are not fedscope's: whose they are, and that one name stands for two sources."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...checkpoints import Run
from ...checkpoints.io.errors import list_few
from ..user_code.different_sources import sources_among, unknown_in
from ..user_code.kept_source import sources_in


def code_notes(runs: Sequence[Run]) -> Iterator[str]:
    """Yield a note for each package that gave a method, for each name whose source is not the same in all rounds of all
    runs, and for each run whose source was changed on its way."""
    packages: dict[tuple[str, str], set[str]] = {}
    sources: dict[tuple[str, str], dict[str, list[str]]] = {}
    changes: list[str] = []
    unknown: dict[tuple[str, str], list[str]] = {}
    among = sources_among(runs)
    for run, of_run in zip(runs, among, strict=True):
        for key in unknown_in(run):
            unknown.setdefault(key, []).append(run.name)
        for (kind, name), entries in sources_in(run).items():
            for entry in entries:
                if ":" not in name and entry.get("distribution"):
                    said = f"{entry['distribution']} {entry.get('version', '')}".strip()
                    packages.setdefault((kind, name), set()).add(said)
        for (kind, name), own in of_run.items():
            for digest in dict.fromkeys(digest for _, digest in own if digest):
                sources.setdefault((kind, name), {}).setdefault(digest, []).append(run.name)
            if later := [after for after, _ in own[1:]]:
                changes.append(
                    f"{run.name}: the source of the {kind} {name} was changed after round {list_few(later, 3)}"
                )
    for (_, name), of in packages.items():
        yield f"{name} is of the package {' and '.join(sorted(of))}"
    for (kind, name), by_source in sources.items():
        if len(by_source) > 1:
            others = dict.fromkeys(own for owners in list(by_source.values())[1:] for own in owners)
            yield (
                f"the {kind} {name} has {len(by_source)} different sources in these runs ({list_few(others, 3)}): they "
                "are not one method"
            )
    for (kind, name), theirs in unknown.items():
        if sum((kind, name) in of_run for of_run in among) > 1:
            yield f"the source of the {kind} {name} is not known of {list_few(theirs, 3)}: it may be another"
    yield from changes
