"""The commands that read or make the files of nodes: `backup`, `restore`, `recover`, `verify`, `export` and
`analyze`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from kvstore.cli.parsing import add_command

ANALYSES = ("audit", "latency", "partitions", "network", "workload")
"""The jobs of `spark.JOBS`, which are not imported to print `--help`."""


def add_file_commands(subparsers: Any) -> None:
    _add_backup(subparsers)
    _add_restore(subparsers)
    _add_recover(subparsers)
    _add_verify(subparsers)
    _add_export(subparsers)
    _add_analyze(subparsers)


def _add_backup(subparsers: Any) -> None:
    backup = add_command(
        subparsers,
        "backup",
        _backup,
        "copy the final state of a cluster from a node to a file, while writes go on",
        "http://127.0.0.1:8001 corelkv.backup\nhttps://a.example /backups/$(date +%F).backup --json",
    )
    backup.add_argument("url", metavar="URL", help="of a node that is or was in a primary component")
    backup.add_argument("file", type=Path, metavar="FILE", help="what is written; it is there when it is whole")
    backup.add_argument("--json", action="store_true", help="print JSON, for programs")


def _backup(options: argparse.Namespace) -> int:
    from kvstore.cli.backup import backup  # which needs LMDB, and clients do not

    return backup(options.url, options.file, options.json)


def _add_restore(subparsers: Any) -> None:
    restore = add_command(
        subparsers,
        "restore",
        _restore,
        "make the disk of a node of a new cluster from a backup; do it for every node, then start them",
        "corelkv.backup --data /var/lib/corelkv --node a\n"
        "corelkv.backup --data ./copy --node a --cluster test     # beside the cluster that it is of",
    )
    restore.add_argument("file", type=Path, metavar="FILE", help="what `corelkv backup` has written")
    restore.add_argument(
        "--data", type=Path, required=True, metavar="DIR", help="what the node has as --data: new, or empty"
    )
    restore.add_argument("--node", required=True, metavar="NAME", help="the node's name")
    restore.add_argument("--cluster", metavar="NAME", help="the cluster's name (default: that in the backup)")
    restore.add_argument(
        "--map-bytes",
        metavar="NUMBER",
        help="the node's log.map_bytes (default: that of a node, or more if the backup needs it)",
    )


def _restore(options: argparse.Namespace) -> int:
    from kvstore.cli.restore import restore  # which needs LMDB, and clients do not

    return restore(options.file, options.data, options.node, options.cluster, options.map_bytes)


def _add_recover(subparsers: Any) -> None:
    recover = add_command(
        subparsers,
        "recover",
        _recover,
        "when half of the votes or more are lost for good: make a backup from the best disk that is left",
        "/mnt/a /mnt/b --out corelkv.backup      # then `corelkv restore` it for every node of the new cluster",
    )
    recover.add_argument(
        "data", nargs="+", type=Path, metavar="DIR", help="what a node that is left has as --data; it is stopped"
    )
    recover.add_argument("--out", type=Path, required=True, metavar="FILE", help="what is written")
    recover.add_argument(
        "--lost", type=Path, metavar="FILE", help="write the ids of all messages that are lost to this file"
    )
    recover.add_argument("--yes", action="store_true", help="do not ask")


def _recover(options: argparse.Namespace) -> int:
    from kvstore.cli.recover import recover  # which needs LMDB, and clients do not

    return recover(options.data, options.out, options.yes, options.lost)


def _add_verify(subparsers: Any) -> None:
    verify = add_command(
        subparsers,
        "verify",
        _verify,
        "read everything in a node's data directory or in a backup, and say whether it is damaged",
        "/var/lib/corelkv\ncorelkv.backup",
    )
    verify.add_argument(
        "path", type=Path, help="what the node has as --data, which may run meanwhile; or a file of `backup`"
    )


def _verify(options: argparse.Namespace) -> int:
    from kvstore.cli.restore import verify_file  # which need LMDB, and clients do not
    from kvstore.cli.verify import verify_directory

    return verify_file(options.path) if options.path.is_file() else verify_directory(options.path)


def _add_export(subparsers: Any) -> None:
    export = add_command(
        subparsers,
        "export",
        _export,
        "write the logs of nodes, which may be running, as Parquet files for Spark",
        "/var/lib/corelkv --out ./logs\n"
        "data/a data/b data/c --out ./logs        # the nodes of `corelkv cluster --data data`\n"
        "data/a --out ./logs --no-bodies          # without the values of keys",
    )
    export.add_argument("data", nargs="+", type=Path, help="what a node has as --data; the node may run meanwhile")
    export.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="DIR",
        help="where to write; a directory of an earlier export gets what is new, also one that was interrupted",
    )
    export.add_argument(
        "--bodies",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="write whole messages, with the values of keys (default: on)",
    )
    export.add_argument("--json", action="store_true", help="print JSON, for programs")


def _export(options: argparse.Namespace) -> int:
    from kvstore.cli.export import export  # which needs LMDB, and clients do not

    return export(options.data, options.out, options.bodies, options.json)


def _add_analyze(subparsers: Any) -> None:
    analyze = add_command(
        subparsers,
        "analyze",
        _analyze,
        "prove from journals and exported logs that the replicas agreed, and say where time went",
        "/var/lib/corelkv exported --out report\n"
        "data exported --out report --only audit\n"
        "hdfs:///logs --out hdfs:///reports/today --master spark://host:7077\n"
        "data exported --out report2 --previous report     # the order of report must continue in report2\n"
        "data --follow --checkpoint place     # journals as they grow, until Ctrl-C",
    )
    analyze.add_argument(
        "directories",
        nargs="+",
        metavar="DIR",
        help="journals, exports and load tests' records are found below it",
    )
    analyze.add_argument("--out", metavar="REPORT", help="the directory that is written")
    analyze.add_argument("--only", action="append", choices=ANALYSES, help="only this job (repeatable)")
    analyze.add_argument("--previous", metavar="REPORT", help="an earlier report, whose digests must be continued")
    analyze.add_argument("--follow", action="store_true", help="tell of journals as they grow, until Ctrl-C")
    analyze.add_argument("--checkpoint", metavar="DIR", help="with --follow: where it goes on the next time")
    analyze.add_argument(
        "--for", dest="seconds", type=float, metavar="S", help="with --follow: end after S seconds"
    )
    analyze.add_argument("--once", action="store_true", help="with --follow: end when what is there was read")
    analyze.add_argument("--master", default="local[*]", help="Spark's master (default: this machine)")
    analyze.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE", help="a setting of Spark")
    analyze.add_argument("--json", action="store_true", help="print JSON, for programs")


def _analyze(options: argparse.Namespace) -> int:
    from kvstore.cli.analyze import analyze  # which needs Spark, and nothing else does

    return analyze(options)
