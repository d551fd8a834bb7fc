"""`adjoint view`: run a program and view the graphs it built."""

from __future__ import annotations

import argparse
import sys
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .python_file import PythonFile

USUAL = ("graph", "loss", "output")


HELP = "run a program and show the graph that it built"


def add_arguments(add: Callable[..., Any]) -> None:
    """Add the command's arguments."""
    add("file", type=Path, metavar="FILE", help="the program; it is run")
    add("arguments", nargs="*", metavar="ARGUMENT", help="for the program; after -- if with dashes")
    names = ", ".join(USUAL)
    add(
        "--of",
        metavar="NAME",
        help=f"the variable to show (default: {names}, the last one, the last loss)",
    )
    add("-o", "--output", type=Path, metavar="HTML", help="the page (default: FILE's name.html)")
    add("--live", action="store_true", help="serve the page on this machine and follow the run")
    add("--no-open", action="store_true", help="start no browser")


def run(options: argparse.Namespace) -> int:
    """Write or serve the page."""
    from ...reactive.view import observe
    from ...reactive.view.graphs import is_graph, snapshot_of

    program = PythonFile(options.file, options.arguments)
    if options.live:
        return _live(program, options)
    with observe(keep_values=True) as seen:
        program.run()
    last = seen.last if options.of is None else None  # of programs that leave nothing in globals
    found = program.find(options.of, USUAL, is_graph, "graph or tensor", last)
    snapshot = snapshot_of(found, title=options.file.stem)
    path = snapshot.save_html(options.output or options.file.with_suffix(".html").name)
    count = len(snapshot.nodes)
    print(f"{path}: {count:,} node{'s'[: count != 1]}")
    _open(path.resolve().as_uri(), options)
    return 0


def _live(program: PythonFile, options: argparse.Namespace) -> int:
    from ...reactive.view.graphs import Watched
    from ...reactive.view.live import Feed, LiveServer

    feed = Feed()
    watched = Watched(program.module.__dict__, options.of, feed, program.path.stem)
    with LiveServer(watched, feed) as server:
        print(f"following {options.file} at {server.url}", flush=True)
        _open(server.url, options)
        program.run()
        print("the program has ended; the page stays until Ctrl-C", flush=True)
        server.closed.wait()
    return 0


def _open(address: str, options: argparse.Namespace) -> None:
    """Show it, where somebody is there to look."""
    if not options.no_open and sys.stdout.isatty():
        webbrowser.open(address)
