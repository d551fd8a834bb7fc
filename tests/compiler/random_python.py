"""Random Python programs for `ad.compile`: what they give and leave, eagerly and compiled.

A program is source text made of the ways and effects of `python_ways.py`: a function that reaches
state, and statements that change it between calls. Each is played twice, as it is and compiled; all
that can be observed is to be equal, unless the compiled call was refused.
`python -m tests.compiler.random_python SEED` shows a program, how its two ways differ, and the
shortest part of it for which they still do.
"""

# ruff: noqa: E501 - source text, a program's part on a line

from __future__ import annotations

import ast
import builtins
import contextlib
import contextvars
import copy
import decimal
import fractions
import functools
import gc
import io
import linecache
import logging
import math
import operator
import os
import random
import re
import statistics
import string
import sys
import textwrap
import threading
import types
import warnings
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

import adjoint as ad
from adjoint import nn
from adjoint.core.errors import Unsupported
from adjoint.nn import functional as F

from .python_ways import EFFECTS, PRELUDE, WAYS, Effect, Way, is_not_yet

TOLERANCE = 1e-5
VALUES = ("5.0", "7.0", "0.5", "-1.0", "True", "3", "2.5", "4.0", "1.0")
MODES = {
    "compile": 10, "fallback": 4, "pieces": 3, "dynamic": 1, "lazy": 1, "backend": 0.5,
}  # fmt: skip
REFUSING = ("compile", "dynamic")  # modes in which a call may be refused
UNDOING = (*REFUSING, "fallback")  # modes in which an error undoes what the call has done
HOWS = {
    "plain": 8, "backward": 4, "no_grad": 2, "inference": 1, "again": 2, "thread": 1, "context": 1,
}  # fmt: skip

# Where a number is read: lines before the function, lines in it. `%S` stands for the statements of a
# way, `%E` for its expression; `%T` for the same as a call of a function. The result is `u$`.
PLACES = {
    "inline": ("", "%S\nu$ = %E"),
    "helper": ("def r$():\n    %S\n    return %E", "u$ = r$()"),
    "lambda": ("r$ = lambda: %T", "u$ = r$()"),
    "nested": ("", "def r$():\n    %S\n    return %E\nu$ = r$()"),
    "comprehension": ("", "u$ = [%T for _ in (0,)][0]"),
    "generator": ("", "u$ = next(%T for _ in (0,))"),
    "map": ("", "u$ = next(map(lambda _: %T, (0,)))"),
    "try": ("", "try:\n    %S\n    u$ = %E\nfinally:\n    x = x + 1"),
    "no_grad": ("", "with ad.no_grad():\n    %S\n    u$ = %E"),
    "loop": ("", "for _ in range(2):\n    %S\n    u$ = %E"),
    "branch": ("", "if x.shape[0] == 2:\n    %S\n    u$ = %E\nelse:\n    u$ = 1.0"),
    "module": (
        "class R$(nn.Module):\n    def forward(self, y):\n        %S\n        return %E\nr$ = R$()",
        "u$ = r$(x)",
    ),
    "method": ("class R$:\n    def of(self):\n        %S\n        return %E\nr$ = R$()", "u$ = r$.of()"),
    "property": (
        "class R$:\n    @property\n    def of(self):\n        %S\n        return %E\nr$ = R$()",
        "u$ = r$.of",
    ),
    "partial": ("def q$(n):\n    %S\n    return %E\nr$ = functools.partial(q$, 1)", "u$ = r$()"),
    "wrapped": (
        "def d$(f):\n    @functools.wraps(f)\n    def g(*a):\n        return f(*a)\n    return g\n"
        "@d$\ndef r$():\n    %S\n    return %E",
        "u$ = r$()",
    ),
    "cached": ("@functools.lru_cache\ndef r$():\n    %S\n    return %E", "u$ = r$()"),
    "default": ("def q$():\n    %S\n    return %E\ndef r$(of=q$):\n    return of()", "u$ = r$()"),
    "recursion": (
        "def r$(n):\n    if n:\n        return r$(n - 1)\n    %S\n    return %E",
        "u$ = r$(2)",
    ),
    "list of functions": ("def q$():\n    %S\n    return %E\nr$ = [q$]", "u$ = r$[0]()"),
    "context manager": (
        "@contextlib.contextmanager\ndef r$():\n    %S\n    yield %E",
        "with r$() as u$:\n    x = x * 1",
    ),
    "checkpoint": (
        "def r$():\n    %S\n    return %E",
        "x = checkpoint(lambda y: y * r$(), x, use_reentrant=False)\nu$ = 1.0",
    ),
    "compiled": ("@ad.compile\ndef r$(y):\n    %S\n    return y * %E", "x = r$(x)\nu$ = 1.0"),
    "function": (
        "class R$(ad.autograd.Function):\n    @staticmethod\n    def forward(ctx, y):\n        %S\n"
        "        return y * %E\n    @staticmethod\n    def backward(ctx, g):\n        return g",
        "x = R$.apply(x)\nu$ = 1.0",
    ),
    "hook": (
        "class R$(nn.Module):\n    def forward(self, y):\n        return y\n"
        "def q$(module, given):\n    %S\n    return (given[0] * %E,)\n"
        "r$ = R$()\nr$.register_forward_pre_hook(q$)",
        "x = r$(x)\nu$ = 1.0",
    ),
    "gradient hook": (
        "def q$(g):\n    %S\n    return g * %E",
        "w$ = x.detach().requires_grad_()\nwith ad.enable_grad():\n    z$ = w$ * 2.0\n"
        "    z$.register_hook(q$)\n    z$.sum().backward()\nx = x + w$.grad\nu$ = 1.0",
    ),
    "argument": ("", "x = (lambda y, s: y * s)(x, %T)\nu$ = 1.0"),
    "vmap": ("def r$():\n    %S\n    return %E", "x = ad.func.vmap(lambda y: y * r$())(x)\nu$ = 1.0"),
}  # fmt: skip
COMMON = ("inline", "helper", "module", "nested", "method")
NUMBER_USES = {
    "product": "x = x * u$", "sum": "x = x + u$",
    "branch": "x = x.sin() if u$ > 2.5 else x.cos()", "equal": "x = x * (2 if u$ == 5 else 3)",
    "loop": "for _ in range(int(u$) % 4):\n    x = x * 1.5 + 0.1",
    "filled": "x = x + ad.full((2,), float(u$))", "returned": "out.append(u$)",
    "size": "x = ad.cat([x, x]) if u$ > 2.5 else x", "text": "x = x * len(f'{u$}')",
    "key": "x = x * {2.0: 1.5, 5.0: 0.5, 7.0: 0.25}.get(u$, 1.0)", "rounded": "x = x * int(u$)",
    "square root": "x = x * math.sqrt(abs(u$))", "array": "x = x * float(np.float32(u$) * 2)",
    "tensor": "x = x * ad.tensor(float(u$))", "truth": "x = x * (2 if u$ else 3)",
}  # fmt: skip
TENSOR_USES = {
    "product": "x = x * u$", "sum": "x = x + u$", "reduced": "x = x + u$.sum()",
    "returned": "out.append(u$ * 1)", "cut": "x = x * u$.detach()",
}  # fmt: skip


class Part(NamedTuple):
    """A way or an effect in a program."""

    number: int
    of: Way | Effect
    place: str
    use: str
    value: str

    def text(self, source: str, value: str = "") -> str:
        """Source text with this part's number and a value."""
        source = source.replace("$$", "\0").replace("$", str(self.number)).replace("\0", "$")
        return source.replace("?", value or self.value)


class Change(NamedTuple):
    """A statement that is run between two calls."""

    part: int
    kind: str
    source: str


class Call(NamedTuple):
    """A call of the function: what is changed before, and how it is called."""

    how: str
    changes: tuple[Change, ...]


class Program(NamedTuple):
    """A random Python program."""

    seed: int
    scope: str  # "module" or "closure": where its state lies
    mode: str
    parts: tuple[Part, ...]
    calls: tuple[Call, ...]

    @property
    def source(self) -> str:
        """Its text: `f`, `left()`, and `changes`."""
        setups, body, left = [], [], ["ad.is_grad_enabled()"]
        for part in self.parts:
            setups.append(part.text(part.of.setup))
            if isinstance(part.of, Effect):
                body.append(part.text(part.of.do))
                left.append(part.text(f"({part.of.left})"))
                continue
            before, within = self._placed(part)
            setups.append(before)
            body += [within, part.text(part_use(part))]
        setup = "\n".join(filter(None, setups))
        bound = bound_in(setup)
        word = "global" if self.scope == "module" else "nonlocal"
        lines = [
            setup,
            f"def f(x):\n{indented(declared(word, bound, body))}\n    out = []\n"
            f"{indented(chr(10).join(body))}\n    return (x, *out)",
            f"def left():\n    return {', '.join(left)},",
        ]
        changes = [change for call in self.calls for change in call.changes]
        for n, change in enumerate(changes):
            text = declared(word, bound, [change.source], self.scope == "module")
            lines.append(f"def change_{n}():\n{indented(text)}\n{indented(change.source)}")
        lines.append(f"changes = [{', '.join(f'change_{n}' for n in range(len(changes)))}]")
        text = "\n".join(lines)
        if self.scope == "closure":
            text = f"def make():\n{indented(text)}\n    return f, left, changes\nf, left, changes = make()"
        return f"{PRELUDE}\n{text}\n"

    @staticmethod
    def _placed(part: Part) -> tuple[str, str]:
        """The lines of a way before the function and in it."""
        statements, _, expression = part.of.read.rpartition("\n")
        before, within = PLACES[part.place]
        if statements and "%T" in before + within:
            before = f"def t$():\n    %S\n    return %E\n{before}"
            before, within = (each.replace("%T", "t$()") for each in (before, within))
        put = functools.partial(placed, statements=statements, expression=expression)
        return part.text(put(before)), part.text(put(within))

    def described(self) -> str:
        """All of it, for people."""
        text = self.source.replace(PRELUDE, "")
        shown = "\n".join(
            f"# {call.how}: {'; '.join(change.source for change in call.changes)}"
            for call in self.calls
        )
        return f"{text}\n# seed {self.seed}, {self.mode}\n{shown}\n"

    def kind(self) -> str:
        """Its kind, by which faults are grouped."""
        ways = " + ".join(
            part.of.name if isinstance(part.of, Way) else f"!{part.of.name}" for part in self.parts
        )
        changes = ", ".join(sorted({c.kind for call in self.calls for c in call.changes}))
        return f"{ways} [{changes}]"


def part_use(part: Part) -> str:
    """The lines that use what a way has read."""
    return (TENSOR_USES if part.of.is_tensor else NUMBER_USES)[part.use]


def placed(template: str, statements: str, expression: str) -> str:
    """A place's lines with those of a way."""
    lines = []
    for line in template.split("\n"):
        if line.strip() == "%S":
            space = line[: -len("%S")]
            lines += [space + each for each in statements.split("\n") if each]
        else:
            for word in ("%E", "%T"):
                line = line.replace(word, f"({expression})")
            lines.append(line)
    return "\n".join(lines)


def indented(text: str) -> str:
    """Text one level deeper."""
    return textwrap.indent(text or "pass", "    ")


class _Bound(ast.NodeVisitor):
    """Names that statements bind in their own scope."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.told: set[str] = set()  # those that are declared

    def visit_Name(self, node: ast.Name) -> None:
        """A variable."""
        if not isinstance(node.ctx, ast.Load):
            self.names.add(node.id)

    def visit_FunctionDef(self, node: Any) -> None:
        """A function or a class, whose body is a scope of its own."""
        self.names.add(node.name)
        for each in (*node.decorator_list, *getattr(node, "bases", ())):
            self.visit(each)

    visit_ClassDef = visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        """A scope of its own."""

    def visit_Global(self, node: ast.Global) -> None:
        """A declaration."""
        self.told.update(node.names)

    def visit_alias(self, node: ast.alias) -> None:
        """An import."""
        self.names.add(node.asname or node.name.partition(".")[0])

    def visit_MatchAs(self, node: ast.MatchAs) -> None:
        """A name in a pattern."""
        if node.name:
            self.names.add(node.name)
        self.generic_visit(node)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        """The name of an exception."""
        if node.name:
            self.names.add(node.name)
        self.generic_visit(node)


@functools.lru_cache(maxsize=4096)
def _names_of(source: str) -> tuple[frozenset[str], frozenset[str]]:
    found = _Bound()
    found.visit(ast.parse(source))
    return frozenset(found.names), frozenset(found.told)


def bound_in(source: str) -> frozenset[str]:
    """Names that source text binds."""
    return _names_of(source)[0]


def declared(word: str, bound: frozenset[str], sources: list[str], everything: bool = False) -> str:
    """The declaration of what statements bind outside of their function; with `everything`, of what
    is new, too.
    """
    names, told = _names_of("\n".join(sources))
    names = (names if everything else names & bound) - told
    return f"{word} {', '.join(sorted(names))}" if names else "pass"


def made(seed: int) -> Program:
    """The program of a seed."""
    draw = random.Random(seed)
    mode = one_of(draw, MODES)
    ways = draw.choices((1, 2, 3), (6, 3, 1))[0]
    effects = draw.choices((0, 1, 2), (6, 3, 1))[0]
    chosen: list[Way | Effect] = [
        *draw.sample(_ways(mode), ways),
        *draw.sample(_effects(mode), effects),
    ]
    draw.shuffle(chosen)
    parts: list[Part] = []
    for number, of in enumerate(chosen, 1):
        place = draw.choice(COMMON) if draw.random() < 0.5 else draw.choice(_places())
        is_tensor = isinstance(of, Way) and of.is_tensor
        if is_tensor and is_not_yet(f"@{place}", "tensor"):
            place = "inline"
        uses = TENSOR_USES if is_tensor else NUMBER_USES
        use = "product" if draw.random() < 0.4 else draw.choice(list(uses))
        parts.append(Part(number, of, place, use, draw.choice(VALUES)))
    calls = [Call(one_of(draw, HOWS), ())]
    for _ in range(draw.randint(2, 4)):
        found = []
        for part in parts:
            changes = _changes(part.of)
            if changes and draw.random() < 0.7:
                kind, source = draw.choice(changes)
                found.append(Change(part.number, kind, part.text(source, draw.choice(VALUES))))
        calls.append(Call(one_of(draw, HOWS), tuple(found)))
    scope = draw.choice(("module", "module", "closure"))
    return Program(seed, scope, mode, tuple(parts), tuple(calls))


@functools.cache
def _places() -> list[str]:
    return [place for place in PLACES if not is_not_yet(f"@{place}")]


@functools.cache
def _ways(mode: str) -> list[Way]:
    return [way for way in WAYS if not is_not_yet(way.name, mode)]


@functools.cache
def _effects(mode: str) -> list[Effect]:
    return [each for each in EFFECTS if not is_not_yet(f"!{each.name}", mode)]


def _changes(of: Way | Effect) -> list[tuple[str, str]]:
    changes = of.changes if isinstance(of, Way) else ()
    return [(kind, source) for kind, source in changes if not is_not_yet(of.name, kind)]


def one_of(draw: random.Random, weights: dict[str, float]) -> str:
    """One of some words, by their weights."""
    return draw.choices(list(weights), list(weights.values()))[0]


# ---- the process is as it was --------------------------------------------------------------------

_PATCHED: tuple[Any, ...] = (
    builtins, math, statistics, string, operator, copy, textwrap, np, F, nn, ad, ad.Tensor, nn.Tanh,
    nn.Linear, nn.Module, nn.init, nn.Softplus, fractions.Fraction, ad.utils.checkpoint,
)  # fmt: skip
_SWITCHES: tuple[tuple[Any, Any], ...] = (
    (ad.get_default_dtype, ad.set_default_dtype),
    (ad.get_float32_matmul_precision, ad.set_float32_matmul_precision),
    (ad.get_num_threads, ad.set_num_threads),
    (ad.is_warn_always_enabled, ad.set_warn_always),
    (ad.get_deterministic_debug_mode, ad.set_deterministic_debug_mode),
    (ad.is_anomaly_enabled, ad.set_detect_anomaly),
    (ad.is_autocast_cache_enabled, ad.set_autocast_cache_enabled),
    (functools.partial(ad.is_autocast_enabled, "cpu"), functools.partial(ad.set_autocast_enabled, "cpu")),
    (functools.partial(ad.get_autocast_dtype, "cpu"), functools.partial(ad.set_autocast_dtype, "cpu")),
    (os.getcwd, os.chdir), (sys.getrecursionlimit, sys.setrecursionlimit),
    (sys.getswitchinterval, sys.setswitchinterval), (random.getstate, random.setstate),
    (sys.get_int_max_str_digits, sys.set_int_max_str_digits),
    (np.random.get_state, np.random.set_state), (ad.get_rng_state, ad.set_rng_state),
    (gc.get_threshold, lambda found: gc.set_threshold(*found)),
    (gc.isenabled, lambda found: gc.enable() if found else gc.disable()),
    (lambda: list(sys.argv), lambda found: setattr(sys, "argv", found)),
    (lambda: list(sys.path), lambda found: setattr(sys, "path", found)),
    (lambda: threading.current_thread().name, lambda x: setattr(threading.current_thread(), "name", x)),
    (lambda: logging.root.level, lambda found: logging.root.setLevel(found)),
    (ad.is_grad_enabled, ad.set_grad_enabled),
    (lambda: F.leaky_relu.__defaults__, lambda x: setattr(F.leaky_relu, "__defaults__", x)),
    (lambda: textwrap.shorten.__kwdefaults__, lambda x: setattr(textwrap.shorten, "__kwdefaults__", x)),
)  # fmt: skip
_OWN = ("settings", "effects", "python_program")  # modules that programs make


@contextlib.contextmanager
def process_as_it_was() -> Iterator[None]:
    """Run a program, and put the process back to what it was before."""
    patched = [(each, dict(vars(each))) for each in _PATCHED]  # 4,000 names
    switches = [(put, get()) for get, put in _SWITCHES]
    environment = dict(os.environ)
    options = ad.get_printoptions() if hasattr(ad, "get_printoptions") else {}
    try:
        with (
            np.errstate(), np.printoptions(), decimal.localcontext(), warnings.catch_warnings(),
        ):  # fmt: skip
            yield
    finally:
        for each, before in patched:
            put_back(each, before)
        for put, value in switches:
            put(value)
        with contextlib.suppress(TypeError):
            ad.set_printoptions(**options)
        logging.disable(logging.NOTSET)
        for name in [n for n in logging.root.manager.loggerDict if n.startswith("program")]:
            del logging.root.manager.loggerDict[name]
        for name in os.environ.keys() - environment.keys():
            del os.environ[name]
        os.environ.update(environment)
        for name in [name for name in sys.modules if name.startswith(_OWN)]:
            del sys.modules[name]


def put_back(holder: Any, before: dict[str, Any]) -> None:
    """Set a module's or a class's names to what they were."""
    present = vars(holder)
    for name, value in before.items():
        if present.get(name, before) is not value:
            setattr(holder, name, value)
    for name in [name for name in present if name.startswith("mine")]:
        delattr(holder, name)
    if isinstance(holder, type):
        for name in [name for name in present if name not in before]:
            delattr(holder, name)


# ---- what is observed ----------------------------------------------------------------------------


def observed(x: Any, depth: int = 0) -> Any:
    """What can be seen of a value, as nested tuples."""
    if isinstance(x, ad.Tensor):
        return "tensor", tuple(x.shape), str(x.dtype), x.requires_grad, values_of(x)
    if isinstance(x, np.ndarray):
        if x.dtype.kind in "biufc":
            return "array", x.shape, str(x.dtype), tuple(x.ravel().tolist())
        return "array", x.shape, observed(x.tolist(), depth)
    if isinstance(x, (bool, str, bytes, type(None), complex, bytearray)):
        return type(x).__name__, x
    if isinstance(x, (int, float, np.number, np.bool_)):
        return type(x).__name__, x.item() if isinstance(x, np.generic) else x * 1
    if depth > 4:
        return type(x).__name__
    if isinstance(x, (dict, types.MappingProxyType)):
        pairs = [(observed(k, depth + 1), observed(v, depth + 1)) for k, v in x.items()]
        return type(x).__name__, tuple(pairs)
    if isinstance(x, (set, frozenset)):
        return type(x).__name__, tuple(sorted(map(repr, x)))
    if isinstance(x, (list, tuple, deque)):
        return type(x).__name__, tuple(observed(each, depth + 1) for each in x)
    if isinstance(x, BaseException):
        return type(x).__name__, observed(x.args, depth + 1)
    own = getattr(x, "__dict__", {})
    if isinstance(x, (type, types.ModuleType)) or callable(x):
        own = {}
    return type(x).__name__, observed(dict(own), depth + 1) if own else ""


def values_of(x: Any) -> tuple[Any, ...]:
    """A tensor's values."""
    return tuple(np.ravel(x.detach().double().numpy()).tolist())


def same(a: Any, b: Any) -> bool:
    """Whether two observations are equal, but for rounding."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (a != a and b != b) or abs(a - b) <= TOLERANCE * max(1.0, abs(a), abs(b))
    return type(a) is type(b) and a == b


def is_error(x: Any) -> bool:
    """Whether an observation is that of an error."""
    return isinstance(x, tuple) and x[:1] == ("error",)


def compiled(program: Program, function: Any) -> Any:
    """The function in the program's mode."""
    mode = program.mode
    if mode == "pieces":
        return ad.compile(function, mode="pieces")
    if mode == "fallback":
        return ad.compile(function, fallback="eager")
    if mode == "dynamic":
        return ad.compile(function, dynamic=True)
    if mode == "backend":
        return ad.compile(function, backend="eager")
    if mode == "lazy":

        def lazily(x: Any) -> Any:
            with ad.lazy():
                return function(x)

        return lazily
    return ad.compile(function)


@functools.lru_cache(maxsize=8)
def _code_of(source: str, name: str) -> types.CodeType:
    return compile(source, name, "exec")


def played(program: Program, is_compiled: bool) -> tuple[list[Any], str]:
    """What is observed of the calls of a program, and why a compiled call was refused; '' if none
    was. After a refusal nothing is called.
    """
    name = f"<python program {program.seed}>"
    source = program.source
    linecache.cache[name] = len(source), None, source.splitlines(True), name
    module = types.ModuleType("python_program")
    found: list[Any] = []
    with process_as_it_was(), contextlib.redirect_stdout(io.StringIO()) as shown:
        warned = []
        warnings.simplefilter("always")
        warnings.showwarning = lambda message, *_, **__: warned.append(str(message))
        sys.modules["python_program"] = module
        ad.manual_seed(0)
        exec(_code_of(source, name), module.__dict__)
        own = module.__dict__
        function = compiled(program, own["f"]) if is_compiled else own["f"]
        changes = iter(own["changes"])
        try:
            for call in program.calls:
                for change in call.changes:
                    found.append((f"change {change.source}", attempt(next(changes))))
                before = attempt(own["left"])
                refused, result = called(function, call.how, own)
                heard = tuple(each for each in warned if each.startswith("program"))
                state = attempt(own["left"]), shown.getvalue(), heard
                if refused:
                    found.append(("left by a refused call", (state[0], before)))
                    return found, refused
                found.append((f"call {call.how}", (result, *state)))
                if is_compiled and program.mode in UNDOING and is_error(result):
                    return found, ""  # it has undone what it did
        finally:
            for handle in own["handles"]:
                handle.remove()
    return found, ""


def attempt(function: Any, *args: Any) -> Any:
    """What a call gives, as it is observed: a result, or an error."""
    try:
        return observed(function(*args))
    except Exception as error:  # each kind is to be the same
        return told(error)


def called(function: Any, how: str, own: dict[str, Any]) -> tuple[str, Any]:
    """Call the function in one of the ways of `HOWS`: why it was refused, and what is observed."""
    x = ad.tensor([1.0, 2.0], requires_grad=how == "backward")
    if how == "again":
        x = own.setdefault("x_again", ad.tensor([0.5, 0.25]))
    try:
        if how == "backward":
            result = function(x)
            if isinstance(result, tuple) and result[0].requires_grad:
                result[0].sum().backward()
            return "", (observed(result), observed(x.grad))
        if how == "thread":
            kept: list[Any] = []
            worker = threading.Thread(target=lambda: kept.append(_outcome(function, x)))
            worker.start()
            worker.join()
            if isinstance(kept[0], Exception):
                raise kept[0]
            return "", kept[0]
        if how == "context":
            return "", observed(contextvars.copy_context().run(function, x))
        with {"no_grad": ad.no_grad, "inference": ad.inference_mode}.get(
            how, contextlib.nullcontext
        )():
            return "", observed(function(x))
    except Exception as error:  # each kind is to be the same
        if str(error).startswith("compile: ") or isinstance(error, Unsupported):
            return str(error) or "compile", None
        return "", told(error)


def told(error: Exception) -> Any:
    """What is observed of an error: its kind and its words, without addresses."""
    return "error", type(error).__name__, re.sub(" at 0x[0-9a-f]+", "", str(error))[:60]


def _outcome(function: Any, x: Any) -> Any:
    try:
        return observed(function(x))
    except Exception as error:  # raised again by who waits
        return error


def compared(program: Program, strict: bool = False) -> str:
    """'' where the compiled program gives and leaves what the eager one does, else why it was
    refused. AssertionError where they differ; with `strict` what a refused call leaves counts where
    `NOT_YET` has it, too.
    """
    expected, refused = played(program, False)
    if refused:
        return f"eager: {refused}"
    found, refused = played(program, True)
    if refused:
        _, (after, before) = found.pop()
        is_known = refused.startswith("compile: backward") or any(
            is_not_yet(f"!{part.of.name}", "left") for part in program.parts
        )
        assert (is_known and not strict) or same(after, before), (
            f"left by a refused call: {after} after {before}\n{refused}\n{program.described()}"
        )
    for n, ((name, a), (_, b)) in enumerate(zip(found, expected, strict=False)):
        if n == len(found) - 1 and program.mode in UNDOING and is_error(a[0]) and same(a[0], b[0]):
            break  # an error undoes what the call has done, which eagerly stays
        assert same(a, b), f"{n}, {name}:\n  {a} for\n  {b}\n{program.described()}"
    return refused


def fault_of(program: Program, strict: bool = False) -> str:
    """What is wrong with it; '' if nothing."""
    try:
        compared(program, strict)
    except Exception as error:  # to be shown
        return f"{type(error).__name__}: {error}".strip()
    return ""


# ---- the shortest part that differs --------------------------------------------------------------


def smaller(program: Program) -> Iterator[Program]:
    """Programs that lack something of a program, the largest steps first."""
    for part in program.parts:
        yield program._replace(
            parts=tuple(each for each in program.parts if each is not part),
            calls=tuple(
                call._replace(changes=tuple(c for c in call.changes if c.part != part.number))
                for call in program.calls
            ),
        )
    for n in range(len(program.calls)):
        yield program._replace(calls=program.calls[:n] + program.calls[n + 1 :])
    for n, call in enumerate(program.calls):
        for k in range(len(call.changes)):
            less = call._replace(changes=call.changes[:k] + call.changes[k + 1 :])
            yield program._replace(calls=(*program.calls[:n], less, *program.calls[n + 1 :]))
    for n, call in enumerate(program.calls):
        if call.how != "plain":
            less = call._replace(how="plain")
            yield program._replace(calls=(*program.calls[:n], less, *program.calls[n + 1 :]))
    for n, part in enumerate(program.parts):
        for plain in (part._replace(place="inline"), part._replace(use="product")):
            if plain != part:
                yield program._replace(parts=(*program.parts[:n], plain, *program.parts[n + 1 :]))
    if program.scope != "module":
        yield program._replace(scope="module")
    if program.mode != "compile":
        yield program._replace(mode="compile")


def shortened(program: Program) -> Program:
    """The program without what its fault does not need."""
    kind = fault_of(program)[:20]
    again = True
    while again:
        again = False
        for each in smaller(program):
            said = fault_of(each)
            if said and ("left by" in said[:40]) == ("left by" in kind + "    "):
                program, again = each, True
                break
    return program


if __name__ == "__main__":
    for word in sys.argv[1:]:
        shown = made(int(word))
        print(shown.described())
        told = fault_of(shown)
        print(told.partition("\ndef ")[0][:1500] or f"equal, or refused: {compared(shown)}")
        if told:
            print(shortened(shown).described())
