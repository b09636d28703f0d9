"""The options that a run adds to Locust's own, on the command line and on its web page."""

from __future__ import annotations

from typing import Any

from loadtest.faults import PERIOD_SECONDS
from loadtest.shapes import SHAPES

READS = ("green", "red", "linearizable")


def add_options(parser: Any) -> None:
    group = parser.add_argument_group(
        "corelkv", "What to do to the cluster. --host takes several URLs, with commas."
    )
    group.add_argument(
        "--record", default="", metavar="DIR", help="where the record goes (default: build/load/TIME)"
    )
    group.add_argument("--shape", choices=SHAPES, default="soak", help="how the number of users changes (soak)")
    group.add_argument(
        "--think-ms", type=float, default=50.0, help="mean pause of a user between two requests (50)"
    )
    group.add_argument("--records", type=int, default=1_000, help="keys that are written before the run (1000)")
    group.add_argument("--value-bytes", type=int, default=100, help="length of values (100)")
    group.add_argument("--read", choices=READS, default="green", help="read level of YCSB's reads (green)")
    group.add_argument("--chaos", action="store_true", help="partition, kill and heal nodes during the run")
    group.add_argument(
        "--supervisor",
        type=int,
        default=0,
        metavar="PID",
        help="`corelkv cluster` whose nodes may be killed (none)",
    )
    group.add_argument(
        "--fault-seconds", type=float, default=PERIOD_SECONDS, help="from one fault to the next (20)"
    )
    group.add_argument(
        "--knee-p99-ms", type=float, default=500.0, help="above this a step is beyond the knee (500)"
    )
    group.add_argument("--seed", type=int, default=1, help="of the faults and of what users ask for (1)")
    group.add_argument(
        "--run", default="", help="part of the keys of counters and swaps, which must be new (default: the time)"
    )
