"""A Ray cluster of several nodes on this machine: started in Ray's environment, ended with standard input.

Each line of standard input is a command: ``kill N`` kills the raylet of node N with all its workers at once. Prints the
address first.
"""

from __future__ import annotations

import os
import signal
import sys


def main() -> None:
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    nodes = [cluster.add_node(num_cpus=1) for _ in range(int(sys.argv[1]))]
    cluster.wait_for_nodes()
    print(cluster.address, flush=True)
    for line in sys.stdin:
        node = nodes[int(line.split()[1])]
        for process in node.all_processes["raylet"]:
            os.kill(process.process.pid, signal.SIGKILL)
        print("killed", flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    main()
