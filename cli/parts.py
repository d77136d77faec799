"""The sets of samples that a surface is measured on: a split, both, or single clients' own data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..asking.source import Source

if TYPE_CHECKING:
    from ..asking.models import Posed
    from ..landscape import Samples


@dataclass(frozen=True)
class Part:
    """One set of samples.

    Attributes:
        name: in names of files, ``test``, ``client-3``; empty for the only one.
        title: above its panel.
        samples: themselves.
        settings: what a result's provenance says of them.
    """

    name: str
    title: str
    samples: Samples
    settings: dict[str, Any]


def parts_of(question: Posed, source: Source, data_of: str | None) -> list[Part]:
    """The sets of samples that --split and --data-of ask for.

    Args:
        data_of: ``clients`` (those among the models of the surface) or numbers of the first run's, ``3,8,11``; None for
            whole splits.

    Raises:
        FedscopeError: data of clients of no run, of two runs, of clients that there are not.
    """
    from ..asking.samples import describe_samples, limited
    from ..checkpoints import FedscopeError

    if data_of is not None:
        if not question.runs:
            raise FedscopeError(f"--data-of {data_of} needs a run, which says whose data are whose; give RUN@ROUND")
        return [_of_client(question, source, k) for k in _numbers(data_of, question)]
    splits = ["test", "train"] if source.split == "both" else [source.split]
    parts = []
    for split in splits:
        samples = limited(question.dataset, replace(source, split=split))
        settings = describe_samples(samples, source.seed if source.limit else None)
        parts.append(Part(split if len(splits) > 1 else "", f"{split} data".capitalize(), samples, settings))
    return parts


def _cohort(question: Posed) -> list[int]:
    """The clients among the models, each once, all of one run."""
    from ..checkpoints import FedscopeError, parse_address

    found = [address for address in map(parse_address, (m.address for m in question.models)) if address.clients]
    clients = [address for address in found if address.which == "client"]
    paths = list(dict.fromkeys(Path(address.path) for address in clients))
    if len(paths) > 1 or (paths and paths[0] != question.runs[0].path):
        raise FedscopeError(
            f"--data-of clients is about one run's clients, but the models are of {question.runs[0].path} and "
            f"{paths[-1]}; give the first run's numbers instead, as in --data-of 3,8,11"
        )
    return list(dict.fromkeys(k for address in clients for k in address.clients))


def _numbers(data_of: str, question: Posed) -> list[int]:
    from ..checkpoints import FedscopeError

    run = question.runs[0]
    run.require("partition.h5")
    assert run.partition is not None, "just required"
    count = len(run.partition.clients)
    if data_of.strip() == "clients":
        cohort = _cohort(question)
        if not cohort:
            raise FedscopeError(
                "--data-of clients needs clients among the models, as in runs/ima@20/client-3; "
                "name the clients instead: --data-of 3,8,11"
            )
        return cohort
    try:
        numbers = list(dict.fromkeys(int(word) for word in data_of.split(",")))
    except ValueError:
        raise FedscopeError(
            f"--data-of {data_of} names no clients; write clients, or their numbers as in 3,8,11"
        ) from None
    there = f"0 to {count - 1}" if count > 1 else "client 0 only"
    for k in numbers:
        if not 0 <= k < count:
            raise FedscopeError(f"--data-of {data_of}: {run.path} has no client {k}; it has {there}")
    return numbers


def _of_client(question: Posed, source: Source, k: int) -> Part:
    import torch

    from ..asking.samples import describe_samples
    from ..checkpoints import FedscopeError

    run = question.runs[0]
    if question.dataset.sha256 != run.info.get("data", {}).get("sha256"):
        raise FedscopeError(
            f"--data-of {k} takes what {run.path} gave its client {k}, but --data names other data; leave out --data"
        )
    partition = run.partition
    assert partition is not None, "the numbers were checked against it"
    whole = question.dataset.samples("train")
    rows = partition.clients[k]
    if not len(rows):
        raise FedscopeError(f"client {k} of {run.path} has no training samples; ask for another one's")
    at = torch.from_numpy(rows)
    own = replace(whole, x=whole.x[at], y=whole.y[at], indices=rows)
    if source.limit is not None:
        own = own.limit(source.limit, source.seed)
    settings = {**describe_samples(own, source.seed if source.limit else None), "client": int(k), "data_run": run.name}
    return Part(f"client-{k}", f"Client {k}'s data", own, settings)
