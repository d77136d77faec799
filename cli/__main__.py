"""``python -m fedscope.cli``: the same as ``fedscope``; and the process in which a sweep trains its runs."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from .main import draw_without_windows, main, run
from .printing import say
from .streams import guard

#: status of a process that ended because its parent did
ORPHANED = 143


def serve() -> None:
    """Run the commands that come in, a line of JSON each, ``{"words": [...], "log": PATH}``; answer with the status.

    The process ends when its standard input does, which is when the parent ends in whatever way, even amid a command: a
    run is fit to go on after any end.
    """
    from ..checkpoints.io.safe_write import append
    from ..checkpoints.io.shell_words import command_line
    from ..training.jobs.worker import LOG

    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where it was ignored, in a shell's background
    for number in (signal.SIGUSR1, signal.SIGUSR2):  # a scheduler's notice of a job's end is for the parent
        signal.signal(number, signal.SIG_IGN)
    answers = os.dup(sys.stdout.fileno())
    guard()
    draw_without_windows()
    asked: SimpleQueue[dict[str, Any]] = SimpleQueue()

    def listen() -> None:
        # not sys.stdin, whose lock would be held when the interpreter ends
        rest = b""
        while block := os.read(0, 1 << 16):
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                asked.put(json.loads(line))
        os._exit(ORPHANED)

    threading.Thread(target=listen, daemon=True).start()
    try:
        while True:
            task = asked.get()
            with append(Path(task["log"]), LOG) as log:
                for descriptor in (1, 2):
                    os.dup2(log.fileno(), descriptor)
            with suppress(OSError):  # a full disk takes no log, and the run's own sentence says so
                say("$ " + command_line(*task["words"]))
            status = run(task["words"])
            for stream in (sys.stdout, sys.stderr):
                with suppress(OSError):
                    stream.flush()
            os.write(answers, b"%d\n" % status)
    except KeyboardInterrupt:  # between two commands
        sys.exit(130)


if __name__ == "__main__":
    if sys.argv[1:] == ["--serve-sweep"]:
        serve()
    main()
