"""``ptxbench serve``: its options, and what they mean together."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from ptxbench.arguments import NO_TOKEN, TOKEN_VARIABLE, add_trace_sets, count, is_token, positive
from ptxbench.errors import InputError
from ptxbench.service.settings import (
    DEFAULT_DRAIN_S,
    DEFAULT_HOST,
    DEFAULT_KEEP_DAYS,
    DEFAULT_MAX_QUEUE,
    DEFAULT_PORT,
    DEFAULT_STORE,
    Settings,
    is_loopback,
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--host", default=DEFAULT_HOST, help=f"address to listen on (default: {DEFAULT_HOST})")
    parser.add_argument(
        "--port", type=_port, default=DEFAULT_PORT, help=f"0 takes any that is free (default: {DEFAULT_PORT})"
    )
    parser.add_argument(
        "--profiler",
        default="auto",
        metavar="local|replay|auto",
        help="measure on this machine's GPUs, answer from stored evidence (replay), or local where it can (default: "
        "auto)",
    )
    parser.add_argument(
        "--evidence",
        action="append",
        type=Path,
        default=[],
        metavar="DIR",
        help="a further folder with evidence for replay; repeatable",
    )
    parser.add_argument("--suite", default="all", metavar="NAME", help="what can be evaluated (default: all)")
    add_trace_sets(parser, "a FlashInfer-Trace collection beside the suite; repeatable")
    parser.add_argument(
        "--arch", metavar="ARCH", help="architecture of solutions that name none (default: the device's)"
    )
    parser.add_argument(
        "--store",
        type=Path,
        metavar="DIR",
        help=f"folder of the tasks and their results (default: {DEFAULT_STORE} of the checkout)",
    )
    _add_limits(parser)


def _add_limits(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help=f"file with the bearer token that requests must carry (default: the variable {TOKEN_VARIABLE}, else none)",
    )
    parser.add_argument(
        "--no-token",
        action="store_true",
        help="serve other machines without a token: whoever reaches the port runs CUDA code here",
    )
    parser.add_argument(
        "--slots",
        type=count,
        default=max(2, os.cpu_count() or 1),
        metavar="N",
        help="tasks in progress at once; they take turns on a GPU (default: one for each core, at least 2)",
    )
    parser.add_argument(
        "--max-queue",
        type=count,
        default=DEFAULT_MAX_QUEUE,
        metavar="N",
        help=f"tasks that may wait; beyond it the answer is 429 (default: {DEFAULT_MAX_QUEUE})",
    )
    parser.add_argument(
        "--drain-seconds",
        type=positive,
        default=DEFAULT_DRAIN_S,
        metavar="S",
        help=f"how long running tasks may go on after SIGTERM (default: {DEFAULT_DRAIN_S:g})",
    )
    parser.add_argument(
        "--keep-days",
        type=positive,
        default=DEFAULT_KEEP_DAYS,
        metavar="D",
        help=f"how long finished tasks are kept (default: {DEFAULT_KEEP_DAYS:g})",
    )


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 5 or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"expected a port from 0 to 65535, found {text[:20]!r}")
    return int(text)


def settings_of(options: argparse.Namespace, root: Path) -> Settings:
    """Raises InputError for what is no token, a network without one, and a folder of evidence that is not there."""
    here = Path.cwd()
    missing = next((folder for folder in options.evidence if not (here / folder).is_dir()), None)
    if missing is not None:
        raise InputError(f"--evidence {missing}: expected a folder with evidence, found none; check the path")
    settings = Settings(
        root=root,
        host=options.host,
        port=options.port,
        profiler=options.profiler,
        evidence=tuple(here / folder for folder in options.evidence),
        suite=options.suite,
        trace_sets=tuple(here / folder for folder in options.trace_sets),
        arch=options.arch,
        store=here / options.store if options.store is not None else root / DEFAULT_STORE,
        token=_token(options),
        slots=options.slots,
        max_queue=options.max_queue,
        drain_s=options.drain_seconds,
        keep_days=options.keep_days,
    )
    if settings.token is None and not options.no_token and not is_loopback(settings.host):
        raise InputError(
            f"--host {settings.host}: expected a token, since whoever reaches the port runs CUDA code on this machine, "
            f"found none; set {TOKEN_VARIABLE} or --token-file, or say --no-token"
        )
    return settings


def _token(options: argparse.Namespace) -> str | None:
    if options.no_token:
        if options.token_file is not None:
            raise InputError("--no-token, --token-file: expected one of them, found both; leave one out")
        return None
    if options.token_file is None:
        token, whence = os.environ.get(TOKEN_VARIABLE, ""), TOKEN_VARIABLE
        if not token:
            return None
    else:
        whence = f"--token-file {options.token_file}"
        try:
            token = options.token_file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{whence}: expected a file with a token, found: {error}") from error
    if not is_token(token):
        raise InputError(f"{whence}: {NO_TOKEN}, found {len(token)} characters")
    return token


def run(options: argparse.Namespace, root: Path) -> int:
    """Serve until a signal. Raises InputError; also where the extra ``serve`` is not installed."""
    try:
        from ptxbench.service.server import serve
    except ModuleNotFoundError as error:
        raise InputError(
            f"expected the packages of the extra serve, found no {error.name}; pip install 'ptxbench[serve]'"
        ) from error
    return serve(settings_of(options, root), _say)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
