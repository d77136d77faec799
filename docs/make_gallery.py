"""Write `docs/gallery.md` and its pictures: every figure of the program from real runs, each with its command.

    python docs/make_gallery.py

Trains the runs of the README's tour (and two more) on the embedded digits into a temporary folder, gives each command
there, and keeps the picture it drew and the sentence it printed. Where FEDSCOPE_CIFAR10 names an `.npz` of CIFAR-10, a
run on it is trained and drawn too (about a quarter of an hour on two cores); elsewhere its pictures stay as they are.
"""

from __future__ import annotations

import io
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).resolve().parent
PICTURES = DOCS / "figures" / "gallery"
PAGE = DOCS / "gallery.md"
DPI, MOST_BYTES = 150, 200_000


@dataclass(frozen=True)
class Entry:
    """A picture: the question it answers, how it is made, how it is read.

    Attributes:
        name: of the picture's file, and of the command's --out below ``gallery/``.
        command: as a user types it, without --out.
        read: what to look at.
    """

    name: str
    question: str
    command: str
    read: str


#: the methods of the README's tour, and those that the page trains besides
TOUR, MORE = ("fma", "ima"), ("fedsam", "fedswa")

DIGITS = (
    Entry(
        "panels",
        "Is the averaged model better than the models it averages?",
        "fedscope plane runs/ima --rounds 1,20,last --grid 31 --width 7in",
        "Planes through three clients (triangles) and their mean (cross), early, middle and late, and through the "
        "last three global models. Test loss is above, test error below; each has one colour scale.",
    ),
    Entry(
        "globals",
        "Where does IMA's model lie among the global models it averages?",
        "fedscope plane runs/fma@58 runs/fma@59 runs/fma@60 --show runs/ima@60 --grid 31",
        "FMA and IMA are identical until IMA starts to average. The table has the models' own losses, which the "
        "surface does not show for models off the plane.",
    ),
    Entry(
        "clients",
        "Do all clients of a round ring the basin?",
        "fedscope plane runs/ima@20 --clients --show runs/ima@20/global --grid 31",
        "The plane through the ten clients' mean, along their first two principal components. Each axis says how "
        "much of the clients' spread it shows. The table says how far off the plane they are: two axes cannot show "
        "ten clients.",
    ),
    Entry(
        "whose",
        "Whose basin is this?",
        "fedscope plane runs/ima@20/client-1 runs/ima@20/client-15 runs/ima@20/client-25 --data-of clients --grid 31 "
        "--width 7in",
        "One plane, three surfaces: the loss on each client's own training data. Every client is in a basin of its "
        "own, and the region that they share is narrow.",
    ),
    Entry(
        "splits",
        "Is the basin the same on training and test data?",
        "fedscope plane runs/ima@20/client-1 runs/ima@20/client-15 runs/ima@20/client-25 --split both --grid 31",
        "Both surfaces come from one pass over the models.",
    ),
    Entry(
        "trajectory",
        "Which way did training go?",
        "fedscope plane runs/fma --trajectory --grid 31",
        "The plane through the last global model, along the first two principal components of all global models.",
    ),
    Entry(
        "random",
        "How wide is the basin in directions nobody chose?",
        "fedscope plane runs/ima@60 --random --grid 31",
        "Filter-normalised random directions (Li et al., NeurIPS 2018), with axes in L2 distance.",
    ),
    Entry(
        "adaptive",
        "Can I have it sooner?",
        "fedscope plane runs/ima@20/client-1 runs/ima@20/client-15 runs/ima@20/client-25 --adaptive",
        "Only as many of the 51 x 51 points are measured as tell the others. The error of interpolating these is "
        "measured too, and printed.",
    ),
    Entry(
        "line",
        "Is there a barrier between two models?",
        "fedscope line runs/fma@20/global runs/ima@60/global runs/fma@60/global runs/ima@60",
        "Loss (above) and error (below) along the segments. A barrier would rise above the dotted straight line.",
    ),
    Entry(
        "pairs",
        "Which clients can be averaged with which?",
        "fedscope line runs/ima@20 --clients",
        "Linear mode connectivity of all pairs: how much better (negative) or worse the mean of two clients is than "
        "the two.",
    ),
    Entry(
        "sharpness",
        "Is one method's surface flatter than another's?",
        "fedscope sharpness runs/fma runs/fedsam runs/fedswa --rounds 20,40,60 --no-hessian",
        "Sharpness of the training loss around the global models, over rounds.",
    ),
    Entry(
        "curves",
        "How did the runs do?",
        "fedscope curves runs/fma runs/ima",
        "Loss, error and the clients' spread over rounds.",
    ),
    Entry(
        "decompose",
        "What makes up the averaged model's loss?",
        "fedscope decompose runs/fma --rounds 1,20,last --draws local:4",
        "Factors that add up to the measured loss. See [Read the decomposition](howto/decomposition.md).",
    ),
    Entry(
        "averaged",
        "What does an average over rounds add?",
        "fedscope decompose runs/ima --rounds 46,50,55,60 --of both --width 7in",
        "The round's own average, compared with IMA's average over five times as many clients.",
    ),
    Entry(
        "cka",
        "How alike are the clients' outputs?",
        "fedscope cka runs/ima --rounds 1,5,10,20,30,40,50,60",
        "Unbiased linear CKA of all pairs of clients, its mean over rounds, and the test error against it. See "
        "[Say how alike clients are](howto/cka.md).",
    ),
    Entry(
        "subsets",
        "How many models does an average need?",
        "fedscope subsets runs/fma --rounds 1,20,60",
        "Test error of the average of m of a round's ten clients, over random subsets.",
    ),
    Entry(
        "wima",
        "How many rounds does an average need?",
        "fedscope wima runs/fma --windows 2,5,10,20,40 --rounds last:20",
        "Test error of the mean of the last W global models, over twenty rounds of one run. See "
        "[how to read it](howto/wima.md).",
    ),
    Entry(
        "forgetting",
        "What do clients forget while they train?",
        "fedscope forgetting runs/fma --rounds 1,20,40,60",
        "Change of each client's accuracy on the others' samples, by class; its own classes are marked.",
    ),
    Entry(
        "theory",
        "Do the paper's lemma and theorem hold here?",
        "fedscope theory runs/fma",
        "Lemma 1: the gap between averaging outputs and averaging weights against the clients' squared distance. "
        "Theorem 2: the clients' variance against the theorem's equation 3, against the kernel distance of their data "
        "alone, which is the paper's reading, and against the first term alone; dashes show an upper bound.",
    ),
    Entry(
        "map",
        "Where do the clients' models go over training?",
        "fedscope disperse runs/fma runs/ima --embed tsne",
        "t-SNE of exact distances in weight space keeps neighbours, not distances. The lines below give the distances.",
    ),
    Entry(
        "disperse",
        "Which layers do clients disagree about?",
        "fedscope disperse runs/fma --rounds 1,20,40,60",
        "Dispersion and skewness over clients, by layer and round. See [how to read it](howto/dispersion.md).",
    ),
    Entry(
        "parameters",
        "Does the average miss what most clients have?",
        "fedscope parameters runs/fma runs/ima",
        "The most skewed parameters of the last round over its clients (ticks), with the global values marked.",
    ),
    Entry(
        "updates",
        "Do the clients' updates cancel?",
        "fedscope updates runs/fma runs/ima",
        "Cosine of all pairs of updates, and how much of their length remains in the average.",
    ),
    Entry(
        "synergy",
        "Which clients disagree alike?",
        "fedscope synergy runs/ima@60",
        "FedSA's diagnosis of a round trained with another method.",
    ),
)

CIFAR_RUN = (
    "fedscope train --method ima --data npz:cifar10.npz --model cnn --partition dirichlet:0.3 --participation 0.2 "
    "--rounds 30 --epochs 2 --set average.start=20 --set record.clients='[1, 15, 30]' --out runs/cifar10"
)
CIFAR = (
    Entry(
        "cifar-panels",
        "The same on CIFAR-10",
        "fedscope plane runs/cifar10 --rounds 1,15,last --limit 1000 --grid 31 --adaptive --width 7in",
        "The source papers' CNN, clients with labels drawn from Dirichlet(0.3); 1,000 test images.",
    ),
    Entry(
        "cifar-clients",
        "All ten clients, CIFAR-10",
        "fedscope plane runs/cifar10@15 --clients --show runs/cifar10@15/global --limit 1000 --grid 31 --adaptive",
        "As above: the clients' mean, and how much of the clients two axes show.",
    ),
)

HEAD = """# Gallery
The command below each picture wrote it, from runs on real data. These are the runs of the README's tour, and

```sh
{train}
```
"""

CIFAR_HEAD = """## CIFAR-10
`cifar10.npz` holds `x_train, y_train, x_test, y_test` ([your own data](howto/own-data.md)).

```sh
{train}
```
"""


def give(command: str, folder: Path) -> str:
    """What a command prints on stdout."""
    bin_ = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "200"}
    done = subprocess.run(shlex.split(command), cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{command}\nended with {done.returncode}")
    return done.stdout


def keep(picture: Path, name: str) -> None:
    """Store a picture with fewer pixels than for print."""
    from PIL import Image

    PICTURES.mkdir(parents=True, exist_ok=True)
    image = Image.open(picture).convert("RGB")
    for dpi in range(DPI, 60, -10):
        size = round(image.width * dpi / 300), round(image.height * dpi / 300)
        raw = io.BytesIO()
        image.resize(size, Image.Resampling.LANCZOS).save(raw, "png", optimize=True)
        if raw.tell() <= MOST_BYTES:
            break
    (PICTURES / f"{name}.png").write_bytes(raw.getvalue())


def section(entry: Entry, printed: str) -> str:
    """An entry of the page: the command shows what it printed, but for the list of files."""
    said = [line for line in printed.splitlines() if not line.startswith("  ")]
    command = f"{entry.command} --out gallery/{entry.name}"
    shown = "\n".join([f"$ {command}", *said])
    picture = f"![{entry.question}](figures/gallery/{entry.name}.png)"
    return f"## {entry.question}\n{picture}\n\n{entry.read}\n\n```console\n{shown}\n```\n"


def sections(entries: tuple[Entry, ...], folder: Path) -> list[str]:
    """Give the commands, keep the pictures."""
    made = []
    for entry in entries:
        print(f"{entry.name} ...", flush=True)
        made.append(section(entry, give(f"{entry.command} --out gallery/{entry.name}", folder)))
        # the figure of several sets of samples has their name in its own; of two figures the first is shown
        pictures = (folder / "gallery").glob(f"{entry.name}*.png")
        keep(min(pictures, key=lambda picture: len(picture.name)), entry.name)
    return made


def main() -> None:
    """Write the page."""
    data = os.environ.get("FEDSCOPE_CIFAR10", "")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name in (*TOUR, *MORE):
            give(f"fedscope train --method {name}", folder)
        page = [HEAD.format(train="\n".join(f"fedscope train --method {name}" for name in MORE))]
        page += sections(DIGITS, folder)
        if data:
            shutil.copy(data, folder / "cifar10.npz")
            give(CIFAR_RUN, folder)
            page += [CIFAR_HEAD.format(train=CIFAR_RUN), *sections(CIFAR, folder)]
        elif PAGE.exists() and "## CIFAR-10\n" in (before := PAGE.read_text(encoding="utf-8")):
            page.append(before[before.index("## CIFAR-10\n") :])
        PAGE.write_text("\n".join(page).rstrip() + "\n", encoding="utf-8")
    print(PAGE)


if __name__ == "__main__":
    main()
