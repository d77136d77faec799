"""What a table says of methods that are not fedscope's: whose they are, and that one name stands for two sources."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...checkpoints import Run
from ...checkpoints.io.errors import list_few


def code_notes(runs: Sequence[Run]) -> Iterator[str]:
    """Yield a note for each package that gave a method, and for each name whose source is not the same in all runs."""
    packages: dict[tuple[str, str], set[str]] = {}
    sources: dict[tuple[str, str], dict[str, list[str]]] = {}
    for run in runs:
        for entry in run.info.get("code", []):
            place = (entry["kind"], entry["name"])
            if ":" not in entry["name"] and entry.get("distribution"):
                packages.setdefault(place, set()).add(f"{entry['distribution']} {entry.get('version', '')}".strip())
            if entry.get("sha256"):
                sources.setdefault(place, {}).setdefault(entry["sha256"], []).append(run.name)
    for (_, name), of in packages.items():
        yield f"{name} is of the package {' and '.join(sorted(of))}"
    for (kind, name), by_sum in sources.items():
        if len(by_sum) > 1:
            others = [own for owners in list(by_sum.values())[1:] for own in owners]
            yield (
                f"the {kind} {name} has {len(by_sum)} different sources in these runs ({list_few(others, 3)}): they "
                "are not one method"
            )
