"""``fedscope reaggregate``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..asking.source import Source
from .options import Base, Output, source_options

if TYPE_CHECKING:
    from ..checkpoints import Run
    from ..landscape import Samples
    from ..training import Config
    from ..training.reaggregated import Reaggregation


@click.command(
    "reaggregate",
    epilog="Example:  fedscope reaggregate runs/fma@40 --server fedsa --set server.quantile=0.99    Several:  "
    "fedscope reaggregate runs/fma@40 --server fedswa --server fedgma",
)
@click.argument("round_", metavar="RUN@ROUND")
@click.option(
    "--server", "servers", multiple=True, required=True, metavar="NAME", help="A server method; repeatable, a row each."
)
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="server.KEY=VALUE",
    help="A setting of those servers that have it; repeatable.",
)
@click.option(
    "--from-state",
    is_flag=True,
    help="Begin with the state that the run's own server had before the round, instead of anew.",
)
@source_options("test", files=False)
@click.option(
    "--out",
    type=Base(),
    metavar="BASE",
    help="Where to write, without an extension (default: RUN/figures/reaggregate-...).",
)
@click.option("--force", is_flag=True, help="Compute again and replace an existing result.")
@click.option("--json", "as_json", is_flag=True, help="Print a machine-readable result.")
def command(
    round_: str,
    servers: tuple[str, ...],
    assignments: tuple[str, ...],
    from_state: bool,
    source: Source,
    out: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """What another server method would have made of a recorded round's clients; nothing is trained.

    Writes the models, and compares their loss and error with the recorded global model's and plain FMA's. A server that
    keeps a state starts anew unless --from-state is given. Averages over rounds are left out. All clients are read at
    once.
    """
    from ..asking.runs import identity
    from ..asking.samples import common_samples, describe_samples
    from ..checkpoints import recorded_clients
    from ..training import data_of, resolve_device
    from ..training.reaggregated import Reaggregation, model_files
    from ..training.registry import canonical
    from .results import obtain, say
    from .synergy import open_round

    run, number = open_round(round_)
    run.require("config.toml")
    recorded_clients(run, number, start=False)
    names = list(dict.fromkeys(canonical("servers", name) for name in servers))
    given = settings_of(assignments)
    asked = configs_of(run, number, names, given)
    samples = common_samples([run], data_of(run), source)
    settings: dict[str, Any] = {
        "run": identity(run),
        "round": number,
        "servers": names,
        "settings": [config.tables()["server"] for config, _ in asked],
        "from_state": from_state,
        **describe_samples(samples, source.seed if source.limit else None),
        "device": resolve_device(source.device),
        "precision": source.precision,
    }

    def compute(attrs: dict[str, Any], partial: Path) -> Reaggregation:
        return measured(run, number, asked, samples, attrs)

    what = [str(number), *names, *(f"{key}-{value}" for key, value in given.items())]
    base = out or run.path / "figures" / f"reaggregate-{'-'.join(what)}{'-from-state' if from_state else ''}"
    main = Path(f"{base}.reaggregate.json")
    output = Output(out, None, None, redraw=False, force=force, as_json=as_json)
    taken = [*model_files(base, names), Path(f"{base}.reaggregate.csv")]
    result = obtain(
        compute, lambda _: Reaggregation.load(base), lambda made: made.save(base), main, settings, output, taken
    )
    said = notes(result, run)
    say(
        "\n".join([*lines(result), *said]),
        [*model_files(base, names), Path(f"{base}.reaggregate.csv"), main],
        as_json=as_json,
        rows=[vars(row) for row in result.rows],
        notes=said,
    )


def settings_of(assignments: Sequence[str]) -> dict[str, Any]:
    """``server.KEY=VALUE`` as settings of servers.

    Raises:
        FedscopeError: a setting of something else, or the choice of a method.
    """
    from ..checkpoints import FedscopeError
    from ..training import read_assignments

    tables = read_assignments(assignments, "server.quantile=0.99")
    for section, table in tables.items():
        for key, value in table.items():
            if section != "server":
                raise FedscopeError(
                    f"--set {section}.{key}={value}: nothing is trained here, so only the server has settings; give "
                    "server.KEY=VALUE, or train a branch: fedscope train --from RUN@ROUND"
                )
            if key == "method":
                raise FedscopeError(f"--set server.method={value} chooses a server; give --server {value} instead")
    return tables.get("server", {})


def configs_of(run: Run, number: int, names: Sequence[str], given: dict[str, Any]) -> list[tuple[Config, str]]:
    """A configuration of each server and what it is called; a setting goes to the servers that have it.

    Raises:
        FedscopeError: an unknown server, or a setting that none of them has.
    """
    from dataclasses import fields

    from ..checkpoints import FedscopeError
    from ..training.reaggregating import reaggregating_config
    from ..training.registry import canonical, find
    from ..training.registry import names as names_on

    for name in names:
        of_clients = canonical("clients", name) in names_on("clients")
        if name not in names_on("servers") and (of_clients or canonical("averages", name) in names_on("averages")):
            what = "clients do" if of_clients else "is averaged over rounds"
            raise FedscopeError(
                f"--server {name}: that is what {what}, and only servers can be exchanged afterwards; give one of "
                f"{', '.join(names_on('servers'))}, or train a branch: fedscope train --from {run.path}@{number}"
            )
    known = {name: {key.name for key in fields(find("servers", name))} for name in names}
    nobody = {key for key in given if not any(key in own for own in known.values())}
    made = []
    for name in names:
        own = {key: value for key, value in given.items() if key in known[name] or key in nobody}
        words = ", ".join(f"{key}={value}" for key, value in own.items())
        made.append((reaggregating_config(run, number, name, own), f"{name} ({words})" if words else name))
    return made


def measured(
    run: Run, number: int, asked: Sequence[tuple[Config, str]], samples: Samples, attrs: dict[str, Any]
) -> Reaggregation:
    """The recorded model, plain FMA and what was asked for, on the samples."""
    from ..checkpoints import FedscopeError, Weights
    from ..landscape import Evaluator
    from ..training import module_of
    from ..training.memory import RunMemory
    from ..training.reaggregated import ModelRow, Reaggregation, compared
    from ..training.reaggregating import reaggregate, reaggregating_config

    plain = reaggregating_config(run, number, "fma")
    every = [*asked] if any(config.server == plain.server for config, _ in asked) else [(plain, "fma"), *asked]
    made = reaggregate(run, number, [config for config, _ in every], from_state=attrs["from_state"])
    try:
        recorded: Weights | None = RunMemory(run).row(number)
    except FedscopeError:  # record.globals leaves it out
        recorded = None
    models = [one.weights for one in made]
    about: list[tuple[str, str, str]] = [
        (label, one.server, one.state) for (_, label), one in zip(every, made, strict=True)
    ]
    if recorded is not None:
        models, about = [recorded, *models], [("recorded", "", ""), *about]
    evaluator = Evaluator(module_of(run), samples, device=attrs["device"], precision=attrs["precision"])
    losses, errors = evaluator.models(models)
    rows = tuple(
        ModelRow(*names, float(loss), float(error), *compared(model, recorded))
        for names, model, loss, error in zip(about, models, losses, errors, strict=True)
    )
    own = {one.server: one.weights for one in made[len(made) - len(asked) :]}
    return Reaggregation(rows, {**attrs, "diverged": list(made[0].diverged)}, own)


def lines(result: Reaggregation) -> list[str]:
    """The rows as a table."""
    attrs = result.attrs
    split = attrs["split"]
    wide = max(len("model"), *(len(row.model) for row in result.rows))
    said = [f"{Path(attrs['run']['path']).name}@{attrs['round']}, {split} data, {attrs['samples']:,} samples"]
    said.append(f"  {'model':{wide}}  {'loss':>8}  {'error':>7}  L2 from recorded")
    for row in result.rows:
        far = "-" if row.distance is None else f"{row.distance:.3g}"
        same = ", bit for bit" if row.identical and row.model != "recorded" else ""
        said.append(f"  {row.model:{wide}}  {row.loss:8.4g}  {100 * row.error:5.3g} %  {far}{same}")
    return said


def notes(result: Reaggregation, run: Run) -> list[str]:
    """Who diverged, what the servers' states began with, and what was left out."""
    from ..checkpoints.errors import listed
    from ..training import config_at
    from ..training.registry import find

    said, number = [], result.attrs["round"]
    if ids := result.attrs.get("diverged"):  # which results from before it was looked for lack
        who = f"client{'s' if len(ids) > 1 else ''} {listed(ids)}"
        said.append(f"{who} diverged: recorded with values that are not finite, which enter every mean")
    for row in result.rows:
        keeps = find("servers", row.server)().about.keeps if row.server else ""
        if row.state == "fresh":
            said.append(f"{row.server} keeps {keeps} and starts anew here, as in its first round")
        elif row.state == "recorded":
            said.append(f"{row.server} goes on with {keeps} as recorded after round {number - 1}")
    if config_at(run, number).average.averages_first:
        said.append("the run averaged over rounds before its server stepped, which is left out here")
    return said
