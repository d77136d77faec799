"""The papers' set-ups: every file makes sense, the numbers are the papers', and settings that belong to a method stay
with it. Spot values are typed from the papers' tables, not read from the files."""

from __future__ import annotations

import re
import shlex
from typing import Any

import click
import pytest
from click.testing import CliRunner

from fedscope.checkpoints import FedscopeError, RetentionPolicy, parse_address
from fedscope.cli.main import commands
from fedscope.cli.main import fedscope as tour
from fedscope.training import Config, Setup, measure_of, merge, presets, read_assignments
from fedscope.training.config.recipes import _ours, cells_of, recipe, recipe_names, settings_of, tables_of
from fedscope.training.settings.registry import names
from fedscope.training.sweeps.plan import plan_sweep

pytestmark = pytest.mark.same_elsewhere

IMA = ("fma", "fedprox", "fedasam", "fedfa", "fednova", "fedadam", "fedyogi", "fedgma")
FEDSA = ("fma", "fedprox", "moon", "fedgen", "fedntd", "ditto", "fedbabu", "fedala", "fedsa")

#: figures and tables of the papers, as they are called
NAMES = {
    "ima": (
        *("fig1", "fig2", "fig3", "fig4", "fig5b", "fig5c", "fig6a", "fig6b", "fig6c", "fig7a", "fig7b", "fig7c"),
        *("fig8", "fig9", "fig10", "table2", "table3"),
        *(f"table1-{data}-{model}-{skew}"
          for data, model in (("fmnist", "cnn"), ("cifar10", "cnn"), ("cifar10", "resnet18"), ("digit5", "cnn"),
                              ("pacs", "alexnet"))
          for skew in ("shards2", "dir0.1")),
        *("table1-cifar100-vgg11-pa", "table1-cifar100-resnet18-pa"),
    ),
    "wima": (
        *("fig1", "fig2", "fig3a", "fig3b", "table3-gldv2", "table4-cifar10", "table4-cifar100"),
        *(f"table2-{name}" for name in ("cifar10-a0", "cifar10-a0.05", "cifar100-a0", "cifar100-a0.5", "cifar100-pam",
                                        "femnist", "shakespeare")),
        *(f"table5-{name}" for name in ("cifar10-a0", "cifar10-a0.05", "cifar100-a0", "cifar100-a0.5")),
    ),
    "fedsa": (
        *("fig1", "fig2", "fig5", "fig6", "fig7", "fig8", "table4"),
        *(f"table1-{name}" for name in ("path-cifar10", "path-cifar100", "path-tiny", "dir0.1-cifar10",
                                        "dir0.1-cifar100", "dir0.1-tiny", "dir0.1-cifar100-resnet34")),
        *(f"table{number}-{name}" for number in (2, 5) for name in ("n50-p1", "n50-p0.5", "n100-p0.5")),
        *(f"table3-dir{alpha}" for alpha in ("0.01", "0.5", "1")),
    ),
    "fedswa": (
        *("table2-cifar10-resnet18", "table2-cifar100-resnet18", "ablation", "rounds", "surface"),
        *(f"{table}-dir{alpha}" for table in ("table3", "tiny-vit") for alpha in ("0.1", "0.3", "0.6")),
    ),
}  # fmt: skip


def test_every_figure_and_table_has_its_recipe_and_no_other() -> None:
    assert recipe_names() == tuple(sorted(f"{paper}/{name}" for paper, own in NAMES.items() for name in own))


def test_a_paper_goes_by_the_name_it_was_published_under() -> None:
    assert recipe("fedpake/table1-path-cifar10") == recipe("fedsa/table1-path-cifar10")
    assert recipe("fedsa/table1-path-cifar10").configured("FedPake") == recipe("fedsa/table1-path-cifar10").configured(
        "fedsa"
    )
    for words in ("fedpake", "FedPake/fig6"):
        told = CliRunner().invoke(tour, ["recipes", words])
        assert told.output == CliRunner().invoke(tour, ["recipes", words.lower().replace("pake", "sa")]).output != ""
    with pytest.raises(FedscopeError, match=r"'fedpak' is not a recipe; did you mean \Wfedsa\W\?"):
        recipe("fedpak")


# --- the papers' numbers ---

# recipe: row, column -> value (and deviation), typed from the papers' tables
PUBLISHED: dict[str, dict[tuple[str, str], Any]] = {
    "ima/table1-fmnist-cnn-shards2": {
        ("fma", "average.method=none"): 81.17,
        ("fma", "average.method=ima"): 84.68,
        ("fedgma", "average.method=ima"): 84.56,
    },
    "ima/table1-cifar10-cnn-dir0.1": {
        ("fma", "average.method=none"): 61.00,
        ("fedadam", "average.method=none"): 61.61,
        ("fedadam", "average.method=ima"): 66.25,
        ("fedfa", "average.method=ima"): 67.03,
    },
    "ima/table1-cifar10-resnet18-dir0.1": {("fednova", "average.method=none"): 33.72},
    "ima/table1-pacs-alexnet-dir0.1": {
        ("fednova", "average.method=none"): 13.96,
        ("fedgma", "average.method=ima"): 47.46,
    },
    "ima/table1-digit5-cnn-shards2": {("fedadam", "average.method=ima"): 91.50},
    "ima/table1-cifar100-vgg11-pa": {("fedfa", "average.method=none"): 43.47},
    "ima/table2": {
        ("fma", "average.method=none"): 394,
        ("fma", "average.start=150"): 318,
        ("fedprox", "average.start=150"): 201,
        ("fedyogi", "average.start=300"): 306,
        ("fedfa", "average.method=none"): 341,
        ("fedgma", "average.start=200"): 242,
    },
    "ima/table3": {
        ("fma", "average.explore=exp"): 64.57,
        ("fedasam", "average.explore=cyclic"): 59.33,
        ("fedgma", "average.explore=none"): 63.75,
        ("fedyogi", "average.explore=epochs"): 63.13,
    },
    "wima/table2-cifar10-a0": {
        ("FedAvg", "of global"): 64.37,
        ("FedAvg", "of averaged"): 69.95,
        ("MIME SGD", "of averaged"): 80.65,
        ("FedDyn", "of global"): None,
    },
    "wima/table2-cifar100-a0": {("FedDyn", "of global"): 5.88, ("SCAFFOLD", "of averaged"): 49.77},
    "wima/table2-cifar100-pam": {("FedACG", "of global"): 58.88, ("FedProx", "of averaged"): 62.25},
    "wima/table2-femnist": {("MIMELite", "of averaged"): 87.51, ("FedDyn", "of averaged"): None},
    "wima/table2-shakespeare": {("FedCM", "of global"): 38.90},
    "wima/table3-gldv2": {("FedAvg", "of global"): 58.17, ("SCAFFOLD", "of averaged"): 68.30},
    "wima/table4-cifar100": {("fma", "average.window=10"): 25.70, ("fma", "average.window=50"): 22.75},
    "wima/table5-cifar10-a0.05": {("fma", "average.parts=classifier"): 71.01, ("fma", "average.parts=all"): 78.87},
    "fedsa/table1-path-cifar100": {("fma", ""): (50.19, 0.31), ("fedsa", ""): (69.72, 0.25)},
    "fedsa/table1-path-cifar10": {("fma", ""): None, ("fedala", ""): (90.47, 0.28)},
    "fedsa/table1-dir0.1-cifar10": {("fma", ""): (88.55, 0.10), ("ditto", ""): (88.87, 0.23), ("fedsa", ""): None},
    "fedsa/table2-n50-p1": {("fedntd", ""): (29.58, 0.19), ("fedsa", ""): (31.83, 0.35)},
    "fedsa/table5-n50-p0.5": {("fma", ""): (84.91, 0.31), ("fedsa", ""): (84.53, 0.13)},
    "fedsa/table3-dir0.01": {("moon", ""): None, ("fedbabu", ""): (71.67, 0.16)},
    "fedsa/table4": {("moon", "to convergence"): 402, ("moon", "a round"): 0.401, ("fedsa", "a round"): 0.248},
    "fedswa/table2-cifar100-resnet18": {("fedmoswa", ""): 67.9, ("fedsam", ""): 51.9},
    "fedswa/table3-dir0.1": {("fma", ""): 45.8, ("mofedsam", ""): 51.5},
    "fedswa/table3-dir0.3": {("fma", ""): None, ("fedswa", ""): 55.5},
    "fedswa/tiny-vit-dir0.6": {("scaffold", ""): 73.1},
    "fedswa/ablation": {("rho = alpha = 1", ""): 65.9, ("SCAFFOLD", ""): 52.3},
    "fedswa/rounds": {("fedmoswa", ""): 330, ("mofedsam", ""): 603},
}


# --- whose each setting is ---

#: settings that the papers state, with the values that they state anywhere; all others must be said to be ours
STATED: dict[str, dict[str, Any]] = {
    "ima": {
        "data.name": {"cifar10", "cifar100", "fmnist", "digit5", "pacs"},
        "data.partition": {"shards:2", "dirichlet:0.1"},
        "data.clients": {100, 10, 80},
        "model.name": {"cnn", "cnn-gn", "resnet18-gn", "vgg11-gn", "alexnet-gn"},
        **{"client.lr": {0.01}, "client.momentum": {0.9}, "client.batch": {50}, "client.epochs": {5}},
        **{"client.lr_decay": {0.01}, "run.rounds": {400, 300, 200}, "run.participation": {0.1, 0.2, 1.0}},
        **{"fedasam: client.sam_rho": {0.2}, "fedasam: client.sam_eta": {0.2, 0.05}, "fedgma: server.tau": {0.8}},
        **{"ima: average.window": {5}, "ima: average.explore": {"exp"}, "ima: average.explore_decay": {0.03}},
        **{"ima: average.start": {300}, "fedfa: client.anchor_momentum": {0.9}},
        **{
            f"{method}: server.{key}": {value}
            for method in ("fedadam", "fedyogi")
            for key, value in {"lr": 0.01, "beta1": 0.9, "beta2": 0.99, "tau": 0.001}.items()
        },
    },
    "wima": {
        "data.name": {"cifar10", "cifar100", "femnist", "shakespeare", "gldv2"},
        "data.partition": {"natural", *(f"dirichlet-clients:{alpha}" for alpha in ("0", "0.05", "0.5"))},
        "data.clients": {100, 500, 3400, 715, 1262},
        "model.name": {"resnet20-gn", "cnn-femnist", "lstm", "mobilenetv2-gn"},
        "model.task": {"sequences"},
        **{"client.lr": {0.1, 0.05, 1.0}, "client.momentum": {0.0}, "client.weight_decay": {0.0, 4e-4}},
        **{"client.lr_decay": {0.0}, "client.batch": {100, 20, 10, 4, 50}, "client.epochs": {1}},
        **{"average.method": {"wima"}, "average.window": {100, 370}, "run.rounds": {10_000, 1_500, 3_000}},
        "run.participation": {0.1, 0.2, 10 / 3400, 10 / 715, 10 / 1262},
    },
    "fedsa": {
        "data.name": {"cifar10", "cifar100"},
        "data.partition": {"iid", *(f"dirichlet:{a}" for a in ("0.1", "0.01", "0.5", "1"))}
        | {f"pathological:{c}" for c in (2, 10, 20)},
        **{"data.clients": {20, 50, 100}, "data.client_test": {0.25}, "model.name": {"resnet18", "resnet34"}},
        **{"client.epochs": {1}, "run.rounds": {1000}, "run.participation": {1.0, 0.5}},
        **{"fedprox: client.mu": {0.001}, "moon: client.temperature": {1.0}, "ditto: client.pull": {0.001}},
        **{"fedgen: client.generator_lr": {0.005}, "fedgen: client.hidden": {512}, "fedgen: client.noise": {512}},
        **{"fedbabu: client.fine_tune_epochs": {10}, "fedala: client.portion": {0.8}, "fedala: client.layers": {1}},
        **{
            f"{method}server.{key}": values
            for method in ("", "fedsa: ")
            for key, values in {"cv_threshold": {0.2}, "sim_threshold": {0.2}, "classes": {4, 5, 8},
                                "clusters": {4, 5, 8}}.items()
        },
        "server.method": {"fedsa"},
    },
    "fedswa": {
        **{"data.name": {"cifar10", "cifar100", "tiny-imagenet"}, "model.name": {"vit-b16"}},
        "run.participation": {0.1},
        **{f"{method}: client.lr_floor": {0.1} for method in ("fedswa", "fedmoswa")},
        **{f"{method}: server.alpha": {1.5} for method in ("fedswa", "fedmoswa")},
        "fedmoswa: server.gamma": {0.2},
    },
}  # fmt: skip

#: what is measured and kept of a run changes no training
MEASURED = ("record.", "run.evaluate_")


@pytest.mark.parametrize("name", recipe_names())
def test_every_setting_is_the_papers_or_said_to_be_ours(name: str) -> None:
    found = recipe(name)
    settings = settings_of(found.tables, found.by_method)
    assert found.ours.keys() <= settings.keys()
    told = " ".join(found.chosen)
    for place, value in settings.items():
        if place.startswith(MEASURED):
            continue
        if place not in found.ours:
            assert value in STATED[found.paper].get(place, ()), f"{place} = {value} is said to be the paper's"
        elif found.ours[place]:
            assert place.rpartition(": ")[2] in told
            assert found.ours[place] in told


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("fedswa/table2-cifar100-resnet18", ("client.lr = 0.1", "client.batch = 50", "client.epochs = 5",
         "client.weight_decay = 0.001", "client.clip = 10", "client.momentum = 0", "data.clients = 100")),
        ("ima/table1-cifar10-cnn-dir0.1", ("client.sam_rho = 0.7 (fedasam)", "client.weight_decay = 0.001",
         "average.before_server = true (fedadam+ima)", "average.before_server = true (fedyogi+ima)")),
        ("fedsa/table1-dir0.1-cifar10", ("client.mu = 1 (moon)", "client.lr = 0.005", "client.batch = 10")),
        ("wima/table2-cifar100-pam", ("client.momentum = 0", "data.augment = crop-flip")),
    ],
)  # fmt: skip
def test_set_ups_that_are_ours_stand_under_chosen_here(name: str, ours: tuple[str, ...]) -> None:
    told = CliRunner().invoke(tour, ["recipes", name]).output
    chosen = re.sub(r"\s+", " ", told[told.index("chosen here:") : told.index("train it:")])
    for words in ours:
        assert words in chosen
    assert "(fedasam)" not in " ".join(recipe("ima/table1-cifar10-resnet18-dir0.1").chosen), "which is the paper's"


def test_what_a_nearer_recipe_sets_is_the_papers_unless_it_says_again_that_it_is_not() -> None:
    far = {
        "ours": {"client.lr": "a", "moon: client.mu": "b"},
        "client": {"lr": 1},
        "for": {"moon": {"client": {"mu": 1}}},
    }
    assert _ours([far]) == far["ours"]
    assert _ours([far, {"client": {"lr": 2}}]) == {"moon: client.mu": "b"}
    assert _ours([far, {"client": {"lr": 2}, "ours": {"client.lr": "c"}}]) == {"moon: client.mu": "b", "client.lr": "c"}
    with pytest.raises(ValueError, match=r"\[ours\] names client\.batch, which the file does not set"):
        _ours([{"ours": {"client.batch": "d"}}])


@pytest.mark.parametrize("name", PUBLISHED)
def test_what_was_published_is_what_the_papers_print(name: str) -> None:
    found = {(cell.row, cell.column): (cell.value, cell.deviation) for cell in recipe(name).published}
    assert recipe(name).measure
    for place, value in PUBLISHED[name].items():
        expected = value if isinstance(value, tuple) else (value, None)
        assert (found.get(place) or (None, None)) == expected, place


def test_every_table_has_numbers_and_every_number_a_place() -> None:
    for name in recipe_names():
        found = recipe(name)
        assert bool(found.published) == ("/fig" not in name and name != "fedswa/surface"), name
        places = [(cell.row, cell.column) for cell in found.published]
        assert len(set(places)) == len(places), name
        cells = found.cells()
        rows = {str(cell.get("label", cell.get("method"))) for cell in cells} | {
            str(cell.get("method")) for cell in cells
        }
        assert {row for row, _ in places} <= rows, name
        for column in {column for _, column in places}:
            key, equals, value = column.partition("=")
            if equals:
                assert value in {str(cell.get(key)) for cell in cells}, f"{name}: no run is in the column {column}"


@pytest.mark.parametrize(
    ("rows", "columns"),
    [("ima/table1", 16), ("ima/table2", 30), ("ima/table3", 40), ("wima/table3", 4), ("wima/table4", 5)],
)
def test_the_tables_are_whole(rows: str, columns: int) -> None:
    chosen = [name for name in recipe_names() if name.startswith(rows)]
    assert chosen
    assert [len(recipe(name).published) for name in chosen] == [columns] * len(chosen)


# --- the set-ups ---


def config(name: str, method: str | None = None, **sections: Any) -> Config:
    return Setup(name).config(method, sections)


@pytest.mark.parametrize("name", recipe_names())
def test_every_cell_is_a_configuration_and_another_one_than_the_others(name: str) -> None:
    found = recipe(name)
    made = []
    for cell in found.cells():
        method, tables = tables_of(cell)
        made.append(Setup(name).config(method, cell=tables))
    assert len({str(one) for one in made}) == len(made), "two cells are the same run"
    assert found.shows
    assert not found.shows.endswith(".")


@pytest.mark.parametrize("name", recipe_names())
def test_the_words_of_every_run_give_its_configuration_also_in_small(name: str) -> None:
    """What a sweep asks ``fedscope train`` for is what it has planned."""
    for scale in (None, 0.02):
        plan = plan_sweep(Setup(name, scale=scale), (), (3,))
        for run in plan.runs:
            words = dict.fromkeys(("--recipe", "--scale", "--method"), "") | {"--set": []}
            for flag, value in zip(run.arguments[::2], run.arguments[1::2], strict=True):
                words[flag] = [*words[flag], value] if flag == "--set" else value
            assert words["--recipe"] == name
            setup = Setup(name, scale=float(words["--scale"]) if words["--scale"] else None)
            assert setup.config(words["--method"] or None, {}, read_assignments(words["--set"])) == run.config
            assert run.config.run.seed == run.config.data.seed == 3
            assert re.fullmatch(r"(\w[\w.-]*-)?seed3", run.name), run.name


def test_settings_and_grids_belong_to_methods_that_there_are() -> None:
    known = {*presets(), *names("clients"), *names("servers"), *names("averages")}
    for name in recipe_names():
        found = recipe(name)
        assert {part for method in found.by_method for part in method.split("+")} <= known, name
        for method, keys in found.grid.items():
            for key, values in keys.items():
                section, _, last = key.partition(".")
                for value in values:
                    tried = config(name, method, **{section: {last: value}}).tables()
                    assert tried[section][last] == value, f"{name}: {method}"


@pytest.mark.parametrize("name", recipe_names())
def test_the_commands_that_follow_can_be_parsed_and_measure_what_there_is(name: str) -> None:
    for text in recipe(name).then:
        program, command, *words = shlex.split(text)
        assert program == "fedscope"
        assert command in commands()
        # as a child of the group, whose names of the help option a command keeps from its first context on
        parent = click.Context(tour, **tour.context_settings)
        found = tour.get_command(parent, command)
        assert found is not None
        context = found.make_context(command, list(words), parent=parent)
        for measure in context.params.get("measures") or ():
            measure_of(measure)
        for word in words:
            if "@" in word:
                parse_address(word)


@pytest.mark.parametrize("name", [name for name in recipe_names() if recipe(name).then])
def test_what_follows_finds_the_rounds_that_it_asks_for(name: str) -> None:
    found = recipe(name)
    made = [Setup(name).config(tables_of(cell)[0], cell=tables_of(cell)[1]) for cell in found.cells()]
    for text in found.then:
        command, words = shlex.split(text)[1], shlex.split(text)
        if "--rounds" in words:
            asked = RetentionPolicy.parse(words[words.index("--rounds") + 1])
            which = 1 if command == "wima" else 0  # globals, or clients
            kept = [
                one.record.policies()[which].keeps(t, one.run.rounds)
                for one in made
                for t in range(1, one.run.rounds + 1)
                if asked.keeps(t, one.run.rounds)
            ]
            assert any(kept) if "SILO" in text or "DEVICE" in text else all(kept), f"{text}: no clients are recorded"
        for word in (word for word in words if "@" in word):
            number = parse_address(word).round
            if isinstance(number, int) and number > 0:
                fits = [
                    number == one.run.rounds or one.record.policies()[1].keeps(number, one.run.rounds) for one in made
                ]
                assert all(fits), f"{word} of {command} is not recorded"


def test_base_v_and_base_t_of_ima() -> None:
    v, t = config("ima/fig1"), config("ima/table1-cifar10-cnn-shards2", "fma")
    for one, decay in ((v, 0.0), (t, 0.01)):
        assert (one.client.lr, one.client.momentum, one.client.batch, one.client.epochs) == (0.01, 0.9, 50, 5)
        assert (one.client.weight_decay, one.client.lr_decay) == (1e-3, decay)
        assert (one.data.clients, one.run.participation, one.run.rounds) == (100, 0.1, 400)
        assert (one.data.name, one.data.partition, one.model.name) == ("cifar10", "shards:2", "cnn")
    ima = config("ima/table1-cifar10-cnn-shards2", "ima").average
    assert (ima.window, ima.start, ima.explore, ima.explore_decay) == (5, 300, "exp", 0.03)
    assert v.title() == t.title() == "fma"
    silo = config("ima/fig2")
    assert (silo.data.clients, silo.run.participation, silo.data.partition) == (10, 1.0, "shards:2,250")
    assert (silo.data.name, silo.model.name, silo.run.rounds) == ("cifar10", "cnn", 400)


@pytest.mark.parametrize(
    ("name", "data", "model", "partition", "clients", "share", "rounds", "start"),
    [
        ("fmnist-cnn-shards2", "fmnist", "cnn", "shards:2", 100, 0.1, 300, 225),
        ("cifar10-cnn-dir0.1", "cifar10", "cnn", "dirichlet:0.1", 100, 0.1, 400, 300),
        ("cifar10-resnet18-shards2", "cifar10", "resnet18-gn", "shards:2", 100, 0.1, 400, 300),
        ("cifar100-vgg11-pa", "cifar100", "vgg11-gn", "pachinko:0.1,10", 100, 0.1, 300, 225),
        ("cifar100-resnet18-pa", "cifar100", "resnet18-gn", "pachinko:0.1,10", 100, 0.1, 400, 300),
        ("digit5-cnn-shards2", "digit5", "cnn-gn", "domains:20,shards:2", 100, 0.1, 200, 150),
        ("pacs-alexnet-dir0.1", "pacs", "alexnet-gn", "domains:20,dirichlet:0.1", 80, 0.2, 400, 300),
    ],
)
def test_the_rows_of_imas_first_table(
    name: str, data: str, model: str, partition: str, clients: int, share: float, rounds: int, start: int
) -> None:
    found = config(f"ima/table1-{name}", None, average={"method": "ima"})
    assert (found.data.name, found.model.name, found.data.partition) == (data, model, partition)
    assert (found.data.clients, found.run.participation, found.run.rounds) == (clients, share, rounds)
    assert (found.average.start, found.average.window) == (start, 5)
    asam = config(f"ima/table1-{name}", "fedasam").client
    assert (asam.sam_rho, asam.sam_eta) == ((0.7, 0.2) if model.startswith("cnn") else (0.2, 0.05))
    assert config(f"ima/table1-{name}", "fedfa").client.anchor_momentum == 0.9
    assert config(f"ima/table1-{name}", "fedgma").server.tau == 0.8


@pytest.mark.parametrize("method", ["fedadam", "fedyogi"])
def test_ima_comes_before_the_optimiser_of_a_server_however_it_is_chosen(method: str) -> None:
    """``for.A+B`` counts where both are chosen, by a flag, by a cell, by the method or by the file."""
    name = "ima/table1-cifar10-cnn-dir0.1"
    both = [
        config(name, method, average={"method": "ima"}),
        config(name, "ima", server={"method": method}),
        config(name, None, average={"method": "IMA"}, server={"method": method.upper()}),
        Setup(name).config(method, cell={"average": {"method": "ima"}}),
    ]
    for found in both:
        assert found.average.before_server
        assert (found.average.window, found.server.lr, found.server.beta2, found.server.tau) == (5, 0.01, 0.99, 0.001)
    assert not config(name, "fedavgm", average={"method": "ima"}).average.before_server
    assert not config(name, method, average={"method": "ima", "before_server": False}).average.before_server
    assert config(name, method).average.begins() is None


def test_a_method_without_an_average_leaves_that_of_the_recipe() -> None:
    name = "wima/table2-cifar10-a0"
    for method in (None, "fma", "scaffold", "fedavgm"):
        average = config(name, method).average
        assert (type(average).__name__, average.window) == ("WIMA", 100)
    assert type(config(name, "ima").average).__name__ == "IMA"
    assert config(name, "swa").average.start == 7500
    assert config(name, "fma", average={"method": "none"}).average.begins() is None
    assert config("wima/table3-gldv2", "fma").average.window == 370


@pytest.mark.parametrize(
    ("name", "clients", "cohort", "rounds", "lr", "weight_decay", "batch", "model"),
    [
        ("cifar10-a0", 100, 10, 10_000, 0.1, 0, 100, "resnet20-gn"),
        ("cifar100-a0.5", 100, 10, 10_000, 0.1, 0, 100, "resnet20-gn"),
        ("cifar100-pam", 500, 100, 10_000, 0.05, 4e-4, 20, "resnet20-gn"),
        ("femnist", 3400, 10, 1500, 0.1, 0, 10, "cnn-femnist"),
        ("shakespeare", 715, 10, 1500, 1.0, 0, 4, "lstm"),
    ],
)
def test_the_rows_of_wimas_second_table(
    name: str, clients: int, cohort: int, rounds: int, lr: float, weight_decay: float, batch: int, model: str
) -> None:
    from fedscope.training.rng import cohort_size

    found = config(f"wima/table2-{name}")
    assert (found.data.clients, found.run.rounds, found.model.name) == (clients, rounds, model)
    assert cohort_size(clients, found.run.participation) == cohort
    settings = (found.client.lr, found.client.momentum, found.client.weight_decay, found.client.lr_decay)
    assert settings == (lr, 0, weight_decay, 0)
    assert (found.client.batch, found.client.epochs) == (batch, 1)
    cells = {
        cell["label"]: Setup(f"wima/table2-{name}").config(*tables_of(cell))
        for cell in recipe(f"wima/table2-{name}").cells()
    }
    assert len(cells) == 11
    # heavy-ball's step is 1/(1 - 0.9) times as long as 0.1 g + 0.9 m at the same rate
    for label in ("MIME SGDm", "MIMELite"):
        assert cells[label].client.lr == pytest.approx(lr / (1 - 0.9))
        assert cells[label].client.beta == 0.9
    assert (cells["MIME SGD"].client.lr, cells["MIME SGD"].client.beta) == (lr, 0)
    momentum = {label: getattr(one.server, "momentum", 0) for label, one in cells.items() if label != "FedACG"}
    served = {"FedAvg", "FedDyn", "AdaBest"} if name == "cifar100-pam" else set(momentum) - {"FedAvgM"}
    assert momentum == {label: 0 if label in served else 0.9 for label in momentum}


def test_gldv2_and_the_figures_of_wima() -> None:
    found = config("wima/table3-gldv2")
    assert (found.data.clients, found.run.rounds, found.client.batch, found.client.epochs) == (1262, 3000, 50, 5)
    assert (found.client.lr, found.client.weight_decay, found.model.name) == (0.1, 4e-5, "mobilenetv2-gn")
    starts = [cell.get("average.start") for cell in recipe("wima/fig2").cells()]
    assert starts == [None, *(round(share * 10_000) for share in (0.1, 0.25, 0.5, 0.75, 0.9))]
    for letter, alpha in (("a", "0"), ("b", "0.05")):
        found = config(f"wima/fig3{letter}")
        assert (found.data.partition, found.client.batch) == (f"dirichlet-clients:{alpha}", 20)


@pytest.mark.parametrize(
    ("name", "data", "partition", "model", "clients", "share"),
    [
        ("table1-path-cifar10", "cifar10", "pathological:2", "resnet18", 20, 1.0),
        ("table1-path-cifar100", "cifar100", "pathological:10", "resnet18", 20, 1.0),
        ("table1-path-tiny", "tiny-imagenet", "pathological:20", "resnet18", 20, 1.0),
        ("table1-dir0.1-cifar100-resnet34", "cifar100", "dirichlet:0.1", "resnet34", 20, 1.0),
        ("table2-n100-p0.5", "cifar100", "dirichlet:0.1", "resnet18", 100, 0.5),
        ("table5-n50-p1", "cifar10", "dirichlet:0.1", "resnet18", 50, 1.0),
        ("table3-dir0.01", "cifar100", "dirichlet:0.01", "resnet18", 20, 1.0),
    ],
)
def test_the_rows_of_fedsas_tables(
    name: str, data: str, partition: str, model: str, clients: int, share: float
) -> None:
    found = config(f"fedsa/{name}", "fedsa")
    assert (found.data.name, found.data.partition, found.model.name) == (data, partition, model)
    assert (found.data.clients, found.run.participation, found.run.rounds) == (clients, share, 1000)
    assert (found.data.client_test, found.data.pool, found.run.evaluate_all) == (0.25, True, "last:10")
    client = found.client
    settings = (client.lr, client.momentum, client.weight_decay, client.lr_decay, client.batch, client.epochs)
    assert settings == (0.005, 0, 0, 0, 10, 1)
    size = {"cifar10": 4, "cifar100": 5, "tiny-imagenet": 8}[data]
    server = found.server
    assert (server.classes, server.clusters) == (size, size)
    assert (server.cv_threshold, server.sim_threshold, server.similarity) == (0.2, 0.2, "layer")


def test_the_methods_beside_fedsa() -> None:
    name = "fedsa/table1-dir0.1-cifar10"
    assert {cell["method"] for cell in recipe(name).cells()} == set(FEDSA)
    client = {method: config(name, method).client for method in FEDSA}
    assert client["fedprox"].mu == 0.001
    assert (client["moon"].temperature, client["moon"].mu) == (1, 1)
    assert (client["fedgen"].generator_lr, client["fedgen"].hidden, client["fedgen"].noise) == (0.005, 512, 512)
    assert client["ditto"].pull == 0.001
    assert client["fedbabu"].fine_tune_epochs == 10
    assert (client["fedala"].portion, client["fedala"].layers) == (0.8, 1)
    assert recipe(name).measure == "all_client_deployed_accuracy_mean last 10"


def test_base_of_fedswa() -> None:
    for name, data, alpha in (("table2-cifar10-resnet18", "cifar10", 0.6), ("table3-dir0.1", "cifar100", 0.1)):
        found = config(f"fedswa/{name}", "fedmoswa")
        assert (found.data.name, found.data.partition, found.model.name) == (data, f"dirichlet:{alpha}", "resnet18-gn")
        assert (found.data.clients, found.run.participation, found.run.rounds) == (100, 0.1, 1000)
        client = found.client
        assert (client.lr, client.momentum, client.weight_decay, client.clip) == (0.1, 0, 1e-3, 10)
        assert (client.batch, client.epochs, client.lr_decay) == (50, 5, 0)
        assert (client.lr_floor, found.server.alpha, found.server.gamma) == (0.1, 1.5, 0.2)
    vit = config("fedswa/tiny-vit-dir0.3")
    assert (vit.data.name, vit.model.name, vit.data.partition) == ("tiny-imagenet", "vit-b16", "dirichlet:0.3")


def test_grids_are_the_papers() -> None:
    ima, wima = recipe("ima/table3").grid, recipe("wima/table2-femnist").grid
    assert ima == {
        "fedprox": {"client.mu": (0.1, 0.01, 0.001)},
        "fedfa": {"client.anchor_weight": (0.1, 0.01, 0.001)},
    }
    assert wima["fedacg"] == {"client.beta": (0.01, 0.001), "server.momentum": (0.8, 0.85, 0.9)}
    assert wima["adabest"]["server.beta"] == (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
    assert wima["fedcm"] == {"client.alpha": (0.05, 0.1, 0.5)}


# --- what is asked for ---


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "ima/tabel2",
            r"^'ima/tabel2' is not a recipe; did you mean \"ima/table2\"\?; fedscope recipes lists all$",
        ),
        (
            "fedswa",
            r"^'fedswa' is not a recipe; fedswa has fedswa/ablation, fedswa/rounds, .*; fedscope recipes",
        ),
        ("imma", r"^'imma' is not a recipe; did you mean \"ima\"\?; fedscope recipes lists all$"),
        ("../_base", r"^'\.\./_base' is not a recipe"),
        ("ima/_base", r"^'ima/_base' is not a recipe"),
        ("", r"^'' is not a recipe; there are those of fedsa, fedswa, ima, wima; fedscope recipes lists all$"),
        ("xyz", r"^'xyz' is not a recipe; there are those of fedsa, fedswa, ima, wima; fedscope recipes"),
    ],
)
def test_an_unknown_recipe_is_refused_with_the_nearest(name: str, sentence: str) -> None:
    with pytest.raises(FedscopeError, match=sentence):
        recipe(name)


def test_set_counts_more_than_a_recipe_and_its_methods_settings() -> None:
    name = "ima/table1-cifar10-cnn-dir0.1"
    assert config(name, "fedasam", client={"sam_rho": 0.1}).client.sam_rho == 0.1
    assert config(name, "ima", average={"window": 9}).average.window == 9
    with pytest.raises(FedscopeError, match=r"client\.mu is not a setting of SGD"):
        config(name, "fma", client={"mu": 0.1})
    with pytest.raises(FedscopeError, match=r"method='fedproxx' is not a method .*; did you mean \"fedprox"):
        config(name, "fedproxx")


def test_cells_are_all_combinations_the_last_axis_fastest() -> None:
    one = ({"method": "fma", "label": "A"}, {"method": "ima", "label": "B"})
    other = ({"run.rounds": 3}, {"run.rounds": 4})
    cells = cells_of((one, other))
    assert [(cell["label"], cell["run.rounds"]) for cell in cells] == [("A", 3), ("A", 4), ("B", 3), ("B", 4)]
    assert cells_of((({"label": "x"},),)) == ({"label": "x"},)
    assert cells_of((({"label": "x"},), ({"label": "y", "run.rounds": 1},)))[0]["label"] == "x, y"
    assert cells_of(()) == ({},)
    assert merge(*(tables_of(cell)[1] for cell in cells)) == {"run": {"rounds": 4}}
