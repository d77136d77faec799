"""FedSA: where the paper contradicts itself, and what of it was not run here."""

from __future__ import annotations

from paper import Left


def contradictions() -> tuple[str, ...]:
    """A sentence each."""
    import fedscope

    def cell(recipe: str, row: str) -> float:
        return next(one.value for one in fedscope.recipe(f"fedsa/{recipe}").published if one.row == row)

    path, half, path_fedavg = "table1-path-cifar100", "table5-n50-p0.5", cell("table1-path-cifar100", "fma")
    minutes, a_round, rounds = 465, 0.302, fedscope.recipe("fedsa/fig5").tables["run"]["rounds"]
    babu, fedsa = cell(path, "fedbabu"), cell(path, "fedsa")
    return (
        "The list of baselines has seven methods and lacks FedGen; the tables have eight. We use the tables' list.",
        f'A gain of "about 4.7 %" is stated; the nearest readable cells differ by {fedsa - babu:.2f} '
        f"({fedsa:.2f} against FedBABU's {babu:.2f}).",
        f"The paper states that accuracy is the global model's, but FedBABU's {babu:.2f}, {babu - path_fedavg:.1f} "
        "above FedAvg, looks to us like that of the clients' fine-tuned models (our guess). We use those for FedBABU "
        "and the global model for the others, and show both.",
        f"The paper states that FedSA is best. But in Table 5, with 50 clients and half of them per round, it has "
        f"{cell(half, 'fedsa'):.2f} and FedAvg {cell(half, 'fma'):.2f}.",
        f"Table 4 gives FedNTD {minutes} minutes and {a_round} per round, which are {minutes / a_round:,.0f} rounds of "
        f"the {rounds:,} in total.",
        "Tiny-ImageNet is cited as the downsampled ImageNet of 1,000 classes; 20 classes per client fit the set of "
        "200.",
    )


def left() -> tuple[Left, ...]:
    """What was not run, and why."""
    other = "CIFAR-100 is not on the machine that the pages were made on."
    return (
        Left("Table 1, CIFAR-10, two classes per client", "fedsa/table1-path-cifar10", "Machine time alone."),
        Left("Table 1, CIFAR-100, ten classes per client", "fedsa/table1-path-cifar100", other),
        Left("Table 1, CIFAR-100", "fedsa/table1-dir0.1-cifar100", other),
        Left("Table 1, CIFAR-100, ResNet-34", "fedsa/table1-dir0.1-cifar100-resnet34", other),
        Left(
            "Table 1, Tiny-ImageNet, 20 classes per client",
            "fedsa/table1-path-tiny",
            "Tiny-ImageNet is not on the machine that the pages were made on.",
        ),
        Left(
            "Table 1, Tiny-ImageNet",
            "fedsa/table1-dir0.1-tiny",
            "Tiny-ImageNet is not on the machine that the pages were made on.",
        ),
        *(Left(f"Table 2, {words}", f"fedsa/table2-{name}", other) for name, words in _federations().items()),
        *(Left(f"Table 3, dirichlet:{alpha}", f"fedsa/table3-dir{alpha}", other) for alpha in ("0.01", "0.5", "1")),
        Left(
            "Table 4, minutes",
            "fedsa/table4",
            "Minutes depend on a machine and a network: there was no GPU, and `cnn` is not ResNet-18.",
        ),
        *(
            Left(f"Table 5, {words}", f"fedsa/table5-{name}", "Machine time alone.")
            for name, words in _federations().items()
        ),
    )


def _federations() -> dict[str, str]:
    """Of Tables 2 and 5."""
    return {
        "n50-p1": "50 clients",
        "n50-p0.5": "50 clients, half of them per round",
        "n100-p0.5": "100 clients, half of them per round",
    }
