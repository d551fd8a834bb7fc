"""Write docs/reference/*.md from the docstrings of the public names."""

from __future__ import annotations

import importlib
import inspect
import pathlib
import re
import textwrap

REFERENCE = pathlib.Path(__file__).parent / "reference"
MODULES = (
    "adjoint",
    "adjoint.autograd",
    "adjoint.autograd.functional",
    "adjoint.nn",
    "adjoint.nn.functional",
    "adjoint.nn.init",
    "adjoint.nn.utils",
    "adjoint.optim",
    "adjoint.optim.lr_scheduler",
    "adjoint.utils.data",
    "adjoint.utils.checkpoint",
    "adjoint.linalg",
    "adjoint.fft",
    "adjoint.testing",
)


def public_names(module: object) -> list[str]:
    """The public classes and functions of a module, ours only."""
    names = []
    for name in sorted(vars(module)):
        value = getattr(module, name)
        ours = str(getattr(value, "__module__", "")).startswith("adjoint")
        if not name.startswith("_") and ours and (inspect.isclass(value) or callable(value)):
            names.append(name)
    return names


def describe(name: str, value: object) -> str:
    """One entry: heading, signature, docstring with its example as a code block."""
    try:
        signature = str(inspect.signature(value))
    except (TypeError, ValueError):
        signature = "(...)"
    text = inspect.getdoc(value) or ""
    prose, arrow, example = text.partition(">>>")
    prose = re.sub(r"(https?://\S+)", r"<\1>", prose.strip())
    prose = re.sub(r"\n(?=[A-Z][a-z]+: )", "\n\n", prose)
    code = f"\n```pycon\n>>>{example.rstrip()}\n```\n" if arrow else ""
    kind = "class " if inspect.isclass(value) else ""
    return f"## {name}\n\n```python\n{kind}{name}{signature}\n```\n\n{prose}\n{code}"


def main() -> None:
    """Write one page per module and an index."""
    REFERENCE.mkdir(exist_ok=True)
    index = ["# Reference\n"]
    for module_name in MODULES:
        module = importlib.import_module(module_name)
        names = public_names(module)
        entries = [describe(name, getattr(module, name)) for name in names]
        summary = textwrap.dedent(module.__doc__ or "").strip().split("\n")[0]
        (REFERENCE / f"{module_name}.md").write_text(
            f"# {module_name}\n\n{summary}\n\n" + "\n".join(entries)
        )
        index.append(f"- [{module_name}]({module_name}.md): {summary} ({len(names)} names)")
    (REFERENCE / "index.md").write_text("\n".join(index) + "\n")
    print(f"wrote {len(MODULES)} pages to {REFERENCE}")


if __name__ == "__main__":
    main()
