"""`corelkv analyze`: what journals and exported logs prove and tell, by Spark.

Spark and plotly are imported when they are needed: nodes and clients do without."""

from __future__ import annotations

import argparse
from importlib.util import find_spec

from kvstore.cli.output import Exit, UsageError, fail, print_json
from kvstore.cli.progress import steps

_NEEDED = ("pyspark", "plotly", "pyarrow")


def analyze(options: argparse.Namespace) -> int:
    """Does what was asked for, and returns the exit status."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        return fail(f"to analyse, {' and '.join(missing)} are needed: pip install 'corelkv[spark]'", Exit.FAILED)
    try:
        conf = _settings(options.conf)
        _check(options)
    except UsageError as error:
        return fail(error, Exit.USAGE)
    return _follow(options, conf) if options.follow else _report(options, conf)


def _check(options: argparse.Namespace) -> None:
    """Raises if options do not go together."""
    of_report = {"--out": options.out, "--previous": options.previous, "--only": options.only}
    of_follow = {"--checkpoint": options.checkpoint, "--for": options.seconds, "--once": options.once or None}
    needed, others = ("--checkpoint", of_report) if options.follow else ("--out", of_follow)
    if {**of_report, **of_follow}[needed] is None:
        raise UsageError(f"{needed} is needed: a directory to write to")
    for name, value in others.items():
        if value is not None:
            raise UsageError(f"{name} goes {'without' if options.follow else 'with'} --follow")


def _report(options: argparse.Namespace, conf: dict[str, str]) -> int:
    from spark import (
        JOBS,
        Request,
        SourceError,
        SparkUnavailable,
        Verdict,
        analyze,
        is_little,
        open_session,
        steps_of,
    )

    jobs = [job for job in JOBS if not options.only or job in options.only]
    try:
        session = open_session(options.master, conf, "corelkv analyze", is_little(options.directories))
    except SparkUnavailable as error:
        return fail(error, Exit.FAILED)
    try:
        with steps(steps_of(jobs)) as tell:
            found = analyze(session, Request(options.directories, options.out, jobs, options.previous), tell)
    except SourceError as error:
        return fail(error, Exit.USAGE)
    finally:
        session.stop()
    if options.json:
        print_json({"verdict": found.verdict, "report": found.report, "told": list(found.lines)})
    else:
        print("\n".join([*found.lines, f"report: {found.report}"]))
    if found.verdict is Verdict.VIOLATED:
        return Exit.FAILED
    return Exit.NOT_PROVEN if found.verdict is Verdict.NOT_PROVABLE else Exit.OK


def _follow(options: argparse.Namespace, conf: dict[str, str]) -> int:
    from spark import CheckpointError, SparkUnavailable, as_json, as_text, follow, open_session

    shown = as_json if options.json else as_text
    try:
        session = open_session(options.master, conf, "corelkv analyze --follow")
    except SparkUnavailable as error:
        return fail(error, Exit.FAILED)
    try:
        follow(
            session,
            options.directories,
            options.checkpoint,
            lambda told: print("\n".join(shown(told)), flush=True),
            is_once=options.once,
            seconds=options.seconds,
        )
    except CheckpointError as error:
        return fail(error, Exit.USAGE)
    finally:
        session.stop()
    return Exit.OK


def _settings(given: list[str]) -> dict[str, str]:
    settings = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not equals:
            raise UsageError(f"--conf takes NAME=VALUE, not {one!r}")
        settings[name] = value
    return settings
