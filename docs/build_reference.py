"""Write docs/reference/*.md from the docstrings of the public names, one page per topic.

`mkdocs` runs it as a hook, which also puts the pages into the navigation.
"""

from __future__ import annotations

import importlib
import inspect
import pathlib
import re
import textwrap
from collections.abc import Iterator
from typing import Any

import adjoint as ad
from adjoint.core.faces import PLACES
from adjoint.runtime.public import INPLACE, METHODS

REFERENCE = pathlib.Path(__file__).parent / "reference"

# Topic -> the files of adjoint/ whose public functions it describes, in this order. A function of
# the top-level namespace that no topic describes fails the build.
TOPICS = {
    "Tensor": "tensor",
    "Creation": "ops.creation ops.like ops.ranges ops.memory ops.exchange",
    "Data types, devices and shapes": "core.dtype core.device core.spec ops.promotion "
    "ops.conversion",
    "Random numbers": "ops.random ops.generators ops.gamma_draws",
    "Shapes and views": "ops.movement ops.slicing ops.concatenation ops.splitting ops.arranging "
    "ops.triangles ops.repeating ops.copies nn.top",
    "Indexing, gather and scatter": "ops.indexing ops.gather ops.scatter ops.masking",
    "Arithmetic and powers": "ops.arithmetic ops.power ops.rounding",
    "Functions of one variable": "ops.functions ops.trigonometry",
    "Special functions": "ops.special ops.incomplete",
    "Comparison and logic": "ops.relational ops.comparison ops.logic",
    "Reductions": "ops.reduction ops.extrema ops.statistics ops.quantiles",
    "Scans": "ops.scan",
    "Sorting and counting": "ops.sort ops.counting",
    "Matrix products": "ops.matmul ops.matrix_product ops.fully_connected ops.contraction "
    "ops.distances",
    "Decompositions": "ops.linalg ops.matrix_factors ops.householder ops.exponential",
    "Signals": "ops.spectrograms ops.tapers",
    "Complex numbers": "ops.complex",
    "Sparse tensors": "ops.construction ops.public_functions ops.sparse_algebra",
    "Activations": "ops.activation ops.piecewise ops.softmax",
    "Convolution and pooling": "ops.convolution ops.averaging ops.unpooling ops.adaptive_maxima "
    "ops.pooling nn.functional.temporal",
    "Gradients and modes": "autograd.gradients autograd.modes core.handles",
    "Mixed precision": "amp.autocast_mode amp.grad_scaler",
    "Lazy execution and graphs": "autograd.recording reactive.graph",
    "Control flow in programs": "compiler.capture.control compiler.capture.associative_scan",
    "In the place of PyTorch": "torch_api.alias torch_api.alias.c",
    "Files": "io.checkpoint io.files",
    "Looking at graphs": "view",
    "Printing": "printing",
    "Threads and memory": "backends.threads backends.memory",
    "Streams of CUDA": "cuda",
    "Errors": "core.errors",
    "Forms for ATen": "torch_api.aten.dropouts torch_api.aten.embeddings torch_api.aten.images "
    "torch_api.aten.losses torch_api.aten.normalization torch_api.aten.recurrent_cells "
    "torch_api.aten.compressed_indices torch_api.aten.segments",
    "Rounding to levels, quantized": "torch_api.aten.quantized",
    "Older names": "torch_api.deprecated_names torch_api.sym ops.deprecated_creation "
    "ops.deprecated_sparse ops.storages ops.extremal "
    "amp.devices",
    "Names of TorchScript": "jit jit.types jit.schemas jit.classes futures",
    "Refused, as in PyTorch": "core.missing_names",
}

MODULES = (
    "adjoint.autograd",
    "adjoint.autograd.functional",
    "adjoint.autograd.graph",
    "adjoint.autograd.forward_ad",
    "adjoint.nn",
    "adjoint.nn.functional",
    "adjoint.nn.grad",
    "adjoint.nn.init",
    "adjoint.nn.utils",
    "adjoint.nn.utils.rnn",
    "adjoint.optim",
    "adjoint.optim.lr_scheduler",
    "adjoint.optim.swa_utils",
    "adjoint.overrides",
    "adjoint.profiler",
    "adjoint.utils.data",
    "adjoint.utils.resume",
    "adjoint.utils.checkpoint",
    "adjoint.utils.benchmark",
    "adjoint.utils.tensorboard",
    "adjoint.linalg",
    "adjoint.fft",
    "adjoint.special",
    "adjoint.signal.windows",
    "adjoint.sparse",
    "adjoint.masked",
    "adjoint.random",
    "adjoint.quasirandom",
    "adjoint.distributions",
    "adjoint.export",
    "adjoint.fx",
    "adjoint.io",
    "adjoint.serialization",
    "adjoint.models",
    "adjoint.onnx",
    "adjoint.cuda",
    "adjoint.accelerator",
    "adjoint.amp",
    "adjoint.reactive",
    "adjoint.compiler",
    "adjoint.testing",
    "adjoint.evolve",
    "adjoint.func",
    "adjoint.library",
    "adjoint.inference",
    "adjoint.view",
    "adjoint.sklearn",
    "adjoint.pnnx",
    "adjoint.utils",
    "adjoint.distributed",
    "adjoint.distributed.fsdp",
    "adjoint.distributed.optim",
    "adjoint.distributed.checkpoint",
    "adjoint.nn.attention",
    "adjoint.nn.utils.parametrizations",
    "adjoint.nn.utils.parametrize",
    "adjoint.nn.utils.prune",
    "adjoint.array_api",
    "adjoint.array_api.fft",
    "adjoint.array_api.linalg",
    "adjoint.einops",
    "adjoint.autograd.function",
    "adjoint.autograd.profiler",
    "adjoint.distributions.constraints",
    "adjoint.distributions.utils",
    "adjoint.futures",
    "adjoint.fx.graph",
    "adjoint.fx.immutable_collections",
    "adjoint.fx.node",
    "adjoint.fx.passes.shape_prop",
    "adjoint.fx.passes.split_module",
    "adjoint.fx.proxy",
    "adjoint.fx.subgraph_rewriter",
    "adjoint.hub",
    "adjoint.jit",
    "adjoint.cpu",
    "adjoint.mps",
    "adjoint.mtia",
    "adjoint.xpu",
    "adjoint.multiprocessing",
    "adjoint.backends.cuda",
    "adjoint.backends.cudnn",
    "adjoint.backends.mkl",
    "adjoint.backends.mkldnn",
    "adjoint.backends.mps",
    "adjoint.backends.openmp",
    "adjoint.nn.parallel",
    "adjoint.nn.parameter",
    "adjoint.nn.modules.module",
    "adjoint.onnx.symbolic_helper",
    "adjoint.optim.optimizer",
    "adjoint.profiler.flop_counter",
    "adjoint.utils._pytree",
    "adjoint.utils._python_dispatch",
    "adjoint.utils.data.distributed",
    "adjoint.utils.dlpack",
    "adjoint.utils.hparams",
    "adjoint.utils.model_zoo",
    "adjoint.utils.progress",
    "adjoint.amp.cpu",
    "adjoint.amp.cuda",
    "adjoint.extensions",
)

# The menu of the reference: group -> titles of topics, and modules. What no group names fails.
GROUPS = {
    "Tensors": (
        "Tensor|Creation|Data types, devices and shapes|Random numbers|Shapes and views|"
        "Indexing, gather and scatter|Complex numbers|Sparse tensors|Printing"
    ),
    "Functions": (
        "Arithmetic and powers|Functions of one variable|Special functions|"
        "Comparison and logic|Reductions|Scans|Sorting and counting|Matrix products|"
        "Decompositions|Signals|Activations|Convolution and pooling"
    ),
    "Neural networks": (
        "nn|nn.functional|nn.attention|nn.grad|nn.init|nn.utils|nn.utils.rnn|"
        "nn.utils.parametrizations|nn.utils.parametrize|nn.utils.prune|models"
    ),
    "Gradients and training": (
        "Gradients and modes|autograd|autograd.functional|autograd.graph|autograd.forward_ad|"
        "func|optim|optim.lr_scheduler|optim.swa_utils|Mixed precision|amp|utils.data|evolve|"
        "utils|utils.progress|utils.hparams|utils.checkpoint|utils.resume|distributions|"
        "distributions.constraints|distributions.utils|distributed|distributed.fsdp|"
        "distributed.optim|distributed.checkpoint"
    ),
    "Graphs and programs": (
        "Lazy execution and graphs|reactive|Looking at graphs|compiler|"
        "Control flow in programs|inference|export|view|library|fx|fx.graph|fx.node|fx.proxy|"
        "fx.subgraph_rewriter|fx.passes.shape_prop|fx.passes.split_module|"
        "fx.immutable_collections"
    ),
    "Mathematics": "linalg|fft|special|signal.windows|sparse|masked|random|quasirandom",
    "Files, devices, tools": (
        "Files|io|serialization|extensions|Threads and memory|Streams of CUDA|cuda|accelerator|"
        "profiler|testing|utils.benchmark|utils.tensorboard|Errors|sklearn|onnx|"
        "onnx.symbolic_helper|pnnx|array_api|array_api.fft|array_api.linalg|einops"
    ),
    "PyTorch's names": (
        "autograd.function|autograd.profiler|futures|hub|jit|cpu|mps|mtia|xpu|multiprocessing|"
        "backends.cuda|backends.cudnn|backends.mkl|backends.mkldnn|backends.mps|"
        "backends.openmp|nn.parallel|nn.parameter|nn.modules.module|optim.optimizer|"
        "profiler.flop_counter|utils._pytree|utils._python_dispatch|utils.data.distributed|"
        "utils.dlpack|utils.model_zoo|amp.cpu|amp.cuda|overrides|In the place of PyTorch|"
        "Forms for ATen|Rounding to levels, quantized|Older names|Names of TorchScript|"
        "Refused, as in PyTorch"
    ),
}


def public_names(module: object) -> list[str]:
    """The public classes and functions of a module, ours only, in-place functions left out: what it
    lists (`__all__`), and what it makes; all that it has, where it lists nothing.
    """
    names = []
    listed = {*getattr(module, "__all__", ())}
    had = vars(ad) if module is ad else dir(module)  # of ad, later_names() has the rest
    for name in sorted({*had, *listed}, key=str.lower):
        value = getattr(module, name)
        here = getattr(value, "__module__", None) in (module.__name__, vars(module).get("__name__"))
        if listed and name not in listed and not here:
            continue
        ours = str(getattr(value, "__module__", "")).startswith("adjoint")
        again = name.endswith("_") and value is getattr(ad.Tensor, name, None)
        known = callable(value) and not inspect.ismodule(value)  # a module may be called
        if not name.startswith("_") and ours and known and not again:
            names.append(name)
    return names


def later_names() -> list[str]:
    """Functions and classes of the top-level namespace that are imported with their first use, but
    for those of packages, which are described with these.
    """
    packages = {"compiler.function", "nn.functional", "torch_api.func"}
    apart = {*PLACES} - {*public_names(ad.nn.functional)}  # conv_tbc, which no package lists
    names = [
        name for name, file in PLACES.items()
        if file not in packages or (file == "nn.functional" and name in apart)
    ]  # fmt: skip
    return [name for name in names if callable(getattr(ad, name))]


def topics() -> Iterator[tuple[str, list[str]]]:
    """Each topic with its names in the top-level namespace."""
    by_file: dict[str, list[str]] = {}
    for name in (*public_names(ad), *later_names()):
        file = getattr(ad, name).__module__.removeprefix("adjoint.")
        by_file.setdefault(re.sub(r"^ops\.\w+\.", "ops.", file), []).append(name)
    for title, files in TOPICS.items():
        names = [name for file in files.split() for name in by_file.pop(file, [])]
        yield title, sorted(names, key=lambda name: (name != title, name.lower()))
    rest = {file: names for file, names in by_file.items() if not file.startswith("nn.")}
    if rest:
        raise SystemExit(f"docs/build_reference.py: no topic in TOPICS for {rest}")


def signature(value: Any) -> str:
    """The arguments with their defaults; types are in the text."""
    try:
        found = inspect.signature(value)
        outside = inspect.signature(value, follow_wrapped=False)
    except (TypeError, ValueError):
        return "(...)"
    parameters = {name: p for name, p in found.parameters.items() if name != "self"}
    if "out" in outside.parameters:
        parameters.setdefault("out", outside.parameters["out"])
    plain = [p.replace(annotation=p.empty) for p in parameters.values()]
    plain.sort(key=lambda p: p.kind is p.VAR_KEYWORD)  # **kwargs last, after out=
    return re.sub(r"<(\w+) .*? at 0x\w+>", r"<\1>", str(inspect.Signature(plain)))


def listed(section: re.Match[str]) -> str:
    """The lines of an "Args:" section as a Markdown list."""
    lines = textwrap.dedent(section[1]).rstrip()
    return "\n**Arguments:**\n\n" + re.sub(r"(?m)^(\S.*?): ", r"- `\1`: ", lines) + "\n"


def prose(text: str) -> str:
    """Docstring text as Markdown: "Shapes: ..." and the like as a list, links that work."""
    text = re.sub(r"\nArgs:\n((?: {4}.*(?:\n|$))+)", listed, text)
    text = re.sub(r"\nSource: (https?://\S+)", r"\n[PyTorch's page](\1)", text)
    text = re.sub(r"(?<![(<])(https?://[^\s)]+)", r"<\1>", text)
    return re.sub(
        r"\n(Shapes?|Dtypes?|Errors|Source): ", lambda m: f"\n\n**{m[1]}:** ", text
    ).replace("\n[PyTorch's page]", "\n\n[PyTorch's page]")


def forms(name: str, value: Any) -> str:
    """The other ways to call a function."""
    ways = []
    if METHODS.get(name) is not None and value is getattr(ad, name, None):
        ways.append(f"method `x.{name}(...)`")
    if f"{name}_" in INPLACE and value is getattr(ad, name, None):
        ways.append(f"in place `x.{name}_(...)`")
    return f"Also: {', '.join(ways)}.\n" if ways else ""


def methods(value: type) -> str:
    """A list of a class's own public methods and properties, each with its first sentence."""
    lines = []
    functions = []  # a tensor's methods that are described as functions
    for name in vars(value):
        member = getattr(value, name)
        described = METHODS.get(name.removesuffix("_")) or METHODS.get(name)
        if value is ad.Tensor and described is not None and hasattr(ad, name.removesuffix("_")):
            functions.append(f"`{name}`")
            continue
        text = inspect.getdoc(member) if not isinstance(member, type) else None
        is_property = isinstance(member, property)
        if name.startswith("_") or not text or not (is_property or callable(member)):
            continue
        call = "" if is_property else signature(member)
        first = " ".join(text.split("\n\n")[0].split())
        lines.append(f"- `{name}{call}`: {first}")
    if functions:
        lines.append("\nAnd as methods, the functions of the other pages: ")
        lines.append(", ".join(sorted(functions)))
    return "\n" + "\n".join(lines) + "\n" if lines else ""


def describe(name: str, value: Any) -> str:
    """One entry: heading, signature, docstring with its example as a code block."""
    text = inspect.getdoc(value) or ""
    before, arrow, example = text.partition(">>>")
    code = f"\n```pycon\n>>>{example.rstrip()}\n```\n" if arrow else ""
    is_class = inspect.isclass(value)
    head = f"{'class ' if is_class else ''}{name}{signature(value)}"
    head = textwrap.fill(head, 96, subsequent_indent="    ", break_on_hyphens=False)
    body = [prose(before.strip()), "", forms(name, value), code]
    if is_class and not issubclass(value, Exception):
        body.append(methods(value))
    return f"## {name}\n\n```python\n{head}\n```\n\n" + "\n".join(body)


def page(file: str, title: str, summary: str, entries: list[str]) -> None:
    """Write one page."""
    (REFERENCE / file).write_text(f"# {title}\n\n{summary}\n\n" + "\n".join(entries))


def grouped(pages: dict[str, str]) -> list[dict[str, Any]]:
    """The navigation: the overview, and the pages (title -> file) by groups."""
    menu: list[dict[str, Any]] = [{"Overview": "reference/index.md"}]
    rest = dict(pages)
    for group, titles in GROUPS.items():
        menu.append({group: [{title: rest.pop(title)} for title in titles.split("|")]})
    if rest:
        raise SystemExit(f"docs/build_reference.py: no group in GROUPS for {sorted(rest)}")
    return menu


def main() -> list[dict[str, Any]]:
    """Write the pages and their index; the result is their part of the navigation."""
    REFERENCE.mkdir(exist_ok=True)
    for old in REFERENCE.glob("*.md"):
        old.unlink()
    pages = {}
    index = ["# Reference\n", "Top-level functions and classes, by topic:\n"]
    for title, names in topics():
        file = re.sub(r"\W+", "_", title.lower()) + ".md"
        page(file, title, f"{len(names)} names.", [describe(n, getattr(ad, n)) for n in names])
        pages[title] = f"reference/{file}"
        links = ", ".join(f"[`{n}`]({file}#{n.lower()})" for n in names)
        index.append(f"- [{title}]({file}): {links}")
    index.append("\nModules:\n")
    for module_name in MODULES:
        module = importlib.import_module(module_name)
        names = public_names(module)
        summary = inspect.cleandoc(module.__doc__ or "").split("\n\n")[0].replace("\n", " ")
        entries = [describe(name, getattr(module, name)) for name in names]
        page(f"{module_name}.md", module_name, summary, entries)
        pages[module_name.removeprefix("adjoint.")] = f"reference/{module_name}.md"
        index.append(f"- [{module_name}]({module_name}.md): {summary} ({len(names)} names)")
    (REFERENCE / "index.md").write_text("\n".join(index) + "\n")
    return grouped(pages)


def on_config(config: Any) -> Any:
    """MkDocs' hook: write the reference, and put it into its tab in front of what is there."""
    for tab in config["nav"]:
        if "Reference" in tab:
            tab["Reference"] = [*main(), *tab["Reference"]]
    return config


def fitted(block: re.Match[str]) -> str:
    """A block of text: one that is laid out in columns says how many characters wide it is, by
    which site.css scales it on a telephone.
    """
    indent, text = block[1], block[2]
    if not re.search(r"\S {2,}\S|[\u2500-\u257f]", text):
        return block[0]
    columns = max(len(line) - len(indent) for line in text.splitlines())
    return f"{indent}``` {{.text .drawing .columns-{columns}}}\n{text}{indent}```"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """MkDocs' hook: drawings fit a telephone; the page for contributors is the file at the top of
    the repository.
    """
    if page.file.src_uri == "contributing.md":
        text = (REFERENCE.parent.parent / "CONTRIBUTING.md").read_text()
        return text.replace("](docs/", "](")
    return re.sub(r"(?ms)^( *)```text\n(.*?)^\1```", fitted, markdown)


def on_page_content(html: str, **_: Any) -> str:
    """MkDocs' hook: the width of drawings, which Markdown takes for a class."""
    return re.sub(r' columns-(\d+)([^"]*")', r'\2 style="--columns: \1"', html)


if __name__ == "__main__":
    main()
    print(f"wrote {len(list(REFERENCE.glob('*.md')))} pages to {REFERENCE}")
