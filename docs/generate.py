"""Write the reference from the code: `reference/cli.md` from every command's --help, `reference/settings.md` from the
registry and the settings' own documentation, `methods.md` from what the methods say about themselves and what
measure_methods.py has measured, `reference/python.md` and `reference/formulas.md` from docstrings.

    python docs/generate.py            write what has changed
    python docs/generate.py --check    write nothing, and end with 1 where a page is stale
"""

from __future__ import annotations

import csv
import math
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, Field, fields
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

sys.path.insert(0, str(Path(__file__).resolve().parent))  # what lies beside this file, under `python -P` too

from api_page import api_pages

from fedscope.cli.commands.train import command as train
from fedscope.cli.main import commands
from fedscope.cli.main import fedscope as group
from fedscope.training import Config, preset, presets
from fedscope.training.config.config import DataConfig, RecordConfig, RunConfig
from fedscope.training.methods.base import AverageMethod, ClientMethod, ServerMethod
from fedscope.training.models.base import Architecture
from fedscope.training.settings.registry import RegistryGroup, find, names

DOCS = Path(__file__).resolve().parent
WRITTEN = "<!-- Written by docs/generate.py from the code: do not edit. -->"
DASH = "–"
METHOD = "ima"  # what `fedscope train` takes without --method

#: sections that a method or model fills: the shelf, what all of them share, the key that chooses, the words for one
SHELVES: dict[str, tuple[RegistryGroup, type[Any], str, str]] = {
    "model": ("models", Architecture, "name", "an architecture"),
    "client": ("clients", ClientMethod, "method", "a client method"),
    "server": ("servers", ServerMethod, "method", "a server method"),
    "average": ("averages", AverageMethod, "method", "an average over rounds"),
}


def pages() -> dict[Path, str]:
    """Every generated page and what it must contain."""
    return {
        DOCS / "reference" / "cli.md": cli_page(),
        DOCS / "reference" / "settings.md": settings_page(),
        DOCS / "methods.md": methods_page(),
        **{DOCS / "reference" / name: text for name, text in api_pages(WRITTEN).items()},
    }


# --- the command line ---


def cli_page() -> str:
    """The help of `fedscope` and of each of its commands."""
    parts = [
        WRITTEN,
        "# Commands",
        "What `fedscope --help` and `fedscope COMMAND --help` print. Exit status: 0; 2 for a mistake, with one "
        "sentence that names it (`fedscope --debug COMMAND` shows the traceback); 130 after Ctrl-C.",
        f"## fedscope\n\n```text\n{help_of()}\n```",
    ]
    parts += [f"## fedscope {name}\n\n```text\n{help_of(name)}\n```" for name in commands()]
    return "\n\n".join(parts) + "\n"


def help_of(*words: str) -> str:
    """The help text, 100 columns wide whatever the terminal."""
    from click.testing import CliRunner

    result = CliRunner().invoke(group, [*words, "--help"], prog_name="fedscope", terminal_width=100)
    if result.exit_code:
        raise SystemExit(f"fedscope {' '.join(words)} --help ended with {result.exit_code}: {result.output}")
    return "\n".join(line.rstrip() for line in result.output.strip().splitlines())


# --- the methods ---

METHODS_HEAD = """\
A method has three parts: a client (what a client minimises and how it steps), a server (how the clients' models \
become the next model) and an average over rounds. `--method NAME` takes all parts of that name; other parts stay \
plain. `--client`, `--server` and `--average` combine any three. Without `--method` and without a recipe, what \
neither you nor your configuration file names is IMA's: the client `sgd`, the server `fma` and the average `ima`. So \
`--client fedsam` alone is averaged over rounds, and `--method fedsam` is not. `--average none` leaves the average \
out. Names may be in upper or lower case, `fedavg` means `fma`, and `fedpake`, as which FedSA was published in 2025, \
means `fedsa`:

```sh
fedscope train --method fedprox --rounds 6 --out runs/fedprox
fedscope train --client fedsam --server fedadam --average wima --rounds 6 --out runs/mixed
```

A combination that makes no sense is refused with the reason (FedNova with a proximal term, for example). Every method \
resumes exactly (`--resume`), including its state. `--from RUN@ROUND` branches off a recorded history:

```sh
fedscope train --from runs/fedprox@4 --method fma --rounds 8 --out runs/branch
```

If the branch uses another method than the history, that method starts with an empty state, and the command says so. \
Each method's docstring gives its formulas, its sources, and our choices where a paper is silent. Its settings are in \
[Settings](reference/settings.md).

The decomposition of Zhou et al. tells why an average of models is good ("Understanding and Improving Model Averaging \
in Federated Learning on Heterogeneous Data", IEEE TMC 2024). It is the federated form of a decomposition of weight \
averaging into bias, variance, covariance and locality. That decomposition came first in DiWA (Ramé et al., "Diverse \
Weight Averaging for Out-of-Distribution Generalization", NeurIPS 2022, arXiv 2205.09739). See \
[Read the decomposition](howto/decomposition.md).

Notation: w is the model sent out, θ a client's model, Δ_i = θ_i − w, p_i = n_i/Σn, K_i the number of local \
steps of size η. The mini-batch gradient is g with weight decay wd, ∇L without it. *loss* and L are the \
mean loss of the run's task, with a criterion's weights and smoothing; CE in another term is the plain \
cross-entropy. C is the cohort, N all clients. \
The model has P parameters, its head H. *Down* and *up* are what one client receives and sends in a round in \
addition to the model itself (P numbers; FedBABU: P − H)."""

DIAGNOSIS = """\
The statistics of FedSA (FedPake) can be computed for any recorded round of any method. They show which parameters \
clients disagree about, and which clients disagree alike.

```python
import fedscope

found = fedscope.synergy("runs/fma@last")
print([(layer.name, f"{layer.high_share:.1%}") for layer in found.layers], found.clusters)

found.save("figures/synergy")
found.figure().savefig("figures/synergy.pdf")
```

Runs of FedSA also record their own statistics in each round: `state/high_share`, `state/cluster` and \
`state/similarity`."""

ZHOU = """\
There is an earlier and a later version of the paper on IMA and the decomposition. **We follow the later one**: its \
formulas, its section numbers, its captions. The two differ in Figure 6a (the gain at alpha 0.1 is "approximately 5" \
points in the later version, "larger than 5" in the earlier one) and in Sections 6.1 and 7.3.1. The participation of \
the cross-silo panels of Figures 8 and 9 is blank in the later version and 1 in the earlier one. Most cells of Table 1 \
are not legible in our copy of the later version, so the recipes have them from the earlier one; where both can be \
read, they agree.

### Where our formulas differ from the print
A reader who checks our results against the paper meets these places:

| place | in print | here |
| --- | --- | --- |
| Theorem 1, the statement | the bias has no square; the proof in the appendix has it | the square, as there; \
Corollary 2 likewise |
| Section 3.2, the axes of a plane | ū = u/‖u‖², which is no unit vector | û = u/‖u‖, so that axes are distances |
| Lemma 1 | the statement has a norm, the proof a vector | the norm of the vector of outputs' differences, root mean \
square over samples |
| Equations 12 and 14, Corollary 1 | k ≠ k′ is left out below the sums over pairs | covariances are of pairs of \
different clients |
| Theorem 2 | ε stands for two things | neither is used; [all three terms of equation 3](howto/theory.md) are \
computed and compared with the measured variance |
| Theorem 2, equation 3 | the MMD is that of the kernel K | the MMD is that of K², which the theorem's algebra needs |
| Theorem 2, the reading after equation 3 | the variance depends on the MMD alone, since λ_D and β_D depend on D \
alone | the factor n_k/(2 λ_k) of β_D depends on the client, so both are shown |"""

RESULTS_HEAD = """\
All methods run under one set-up, on real data, for few rounds. {setup}

The methods' own settings are their defaults, and nothing is tuned for any of them. So the table shows what a method \
does out of the box within {rounds} rounds, not which method is best. The papers train for hundreds or thousands of \
rounds at tuned rates.

MIME and MIMELite step along (1 − β) g + βm with β = 0.9. At the same rate, these steps are a tenth as long as those \
along v ← βv + g, so both are compared at ten times the rate. Averages over rounds begin late (IMA and SWA at round \
{start}; SWA's cycle is 5 rounds here). Methods that fine-tune or keep personal models are better judged by the column \
of own test parts.

*Test error* is that of the model that a user would deploy (the average over rounds if the method has one). It is the \
mean over the last ten rounds{seeds}. *Own test parts* is the mean error over the cohort's clients, ± its deviation \
from client to client. Each client uses its own model on the quarter of its samples that it does not train on."""


MODELS_HEAD = """\
`--model NAME` chooses a network. [Choose a model](howto/models.md) says which to take, which settings it has, and how \
to start from a trained model. GroupNorm has two groups. Parameters are counted for the samples and classes in the \
same row; they agree with the published numbers where a paper gives one."""

STATISTICS = """\
The running means and variances of **BatchNorm** (`resnet18`, `resnet34`, a network of your own) are not parameters, \
and no method steps along them. A server averages the statistics of a round's clients with p. `greedy` and \
`checkpoints`, which weigh clients in their own way, do so with these weights. Averages over rounds (IMA, WIMA, SWA) \
average them like the weights. Counts of batches are not averaged: they come from the client with most samples (there \
with the greatest weight), or from the newest round.

Analyses that average models average their statistics too: `theory`, `decompose`, `explain`, `subsets` and \
`reaggregate`. The last four say so next to their numbers. So an average is measured with the mean of its members' \
statistics, not with statistics measured on the average itself. Lines and planes can also do the latter: \
[BatchNorm](howto/landscape.md#batchnorm). The statistics are not part of any distance or dispersion (`updates`, \
`disperse`, `parameters`, `synergy`)."""

DATA_HEAD = """\
`--data NAME` reads files as they are distributed (`NAME:PATH` says where they are). [Your own \
data](howto/own-data.md) shows how the files must be arranged on the disk."""

PARTITIONS_HEAD = """\
`--partition` splits the training samples over the clients. The table shows each partition with its default values; \
brackets show what may be added. A run keeps all values. Every sample belongs to at most one client, and every client \
has some samples. The same `data.seed` gives the same split for every method. `data.client_test` sets a share of each \
client's own samples aside."""


def methods_page() -> str:
    """What there is, what it changes, keeps and sends; and what it does on real data in a few rounds."""
    parts = [WRITTEN, "# Methods", METHODS_HEAD]
    for shelf, title in (("clients", "Clients"), ("servers", "Servers"), ("averages", "Averages over rounds")):
        parts.append(f"## {title}\n\n{features(shelf)}")  # type: ignore[arg-type]
    parts += [
        f"## Models\n\n{MODELS_HEAD}\n\n{models_table()}\n\n{STATISTICS}",
        f"## Data\n\n{DATA_HEAD}\n\n{data_table()}",
        f"## Partitions\n\n{PARTITIONS_HEAD}\n\n{partitions_table()}",
    ]
    parts.append(f"## What FedSA sees\n\n{DIAGNOSIS}")
    parts.append(f"## Zhou et al.: two versions, and the print\n\n{ZHOU}")
    for name, title in (("mnist", "MNIST"), ("cifar10", "CIFAR-10")):
        path = DOCS / "results" / f"{name}.csv"
        if path.exists():
            parts.append(f"## {title}, a small run of each\n\n{results(path, SETUPS[name])}")
    return "\n\n".join(parts) + "\n"


def features(shelf: RegistryGroup) -> str:
    """One row a method of a shelf, from what it says about itself."""
    rows = []
    for name in names(shelf):
        about = find(shelf, name).about
        columns = [f"`{name}`", about.name, about.changes, about.keeps or DASH]
        if shelf == "clients":
            columns += [about.down or DASH, about.up or DASH]
        rows.append([*columns, about.paper or DASH])
    sends = ["down", "up"] if shelf == "clients" else []
    return table(["name", "method", "what it changes", "state it keeps", *sends, "source"], rows)


#: the set-ups of measure_methods.py, in words
SETUPS = {
    "mnist": "There are 100 clients with two label shards each, ten per round, and 40 rounds. Clients train `mlp` "
    "(784-128-64-10) for one local epoch in batches of 50. The rate is 0.02, momentum 0.9 (MIME, MIMELite: the "
    "server's), weight decay 0.001.",
    "cifar10": "There are 40 clients whose classes are split by Dir(0.3), five per round, and 20 rounds. Clients train "
    "a small `cnn` (16 channels, one hidden layer of 64) for one local epoch in batches of 25. The rate is 0.01, "
    "momentum 0.9 (MIME, MIMELite: the server's), weight decay 0.001.",
}


#: why equal effective rates are not kind to two of the rows
FROZEN = (
    "At ten times the rate, MIME and MIMELite go further in a round than the other methods, whose momentum begins at 0 "
    "in each round. At the common rate of"
)

#: rows of the tables that were not measured again since the methods' defaults changed
EARLIER = (
    "These rows were measured with older defaults: SWA (`average.full_first = true`, "
    "`average.include_start = false`), FedSAM, FedASAM and MoFedSAM (`client.sam_decay = within`), FedSA "
    "(`server.similarity = model`), FedALA (`client.mixing_lr = 1`), FedBABU (`client.fine_tune = all`)."
)

#: what a reader would otherwise take for a mistake
REMARKS = {
    "mnist": "All clients have equally many samples here, so FedNova equals FMA. FedProx (μ = 0.01) and FedSA (few "
    "parameters of high dispersion) differ from FMA only beyond the digits shown. "
    f"{FROZEN} 0.02 they had 28.9 ± 2.2 and 31.1 ± 2.1 %. {EARLIER}",
    "cifar10": "The copy of CIFAR-10 used here went through JPEG, so its errors are close to those on the original "
    f"pixels, but not equal. {FROZEN} 0.01 they had 84.1 ± 2.0 and 85.3 ± 2.6 %; 90 % is chance. {EARLIER}",
}


def results(path: Path, setup: str) -> str:
    """The measured table: over seeds where there are several, else over the last ten rounds of the one run."""
    with path.open(encoding="utf-8", newline="") as file:
        measured = list(csv.DictReader(file))
    seeds = len({row["seed"] for row in measured})
    rounds = int(measured[0]["rounds"])
    over = (
        f", then mean ± deviation over {seeds} seeds" if seeds > 1 else ", ± deviation over those rounds, of one seed"
    )
    parts = [RESULTS_HEAD.format(setup=setup, rounds=rounds, start=math.ceil(0.75 * rounds), seeds=over)]
    rows = []
    for method in sorted({row["method"] for row in measured}):
        own = [row for row in measured if row["method"] == method]
        kept = [row for row in own if row["test_error_mean"]]
        if len(kept) < len(own):
            rows.append([f"`{method}`", next(row["note"] for row in own if row["note"]), DASH, DASH])
            continue
        errors = [100 * float(row["test_error_mean"]) for row in kept]
        spread = statistics.stdev(errors) if len(errors) > 1 else 100 * float(kept[0]["test_error_std"])
        client, deviation = (
            100 * statistics.mean(float(row[f"client_test_error{suffix}"]) for row in kept) for suffix in ("", "_std")
        )
        sent = int(kept[0]["parameters_a_round"]) / 1e6
        rows.append(
            [
                f"`{method}`",
                f"{statistics.mean(errors):.1f} ± {spread:.1f}",
                f"{client:.1f} ± {deviation:.1f}",
                f"{sent:.2f}",
            ]
        )
    head = ["`--method`", "test error, %", "own test parts, %", "parameters sent per round, millions"]
    parts.append(table(head, rows))
    again = f"`python docs/measure_methods.py {path.stem} PATH.npz docs/results/{path.name}` repeats the measurement."
    parts.append(f"{REMARKS[path.stem]} All was measured on CPUs with torch 2.13.0. {again}")
    return "\n\n".join(parts)


# --- the settings ---


def settings_page() -> str:
    """Every key of a configuration, by section and method."""
    parts = [
        WRITTEN,
        "# Settings",
        "A configuration has seven sections. Set any key in a TOML file (`fedscope train CONFIG.toml`) or on the "
        "command line (`--set section.key=value`, written as in TOML; bare words are strings). Some keys have a flag "
        "of their own. Later ones override earlier ones: CONFIG.toml < `--method` < flag < `--set`. `--method` "
        "replaces the client, the server and the average that CONFIG.toml names, and drops the settings that are "
        "theirs alone. A run keeps the resolved settings in its `config.toml`.",
        methods_part(),
        *section_part("data", DataConfig),
        *data_parts(),
    ]
    for section in SHELVES:
        parts += list(shelf_parts(section))
    parts += [*section_part("run", RunConfig), *section_part("record", RecordConfig)]
    return "\n\n".join(parts) + "\n"


def methods_part() -> str:
    """What `--method` stands for."""
    rows = [
        [f"`{name}`", *(f"`{chosen[section]['method']}`" for section in ("client", "server", "average"))]
        for name in presets()
        for chosen in [preset(name)]
    ]
    return "## Methods\n\n`--method` chooses a client, a server and an average together.\n\n" + table(
        ["`--method`", "`client.method`", "`server.method`", "`average.method`"], rows
    )


def section_part(section: str, settings: type[Any]) -> Iterator[str]:
    """A section with keys of its own."""
    yield f"## {section}"
    yield first_line(settings).partition(": ")[2].capitalize()
    yield keys_table(section, settings, fields(settings))


def data_parts() -> Iterator[str]:
    """What `data.name` and `data.partition` can be."""
    yield f"### data.name\n\n{data_table()}"
    rows = []
    for name in names("partitions"):
        partition = find("partitions", name)
        limits = [
            ", ".join(filter(None, [f"{key.name}: {key.metadata['doc']}", range_of(key)])) for key in fields(partition)
        ]
        rows.append([f"`{partition.form()}`", first_line(partition), "; ".join(limits) or DASH])
    yield "### data.partition\n\n" + table(["written", "split", "after the colon"], rows)


def models_table() -> str:
    """Every architecture on the shelf, what it is, and its parameters for the samples that it names."""
    import torch

    from fedscope.checkpoints import Layout

    rows = []
    for name in names("models"):
        kind = find("models", name)
        shape, classes = kind.counted
        with torch.device("meta"):  # shapes alone
            size = Layout.of(kind().build(shape, classes)).size
        samples = "×".join(map(str, shape)) if len(shape) > 1 else f"{shape[0]} tokens"
        told = written_and_told("models", name)[1]
        rows.append([f"`{name}`", told, first_line(kind), f"{samples}, {classes:,}", f"{size:,}"])
    return table(["`--model`", "network", "layers", "sample, classes", "parameters"], rows)


def data_table() -> str:
    """Every data set on the shelf, and what its module says it is."""
    return table(["`--data`", "data set"], [[*written_and_told("data", name)] for name in names("data")])


def partitions_table() -> str:
    """Every partition on the shelf, what it does, and what its module says of it."""
    rows = []
    for name in names("partitions"):
        kind = find("partitions", name)
        rows.append([f"`{kind.form()}`", first_line(kind), written_and_told("partitions", name)[1]])
    return table(["`--partition`", "split", "source, or in other words"], rows)


def written_and_told(shelf: RegistryGroup, name: str) -> tuple[str, str]:
    """How a thing is written, and the rest of its module's first sentence: "``name:PATH``: what it is."."""
    line = first_line(sys.modules[find(shelf, name).__module__])
    written, colon, told = line.partition("`: ")
    if not (line.startswith("`") and colon):
        written, told = f"`{name}", line
    return f"{written}`", told[:1].upper() + told[1:]


def shelf_parts(section: str) -> Iterator[str]:
    """A section that a method fills: what all share, then each one's own keys."""
    shelf, base, selector, words = SHELVES[section]
    choices = ", ".join(f"`{name}`" for name in names(shelf))
    default = f"`{Config.read({}).tables()[section][selector]}`"
    if selector == "method":
        default = f"as `--method` chooses; without `--method`, `{preset(METHOD)[section]['method']}`"
    yield f"## {section}"
    yield f"`{section}.{selector}`{flag_words(f'{section}.{selector}')} is {words}: {choices}. Default: {default}."
    shared = {key.name: key for key in fields(base)}
    if shared:
        yield f"All of them have:\n\n{keys_table(section, base, list(shared.values()))}"
    for name in names(shelf):
        method = find(shelf, name)
        own = [k for k in fields(method) if k.name not in shared or k.default != shared[k.name].default]
        yield f"### {section}.{selector} = {name}"
        yield first_line(method)
        yield keys_table(section, method, own) if own else "No settings of its own."


def keys_table(section: str, settings: type[Any], keys: Sequence[Field[Any]]) -> str:
    """Key, type, default, range and meaning."""
    hints = get_type_hints(settings)
    rows = [
        [
            f"`{section}.{key.name}`",
            type_of(hints[key.name]),
            default_of(key),
            range_of(key) or DASH,
            key.metadata["doc"] + flag_words(f"{section}.{key.name}"),
        ]
        for key in keys
    ]
    return table(["key", "type", "default", "range", "meaning"], rows)


def flag_words(place: str) -> str:
    """`` (`--lr`)`` for a key that has a flag."""
    flags = {(option.name or "").replace("__", "."): option.opts[0] for option in train.params}
    return f" (`{flags[place]}`)" if place in flags else ""


def type_of(hint: Any) -> str:
    """A type in words."""
    if get_origin(hint) in (UnionType, Union):
        return " or ".join(type_of(part) for part in get_args(hint) if part is not type(None))
    if get_origin(hint) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(hint))
    if get_origin(hint) is tuple:
        return f"list of {type_of(get_args(hint)[0])}s"
    return {int: "whole number", float: "number", str: "string", bool: "`true`, `false`"}[hint]


def default_of(key: Field[Any]) -> str:
    """A default as TOML writes it; a dash where it depends on something else."""
    if key.default is MISSING or key.default is None:
        return DASH
    if isinstance(key.default, str):
        return f'`"{key.default}"`'
    value = list(key.default) if isinstance(key.default, tuple) else key.default
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def range_of(key: Field[Any]) -> str:
    """``≥ 0, < 1``."""
    signs = (("least", "≥"), ("above", ">"), ("most", "≤"), ("below", "<"))
    limits = [f"{sign} {key.metadata[name]:g}" for name, sign in signs if key.metadata.get(name) is not None]
    return ", ".join(limits)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def first_line(documented: Any) -> str:
    """The first paragraph of a docstring, on one line, in Markdown."""
    text = " ".join((documented.__doc__ or "").strip().split("\n\n")[0].split())
    return text.replace("``", "`")


def main(words: Sequence[str]) -> None:
    """Write or check all pages."""
    stale = [path for path, text in pages().items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        if "--check" in words:
            print(f"{path} is stale: run python docs/generate.py", file=sys.stderr)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(pages()[path], encoding="utf-8")
        print(path)
    if stale and "--check" in words:
        sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
