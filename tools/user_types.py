"""How much type checkers know of programs that use the package as it is installed.

    python tools/user_types.py              the table by mypy: expressions of type Any, and errors
    python tools/user_types.py --lines      the lines that such expressions are on
    python tools/user_types.py --strict     mypy --strict's own report and its errors

The programs are the code of the Guide and the How-to, and the examples. What an installed user has
is what `setup.py build_py` copies: the package's files, and the .pyi files that it writes.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mypy import build, nodes
from mypy import main as command_line
from mypy.nodes import MypyFile
from mypy.stats import StatisticsVisitor

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("guide", "howto")
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
# Libraries whose values have no types that are ours to give; checkers need not read them.
SKIPPED = (
    "Cython", "cython", "einops", "gymnasium", "jax", "llvmlite", "matplotlib", "ml_dtypes",
    "mpi4py", "onnx", "onnxruntime", "ray", "safetensors", "scipy", "sklearn", "tensorboard",
    "timm", "torch", "tqdm", "transformers", "triton",
)  # fmt: skip
OTHERS = frozenset((*SKIPPED, "numpy"))
SETTINGS = f"""[mypy]
strict = true
mypy_path = {{}}
follow_imports = silent
ignore_missing_imports = true
warn_unused_ignores = false
[mypy-{",".join(f"{name}.*" for name in SKIPPED)}]
follow_imports = skip
"""


def install(folder: Path) -> Path:
    """Put the package's files into a folder as a wheel has them, but for compiled ones."""
    command = [sys.executable, "setup.py", "-q", "build_py", "--build-lib", str(folder)]
    environment = {**os.environ, "ADJOINT_COMPILED": "0"}
    subprocess.run(command, check=True, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL)
    return folder


def write_programs(folder: Path) -> list[Path]:
    """Write the pages' code, and copies of the examples, into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    programs = {f"{page}.py": "\n".join(BLOCK.findall((ROOT / "docs" / f"{page}.md").read_text()))
                for page in PAGES}  # fmt: skip
    programs.update((file.name, file.read_text()) for file in (ROOT / "examples").glob("*.py"))
    for name, text in programs.items():
        (folder / name).write_text(text)
    return sorted(folder / name for name in programs)


def lines_left_out(text: str, lambdas: bool = False, bare: bool = True) -> set[int]:
    """Lines that name other libraries, or what comes from them by assignment; `bare` ones, too:
    those of the program's own functions without annotations (`lambdas` among them), and those that
    name its functions that say no result.
    """
    tree = ast.parse(text)
    functions = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)]
    others = {each.name for each in functions if each.returns is None and bare}
    out: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            module = getattr(node, "module", "") or ""
            for name in node.names:
                if (module or name.name).partition(".")[0] in OTHERS:
                    others.add((name.asname or name.name).partition(".")[0])
                    out |= lines_of(node)
    for node in ast.walk(tree):
        names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
        is_lambda = lambdas and bare and isinstance(getattr(node, "value", None), ast.Lambda)
        if isinstance(node, ast.Assign) and (others & names or is_lambda):
            targets = [each for target in node.targets for each in ast.walk(target)]
            others |= {each.id for each in targets if isinstance(each, ast.Name)}
        is_bare = isinstance(node, ast.FunctionDef) and not is_annotated(node)
        is_bare = is_bare or (lambdas and isinstance(node, ast.Lambda))
        if (is_bare and bare) or (isinstance(node, ast.Name) and node.id in others):
            out |= lines_of(node)
    return out


def lines_of(node: ast.stmt | ast.expr) -> set[int]:
    """The lines that a part of a program stands on."""
    return set(range(node.lineno, (node.end_lineno or node.lineno) + 1))


def is_annotated(function: ast.FunctionDef) -> bool:
    """Whether a function says a type of an argument or its result, or has no arguments."""
    said = function.args
    rest = [each for each in (said.vararg, said.kwarg) if each is not None]
    given = [*said.posonlyargs, *said.args, *said.kwonlyargs, *rest]
    given = [each for each in given if each.arg != "self"]
    return not given or function.returns is not None or any(each.annotation for each in given)


HOLDERS = (
    nodes.Block, nodes.ClassDef, nodes.Decorator, nodes.ForStmt, nodes.FuncDef, nodes.IfStmt,
    nodes.TryStmt, nodes.WhileStmt, nodes.WithStmt,
)  # fmt: skip


class Known(NamedTuple):
    """What mypy knows of one program."""

    name: str
    expressions: int
    unknown: list[int]  # lines, one for each expression of type Any


def pyright(folder: Path, programs: Sequence[Path]) -> list[tuple[str, int, str]]:
    """The errors of pyright, with those of unknown types: file, line, text. Of lines that are left
    out for what a program does not say itself, only unknown types are not among them.
    """
    rules = ("Argument", "Lambda", "Member", "Parameter", "Variable")
    settings = {
        "include": [str(program) for program in programs],
        "extraPaths": [str(folder / "package")],
        "typeCheckingMode": "standard", "reportMissingImports": False,
        # What a list or dict of several types holds is known; otherwise it is called unknown.
        "strictDictionaryInference": True, "strictListInference": True,
        "reportMissingModuleSource": False,
        "reportPossiblyUnboundVariable": False,  # whether a loop runs at all: no matter of types
        **{f"reportUnknown{rule}Type": "error" for rule in rules},
    }  # fmt: skip
    (folder / "pyright.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "basedpyright", "-p", str(folder / "pyright.json"),
               "--outputjson", "--pythonpath", sys.executable]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    texts = {str(program): program.read_text() for program in programs}
    unsaid = {name: lines_left_out(text, lambdas=True) for name, text in texts.items()}
    foreign = {name: lines_left_out(text, bare=False) for name, text in texts.items()}
    found = []
    for each in json.loads(done.stdout)["generalDiagnostics"]:
        line = each["range"]["start"]["line"] + 1
        out = unsaid if each.get("rule", "").startswith("reportUnknown") else foreign
        if each["severity"] == "error" and line not in out[each["file"]]:
            found.append((Path(each["file"]).name, line, each["message"]))
    return found


def check(folder: Path, programs: Sequence[Path], *options: str) -> list[str]:
    """What mypy says of programs, with the package that lies in the folder."""
    command = [sys.executable, "-m", "mypy", *flags(folder), *options, *map(str, programs)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    if done.returncode > 1:
        raise RuntimeError(f"mypy: {done.stdout}{done.stderr}")
    return done.stdout.splitlines()


def flags(folder: Path) -> list[str]:
    """The options of all runs of mypy in a folder."""
    settings = folder / "mypy.ini"
    settings.write_text(SETTINGS.format(folder / "package"))
    return [f"--config-file={settings}", "--no-error-summary", f"--cache-dir={folder / 'cache'}"]


def known(folder: Path, programs: Sequence[Path]) -> tuple[list[Known], list[str]]:
    """What mypy knows of each program's expressions, by the types that it has found; and its
    errors.
    """
    first = folder / "first.py"  # so that the package is read from mypy's cache: memory
    first.write_text(imports(programs))
    own = f"--cache-dir={folder / 'imports'}"
    check(folder, [first], own)
    sources, options = command_line.process_options([*flags(folder), own, *map(str, programs)])
    options.export_types = options.preserve_asts = True
    shutil.rmtree(folder / "copy", ignore_errors=True)
    shutil.copytree(folder / "imports", folder / "copy")
    options.cache_dir = str(folder / "copy")  # without the programs, whose types a cache lacks
    errors: list[str] = []
    result = build.build(sources, options, flush_errors=lambda _, lines, __: errors.extend(lines))
    kept = []
    for program in programs:
        out = lines_left_out(program.read_text())
        total, unknown = counted(result.files[program.stem], result, out)
        kept.append(Known(program.name, total, unknown))
    return kept, errors


def parts(node: Any) -> Iterator[Any]:
    """Simple statements, and expressions in the heads of others, below a node of mypy's."""
    if isinstance(node, (list, tuple)):
        for each in node:
            yield from parts(each)
    elif isinstance(node, HOLDERS):
        for name in ("decorators", "func", "index", "expr", "target", "defs", "body", "else_body",
                     "handlers", "finally_body"):  # fmt: skip
            yield from parts(getattr(node, name, None))
    elif node is not None:
        yield node


def counted(tree: MypyFile, result: build.BuildResult, out: set[int]) -> tuple[int, list[int]]:
    """Expressions that mypy's --any-exprs-report counts, also in functions without annotations, but
    for lines that are left out; and the lines of those of type Any.
    """
    total, unknown = 0, []
    for part in parts(tree.defs):
        if part.line in out or isinstance(part, nodes.ImportBase):
            continue
        visitor = StatisticsVisitor(
            True, tree.fullname, result.files, result.types, all_nodes=True, visit_untyped_defs=True
        )
        part.accept(visitor)
        total += visitor.num_any_exprs + visitor.num_imprecise_exprs + visitor.num_precise_exprs
        unknown += [part.line] * visitor.num_any_exprs
    return total, unknown


def imports(programs: Sequence[Path]) -> str:
    """What the programs import at their top, as a program."""
    nodes = (node for program in programs for node in ast.parse(program.read_text()).body)
    lines = (ast.unparse(each) for each in nodes if isinstance(each, (ast.Import, ast.ImportFrom)))
    return "\n".join(sorted(set(lines), key=lambda line: ("__future__" not in line, line)))


def table(kept: Sequence[Known]) -> Iterator[str]:
    """Lines of the table, and their sum."""
    total = Known("all", sum(k.expressions for k in kept), [n for k in kept for n in k.unknown])
    for name, expressions, unknown in (*kept, total):
        share = 100 * len(unknown) / max(expressions, 1)
        yield f"{name:28} {expressions:6} expressions {len(unknown):6} Any {share:6.1f}%"


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--lines", action="store_true", help="lines of what is Any")
    parser.add_argument("--strict", action="store_true", help="mypy's report and errors")
    parser.add_argument("--folder", type=Path, help="where the package and programs are put")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        install(folder / "package")
        programs = write_programs(folder / "programs")
        if options.strict:
            print("\n".join(check(folder, programs, "--any-exprs-report", str(folder))))
            print((folder / "any-exprs.txt").read_text())
            return 0
        kept, errors = known(folder, programs)
        if options.lines:
            for each in kept:
                source = (folder / "programs" / each.name).read_text().splitlines()
                for number in sorted(set(each.unknown)):
                    print(f"{each.name}:{number}: {source[number - 1].strip()}")
        print("\n".join(table(kept)))
        print(f"{sum(': error:' in line for line in errors)} errors of mypy --strict")
    return 0


if __name__ == "__main__":
    sys.exit(main())
