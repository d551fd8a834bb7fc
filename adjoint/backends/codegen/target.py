"""The host processor as LLVM knows it: vector width, optimisation, object code, loading."""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import itertools
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from adjoint.core import config, debug, fork_safety, policy
from adjoint.core.arrays import keep
from adjoint.core.errors import InvalidArgument, Unsupported
from adjoint.core.signal_deferral import DEFERRED

from . import cache


@dataclass(frozen=True)
class Target:
    """A processor to compile for."""

    triple: str
    cpu: str
    features: str
    effort: int = 2  # of LLVM, 0 to 3: any gives the same bits

    @property
    def vector_bytes(self) -> int:
        """Bytes in a vector register."""
        if self.has("avx512f") and self.has("avx512dq") and self.has("avx512bw"):
            return 64
        return 32 if self.has("avx2") else 16

    def has(self, feature: str) -> bool:
        """Whether the processor has an instruction set."""
        return f"+{feature}" in self.features.split(",")

    def compile(self, text: str) -> bytes:
        """Object code of a module's text."""
        with _lock:
            return bytes(_machine(self).emit_object(self._optimized(text)))

    def assembly(self, text: str) -> str:
        """Assembly of a module's text, for people to read."""
        with _lock:
            return str(_machine(self).emit_assembly(self._optimized(text)))

    def _optimized(self, text: str) -> Any:
        llvm = _llvm()
        # A context of its own: what a context knows (types, numbers, names) stays until it goes.
        module = llvm.parse_assembly(text, llvm.create_context())
        module.triple = self.triple
        # None throws, or is thrown through, so none needs tables of frames, which would be in a
        # list that each C++ exception of the process reads.
        for each in module.functions:
            if not each.is_declaration:
                each.add_function_attribute("nounwind")
        _passes(self.effort > 0).run(module, _builder(self))
        return module


class _LLVMLock:
    """The lock around each call of llvmlite, also by finalizers: a handler that raises between its
    lines would leave it held for ever, a fork by another thread would leave it held in the child.
    """

    def __init__(self) -> None:
        self._own = fork_safety.lock()

    def acquire(self) -> None:
        """Take it, and hold handlers back."""
        DEFERRED.begin()
        self._own.acquire()

    def release(self) -> None:
        """Give it back, then let handlers run."""
        self._own.release()
        DEFERRED.end()


@functools.lru_cache(maxsize=1)
def _llvm() -> Any:
    """llvmlite's binding, ready to use.

    Errors: Unsupported, if llvmlite is not installed.
    """
    try:
        import llvmlite.binding as llvm
    except ImportError as error:
        raise Unsupported("the kernel compiler needs llvmlite: pip install llvmlite") from error
    llvm.ffi.lib._lock._lock = _LLVMLock()
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm


# What each level of x86-64 adds (the psABI's levels; names are LLVM's).
_LEVELS = {
    "x86-64-v2": "64bit cmov crc32 cx16 cx8 fxsr mmx popcnt sahf sse sse2 sse3 sse4.1 sse4.2 ssse3",
    "x86-64-v3": "avx avx2 bmi bmi2 f16c fma lzcnt movbe xsave",
    "x86-64-v4": "avx512bw avx512cd avx512dq avx512f avx512vl",
}


def narrowed(features: str, level: str) -> str:
    """A processor's features without those that a level of x86-64 has not.

    Errors: InvalidArgument, if there is no such level, or the processor does not reach it.
    """
    if level not in _LEVELS:
        raise InvalidArgument(f"ADJOINT_CPU={level}: expected nothing, or one of {list(_LEVELS)}")
    allowed: set[str] = set()
    for name, added in _LEVELS.items():
        allowed.update(added.split())
        if name == level:
            break
    signs = {feature[1:]: feature[0] for feature in features.split(",")}
    if missing := sorted(name for name in allowed if signs.get(name) != "+"):
        raise InvalidArgument(f"ADJOINT_CPU={level}: this processor has no {', '.join(missing)}")
    return ",".join(f"{sign if name in allowed else '-'}{name}" for name, sign in signs.items())


@functools.lru_cache(maxsize=1)
def host() -> Target:
    """The processor of this machine, or what ADJOINT_CPU leaves of it.

    Errors: Unsupported, if it has no fused multiply-add (every x86-64 since 2013, every ARM64 has).
    """
    llvm = _llvm()
    features, cpu = llvm.get_host_cpu_features().flatten(), llvm.get_host_cpu_name()
    if level := config.read("ADJOINT_CPU"):
        features, cpu = narrowed(features, level), level
    effort = min(config.read_count("ADJOINT_OPTIMIZE"), 3)
    target = Target(llvm.get_default_triple(), cpu, features, effort)
    if not (target.has("fma") or target.has("neon")):
        raise Unsupported(f"kernels on {target.cpu}: it has no fused multiply-add")
    return target


_lock = fork_safety.lock()  # a target machine is not safe for concurrent use
_engines: dict[bool, tuple[Any, int]] = {}  # the last, and how much code it may get yet
_numbers = itertools.count()
_libraries: list[Any] = []


@functools.lru_cache(maxsize=8)
def _machine(target: Target) -> Any:
    llvm = _llvm()
    if target.triple != llvm.get_default_triple():
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=target.effort, reloc="pic", codemodel="small"
    )


@functools.lru_cache(maxsize=8)
def _builder(target: Target) -> Any:
    """LLVM's pass builder, one for all modules: each leaves 1.5 KiB."""
    llvm = _llvm()
    tuning = llvm.create_pipeline_tuning_options(speed_level=2)
    return llvm.create_pass_builder(_machine(target), tuning)


@functools.lru_cache(maxsize=2)
def _passes(simplify: bool) -> Any:
    """LLVM passes for code that is vector code already: inlining, and variables in registers."""
    passes = _llvm().create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_global_dead_code_eliminate_pass()
    passes.add_sroa_pass()
    if simplify:
        passes.add_simplify_cfg_pass()
        passes.add_instruction_combine_pass()
        passes.add_simplify_cfg_pass()
    return passes


class LoadedCode:
    """Machine code of a kernel: it is there as long as this object. Whoever keeps the address must
    keep this too.

    It is linked when the address is asked for, with all that wait then: LLVM takes 36 KiB for each
    time, a kernel's code 10.
    """

    __slots__ = ("__weakref__", "_address", "_object", "_owner", "_symbol")

    def __init__(self, code: bytes, symbol: str) -> None:
        self._object: bytes | None = code
        self._symbol = symbol
        _waiting.append(weakref.ref(self))

    @property
    def address(self) -> int:
        """The address of the code; asking for it links the code."""
        if self._object is not None:
            _link(self)
        return self._address

    def take(self, owner: Any) -> None:
        """Stores the linked owner and address, and drops the object code."""
        self._owner, self._address = owner, int(owner[self._symbol])
        self._object = None


_waiting: list[weakref.ref[LoadedCode]] = []


def _link(wanted: LoadedCode) -> None:
    with _lock:
        if wanted._object is None:  # another thread was quicker
            return
        waiting, _waiting[:] = list(_waiting), []
        unlinked = {wanted, *(code for each in waiting if (code := each()) is not None)}
        codes = [code for code in unlinked if code._object is not None]
        # Two that are of one text are one code.
        objects = list(dict.fromkeys((code._object, code._symbol) for code in codes))
        try:
            owner = _linked(objects, passing=True)
        except Unsupported:
            if len(codes) == 1:
                raise
            codes = [wanted]
            owner = _linked([(wanted._object, wanted._symbol)], passing=True)
        for code in codes:
            code.take(owner)


def freed(name: str, text: Callable[[], str], symbol: str) -> LoadedCode:
    """The code that `kept` would load, as an object after which it is freed."""
    own, code = object_code(name, text)
    return LoadedCode(code, symbol.replace(name, own))


def kept(name: str, text: Callable[[], str], *symbols: str) -> tuple[int, ...]:
    """The addresses of symbols of the code of `text()` for this machine: what is on disk under that
    name (`cache.digest`), or compiled now and put there.
    """
    own, code = object_code(name, text)
    return load(code, *[symbol.replace(name, own) for symbol in symbols])


def object_code(name: str, text: Callable[[], str]) -> tuple[str, bytes]:
    """The object code of `text()`, from disk or compiled now: all that is made comes from here.
    Before it its own name, which its symbols have where those of the text have `name`.
    """
    found = cache.find(name)
    if "code" in debug.on:
        source = text()
        debug.say("code", f"{name[:12]}:\n{source}\n{host().assembly(source)}")
    if found is None:
        source = text()
        own = cache.text_digest(source, name, repr(host()))
        code = cache.read(own)
        if code is None:
            code = host().compile(source.replace(name, own))
            cache.write(own, code)
        cache.keep(name, own)
        found = own, code
    return found


def load(code: bytes, *symbols: str) -> tuple[int, ...]:
    """Makes object code executable, for the process's life, and gives symbols' addresses: threads
    and NumPy arrays may run it while the interpreter is being torn down.
    """
    with _lock:
        loaded = _linked([(code, *symbols)])
    keep(loaded)
    return tuple(int(loaded[symbol]) for symbol in symbols)


def _linked(codes: Sequence[Sequence[Any]], passing: bool = False) -> Any:
    """Links object code and returns LLVM's library, which owns it and maps symbols to addresses:
    when it goes, the code is freed. `codes`: each an object, and symbols of it; `passing`: whether
    they may be freed before the process ends.
    """
    llvm = _llvm()
    engine = _engine(passing)
    library = llvm.JITLibraryBuilder().add_current_process()
    for code, *symbols in codes:
        library.add_object_img(code)
        for symbol in symbols:
            library.export_symbol(symbol)
    try:
        return library.link(engine, f"code{next(_numbers)}")
    except RuntimeError as error:
        symbols = [symbol for _, *each in codes for symbol in each]
        raise Unsupported(f"object code without {' or '.join(symbols)}: {error}") from error


def _engine(passing: bool) -> Any:
    """The engine that links. Some 9 KiB of each code that was freed stay with its engine (LLVM's
    JITDylib); engines of code that may be freed are therefore replaced, and freed with the last
    code that they linked.
    """
    engine, left = _engines.get(passing, (None, 0))
    if left == 0:
        llvm = _llvm()
        if not _libraries:
            _libraries.append(ctypes.CDLL(ctypes.util.find_library("m")))
            llvm.load_library_permanently(_libraries[0]._name)
        # JITLink places an object in one piece. Code reaches its constants within 2 GiB; MCJIT
        # places them apart, and aborts the process where the distance is larger.
        engine = llvm.create_lljit_compiler(_machine(host()), use_jit_link=True)
        left = policy.LINKED_TOGETHER if passing else -1
        if not passing:
            keep(engine)
    _engines[passing] = engine, left - 1
    return engine
