"""The `corelkv` command: it runs nodes (`cluster`, `serve`) and is a client of their API (everything else)."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kvstore.cli import commands, feeds, parsing
from kvstore.cli.cluster import ClusterOptions, run_cluster
from kvstore.cli.cluster_file import NODES, ClusterError
from kvstore.cli.commands import DEFAULT_URL
from kvstore.cli.file_commands import add_file_commands
from kvstore.cli.output import EXITS, Exit, UsageError, fail
from kvstore.cli.parsing import add_command
from kvstore.cli.status import status as show_status
from kvstore.client import CorelError, Unreachable


def main(arguments: Sequence[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else list(arguments)
    options = make_parser(with_settings=given[:1] == ["serve"]).parse_args(given)
    try:
        return int(options.run(options))
    except UsageError as error:
        return fail(error, Exit.USAGE)
    except Unreachable as error:
        return fail(error, Exit.UNREACHABLE)
    except (CorelError, ClusterError) as error:
        return fail(error, Exit.FAILED)
    except BrokenPipeError:  # `corelkv log | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.FAILED
    except KeyboardInterrupt:
        return Exit.INTERRUPTED


# Arguments

_DESCRIPTION = """\
A replicated key-value store that keeps accepting writes on both sides of a network partition and always says what
each write is worth: green (its place in the one order is final), yellow (about to be), or red (durable here, order
still open; it merges when the network heals)."""

_TOUR = """\
a tour:
  corelkv cluster                      # three nodes on this machine, until Ctrl-C; then, in another terminal:
  corelkv put greeting hello           # green, applied at revision 1 (write a.1.2.0)
  corelkv get greeting                 # hello
  corelkv partition "a|b,c"            # cut node a off
  corelkv put greeting ciao            # at a: red, accepted (exit status 3)
  corelkv get greeting --read red      # ciao
  corelkv heal                         # a's write takes its place in the order
  corelkv status                       # what every node knows
"""


def make_parser(with_settings: bool = True) -> argparse.ArgumentParser:
    """Returns the parser of all commands. `with_settings` adds the flags of `serve`, which come from the node's
    code: client commands start twice as fast without importing it."""
    parser = parsing.Parser(prog="corelkv", description=_DESCRIPTION, epilog=f"{_TOUR}\n{_exit_help()}")
    subparsers = parser.add_subparsers(
        dest="command", required=True, title="commands", metavar="COMMAND", parser_class=parsing.Parser
    )
    _add_cluster(subparsers)
    _add_serve(subparsers, with_settings)
    _add_keys(subparsers)
    _add_feeds(subparsers)
    _add_inspection(subparsers)
    add_file_commands(subparsers)
    _add_chaos(subparsers)
    return parser


def _exit_help() -> str:
    return "exit status:\n" + "\n".join(f"  {status.value:<4} {meaning}" for status, meaning in EXITS.items())


def _add_cluster(subparsers: Any) -> None:
    cluster = add_command(
        subparsers,
        "cluster",
        _cluster,
        "start nodes on this machine, and watch them until Ctrl-C",
        "\n--nodes 5\n--data ./data          # goes on there the next time\n--http-port 9001 --port 7500",
    )
    cluster.add_argument(
        "--nodes", type=parsing.node_count, metavar="N", help=f"how many (default: {NODES}, or as in --data)"
    )
    cluster.add_argument(
        "--http-port",
        type=parsing.port,
        default=8001,
        metavar="PORT",
        help="of the first node; the others follow (8001)",
    )
    cluster.add_argument("--port", type=parsing.port, default=7400, help="UDP broadcast port of all (7400)")
    cluster.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="directory for the nodes' files (default: a temporary one, removed)",
    )
    cluster.add_argument(
        "--chaos",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="let `corelkv partition` cut the network (default: on)",
    )
    cluster.add_argument("--no-restart", action="store_true", help="do not restart nodes that die")
    cluster.description += (
        "\nThe nodes also take the settings of `corelkv serve` from the environment, like CORELKV_LOG_LEVEL=debug."
    )


def _add_serve(subparsers: Any, with_settings: bool) -> None:
    serve = add_command(
        subparsers,
        "serve",
        _serve,
        "run one node",
        "--node a --roster a,b,c --data ./a --bootstrap     # the first start of a new cluster\n"
        "--config a.toml --log-format json\n"
        "--node a --roster a,b --data ./a --peers 10.0.0.1:7400,10.0.0.2:7400 --bind 10.0.0.1:7400",
    )
    serve.description += (
        "\nSettings come from defaults, then the file of --config, then the environment (CORELKV_NODE, ...), then"
        "\nflags; docs/configuration.md has them all."
    )
    if with_settings:
        from kvstore.cli.settings_sources import add_flags

        add_flags(serve)


def _add_keys(subparsers: Any) -> None:
    put = add_command(
        subparsers,
        "put",
        commands.put,
        "set the value of a key",
        "greeting hello\nphoto --file cat.jpg\nlog/today -                        # the value is read from stdin\n"
        "counter 2 --if-match 17            # only if the key is at revision 17\n"
        "lock me --if-none-match '*'        # only if the key does not exist\n"
        "greeting ciao --ack green          # or refused: never red",
    )
    put.add_argument("key")
    put.add_argument("value", nargs="?", help="the value; - reads it from stdin")
    put.add_argument("--file", type=Path, metavar="F", help="the value is this file's content")
    put.add_argument("--content-type", metavar="TYPE", help="kept with the value (default: guessed)")
    get = add_command(
        subparsers,
        "get",
        commands.get,
        "write the value of a key to stdout, as it is",
        "greeting\ngreeting --read linearizable\nphoto --output cat.jpg\ngreeting --json     # with its revision",
    )
    get.add_argument("key")
    _add_read(get)
    get.add_argument(
        "--min-revision", type=parsing.number, metavar="N", help="wait until the node has this revision"
    )
    get.add_argument("--revision", type=parsing.number, metavar="N", help="the value as it was at this revision")
    get.add_argument(
        "--wait-revision", type=parsing.number, metavar="N", help="wait until it changed after this revision"
    )
    get.add_argument("--output", type=Path, metavar="F", help="write the value to this file")
    delete = add_command(subparsers, "delete", commands.delete, "remove a key", "greeting\ngreeting --if-match 17")
    delete.add_argument("key")
    for parser in (put, delete):
        parser.add_argument(
            "--ack",
            choices=("auto", "green", "red"),
            help="what to wait for: green in a primary component, else red (auto, the default); green or nothing; "
            "that it is durable at the node (red)",
        )
        parser.add_argument("--if-match", metavar="REVISION", help="only if the key is at this revision (or *)")
        parser.add_argument("--if-none-match", metavar="*", help="only if the key does not exist")
        parser.add_argument(
            "--merge",
            choices=("last", "keep_green"),
            help="if another write of the key becomes green first: overwrite it (last, the default), or yield",
        )
        parser.add_argument("--idempotency-key", metavar="TEXT", help="a write repeated with it applies once")
    for parser in (put, get, delete):
        _add_timeout(parser)
        _add_client(parser)


def _add_feeds(subparsers: Any) -> None:
    list_ = add_command(
        subparsers,
        "list",
        feeds.list_keys,
        "show keys and values of one revision, in order",
        "\nusers/\nusers/ --keys-only --limit 10\n--start a --end n --reverse\nusers/ --count\n--revision 17",
    )
    list_.add_argument("prefix", nargs="?", help="only keys that begin with this")
    list_.add_argument("--start", metavar="KEY", help="the first key of a range")
    list_.add_argument("--end", metavar="KEY", help="the key before which it ends")
    list_.add_argument("--reverse", action="store_true", help="from the last key to the first")
    list_.add_argument("--limit", type=parsing.number, metavar="N", help="how many at most (default: all)")
    list_.add_argument("--keys-only", action="store_true", help="without values")
    list_.add_argument("--count", action="store_true", help="only how many there are")
    list_.add_argument("--revision", type=parsing.number, metavar="N", help="as it was at this revision")
    _add_read(list_)
    watch = add_command(
        subparsers,
        "watch",
        feeds.watch,
        "show changes as they become final, until Ctrl-C",
        "\nusers/ orders/\n--key greeting --prev\n--from 17            # from revision 17 on\n"
        "--count 1            # wait for one change\n--tentative --json",
    )
    watch.add_argument("prefix", nargs="*", help="only keys that begin with one of these")
    watch.add_argument("--key", help="only this key")
    watch.add_argument(
        "--from", dest="first", type=parsing.number, metavar="N", help="the first revision (default: the next)"
    )
    watch.add_argument("--prev", action="store_true", help="show what each change replaced")
    watch.add_argument(
        "--count", type=parsing.number, metavar="N", help="end after so many events (default: never)"
    )
    watch.add_argument("--tentative", action="store_true", help="show writes that are not final yet, too")
    history = add_command(
        subparsers, "history", feeds.history, "show the kept revisions of a key, newest first", "greeting"
    )
    history.add_argument("key")
    history.add_argument("--limit", type=parsing.number, metavar="N", help="how many at most (default: all)")
    conflicts = add_command(
        subparsers,
        "conflicts",
        feeds.conflicts,
        "show writes whose outcome or effect a merge changed",
        "\nusers/\n--preview             # what would become of writes that are not final yet",
    )
    conflicts.add_argument("prefix", nargs="?", help="only keys that begin with this")
    conflicts.add_argument("--from", dest="first", type=parsing.number, metavar="N", help="the first revision")
    conflicts.add_argument("--limit", type=parsing.number, metavar="N", help="how many at most (default: all)")
    conflicts.add_argument(
        "--preview", action="store_true", help="of writes that are not final yet, if merged now"
    )
    for parser in (list_, watch, history, conflicts):
        _add_client(parser)


def _add_inspection(subparsers: Any) -> None:
    status = add_command(
        subparsers,
        "status",
        show_status,
        "show every node: its state, view and lines",
        "\n--json\n--watch             # until Ctrl-C; in a pipe, one line for each change",
    )
    status.add_argument("--watch", action="store_true", help="go on, until Ctrl-C")
    status.add_argument(
        "--interval", type=parsing.seconds, metavar="S", help="with --watch: ask every S seconds (default 0.5)"
    )
    log = add_command(
        subparsers,
        "log",
        commands.log,
        "show the messages of a node's log in their order",
        "\n--from 100 --limit 20",
    )
    log.add_argument(
        "--from",
        dest="first",
        type=parsing.number,
        metavar="N",
        help="position of the first (default: the first kept)",
    )
    log.add_argument("--limit", type=parsing.number, metavar="N", help="how many at most (default 100)")
    write = add_command(
        subparsers,
        "write",
        commands.write,
        "show what became of a write",
        "a.1794953000123.17.0\n--wait a.1794953000123.17.0",
    )
    write.add_argument("id", help="as `put` printed it")
    write.add_argument("--wait", action="store_true", help="until it is green")
    _add_timeout(write)
    for parser in (status, log, write):
        _add_client(parser)


def _add_chaos(subparsers: Any) -> None:
    partition = add_command(
        subparsers,
        "partition",
        commands.partition,
        "cut the network between nodes (needs --chaos there)",
        '"a,b|c"\n"a|b|c"',
    )
    partition.add_argument("sides", help="all nodes: , between those who hear each other, | between sides")
    heal = add_command(subparsers, "heal", commands.heal, "end all partitions and other disturbances", "")
    replay = add_command(
        subparsers,
        "replay",
        _replay,
        "perform a script of the console's laboratory again, with its timing",
        "script.json\nscript.json --speed 2",
    )
    replay.add_argument("file", type=Path, help="as the console exported it")
    replay.add_argument("--speed", type=parsing.speed, default=1.0, metavar="X", help="times as fast (default 1)")
    _add_client(replay)
    for parser in (partition, heal):
        parser.add_argument("--no-wait", action="store_true", help="do not wait until the nodes have noticed")
        _add_client(parser)


def _replay(options: argparse.Namespace) -> int:
    from kvstore.cli.replay import replay  # which needs asyncio, and other clients do not

    return replay(options)


def _add_read(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--read",
        choices=("green", "red", "linearizable"),
        help="what is final here (default), with what is not final yet, or the latest that is final anywhere",
    )


def _add_timeout(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--timeout-ms", type=parsing.number, metavar="N", help="how long the node may take (default 5000)"
    )


def _add_client(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--url",
        action="append",
        metavar="URL",
        help="a node; repeated or comma-separated, the first that can be reached is asked "
        f"(default: CORELKV_URL, or {DEFAULT_URL})",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


# Nodes


def _cluster(options: argparse.Namespace) -> int:
    return run_cluster(
        ClusterOptions(
            nodes=options.nodes,
            http_port=options.http_port,
            port=options.port,
            data=options.data,
            chaos=options.chaos,
            restart=not options.no_restart,
        )
    )


def _serve(options: argparse.Namespace) -> int:
    from kvstore.cli.serve import ServeError, serve
    from kvstore.cli.settings_sources import SettingsError, from_arguments

    try:
        serve(from_arguments(options, os.environ))
    except SettingsError as error:
        return fail(error, Exit.USAGE)
    except ServeError as error:
        return fail(error, Exit.FAILED)
    return Exit.OK


if __name__ == "__main__":
    sys.exit(main())
