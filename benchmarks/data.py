"""What data cost: CIFAR-10's arrays from the cache of decoded sets, beside decoding its files and beside reading as
many bytes; the memory of a training with one worker and with four; and of one on a set of 4 GB.

CIFAR-10 is random bytes in its true layout (pickles of 10,000 rows), loaded in fresh Pythons that have imported
everything. The large set is images of 64 x 64, colour, in IDX files; it is decoded in one process and trained on in
others. Anonymous memory is what cannot be dropped and read again: the cached images are pages of their file, which the
system takes back when it needs room. Linux only.

python benchmarks/data.py [GB] [repetitions]
"""

from __future__ import annotations

import os
import pickle
import shutil
import statistics
import struct
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from _common import CLASSES, IMAGE, Line, in_fresh_process, read_seconds, spread, table

SECONDS, GROWTH, PEAK, DECODING = 1.0, 0.1, 1.0, 300
ROWS, BATCHES, LARGE = 10_000, 6, (64, 64, 3)
ROUNDS, CLIENTS, CACHE = 3, 100, "FEDSCOPE_CACHE"


class AsPython2(pickle._Pickler):
    """Bytes as Python 2 wrote its strings, and so the published files; Python 3 writes them three times as long."""

    def save_string(self, value: bytes) -> None:
        """BINSTRING, four bytes of length, the bytes."""
        self.write(pickle.BINSTRING + struct.pack("<i", len(value)) + value)
        self.memoize(value)

    dispatch = {**pickle._Pickler.dispatch, bytes: save_string}


def write_cifar(folder: Path) -> None:
    """The six batches of CIFAR-10's Python version."""
    import numpy as np

    draw = np.random.default_rng(0)
    folder.mkdir()
    for name in [*(f"data_batch_{i}" for i in range(1, BATCHES)), "test_batch"]:
        data = draw.integers(0, 256, (ROWS, 3 * 32 * 32), dtype=np.uint8)
        batch = {b"data": data, b"labels": draw.integers(0, CLASSES, ROWS).tolist()}
        with (folder / name).open("wb") as file:
            AsPython2(file, protocol=2).dump(batch)


def write_idx(folder: Path, count: int) -> None:
    """A training set of so many images in MNIST's files, and 2,000 to test on; written a piece at a time."""
    import numpy as np

    draw = np.random.default_rng(0)
    folder.mkdir()
    for stem, n in (("train", count), ("t10k", 2_000)):
        labels = draw.integers(0, CLASSES, n, dtype=np.uint8)
        (folder / f"{stem}-labels-idx1-ubyte").write_bytes(struct.pack(">4BI", 0, 0, 8, 1, n) + labels.tobytes())
        with (folder / f"{stem}-images-idx3-ubyte").open("wb") as file:
            file.write(struct.pack(">4B4I", 0, 0, 8, 4, n, *LARGE))
            for start in range(0, n, ROWS):
                file.write(draw.bytes(min(ROWS, n - start) * LARGE[0] * LARGE[1] * LARGE[2]))


def loading(name: str) -> tuple[float, int]:
    """Seconds of loading a set, and how many bytes its images have; in a process of its own."""
    import torch  # noqa: F401

    from fedscope.training import load_data
    from fedscope.training.data.formats import cache, cifar, idx  # noqa: F401

    began = time.perf_counter()
    data: Any = load_data(name)
    samples = [data.samples(split) for split in ("train", "test")]
    took = time.perf_counter() - began
    return took, sum(split.x.stored.nbytes for split in samples)


def decoding_memory(name: str) -> int:
    """By how much anonymous memory grows while a set is decoded and put into the cache; in a process of its own."""
    import torch  # noqa: F401

    from fedscope.training import load_data
    from fedscope.training.data.formats import cache, cifar, idx  # noqa: F401

    before = numbers("/proc/self/status")["RssAnon"]
    watch = Watch()
    watch.start()
    load_data(name)
    watch.over.set()
    watch.join()
    return watch.anonymous - before


class Watch(threading.Thread):
    """The most anonymous memory of this process, and of its pages of files, looked at every ten milliseconds."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.anonymous = self.file = 0
        self.over = threading.Event()

    def run(self) -> None:
        """Look until it is over; in between, too, at what is counted page by page, which takes longer."""
        looks = 0
        while not self.over.wait(0.01):
            looks += 1
            status = numbers("/proc/self/status")
            self.anonymous = max(self.anonymous, status["RssAnon"])
            self.file = max(self.file, status["RssFile"])
            if looks % 50 == 1:
                self.anonymous = max(self.anonymous, numbers("/proc/self/smaps_rollup")["Anonymous"])


def numbers(path: str) -> dict[str, int]:
    """What such a file says, in bytes."""
    lines = (line.partition(":") for line in Path(path).read_text(encoding="ascii", errors="replace").splitlines())
    return {key: int(words.split()[0]) * 1024 for key, _, words in lines if words.endswith("kB")}


def training(name: str, workers: int) -> tuple[int, int, float, int]:
    """Peaks of anonymous memory and of pages of files, seconds, processes; in a process of its own."""
    from fedscope.training import Config, train

    config = Config.read(
        {
            "data": {"name": name, "clients": CLIENTS, "partition": "shards:2"},
            "model": {"name": "mlp"},
            "client": {"epochs": 1, "lr": 0.01},
            "run": {"rounds": ROUNDS, "participation": 8 / CLIENTS},
        }
    )
    watch = Watch()
    watch.start()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        train(config, Path(folder, "run"), workers=workers)
    took = time.perf_counter() - began
    watch.over.set()
    watch.join()
    children = Path("/proc/self/task", str(os.getpid()), "children").read_text().split()
    return watch.anonymous, watch.file, took, 1 + len(children)


def cifar_lines(place: Path, repetitions: int) -> list[Line]:
    """CIFAR-10: decoding, the cache, and as many bytes."""
    write_cifar(place / "cifar")
    name = f"cifar10:{place / 'cifar'}"
    os.environ[CACHE] = "off"
    decoding = [in_fresh_process(loading, name)[0] for _ in range(repetitions)]
    os.environ[CACHE] = str(place / "cache")
    first, size = in_fresh_process(loading, name)
    shutil.rmtree(place / "cache")
    grown = in_fresh_process(decoding_memory, name)
    cached, reading = [], []
    for _ in range(repetitions):
        cached.append(in_fresh_process(loading, name)[0])
        reading.append(sum(read_seconds(file) for file in (place / "cache").rglob("x_*.npy")))
    ratio = statistics.median(a / b for a, b in zip(cached, reading, strict=True))
    middle = statistics.median(cached)
    return [
        Line("CIFAR-10 from the cache, seconds", spread(cached), f"<= {SECONDS:g}", middle <= SECONDS),
        Line(f"reading its {size / 1e6:.0f} MB, seconds", spread(reading, "{:.3f}")),
        Line("ratio", f"{ratio:.1f}"),
        Line("decoded each time (cache off), seconds", spread(decoding)),
        Line("decoded and put into the cache, once, seconds", f"{first:.2f}"),
        Line(
            "by how much anonymous memory grows meanwhile, MB",
            f"{grown / 1e6:.0f}",
            f"<= {DECODING:g}",
            grown <= DECODING * 1e6,
        ),
    ]


def worker_lines(place: Path) -> list[Line]:
    """The same training with one worker and with four."""
    name, lines = f"cifar10:{place / 'cifar'}", []
    size = in_fresh_process(loading, name)[1]
    one, four = (in_fresh_process(training, name, workers) for workers in (1, 4))
    for workers, (anonymous, _, _, processes) in ((1, one), (4, four)):
        what = f"{workers} worker{'s' * (workers > 1)}, processes: {processes}; peak of anonymous memory, MB"
        lines.append(Line(what, f"{anonymous / 1e6:.0f}"))
    growth = (four[0] - one[0]) / 3 / size
    what = f"a worker more adds, of the data's {size / 1e6:.0f} MB"
    return [*lines, Line(what, f"{growth:.1%}", f"<= {GROWTH:.0%}", growth <= GROWTH)]


def large_lines(place: Path, gigabytes: float) -> list[Line]:
    """A set that is larger than the memory it is trained in."""
    room = shutil.disk_usage(place).free / 1e9
    gigabytes = min(gigabytes, room / 3)  # the files, the cache, and some room for others
    write_idx(place / "large", int(gigabytes * 1e9 / (LARGE[0] * LARGE[1] * LARGE[2])))
    name = f"mnist:{place / 'large'}"
    grown = in_fresh_process(decoding_memory, name)
    again, size = in_fresh_process(loading, name)
    anonymous, file, took, _ = in_fresh_process(training, name, 2)
    return [
        Line(
            f"{size / 1e9:.1f} GB: by how much anonymous memory grows while it is decoded, MB",
            f"{grown / 1e6:.0f}",
        ),
        Line("from the cache, every byte verified, seconds", f"{again:.1f}"),
        Line(f"{ROUNDS} rounds of 8 clients, two workers, seconds", f"{took:.1f}"),
        Line("its peak of anonymous memory, GB", f"{anonymous / 1e9:.2f}", f"<= {PEAK:g}", anonymous <= PEAK * 1e9),
        Line("its pages of files, which need no room of their own, GB", f"{file / 1e9:.2f}"),
    ]


def main(gigabytes: float, repetitions: int) -> None:
    """Measure and print."""
    if not Path("/proc/self/smaps_rollup").exists():
        sys.exit("this benchmark reads /proc, which this system does not have")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        shape = "x".join(map(str, IMAGE))
        table(f"Data: 60,000 images of {shape}, {repetitions} times", cifar_lines(place, repetitions))
        table(f"Data: {ROUNDS} rounds of 8 clients", worker_lines(place))
        table("Data: a large set", large_lines(place, gigabytes))


if __name__ == "__main__":
    given = [float(word) for word in sys.argv[1:]]
    size, times = given + [4.0, 5.0][len(given) :]
    main(size, int(times))
