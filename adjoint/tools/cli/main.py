"""Arguments, errors and exit codes of the command `adjoint`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ... import __version__
from ...core.errors import AdjointError
from . import convert, demo, infer, info, run, shim, summary, view


def parser() -> argparse.ArgumentParser:
    """The command's arguments; each subcommand sets `run`."""
    top = argparse.ArgumentParser(
        prog="adjoint",
        description="adjoint, a deep-learning framework: PyTorch's API, one graph run four ways.",
    )
    top.add_argument("--version", action="version", version=f"adjoint {__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in (demo, info, run, shim, view, summary, infer, convert):
        command = commands.add_parser(module.__name__.rpartition(".")[2], help=module.HELP)
        module.add_arguments(command.add_argument)
        command.set_defaults(run=module.run)
    return top


def parsed(given: Sequence[str]) -> argparse.Namespace:
    """The options. All that stands behind the first `--` is for the program that `view` and
    `summary` run, as is what else has no dash.
    """
    own, theirs = list(given), []
    has_program = own[:1] in (["view"], ["summary"])
    if has_program and "--" in own:
        place = own.index("--")
        own, theirs = own[:place], own[place + 1 :]
    top = parser()
    options, left = top.parse_known_args(own)
    dashed = [each for each in left if each.startswith("-")]
    if left and (dashed or not has_program):
        remedy = "; a program's own stand behind --" if has_program else ""
        top.error(f"unrecognized arguments: {' '.join(dashed or left)}{remedy}")
    if has_program:
        options.arguments = [*options.arguments, *left, *theirs]
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0: done, 1: it failed, 2: wrong arguments, 130: interrupted."""
    given = sys.argv[1:] if arguments is None else arguments
    if not given:
        parser().print_help()
        return 0
    options = parsed(given)
    try:
        return int(options.run(options))
    except (AdjointError, OSError) as error:
        print(f"adjoint: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("adjoint: interrupted", file=sys.stderr)
        return 130
