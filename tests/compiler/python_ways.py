"""The ways of which random Python programs are made (`random_python.py`): how state is reached, how
it is changed between calls, and what a function leaves behind.

In all source text `$` is the number of the way in its program, and `?` a value that is drawn.
"""

# ruff: noqa: E501 - source text, a program's part on a line

from __future__ import annotations

from typing import NamedTuple

PRELUDE = '''
import abc, array, asyncio, bisect, builtins, collections, contextlib, contextvars, copy, ctypes
import dataclasses, decimal, enum, fractions, functools, gc, heapq, importlib, inspect, io
import itertools, json, logging, math, operator, os, pickle, queue, random, re, statistics, string
import struct, sys, textwrap, threading, types, typing, warnings, weakref
import numpy as np
import adjoint as ad
from adjoint import nn
from adjoint.nn import functional as F
from adjoint.utils.checkpoint import checkpoint

handles = []  # of hooks for all modules


class Plain:
    """An object with attributes."""

    def __init__(self, **given):
        self.__dict__.update(given)

    def of(self, n=1.0):
        return self.s * n


def settings(name, **given):
    """A module that can be imported."""
    sys.modules[name] = module = types.ModuleType(name)
    module.__dict__.update(given)
    return module
'''


class Way(NamedTuple):
    """One way to reach state: what is there before, and the expression that reads a number of it
    (lines before its last are statements).
    """

    name: str
    setup: str
    read: str
    changes: tuple[tuple[str, str], ...]  # kinds of changes, and statements
    is_tensor: bool = False  # whether a tensor is read


class Effect(NamedTuple):
    """What a function does beside computing: statements, and what shows afterwards."""

    name: str
    setup: str
    do: str
    left: str


WAYS: list[Way] = []
EFFECTS: list[Effect] = []


def way(name: str, setup: str, read: str, is_tensor: bool = False, **changes: str) -> None:
    """Add a way; several changes of a kind are parted by `||`."""
    kinds = [(kind, each.strip()) for kind, text in changes.items() for each in text.split("||")]
    WAYS.append(Way(name, setup, read, tuple(kinds), is_tensor))


def effect(name: str, setup: str, do: str, left: str) -> None:
    """Add an effect."""
    EFFECTS.append(Effect(name, setup, do, left))


# fmt: off
# ---- attributes ----------------------------------------------------------------------------------

PLAIN = "class C$(Plain):\n    pass\nclass D$(Plain):\n    s = property(lambda self: ?)\nh$ = C$(s=2.0)"
SET = {
    "rebind": "h$.s = ?", "replace": "h$ = C$(s=?)", "delete": "del h$.s",
    "shadow_by_class": "C$.s = property(lambda self: ?)", "replace_class": "h$.__class__ = D$",
    "type": "h$.s = np.float64(?)", "whole_dict": "h$.__dict__ = {'s': ?}",
    "write_dict": "h$.__dict__['s'] = ?", "setattr": "setattr(h$, 's', ?)",
    "same": "h$.s = 2.0", "touch": "h$.other = ?",
}  # fmt: skip
for _name, _read in {
    "attribute": "h$.s",
    "getattr": "getattr(h$, 's')",
    "getattr of a computed name": "getattr(h$, chr(115))",
    "getattr with a default": "getattr(h$, 's', 3.0)",
    "hasattr": "(2 if hasattr(h$, 's') else 3)",
    "hasattr of what is not there": "(2 if hasattr(h$, 'other') else 3)",
    "vars": "vars(h$)['s']",
    "__dict__": "h$.__dict__['s']",
    "__dict__.get": "h$.__dict__.get('s', 3.0)",
    "len of __dict__": "len(h$.__dict__)",
    "object.__getattribute__": "object.__getattribute__(h$, 's')",
    "__getattribute__": "h$.__getattribute__('s')",
    "inspect.getattr_static": "inspect.getattr_static(h$, 's')",
    "inspect.getmembers": "dict(inspect.getmembers(h$))['s']",
    "dir": "len([each for each in dir(h$) if each[0] != '_'])",
    "builtins.getattr": "builtins.getattr(h$, 's')",
    "map of getattr": "sum(map(getattr, [h$], ['s']))",
    "reduce of getattr": "functools.reduce(getattr, ['s'], h$)",
    "partial of getattr": "functools.partial(getattr, h$)('s')",
    "__builtins__": "vars(builtins)['get' + 'attr'](h$, 's')",
    "f-string": "float(f'{h$.s}')",
    "str.format": "float('{0.s}'.format(h$))",
    "format_map": "float('{h.s}'.format_map({'h': h$}))",
    "string.Formatter": "float(string.Formatter().format('{0.s}', h$))",
    "percent": "float('%s' % h$.s)",
    "percent of vars": "float('%(s)s' % vars(h$))",
    "match of a class": "match h$:\n    case Plain(s=v$):\n        pass\n    case _:\n        v$ = 3\nv$",
    "match by value": "match h$:\n    case Plain(s=2.0):\n        v$ = 2\n    case _:\n        v$ = 3\nv$",
    "attrgetter made within": "operator.attrgetter('s')(h$)",
    "methodcaller made within": "operator.methodcaller('of', 1.0)(h$)",
    "method": "h$.of()",
    "method by class": "type(h$).of(h$)",
    "bound method made within": "(lambda of: of(1.0))(h$.of)",
    "copy": "copy.copy(h$).s",
    "deepcopy": "copy.deepcopy(h$).s",
    "class by type": "(2 if type(h$) is C$ else 3)",
    "class by __class__": "(2 if h$.__class__ is C$ else 3)",
    "isinstance": "(2 if isinstance(h$, D$) else 3)",
    "class name": "ord(type(h$).__name__[0])",
    "hash by default": "{h$: 2.0}[h$] * h$.s",
    "walrus": "(v$ := h$.s) + 0 * v$",
    "sorted by key": "sorted([h$, h$], key=lambda each: each.s)[0].s",
    "max by attrgetter": "max([h$], key=operator.attrgetter('s')).s",
    "augmented": "v$ = h$\nv$.s",
    "json": "json.loads(json.dumps(vars(h$)))['s']",
    "eval": "eval('h$.s')",
    "exec": "v$ = {}\nexec('w = h$.s', {'h$': h$}, v$)\nv$['w']",
    "globals()": "globals().get('h$', h$).s",
    "frame": "sys._getframe().f_globals.get('h$', h$).s",
    "sum of values": "sum(v for v in vars(h$).values())",
    "in __dict__": "(2 if 's' in h$.__dict__ else 3)",
    "suppress": "v$ = 3.0\nwith contextlib.suppress(AttributeError):\n    v$ = h$.s\nv$",
    "except": "try:\n    v$ = h$.s\nexcept AttributeError:\n    v$ = 3.0\nv$",
    "Template": "float(string.Template('$$s').substitute(vars(h$)))",
}.items():
    way(_name, PLAIN, _read, **SET)

for _name, _setup, _read in (
    ("attrgetter", "g$ = operator.attrgetter('s')", "g$(h$)"),
    ("attrgetter of two", "g$ = operator.attrgetter('s', '__class__')", "g$(h$)[0]"),
    ("attrgetter of a path", "k$ = Plain(h=h$)\ng$ = operator.attrgetter('h.s')", "g$(k$)"),
    ("methodcaller", "g$ = operator.methodcaller('of')", "g$(h$)"),
    ("methodcaller of __getattribute__", "g$ = operator.methodcaller('__getattribute__', 's')", "g$(h$)"),
    ("another name of getattr", "g$ = getattr", "g$(h$, 's')"),
    ("another name of vars", "g$ = vars", "g$(h$)['s']"),
    ("another name of attrgetter", "from operator import attrgetter as g$", "g$('s')(h$)"),
    ("getattr in a partial", "g$ = functools.partial(getattr, h$, 's')", "g$()"),
    ("getattr in a dict", "g$ = {'get': getattr}", "g$['get'](h$, 's')"),
    ("object.__getattribute__ kept", "g$ = object.__getattribute__", "g$(h$, 's')"),
    ("bound __getattribute__", "g$ = h$.__getattribute__", "g$('s')"),
    ("bound __dict__.get", "g$ = h$.__dict__.get", "g$('s')"),
    ("dict of an object kept", "g$ = h$.__dict__", "g$['s']"),
    ("bound method kept", "g$ = h$.of", "g$(1.0)"),
    ("function of a class kept", "g$ = Plain.of", "g$(h$)"),
    ("format string kept", "g$ = '{0.s}'", "float(g$.format(h$))"),
    ("bound format", "g$ = '{0.s}'.format", "float(g$(h$))"),
    ("weak reference", "g$ = weakref.ref(h$)", "g$().s"),
    ("weak proxy", "g$ = weakref.proxy(h$)", "g$.s"),
    ("WeakValueDictionary", "g$ = weakref.WeakValueDictionary(k=h$)", "g$['k'].s"),
    ("WeakKeyDictionary", "g$ = weakref.WeakKeyDictionary({h$: 2.0})", "g$[h$]"),
    ("WeakSet", "g$ = weakref.WeakSet([h$])", "sum(each.s for each in g$)"),
    ("WeakMethod", "g$ = weakref.WeakMethod(h$.of)", "g$()(1.0)"),
    ("chain of attributes", "k$ = Plain(a=Plain(b=h$))", "k$.a.b.s"),
    ("alias", "k$ = h$", "(2 if k$ is h$ else 3) * k$.s"),
    ("dict key by identity", "k$ = {h$: 2.0}", "k$.get(h$, 3.0)"),
    ("id", "k$ = id(h$)\no$ = h$", "(2 if k$ == id(h$) else 3)"),
    ("in a list", "k$ = [h$]", "(2 if h$ in k$ else 3) * k$[0].s"),
    ("lambda that is kept", "g$ = lambda: h$.s", "g$()"),
    ("lambda in a dict", "g$ = {'f': lambda h: h.s}", "g$['f'](h$)"),
    ("compiled lambda", "g$ = ad.compile(lambda y: y * h$.s)", "float(g$(ad.ones(())).item())"),
    ("eval of code kept", "g$ = compile('h.s', 'c', 'eval')", "eval(g$, {'h': h$})"),
    ("function in C that reads", "g$ = functools.cmp_to_key(lambda a, b: int(a.s - b.s))",
     "(2 if g$(h$) < g$(Plain(s=3.0)) else 3)"),
):  # fmt: skip
    way(_name, f"{PLAIN}\n{_setup}", _read, alias="k$ = D$(s=?)", **SET)

# ---- classes -------------------------------------------------------------------------------------

CLASS = (
    "class A$:\n    s = 2.0\n    def of(self):\n        return self.s\n"
    "class B$:\n    s = ?\n    def of(self):\n        return ?\n"
    "class C$(A$):\n    pass\nh$ = C$()"
)
OF_CLASS = {
    "class_attribute": "A$.s = ?", "shadow": "h$.s = ?", "shadow_in_subclass": "C$.s = ?",
    "bases": "C$.__bases__ = (B$,)", "replace_class": "h$.__class__ = type('E$', (B$,), {})",
    "patch_method": "A$.of = lambda self: ?||C$.of = B$.of",
    "shadow_method": "h$.of = lambda: ?", "delete": "del A$.s", "rebind_class": "C$ = B$; h$ = B$()",
    "property": "C$.s = property(lambda self: ?)",
    "getattr_added": "A$.__getattribute__ = lambda self, name: ? if name == 's' else object.__getattribute__(self, name)",
}  # fmt: skip
for _name, _read in {
    "class attribute": "C$.s",
    "class attribute through an instance": "h$.s",
    "class attribute by self": "h$.of()",
    "class attribute by getattr": "getattr(C$, 's')",
    "class attribute by vars": "vars(A$)['s']",
    "class attribute by type": "type(h$).s",
    "class attribute by __class__": "h$.__class__.s",
    "class attribute by __mro__": "type(h$).__mro__[1].s",
    "class attribute by __bases__": "C$.__bases__[0].s",
    "class attribute by super": "super(C$, h$).s",
    "class of a new object": "C$().s",
    "class attribute by format": "float('{.s}'.format(h$))",
    "class attribute by attrgetter": "operator.attrgetter('s')(h$)",
    "class attribute by match": "match h$:\n    case object(s=v$):\n        pass\n    case _:\n        v$ = 3\nv$",
    "subclasses": "len(A$.__subclasses__()) + 1",
    "method through the class": "C$.of(h$)",
    "method kept in a variable": "v$ = h$.of\nv$()",
    "issubclass": "(2 if issubclass(C$, B$) else 3)",
    "getattr_static of a class": "inspect.getattr_static(h$, 's')",
    "hasattr of a class": "(2 if hasattr(C$, 's') else 3)",
    "dir of a class": "(2 if 's' in dir(C$) else 3)",
}.items():
    way(_name, CLASS, _read, **OF_CLASS)
way("method kept", CLASS + "\ng$ = h$.of", "g$()", **OF_CLASS)
way("method of the class kept", CLASS + "\ng$ = C$.of", "g$(h$)", **OF_CLASS)
way("method in a partial", CLASS + "\ng$ = functools.partial(C$.of, h$)", "g$()", **OF_CLASS)
way("metaclass property", "class M$(type):\n    v = 2.0\n    s = property(lambda c: c.v)\n"
    "class C$(metaclass=M$):\n    pass", "C$.s", rebind="M$.v = ?", shadow="C$.v = ?",
    property="M$.s = property(lambda c: ?)", delete="del M$.v")
way("metaclass __getattr__", "class M$(type):\n    v = 2.0\n    def __getattr__(c, name):\n"
    "        return M$.v\nclass C$(metaclass=M$):\n    pass", "C$.any", rebind="M$.v = ?",
    shadow="C$.any = ?", patch_method="M$.__getattr__ = lambda c, name: ?")
way("metaclass __call__", "class M$(type):\n    v = 2.0\n    def __call__(c):\n        return c.v\n"
    "class C$(metaclass=M$):\n    pass", "C$()", rebind="M$.v = ?", shadow="C$.v = ?",
    patch_method="M$.__call__ = lambda c: ?")
way("metaclass __instancecheck__", "class M$(type):\n    v = True\n    def __instancecheck__(c, x):\n"
    "        return c.v\nclass C$(metaclass=M$):\n    pass", "(2 if isinstance(1, C$) else 3)",
    rebind="M$.v = False", patch_method="M$.__instancecheck__ = lambda c, x: False")
way("metaclass __iter__ and __len__", "class M$(type):\n    v = [2.0]\n    def __iter__(c):\n"
    "        return iter(c.v)\n    def __len__(c):\n        return len(c.v)\n"
    "class C$(metaclass=M$):\n    pass", "sum(C$) + len(C$)", rebind="M$.v = [?]", grow="M$.v.append(?)")
way("abstract class with register", "class C$(abc.ABC):\n    pass\nclass D$:\n    pass\nh$ = D$()",
    "(2 if isinstance(h$, C$) else 3)", register="C$.register(D$)", replace="h$ = 3")
way("__init_subclass__ registry", "class C$:\n    kinds = []\n    def __init_subclass__(cls):\n"
    "        C$.kinds.append(cls)", "len(C$.kinds) + 1.0", grow="type('E$', (C$,), {})",
    clear="C$.kinds.clear()")
way("__class_getitem__", "class C$:\n    v = {1: 2.0}\n    def __class_getitem__(cls, k):\n"
    "        return cls.v[k]", "C$[1]", set_item="C$.v[1] = ?", rebind="C$.v = {1: ?}")
way("nested class", "class C$:\n    class In:\n        s = 2.0", "C$.In.s", class_attribute="C$.In.s = ?",
    rebind_class="C$.In = Plain(s=?)")
way("class method", "class C$:\n    s = 2.0\n    @classmethod\n    def of(cls):\n        return cls.s",
    "C$.of()", class_attribute="C$.s = ?", patch_method="C$.of = classmethod(lambda cls: ?)")
way("static method", "class C$:\n    s = 2.0\n    @staticmethod\n    def of():\n        return C$.s",
    "C$().of()", class_attribute="C$.s = ?", patch_method="C$.of = staticmethod(lambda: ?)")
way("super in a method", "class A$:\n    def of(self):\n        return 2.0\nclass C$(A$):\n"
    "    def of(self):\n        return super().of()\nh$ = C$()", "h$.of()",
    patch_method="A$.of = lambda self: ?", bases="C$.__bases__ = (type('B$', (), {'of': lambda self: ?}),)")
way("mixin order", "class A$:\n    s = 2.0\nclass B$:\n    s = 3.0\nclass C$(A$, B$):\n    pass", "C$.s",
    bases="C$.__bases__ = (B$, A$)", class_attribute="A$.s = ?", delete="del A$.s")

# ---- objects with methods of their own -----------------------------------------------------------

for _name, _body, _read in (
    ("__getattr__", "def __getattr__(self, name):\n        return self.v[name]", "h$.s"),
    ("__getattribute__ of one's own", "def __getattribute__(self, name):\n"
     "        v = object.__getattribute__(self, 'v')\n        return v['s'] if name == 's' else object.__getattribute__(self, name)", "h$.s"),
    ("property", "s = property(lambda self: self.v['s'])", "h$.s"),
    ("property by getattr", "s = property(lambda self: self.v['s'])", "getattr(h$, 's')"),
    ("property by attrgetter", "s = property(lambda self: self.v['s'])", "operator.attrgetter('s')(h$)"),
    ("property by format", "s = property(lambda self: self.v['s'])", "float('{.s}'.format(h$))"),
    ("__getitem__", "def __getitem__(self, k):\n        return self.v[k]", "h$['s']"),
    ("__getitem__ by itemgetter", "def __getitem__(self, k):\n        return self.v[k]",
     "operator.itemgetter('s')(h$)"),
    ("__len__", "def __len__(self):\n        return int(self.v['s'])", "len(h$)"),
    ("__bool__", "def __bool__(self):\n        return self.v['s'] == 2.0", "(2 if h$ else 3)"),
    ("__bool__ by not", "def __bool__(self):\n        return self.v['s'] == 2.0", "(3 if not h$ else 2)"),
    ("__bool__ by filter", "def __bool__(self):\n        return self.v['s'] == 2.0", "len(list(filter(None, [h$])))"),
    ("__len__ as truth", "def __len__(self):\n        return int(self.v['s'] == 2.0)", "(2 if h$ else 3)"),
    ("__contains__", "def __contains__(self, x):\n        return self.v['s'] == x", "(2 if 2.0 in h$ else 3)"),
    ("__iter__", "def __iter__(self):\n        return iter([self.v['s']])", "sum(h$)"),
    ("__iter__ as a generator", "def __iter__(self):\n        yield self.v['s']", "max(h$)"),
    ("__iter__ unpacked", "def __iter__(self):\n        yield self.v['s']", "[*h$][0]"),
    ("__eq__", "def __eq__(self, x):\n        return self.v['s'] == x", "(2 if h$ == 2.0 else 3)"),
    ("__eq__ by in", "def __eq__(self, x):\n        return self.v['s'] == x", "(2 if 2.0 in [h$] else 3)"),
    ("__eq__ by index", "def __eq__(self, x):\n        return self.v['s'] == x", "(2 if [h$].count(2.0) else 3)"),
    ("__hash__", "def __hash__(self):\n        return int(self.v['s'])", "hash(h$)"),
    ("__lt__ by sorted", "def __lt__(self, x):\n        return self.v['s'] < x.v['s']",
     "sorted([type(h$)(3.0), h$])[0].v['s']"),
    ("__index__", "def __index__(self):\n        return int(self.v['s'])", "[0, 1, 2, 3, 4, 5, 6, 7][h$]"),
    ("__index__ by range", "def __index__(self):\n        return int(self.v['s'])", "len(range(h$))"),
    ("__float__", "def __float__(self):\n        return float(self.v['s'])", "float(h$)"),
    ("__float__ by math", "def __float__(self):\n        return float(self.v['s'])", "math.fabs(h$)"),
    ("__int__", "def __int__(self):\n        return int(self.v['s'])", "int(h$)"),
    ("__round__", "def __round__(self):\n        return int(self.v['s'])", "round(h$)"),
    ("__abs__", "def __abs__(self):\n        return self.v['s']", "abs(h$)"),
    ("__neg__", "def __neg__(self):\n        return -self.v['s']", "-(-h$) * -1"),
    ("__call__", "def __call__(self):\n        return self.v['s']", "h$()"),
    ("__call__ by map", "def __call__(self, _):\n        return self.v['s']", "sum(map(h$, [0]))"),
    ("__add__", "def __add__(self, x):\n        return self.v['s'] + x", "h$ + 0"),
    ("__radd__ by sum", "def __radd__(self, x):\n        return self.v['s'] + x", "sum([h$])"),
    ("__rmul__", "def __rmul__(self, x):\n        return x * self.v['s']", "1 * h$"),
    ("__iadd__", "def __iadd__(self, x):\n        return self.v['s'] + x", "v$ = h$\nv$ += 0\nv$"),
    ("__matmul__", "def __matmul__(self, x):\n        return self.v['s'] * x", "h$ @ 1"),
    ("__format__", "def __format__(self, spec):\n        return str(self.v['s'])", "float(f'{h$}')"),
    ("__str__", "def __str__(self):\n        return str(self.v['s'])", "float(str(h$))"),
    ("__repr__", "def __repr__(self):\n        return str(self.v['s'])", "float(f'{h$!r}')"),
    ("__enter__", "def __enter__(self):\n        return self.v['s']\n    def __exit__(self, *_):\n"
     "        return None", "with h$ as v$:\n    pass\nv$"),
    ("__reversed__", "def __reversed__(self):\n        return iter([self.v['s']])", "list(reversed(h$))[0]"),
    ("__length_hint__", "def __length_hint__(self):\n        return int(self.v['s'])", "operator.length_hint(h$)"),
    ("__dir__", "def __dir__(self):\n        return ['a'] * int(self.v['s'])", "len(dir(h$))"),
    ("__sizeof__", "def __sizeof__(self):\n        return int(self.v['s'])", "h$.__sizeof__()"),
    ("__reduce__ by copy", "def __reduce__(self):\n        return float, (str(self.v['s']),)", "copy.copy(h$)"),
    ("__deepcopy__", "def __deepcopy__(self, memo):\n        return self.v['s']", "copy.deepcopy(h$)"),
    ("__fspath__", "def __fspath__(self):\n        return str(self.v['s'])", "float(os.fspath(h$))"),
    ("__array__", "def __array__(self, dtype=None, copy=None):\n        return np.array([float(self.v['s'])])",
     "float(np.asarray(h$)[0])"),
    ("__missing__", "def of(self):\n        me = self\n        class D(dict):\n            def __missing__(self, k):\n"
     "                return me.v['s']\n        return D()", "h$.of()['k']"),
    ("__next__", "def __iter__(self):\n        return self\n    def __next__(self):\n        return self.v['s']", "next(h$)"),
    ("__next__ by zip", "def __iter__(self):\n        return self\n    def __next__(self):\n        return self.v['s']",
     "list(zip(h$, [0]))[0][0]"),
    ("__await__", "def __await__(self):\n        return self.v['s']\n        yield\n    async def of(self):\n"
     "        return await self", "v$ = h$.of()\ntry:\n    v$.send(None)\nexcept StopIteration as e$:\n    v$ = e$.value\nv$"),
    ("generator method", "def of(self):\n        yield self.v['s']", "next(h$.of())"),
    ("generator method sent", "def of(self):\n        x = yield 0\n        yield x * self.v['s']",
     "v$ = h$.of()\nnext(v$)\nv$ = v$.send(1)\nv$"),
    ("coroutine", "async def of(self):\n        return self.v['s']",
     "v$ = h$.of()\ntry:\n    v$.send(None)\nexcept StopIteration as e$:\n    v$ = e$.value\nv$"),
    ("cached_property of one's own", "s = functools.cached_property(lambda self: self.v['s'])", "h$.s"),
    ("singledispatchmethod", "@functools.singledispatchmethod\n    def of(self, x):\n        return self.v['s']",
     "h$.of(1)"),
    ("partialmethod", "def at(self, k):\n        return self.v[k]\n    of = functools.partialmethod(at, 's')", "h$.of()"),
    ("total_ordering", "def __lt__(self, x):\n        return self.v['s'] < x\n    def __eq__(self, x):\n"
     "        return self.v['s'] == x\n    le = lambda self, x: self < x or self == x", "(2 if h$.le(2.0) else 3)"),
    ("contextmanager method", "@contextlib.contextmanager\n    def of(self):\n        yield self.v['s']",
     "with h$.of() as v$:\n    pass\nv$"),
    ("exception of one's own", "def of(self):\n        raise ValueError(self.v['s'])",
     "try:\n    v$ = h$.of()\nexcept ValueError as e$:\n    v$ = e$.args[0]\nv$"),
):  # fmt: skip
    _method = _body.split("(")[0].removeprefix("def ").strip()
    _more = {"patch_method": f"C$.{_method} = lambda self, *_: ?"} if _body.startswith("def") else {}
    way(_name, f"class C$:\n    def __init__(self, s):\n        self.v = {{'s': s}}\n    {_body}\nh$ = C$(2.0)", _read,
        set_item="h$.v['s'] = ?", rebind="h$.v = {'s': ?}", replace="h$ = C$(?)", **_more)  # fmt: skip
way("descriptor", "class Of$:\n    v = 2.0\n    def __get__(self, x, kind):\n        return self.v\n"
    "class C$:\n    s = Of$()\nh$ = C$()", "h$.s", class_attribute="Of$.v = ?", rebind="C$.__dict__['s'].v = ?",
    shadow="h$.s = ?", delete="del C$.s", patch_method="Of$.__get__ = lambda self, x, kind: ?")
way("data descriptor", "class Of$:\n    v = 2.0\n    def __get__(self, x, kind):\n        return x.w * self.v\n"
    "    def __set__(self, x, value):\n        x.w = value\nclass C$:\n    s = Of$()\nh$ = C$()\nh$.s = 1.0", "h$.s",
    class_attribute="Of$.v = ?", rebind="h$.s = ?", write_dict="h$.__dict__['w'] = ?", shadow="h$.__dict__['s'] = ?")
way("descriptor with __set_name__", "class Of$:\n    def __set_name__(self, kind, name):\n        self.name = '_' + name\n"
    "    def __get__(self, x, kind):\n        return getattr(x, self.name)\nclass C$:\n    s = Of$()\nh$ = C$()\nh$._s = 2.0",
    "h$.s", rebind="h$._s = ?", write_dict="C$.__dict__['s'].name = '_t'; h$._t = ?", shadow="h$.s = ?")
way("descriptor removed", "class Of$:\n    def __get__(self, x, kind):\n        return 2.0\nclass C$:\n    s = Of$()\n"
    "h$ = C$()\nh$.__dict__['s'] = 3.0", "h$.s", patch_method="Of$.__set__ = lambda self, x, v: None",
    delete="del C$.s", shadow="h$.s = ?")
way("slots", "class C$:\n    __slots__ = ('s', '__weakref__')\nh$ = C$()\nh$.s = 2.0", "h$.s", rebind="h$.s = ?", delete="del h$.s",
    replace="h$ = C$(); h$.s = ?", type="h$.s = np.float32(?)")
way("slots by getattr", "class C$:\n    __slots__ = ('s',)\nh$ = C$()\nh$.s = 2.0", "getattr(h$, 's')", rebind="h$.s = ?",
    delete="del h$.s")
way("slots by attrgetter", "class C$:\n    __slots__ = ('s',)\nh$ = C$()\nh$.s = 2.0\ng$ = operator.attrgetter('s')", "g$(h$)",
    rebind="h$.s = ?", delete="del h$.s")
way("slots by their descriptor", "class C$:\n    __slots__ = ('s',)\nh$ = C$()\nh$.s = 2.0\ng$ = C$.s.__get__", "g$(h$)",
    rebind="h$.s = ?", delete="del h$.s")
way("private slots by vars of the class", "class C$:\n    __slots__ = ('s',)\nh$ = C$()\nh$.s = 2.0",
    "vars(C$)['s'].__get__(h$)", rebind="h$.s = ?", delete="del h$.s")
way("slots and dict", "class A$:\n    __slots__ = ('s',)\nclass C$(A$):\n    pass\nh$ = C$()\nh$.s = 2.0\nh$.t = 1.0", "h$.s * h$.t",
    rebind="h$.s = ?||h$.t = ?", shadow_by_class="C$.s = property(lambda self: ?)", delete="del h$.s")

# ---- dataclasses, tuples, enums ------------------------------------------------------------------

DATA = "@dataclasses.dataclass\nclass C$:\n    s: float = 2.0\n    t: list = dataclasses.field(default_factory=lambda: [1.0])\nh$ = C$()"
for _name, _read in {
    "dataclass": "h$.s * h$.t[0]",
    "dataclass by asdict": "dataclasses.asdict(h$)['s']",
    "dataclass by asdict, nested": "dataclasses.asdict(h$)['t'][0] * 2.0",
    "dataclass by astuple": "dataclasses.astuple(h$)[0]",
    "dataclass by fields": "sum(getattr(h$, f.name) for f in dataclasses.fields(h$)[:1])",
    "dataclass by replace": "dataclasses.replace(h$, t=[0]).s",
    "dataclass by __eq__": "(2 if h$ == C$(2.0) else 3)",
    "dataclass by repr": "len(repr(h$)) / 10",
    "dataclass by match of positions": "match h$:\n    case C$(v$, _):\n        pass\nv$",
    "dataclass made within": "C$().s",
    "dataclass by default of a field": "dataclasses.fields(C$)[0].default",
    "dataclass by another name of asdict": "(lambda g: g(h$)['s'])(getattr(dataclasses, 'asdict'))",
}.items():
    way(_name, DATA, _read, rebind="h$.s = ?", set_item="h$.t[0] = ?", grow="h$.t.append(?)", replace="h$ = C$(?)",
        class_attribute="C$.s = ?", patch_method="C$.__eq__ = lambda a, b: False||C$.__repr__ = lambda a: 'r'",
        delete="del h$.s", type="h$.s = True", field_default="C$.__init__.__defaults__ = (?, [2.0])")  # fmt: skip
way("another name of asdict kept", DATA + "\nfrom dataclasses import asdict as g$", "g$(h$)['s']", rebind="h$.s = ?")
way("frozen dataclass", "@dataclasses.dataclass(frozen=True)\nclass C$:\n    s: float = 2.0\nh$ = C$()", "h$.s",
    replace="h$ = dataclasses.replace(h$, s=?)", behind="object.__setattr__(h$, 's', ?)")
way("dataclass with slots", "@dataclasses.dataclass(slots=True)\nclass C$:\n    s: float = 2.0\nh$ = C$()",
    "dataclasses.asdict(h$)['s']", rebind="h$.s = ?", replace="h$ = C$(?)")
way("namedtuple", "C$ = collections.namedtuple('C$', 's t')\nh$ = C$(2.0, 1.0)", "h$.s * h$[1]",
    replace="h$ = h$._replace(s=?)", property="C$.s = property(lambda self: ?)", rebind_class="h$ = (?, 1.0)")
way("namedtuple by _asdict", "C$ = collections.namedtuple('C$', 's t')\nh$ = C$(2.0, 1.0)", "h$._asdict()['s']",
    replace="h$ = h$._replace(s=?)")
way("namedtuple with defaults", "C$ = collections.namedtuple('C$', 's', defaults=[2.0])", "C$().s",
    field_default="C$.__new__.__defaults__ = (?,)", rebind_class="C$ = collections.namedtuple('C$', 's', defaults=[?])")
way("tuple of mutables", "h$ = ([2.0], {'k': 1.0})", "h$[0][0] * h$[1]['k']", set_item="h$[0][0] = ?||h$[1]['k'] = ?",
    replace="h$ = ([?], h$[1])", clear="h$[0].clear()")
way("enum value", "class E$(enum.Enum):\n    A = 2.0\n    B = 3.0\nh$ = E$.A", "h$.value", replace="h$ = E$.B",
    behind="E$.A._value_ = ?")
way("enum by match", "class E$(enum.Enum):\n    A = 2.0\n    B = 3.0\nh$ = E$.A",
    "match h$:\n    case E$.A:\n        v$ = 2.0\n    case _:\n        v$ = 3.0\nv$", replace="h$ = E$.B")
way("enum with an attribute", "class E$(enum.Enum):\n    A = 1\nE$.A.s = 2.0", "E$['A'].s", rebind="E$.A.s = ?", delete="del E$.A.s")
way("enum members", "class E$(enum.Enum):\n    A = 2.0\nh$ = [E$]", "sum(e.value for e in h$[0])",
    set_item="h$[0] = enum.Enum('F$', {'A': 3.0, 'B': 1.0})", behind="E$.A._value_ = ?")
way("flag", "class E$(enum.Flag):\n    A = 1\n    B = 2\nh$ = Plain(f=E$.A)", "(2 if E$.A in h$.f else 3)",
    rebind="h$.f = E$.B||h$.f |= E$.B", delete="del h$.f")
way("IntEnum", "class E$(enum.IntEnum):\n    A = 2\n    B = 3\nh$ = Plain(f=E$.A)", "h$.f * 1.0", rebind="h$.f = E$.B", type="h$.f = 2")

# ---- containers ----------------------------------------------------------------------------------

LIST = "h$ = [2.0, 1.0, 4.0]"
OF_LIST = {
    "set_item": "h$[0] = ?", "insert": "h$.insert(0, ?)", "reverse": "h$.reverse()", "sort": "h$.sort()",
    "clear": "h$.clear()", "shrink": "h$.pop()||h$.pop(0)||del h$[1:]", "grow": "h$.append(?)||h$.extend([?, ?])",
    "replace": "h$ = [?, ?, ?]", "slice": "h$[:] = [?, ?, ?]||h$[::2] = [?, ?]", "copy": "h$ = list(h$)",
    "type": "h$[0] = 2||h$[0] = np.float64(?)", "multiply": "h$ *= 2",
}  # fmt: skip
for _name, _read in {
    "item of a list": "h$[0]",
    "last item of a list": "h$[-1]",
    "len of a list": "len(h$)",
    "sum of a list": "sum(h$)",
    "max of a list": "max(h$)",
    "sorted list": "sorted(h$)[0]",
    "reversed list": "next(reversed(h$))",
    "slice of a list": "sum(h$[1:])",
    "list in a comparison": "(2 if h$ == [2.0, 1.0, 4.0] else 3)",
    "in a list, by value": "(2 if 4.0 in h$ else 3)",
    "unpacked list": "a$, *b$ = h$\na$ + len(b$)",
    "list as arguments": "(lambda a, *b: a + len(b))(*h$)",
    "list loop": "v$ = 0\nfor each in h$:\n    v$ = v$ * 0.5 + each\nv$",
    "enumerated list": "sum(n * each for n, each in enumerate(h$))",
    "zipped list": "sum(a * b for a, b in zip(h$, h$[::-1]))",
    "list.index": "h$.index(4.0) * 1.0",
    "list.count": "h$.count(1.0) + 1.0",
    "operator.getitem": "operator.getitem(h$, 0)",
    "itemgetter of a list": "operator.itemgetter(0)(h$)",
    "list.__getitem__": "list.__getitem__(h$, 0)",
    "map of __getitem__": "sum(map(h$.__getitem__, [0, 1]))",
    "math.fsum": "math.fsum(h$)",
    "math.prod": "math.prod(h$)",
    "statistics.mean": "statistics.mean(h$)",
    "np.sum of a list": "float(np.sum(h$))",
    "np.asarray of a list": "float(np.asarray(h$)[0])",
    "functools.reduce": "functools.reduce(operator.add, h$)",
    "itertools.chain": "sum(itertools.chain(h$, h$))",
    "itertools.accumulate": "list(itertools.accumulate(h$))[-1]",
    "itertools.islice": "sum(itertools.islice(h$, 2))",
    "itertools.starmap": "sum(itertools.starmap(operator.mul, [h$[:2]]))",
    "heapq.nsmallest": "heapq.nsmallest(1, h$)[0]",
    "bisect": "bisect.bisect(h$, 3.0) * 1.0",
    "json of a list": "json.loads(json.dumps(h$))[0]",
    "pickle of a list": "pickle.loads(pickle.dumps(h$))[0]",
    "repr of a list": "len(repr(h$)) / 10",
    "str.join": "float(''.join(map(str, h$[:1])))",
    "match of a sequence": "match h$:\n    case [v$, _, _]:\n        pass\n    case _:\n        v$ = 3.0\nv$",
    "truth of a list": "(2 if h$ else 3)",
    "any of a list": "(2 if any(v == 1.0 for v in h$) else 3)",
    "list comprehension": "[v * 2 for v in h$ if v > 1][0]",
    "set of a list": "len(set(h$)) * 1.0",
    "list concatenated": "(h$ + [0.0])[0]",
    "copy of a list": "h$.copy()[0]",
    "deep copy of a list": "copy.deepcopy(h$)[0]",
    "struct.pack of a list": "struct.unpack('d', struct.pack('d', h$[0]))[0]",
    "iter": "next(iter(h$))",
    "filter": "next(filter(lambda v: v > 1, h$))",
    "length_hint of iter": "operator.length_hint(iter(h$)) * 1.0",
    "array of a list": "array.array('d', h$)[0]",
    "list as a tuple": "tuple(h$)[0]",
    "min with a default": "min(h$, default=7.0)",
}.items():
    way(_name, LIST, _read, **OF_LIST)
for _name, _setup, _read in (
    ("itemgetter kept", "g$ = operator.itemgetter(0)", "g$(h$)"),
    ("bound __getitem__", "g$ = h$.__getitem__", "g$(0)"),
    ("bound __len__", "g$ = h$.__len__", "g$() * 1.0"),
    ("bound index", "g$ = h$.index", "g$(4.0) * 1.0"),
    ("bound copy", "g$ = h$.copy", "g$()[0]"),
    ("bound __iter__", "g$ = h$.__iter__", "next(g$())"),
    ("partial of a list", "g$ = functools.partial(sum, h$)", "g$()"),
    ("alias of a list", "k$ = h$", "(2 if k$ is h$ else 3) * k$[0]"),
    ("list of lists", "k$ = [h$, h$]", "k$[1][0]"),
    ("dict of a list", "k$ = {'a': [1.0, h$]}", "k$['a'][1][0]"),
    ("list in a UserList", "k$ = collections.UserList(h$)\nh$ = k$.data", "k$[0]"),
    ("array that holds a list", "k$ = np.array([None])\nk$[0] = h$", "k$[0][0]"),
    ("list in itself", "h$.append(h$)", "h$[-1][0]"),
    ("itertools.cycle made within", "", "next(itertools.cycle(h$))"),
    ("generator function", "def g$():\n    yield from h$", "sum(v for v in g$() if type(v) is not str)"),
    ("iter with a sentinel", "", "next(iter(lambda: h$[0], None))"),
):  # fmt: skip
    way(_name, f"{LIST}\n{_setup}", _read, alias="k$ = list(h$)||k$ = [[?], [?]]", **OF_LIST)

DICT = "h$ = {'k': 2.0, 'j': 1.0}"
OF_DICT = {
    "set_item": "h$['k'] = ?", "grow": "h$['new'] = ?||h$.update(n=?)||h$.setdefault('m', ?)",
    "delete": "del h$['k']||h$.pop('j')", "shrink": "h$.popitem()", "clear": "h$.clear()",
    "replace": "h$ = {'k': ?, 'j': 1.0}", "reorder": "h$['k'] = h$.pop('k')", "copy": "h$ = dict(h$)",
    "type": "h$['k'] = 2||h$['k'] = True", "merge": "h$ |= {'k': ?}",
}  # fmt: skip
for _name, _read in {
    "item of a dict": "h$['k']",
    "dict.get": "h$.get('k', 3.0)",
    "dict.get of what is not there": "h$.get('new', 3.0)",
    "in a dict": "(2 if 'new' in h$ else 3)",
    "len of a dict": "len(h$) * 1.0",
    "sum of values()": "sum(h$.values())",
    "first of items()": "next(iter(h$.items()))[1]",
    "first key": "ord(next(iter(h$)))",
    "last key": "ord(next(reversed(h$)))",
    "dict loop": "v$ = 0\nfor each in h$:\n    v$ = v$ * 0.5 + h$[each]\nv$",
    "dict as keywords": "(lambda k=3.0, **rest: k + len(rest))(**h$)",
    "dict merged": "({'k': 3.0} | h$)['k']",
    "dict unpacked": "{**h$}.get('k', 4.0)",
    "dict comparison": "(2 if h$ == {'k': 2.0, 'j': 1.0} else 3)",
    "keys comparison": "(2 if h$.keys() == {'k', 'j'} else 3)",
    "keys and": "len(h$.keys() & {'k', 'new'}) * 1.0",
    "match of a mapping": "match h$:\n    case {'k': v$}:\n        pass\n    case _:\n        v$ = 3.0\nv$",
    "match of the rest": "match h$:\n    case {'j': 1.0, **v$}:\n        v$ = len(v$) * 1.0\n    case _:\n        v$ = 3.0\nv$",
    "dict.__getitem__": "dict.__getitem__(h$, 'k')",
    "map of get": "sum(map(h$.get, ['k', 'j']))",
    "max of a dict by get": "h$[max(h$, key=h$.get)]",
    "itemgetter of a dict": "operator.itemgetter('k')(h$)",
    "format of a dict": "float('{k}'.format(**h$))",
    "format of an item": "float('{0[k]}'.format(h$))",
    "format_map of a dict": "float('{k}'.format_map(h$))",
    "percent of a dict": "float('%(k)s' % h$)",
    "json of a dict": "json.loads(json.dumps(h$))['k']",
    "dict comprehension": "{k: v for k, v in h$.items()}.get('k', 3.0)",
    "sorted dict": "h$[sorted(h$)[-1]]",
    "dict.copy": "h$.copy()['k']",
    "dict.fromkeys": "len(dict.fromkeys(h$)) * 1.0",
    "exception of a dict": "try:\n    v$ = h$['new']\nexcept KeyError:\n    v$ = 2.0\nv$",
    "list of values": "list(h$.values())[0]",
    "zip of a dict": "dict(zip(h$, [2.0, 3.0])).get('k', 1.0)",
    "MappingProxyType made within": "types.MappingProxyType(h$)['k']",
    "ChainMap made within": "collections.ChainMap({}, h$)['k']",
    "SimpleNamespace made within": "types.SimpleNamespace(**h$).k",
    "Plain made within": "Plain(**h$).k",
}.items():
    way(_name, DICT, _read, **OF_DICT)
for _name, _setup, _read in (
    ("values() kept", "g$ = h$.values()", "sum(g$)"),
    ("keys() kept", "g$ = h$.keys()", "len(g$) * 1.0"),
    ("items() kept", "g$ = h$.items()", "dict(g$)['k']"),
    ("keys() kept, in", "g$ = h$.keys()", "(2 if 'new' in g$ else 3)"),
    ("mapping of a view", "g$ = h$.keys().mapping", "g$['k']"),
    ("MappingProxyType", "g$ = types.MappingProxyType(h$)", "g$['k']"),
    ("MappingProxyType by get", "g$ = types.MappingProxyType(h$).get", "g$('k', 3.0)"),
    ("bound get", "g$ = h$.get", "g$('k', 3.0)"),
    ("bound dict.__getitem__", "g$ = h$.__getitem__", "g$('k')"),
    ("bound __contains__", "g$ = h$.__contains__", "(2 if g$('new') else 3)"),
    ("bound values", "g$ = h$.values", "sum(g$())"),
    ("partial of get", "g$ = functools.partial(h$.get, 'k')", "g$()"),
    ("ChainMap", "g$ = collections.ChainMap({}, h$)", "g$['k']"),
    ("ChainMap of two", "g$ = collections.ChainMap({'new': 2.0}, h$)", "g$['new'] * g$['j']"),
    ("dict in a dict", "g$ = {'h': {'h': h$}}", "g$['h']['h']['k']"),
    ("UserDict", "g$ = collections.UserDict(h$)\nh$ = g$.data", "g$['k']"),
    ("itemgetter of a dict kept", "g$ = operator.itemgetter('k')", "g$(h$)"),
    ("methodcaller of get", "g$ = operator.methodcaller('get', 'k')", "g$(h$)"),
    ("SimpleNamespace on a dict", "g$ = types.SimpleNamespace()\ng$.__dict__.update(h$)\nh$ = g$.__dict__", "g$.k"),
    ("closure over a dict", "g$ = (lambda d: lambda: d['k'])(h$)", "g$()"),
    ("function's own dict", "def g$():\n    return g$.d['k']\ng$.d = h$", "g$()"),
):  # fmt: skip
    way(_name, f"{DICT}\n{_setup}", _read, alias="g$ = type(g$)", **OF_DICT)
way("OrderedDict", "h$ = collections.OrderedDict(a=2.0, b=3.0)", "next(iter(h$.values()))", reorder="h$.move_to_end('a')",
    set_item="h$['a'] = ?", shrink="h$.popitem(last=False)", grow="h$['c'] = ?")
way("OrderedDict last", "h$ = collections.OrderedDict(a=2.0, b=3.0)", "h$[next(reversed(h$))]", reorder="h$.move_to_end('a')",
    grow="h$['c'] = ?", shrink="h$.popitem()")
way("OrderedDict comparison", "h$ = collections.OrderedDict(a=2.0, b=3.0)",
    "(2 if h$ == collections.OrderedDict(a=2.0, b=3.0) else 3)", reorder="h$.move_to_end('a')", set_item="h$['a'] = ?")
way("Counter", "h$ = collections.Counter(a=2, b=1)", "h$['a'] * 1.0 + h$['c']", set_item="h$['a'] += 1", update="h$.update('ccc')",
    delete="del h$['a']")
way("Counter.most_common", "h$ = collections.Counter(a=2, b=1)", "h$.most_common(1)[0][1]", update="h$.update('bbbb')", clear="h$.clear()")
way("Counter.total", "h$ = collections.Counter(a=2, b=1)", "h$.total()", update="h$.subtract(a=1)")
way("defaultdict", "h$ = collections.defaultdict(lambda: 2.0)", "h$.get('k', 3.0)", set_item="h$['k'] = ?", touch="h$['k']")
way("defaultdict's factory", "h$ = collections.defaultdict(lambda: 2.0)", "h$.default_factory()", rebind="h$.default_factory = lambda: ?")
way("dict subclass with __missing__", "class D$(dict):\n    v = 2.0\n    def __missing__(self, k):\n        return self.v\nh$ = D$()",
    "h$['k']", rebind="h$.v = ?||D$.v = ?", set_item="h$['k'] = ?", patch_method="D$.__missing__ = lambda self, k: ?")
way("list subclass", "class D$(list):\n    v = 2.0\n    def __getitem__(self, k):\n        return list.__getitem__(self, k) * self.v\nh$ = D$([1.0])",
    "h$[0]", rebind="h$.v = ?", set_item="h$[0] = ?", patch_method="D$.__getitem__ = lambda self, k: ?", grow="h$.append(?)")
way("int subclass", "class D$(int):\n    pass\nh$ = D$(3)\nh$.s = 2.0", "h$.s * h$", rebind="h$.s = ?", replace="h$ = D$(4); h$.s = 1.0")
way("float subclass", "class D$(float):\n    def __mul__(self, x):\n        return 2.0 * x\nh$ = D$(3)", "h$ * 1.0",
    patch_method="D$.__mul__ = lambda self, x: ?", replace="h$ = 3.0", rebind_class="h$ = D$(?)")
way("str subclass", "class D$(str):\n    pass\nh$ = D$('k')\nh$.s = 2.0", "h$.s", rebind="h$.s = ?", delete="del h$.s")
way("tuple subclass", "class D$(tuple):\n    pass\nh$ = D$((1.0,))\nh$.s = 2.0", "h$.s * h$[0]", rebind="h$.s = ?", replace="h$ = (?,)")
way("deque", "h$ = collections.deque([2.0, 3.0, 1.0])", "h$[0]", reorder="h$.rotate(1)", set_item="h$[0] = ?", shrink="h$.popleft()",
    grow="h$.appendleft(?)", clear="h$.clear()")
way("deque with a bound", "h$ = collections.deque([2.0, 3.0], 2)", "sum(h$) + h$.maxlen", grow="h$.append(?)", replace="h$ = collections.deque(h$, 3)",
    reorder="h$.rotate(1)")
way("set membership", "h$ = {2.0, 3.0}", "(2 if 2.0 in h$ else 3)", shrink="h$.discard(2.0)", replace="h$ = set()", grow="h$.add(?)")
way("set sum", "h$ = {2.0, 3.0}", "sum(sorted(h$))", shrink="h$.pop()", grow="h$.add(?)", merge="h$ |= {9.0}")
way("set of objects", "k$ = Plain()\nh$ = {k$}", "(2 if k$ in h$ else 3)", shrink="h$.discard(k$)", alias="k$ = Plain()")
way("frozenset", "h$ = [frozenset([2.0])]", "(2 if 2.0 in h$[0] else 3)", set_item="h$[0] = frozenset()||h$[0] |= {1.0}")
way("heap", "h$ = [2.0, 3.0]\nheapq.heapify(h$)", "h$[0]", grow="heapq.heappush(h$, 0.5)", shrink="heapq.heappop(h$)")
way("SimpleNamespace", "h$ = types.SimpleNamespace(s=2.0)", "h$.s", rebind="h$.s = ?", delete="del h$.s", write_dict="vars(h$)['s'] = ?")
way("SimpleNamespace comparison", "h$ = types.SimpleNamespace(s=2.0)", "(2 if h$ == types.SimpleNamespace(s=2.0) else 3)", rebind="h$.s = ?",
    grow="h$.t = 1")
way("range and slice kept", "h$ = [slice(0, 2), [1.0, 2.0, 3.0]]", "sum(h$[1][h$[0]])", set_item="h$[0] = slice(1, 3)||h$[1][0] = ?")

# ---- variables and functions ---------------------------------------------------------------------

way("variable", "g$ = 2.0", "g$", rebind="g$ = ?", type="g$ = 2||g$ = True||g$ = np.float32(2)||g$ = fractions.Fraction(5, 2)", delete="del g$")
way("variable minus zero", "g$ = 0.0", "math.copysign(2.0, g$)", rebind="g$ = -0.0", type="g$ = 0")
way("variable that is not a number", "g$ = float('nan')", "(2 if g$ == g$ else 3)", rebind="g$ = 1.0||g$ = float('inf')||g$ = float('nan')")
way("complex variable", "g$ = 2 + 1j", "g$.real * g$.imag", rebind="g$ = ? - 1j")
way("text", "g$ = 'relu'", "(2 if g$ == 'relu' else 3)", rebind="g$ = 'tanh'", type="g$ = b'relu'")
way("text that names", "g$ = 'of'\nh$ = Plain(s=2.0)", "getattr(h$, g$)()", rebind="g$ = 's'; Plain.s = None", patch_method="Plain.of = lambda self: ?")
way("int of any size", "g$ = 10**30", "g$ % 7 + 2.0", rebind="g$ += 1")
way("global that shadows a builtin", "", "max([2.0, 1.0])", shadow_builtin="global max\nmax = min||global max\nmax = lambda v: ?")
way("builtin that is replaced", "", "sum([2.0, 1.0])", patch_builtin="builtins.sum = lambda v, *more, own=builtins.sum: ? if type(v) is list and type(v[0]) is float else own(v, *more)")
way("abs that is replaced", "", "abs(-2.0)", patch_builtin="builtins.abs = lambda v, own=builtins.abs: ? if type(v) is float and v == -2 else own(v)")
way("function", "def g$():\n    return 2.0", "g$()", replace="g$ = lambda: ?", code="g$.__code__ = (lambda: 3.0).__code__", delete="del g$")
way("function by its attribute", "def g$():\n    return g$.s\ng$.s = 2.0", "g$()", rebind="g$.s = ?", delete="del g$.s")
way("function's attribute", "def g$():\n    return 1\ng$.s = 2.0", "g$.s", rebind="g$.s = ?", delete="del g$.s", write_dict="g$.__dict__['s'] = ?")
way("default argument", "def g$(s=2.0):\n    return s", "g$()", defaults="g$.__defaults__ = (?,)", replace="g$ = lambda: ?")
way("mutable default argument", "def g$(s=[2.0]):\n    return s[0]", "g$()", defaults="g$.__defaults__[0][0] = ?", grow="g$.__defaults__[0].insert(0, ?)")
way("keyword-only default", "def g$(*, s=2.0):\n    return s", "g$()", defaults="g$.__kwdefaults__ = {'s': ?}||g$.__kwdefaults__['s'] = ?")
way("default of a lambda", "g$ = lambda s=2.0: s", "g$()", defaults="g$.__defaults__ = (?,)")
way("default of a method", "class C$:\n    def of(self, s=2.0):\n        return s\nh$ = C$()", "h$.of()", defaults="C$.of.__defaults__ = (?,)")
way("__defaults__ that is read", "def g$(s=2.0):\n    return s", "g$.__defaults__[0]", defaults="g$.__defaults__ = (?,)")
way("__kwdefaults__ that is read", "def g$(*, s=2.0):\n    return s", "g$.__kwdefaults__['s']", defaults="g$.__kwdefaults__['s'] = ?")
way("inspect.signature", "def g$(s=2.0):\n    return s", "inspect.signature(g$).parameters['s'].default", defaults="g$.__defaults__ = (?,)",
    rebind="g$.__signature__ = inspect.signature(lambda s=3.0: s)")
way("annotations", "def g$(s):\n    return s\ng$.__annotations__['s'] = 2.0", "g$.__annotations__['s']", set_item="g$.__annotations__['s'] = ?", rebind="g$.__annotations__ = {'s': ?}")
way("annotations of a class", "class C$:\n    s: int\nC$.__annotations__['s'] = 2.0", "C$.__annotations__['s']", set_item="C$.__annotations__['s'] = ?")
way("get_type_hints", "class C$:\n    s: int", "len(typing.get_type_hints(C$)) + 1.0", grow="C$.__annotations__['t'] = int")
way("__name__ of a function", "def g$():\n    pass", "len(g$.__name__) * 1.0", rebind="g$.__name__ = 'other'")
way("__doc__ of a function", "def g$():\n    '''12'''", "float(g$.__doc__)", rebind="g$.__doc__ = '5'")
way("__qualname__ of a class", "class C$:\n    pass", "len(C$.__qualname__) * 1.0", rebind="C$.__qualname__ = 'another'")
way("__doc__ of a class", "class C$:\n    '''2'''", "float(C$.__doc__)", rebind="C$.__doc__ = '5'")
way("__module__ of a class", "class C$:\n    pass", "len(C$.__module__) * 1.0", rebind="C$.__module__ = 'm'")
way("__code__ that is read", "def g$():\n    return 2.0", "g$.__code__.co_consts[1]", code="g$.__code__ = (lambda: 3.0).__code__", replace="def g$():\n    return 7.0")
way("cell that is read", "g$ = (lambda s: lambda: s)(2.0)", "g$.__closure__[0].cell_contents", cell="g$.__closure__[0].cell_contents = ?")
way("closure", "g$ = (lambda s: lambda: s)(2.0)", "g$()", cell="g$.__closure__[0].cell_contents = ?", replace="g$ = (lambda s: lambda: s)(?)")
way("closure that counts", "def g$():\n    n = [2.0]\n    def add():\n        n[0] += 1\n    return (lambda: n[0]), add\nh$ = g$()", "h$[0]()", call="h$[1]()")
way("nonlocal that is set", "def g$():\n    n = 2.0\n    def put(v):\n        nonlocal n\n        n = v\n    return (lambda: n), put\nh$ = g$()", "h$[0]()", call="h$[1](?)")
way("__globals__", "g$ = lambda: 1\nk$ = 2.0", "g$.__globals__.get('k$', 3.0)", rebind="k$ = ?||global k$\nk$ = ?")
way("partial", "g$ = functools.partial(lambda a, b=2.0: a * b, 1.0)", "g$()", replace="g$ = functools.partial(g$.func, ?)",
    keywords="g$.keywords['b'] = ?", state="g$.__setstate__((g$.func, (?,), {}, None))")
way("partial with keywords", "g$ = functools.partial(lambda a, b: a * b, b=2.0)", "g$(1.0)", keywords="g$.keywords['b'] = ?", rebind="g$.b = ?")
way("partial's args", "h$ = [2.0]\ng$ = functools.partial(sum, h$)", "sum(g$.args[0])", set_item="h$[0] = ?")
way("partial's attribute", "g$ = functools.partial(sum)\ng$.s = 2.0", "g$.s", rebind="g$.s = ?")
way("wraps", "def k$():\n    return 2.0\n@functools.wraps(k$)\ndef g$():\n    return g$.__wrapped__()", "g$()", rebind="g$.__wrapped__ = lambda: ?")
way("decorated", "def k$(f):\n    @functools.wraps(f)\n    def g(*a):\n        return f(*a) * k$.s\n    return g\nk$.s = 2.0\n@k$\ndef g$():\n    return 1.0", "g$()",
    rebind="k$.s = ?")
way("singledispatch", "@functools.singledispatch\ndef g$(x):\n    return 2.0", "g$(1)", register="g$.register(int, lambda x: ?)")
way("lru_cache", "h$ = [2.0]\n@functools.lru_cache\ndef g$(n):\n    return h$[0] * n", "g$(1)", set_item="h$[0] = ?", clear="g$.cache_clear()",
    cache="h$[0] = ?; g$.cache_clear()")
way("lru_cache filled before", "h$ = [2.0]\n@functools.lru_cache\ndef g$(n):\n    return h$[0] * n\ng$(1)\nh$[0] = 3.0", "g$(1)", set_item="h$[0] = ?",
    cache="g$.cache_clear()")
way("functools.cache", "h$ = [2.0]\ng$ = functools.cache(lambda: h$[0])", "g$()", set_item="h$[0] = ?", cache="g$.cache_clear()")
way("cache_info", "g$ = functools.cache(lambda n: n)", "g$.cache_info().hits + 2.0", call="g$(1); g$(1)")
way("cached_property", "class C$:\n    v = 2.0\n    @functools.cached_property\n    def s(self):\n        return self.v\nh$ = C$()", "h$.s",
    class_attribute="C$.v = ?", delete="h$.__dict__.pop('s', 0); C$.v = ?", shadow="h$.s = ?")
way("cached_property filled", "class C$:\n    v = 2.0\n    @functools.cached_property\n    def s(self):\n        return self.v\nh$ = C$()\nh$.s\nC$.v = 3.0",
    "h$.s", class_attribute="C$.v = ?", delete="h$.__dict__.pop('s', 0)", shadow="h$.s = ?")
way("memo by hand", "h$ = Plain(s=2.0)\nk$ = {}\ndef g$():\n    if 's' not in k$:\n        k$['s'] = h$.s\n    return k$['s']", "g$()", rebind="h$.s = ?",
    clear="k$.clear(); h$.s = ?", set_item="k$['s'] = ?")
way("memo of an object", "h$ = Plain(s=2.0)\ndef g$():\n    if not hasattr(h$, 'memo'):\n        h$.memo = h$.s\n    return h$.memo", "g$()", rebind="h$.s = ?",
    delete="h$.__dict__.pop('memo', 0); h$.s = ?")

# ---- modules of Python ---------------------------------------------------------------------------

way("module imported within", "settings('settings$', s=2.0)", "import settings$ as m$\nm$.s", rebind="sys.modules['settings$'].s = ?",
    replace="settings('settings$', s=?)", delete="del sys.modules['settings$'].s")
way("name imported within", "settings('settings$', s=2.0)", "from settings$ import s as v$\nv$", rebind="sys.modules['settings$'].s = ?",
    replace="settings('settings$', s=?)")
way("module", "m$ = settings('settings$', s=2.0)", "m$.s", rebind="m$.s = ?", delete="del m$.s", replace_class="m$.__class__ = type('M$', (types.ModuleType,), {'s': property(lambda self: ?)})",
    write_dict="m$.__dict__['s'] = ?")
way("module's __getattr__", "m$ = settings('settings$', __getattr__=lambda name: 2.0)", "m$.s", rebind="m$.s = ?", patch_method="m$.__getattr__ = lambda name: ?")
way("module by importlib", "settings('settings$', s=2.0)", "importlib.import_module('settings$').s", rebind="sys.modules['settings$'].s = ?", replace="settings('settings$', s=?)")
way("module by sys.modules", "settings('settings$', s=2.0)", "sys.modules['settings$'].s", rebind="sys.modules['settings$'].s = ?", replace="settings('settings$', s=?)")
way("module by __import__", "settings('settings$', s=2.0)", "__import__('settings$').s", rebind="sys.modules['settings$'].s = ?", replace="settings('settings$', s=?)")
way("in sys.modules", "", "(2 if 'settings$' in sys.modules else 3)", grow="settings('settings$')")
way("module that fails to be imported", "", "try:\n    import settings$\n    v$ = 3.0\nexcept ImportError:\n    v$ = 2.0\nv$", grow="settings('settings$')")
way("module of the library patched", "", "math.sqrt(4.0)", patch_library="math.sqrt = lambda v: ?")
way("function of the library patched", "", "statistics.mean([2.0])", patch_library="statistics.mean = lambda v: ?")
way("constant of the library patched", "", "math.pi", patch_library="math.pi = ?")
way("constant of a module in Python", "", "len(string.digits) * 1.0", patch_library="string.digits = '123'")
way("attribute put on a library's module", "", "(2 if hasattr(math, 'mine') else 3)", patch_library="math.mine = 1")
way("library's class patched", "", "fractions.Fraction(2).limit_denominator() * 1.0", patch_library="fractions.Fraction.limit_denominator = lambda self: ?")
way("library's default argument", "", "textwrap.shorten('a b c d', 5).count('a') + 1.0", patch_library="textwrap.shorten.__kwdefaults__ = None||textwrap.shorten = lambda *a: 'aaa'")
way("np function patched", "", "float(np.mean([2.0]))", patch_library="np.mean = lambda v: ?")
way("operator function patched", "", "operator.add(1.0, 1.0)", patch_library="operator.add = lambda a, b: ?")
way("copy function patched", "h$ = [2.0]", "copy.copy(h$)[0]", patch_library="copy.copy = lambda v, own=copy.copy: [?] if type(v) is list else own(v)", set_item="h$[0] = ?")

# ---- settings of the process ---------------------------------------------------------------------

way("environment", "os.environ['PYTHON_PROGRAM_$'] = '2'", "float(os.environ['PYTHON_PROGRAM_$'])", environment="os.environ['PYTHON_PROGRAM_$'] = '5'", delete="del os.environ['PYTHON_PROGRAM_$']")
way("os.getenv", "", "float(os.getenv('PYTHON_PROGRAM_$', '2'))", environment="os.environ['PYTHON_PROGRAM_$'] = '5'")
way("environment by get", "", "float(os.environ.get('PYTHON_PROGRAM_$', '2'))", environment="os.environ['PYTHON_PROGRAM_$'] = '5'")
way("in the environment", "", "(2 if 'PYTHON_PROGRAM_$' in os.environ else 3)", environment="os.environ['PYTHON_PROGRAM_$'] = '5'")
way("copy of the environment", "", "float(dict(os.environ).get('PYTHON_PROGRAM_$', '2'))", environment="os.environ['PYTHON_PROGRAM_$'] = '5'")
way("bound environ.get", "g$ = os.environ.get", "float(g$('PYTHON_PROGRAM_$', '2'))", environment="os.environ['PYTHON_PROGRAM_$'] = '5'")
way("environment's own dict", "", "float(os.environ._data.get(b'PYTHON_PROGRAM_$', b'2'))", environment="os.environ['PYTHON_PROGRAM_$'] = '5'")
way("expandvars", "os.environ['PYTHON_PROGRAM_$'] = '2'", "float(os.path.expandvars('$$PYTHON_PROGRAM_$'))", environment="os.environ['PYTHON_PROGRAM_$'] = '5'")
way("decimal's precision", "", "float(decimal.Decimal(2) / decimal.Decimal(3))", decimal="decimal.getcontext().prec = 2")
way("decimal's rounding", "", "float(round(decimal.Decimal('2.5'), 0)) + float(decimal.Decimal(2).quantize(decimal.Decimal('0.1')))", decimal="decimal.getcontext().rounding = decimal.ROUND_UP||decimal.getcontext().prec = 1")
way("decimal by another name", "from decimal import Decimal as D$", "float(D$(2) / D$(3))", decimal="decimal.getcontext().prec = 2")
way("decimal kept", "h$ = decimal.Decimal(2)", "float(h$ / 3)", decimal="decimal.getcontext().prec = 2", replace="h$ = decimal.Decimal(5)")
way("decimal's traps", "", "try:\n    v$ = decimal.Decimal(2) / 0\n    v$ = 3.0\nexcept ZeroDivisionError:\n    v$ = 2.0\nv$", decimal="decimal.getcontext().traps[decimal.DivisionByZero] = False")
way("fraction", "h$ = fractions.Fraction(5, 2)", "float(h$)", replace="h$ = fractions.Fraction(3)", behind="h$._numerator = 7")
way("np.errstate", "h$ = np.float64(0)", "try:\n    with warnings.catch_warnings():\n        warnings.simplefilter('ignore')\n        1 / h$\n    v$ = 2.0\nexcept FloatingPointError:\n    v$ = 3.0\nv$", numpy_setting="np.seterr(divide='raise')")
way("np.geterr", "", "(2 if np.geterr()['over'] == 'warn' else 3)", numpy_setting="np.seterr(over='ignore')")
way("np.get_printoptions", "", "np.get_printoptions()['precision'] * 1.0", numpy_setting="np.set_printoptions(precision=3)")
way("str of an array", "h$ = np.array([2.0, 1 / 3])", "len(str(h$)) / 10", numpy_setting="np.set_printoptions(precision=3)", set_item="h$[0] = ?")
way("recursion limit", "", "sys.getrecursionlimit() / 1000", setting="sys.setrecursionlimit(sys.getrecursionlimit() + 500)")
way("switch interval", "", "sys.getswitchinterval() * 400", setting="sys.setswitchinterval(0.01)")
way("int max str digits", "", "(sys.get_int_max_str_digits() or 1) / 1000", setting="sys.set_int_max_str_digits(5000)")
way("sys.argv", "", "len(sys.argv) + 1.0", setting="sys.argv.append('a')", replace="sys.argv = ['a'] * 9")
way("sys.path", "", "len(sys.path) * 1.0", setting="sys.path.append('a')")
way("working directory", "", "len(os.getcwd()) * 1.0", setting="os.chdir('/')")
way("gc.isenabled", "", "(2 if gc.isenabled() else 3)", setting="gc.disable()")
way("gc.get_threshold", "", "gc.get_threshold()[0] * 0.001", setting="gc.set_threshold(500)")
way("random state", "random.seed(3)", "random.getstate()[1][0] % 7 * 1.0", setting="random.seed(4)")
way("warning filters", "", "len(warnings.filters) * 1.0", setting="warnings.simplefilter('ignore', ResourceWarning)")
way("logging level", "g$ = logging.getLogger('program.of$')", "(2 if g$.isEnabledFor(logging.INFO) else 3)", logging="g$.setLevel(logging.INFO)||logging.getLogger('program').setLevel(10)||logging.getLogger().setLevel(logging.INFO)")
way("logging.disable", "g$ = logging.getLogger('program.of$')\ng$.setLevel(10)", "(2 if g$.isEnabledFor(logging.INFO) else 3)", logging="logging.disable(logging.ERROR)||g$.disabled = True")
way("level by getLogger", "", "logging.getLogger('program.of$').level + 2.0", logging="logging.getLogger('program.of$').setLevel(10)")
way("effective level", "", "logging.getLogger('program.of$').getEffectiveLevel() / 10", logging="logging.getLogger('program.of$').setLevel(10)||logging.getLogger().setLevel(10)")
way("level of the root", "", "logging.root.level / 10", logging="logging.getLogger().setLevel(10)")
way("handlers", "g$ = logging.getLogger('program.of$')", "len(g$.handlers) + 2.0", logging="g$.addHandler(logging.NullHandler())")
way("context variable", "g$ = contextvars.ContextVar('g$', default=2.0)", "g$.get()", context="g$.set(?)")
way("context variable by copy_context", "g$ = contextvars.ContextVar('g$', default=2.0)\ng$.set(2.0)", "contextvars.copy_context()[g$]", context="g$.set(?)")
way("bound get of a context variable", "g$ = contextvars.ContextVar('g$', default=2.0).get", "g$()", context="g$.__self__.set(?)")
way("context that is run", "g$ = contextvars.ContextVar('g$', default=2.0)\nk$ = contextvars.copy_context()", "k$.run(g$.get)", context="k$.run(g$.set, ?)")
way("thread local", "g$ = threading.local()\ng$.s = 2.0", "g$.s", rebind="g$.s = ?", delete="del g$.s")
way("thread local by getattr", "g$ = threading.local()\ng$.s = 2.0", "getattr(g$, 's', 3.0)", rebind="g$.s = ?", delete="del g$.s")
way("thread local of a class", "class C$(threading.local):\n    s = 2.0\ng$ = C$()", "g$.s", rebind="g$.s = ?", class_attribute="C$.s = ?")
way("current thread's name", "", "len(threading.current_thread().name) * 1.0", setting="threading.current_thread().name = 'T'")
way("count of threads", "", "threading.active_count() * 2.0", same="pass")
way("lock that is held", "g$ = threading.Lock()", "(2 if g$.locked() else 3)", lock="g$.acquire(False)")
way("event that is set", "g$ = threading.Event()", "(2 if g$.is_set() else 3)", lock="g$.set()")
way("queue's size", "g$ = queue.Queue()\ng$.put(2.0)", "g$.qsize() + 1.0", grow="g$.put(?)", shrink="g$.get(False)")
way("queue.SimpleQueue", "g$ = queue.SimpleQueue()\ng$.put(2.0)", "g$.qsize() + 1.0", grow="g$.put(?)")
way("queue's deque", "g$ = queue.Queue()\ng$.put(2.0)", "g$.queue[0]", set_item="g$.queue[0] = ?", grow="g$.queue.appendleft(?)")
way("weak references counted", "h$ = Plain()", "weakref.getweakrefcount(h$) + 2.0", grow="k$ = weakref.ref(h$)")
way("weak reference that dies", "h$ = [Plain(s=2.0)]\ng$ = weakref.ref(h$[0])", "(2 if g$() else 3)", clear="h$.clear()")
way("WeakValueDictionary that loses", "h$ = [Plain(s=2.0)]\ng$ = weakref.WeakValueDictionary(k=h$[0])", "len(g$) + 1.0", clear="h$.clear()")

# ---- what lies in C ------------------------------------------------------------------------------

way("array of numbers", "h$ = np.array([2.0, 1.0])", "float(h$[0])", set_item="h$[0] = ?", replace="h$ = np.array([?])", slice="h$[:] = ?", type="h$ = h$.astype(np.float32)", behind="h$.view(np.int64)[0] = 0")
way("array by item", "h$ = np.array([2.0, 1.0])", "h$.item(0)", set_item="h$[0] = ?", grow="h$ = np.append(h$, 1)", behind="h$.data[0] = 5.0", sort="h$.sort()")
way("array by sum", "h$ = np.array([2.0, 1.0])", "h$.sum()", set_item="h$[0] = ?", fill="h$.fill(?)", shrink="h$.resize(1, refcheck=False)")
way("array by mean", "h$ = np.array([2.0, 1.0])", "np.mean(h$)", set_item="h$[0] = ?", fill="np.copyto(h$, ?)")
way("array's shape", "h$ = np.ones((2, 3))", "h$.shape[0] * 1.0", reshape="h$.shape = (3, 2)||h$ = h$.T")
way("array's dtype", "h$ = np.ones(2)", "h$.dtype.itemsize / 4", type="h$ = h$.astype(np.float32)||h$.dtype = np.int32")
way("array's flags", "h$ = np.ones(2)", "(2 if h$.flags.writeable else 3)", setting="h$.flags.writeable = False||h$.setflags(write=False)")
way("view of an array", "k$ = np.array([2.0, 1.0])\nh$ = k$[:1]", "float(h$[0])", behind="k$[0] = ?", set_item="h$[0] = ?")
way("base of an array", "k$ = np.array([2.0, 1.0])\nh$ = k$[1:]", "float(h$.base[0])", behind="k$[0] = ?")
way("array without dimensions", "h$ = np.array(2.0)", "float(h$)", fill="h$[...] = ?", replace="h$ = np.array(?)")
way("NumPy number", "h$ = np.float64(2.0)", "h$ * 1", replace="h$ = np.float64(?)||h$ = np.float32(?)||h$ = 3", type="h$ = np.float32(2.0)")
way("NumPy bool", "h$ = np.bool_(True)", "(2 if h$ else 3)", replace="h$ = np.bool_(False)")
way("structured array", "h$ = np.zeros(2, [('s', 'f8')])\nh$['s'] = 2.0", "float(h$['s'][0])", set_item="h$['s'][0] = ?||h$[0] = (?,)")
way("record array", "h$ = np.rec.array([(2.0,)], [('s', 'f8')])", "float(h$.s[0])", set_item="h$['s'][0] = ?")
way("record of an array", "k$ = np.zeros(2, [('s', 'f8')])\nk$['s'] = 2.0\nh$ = k$[0]", "float(h$['s'])", behind="k$['s'] = ?", set_item="h$['s'] = ?")
way("array of objects", "h$ = np.array([Plain(s=2.0), None], object)", "h$[0].s", rebind="h$[0].s = ?", set_item="h$[0] = Plain(s=?)")
way("array of text", "h$ = np.array(['2', '3'])", "float(h$[0])", set_item="h$[0] = '5'")
way("masked array", "h$ = np.ma.array([2.0, 1.0], mask=[0, 0])", "float(h$.sum())", set_item="h$[0] = ?", setting="h$.mask = [1, 0]")
way("nditer of an array", "h$ = np.array([2.0, 1.0])\ng$ = h$.flat", "float(g$[0])", set_item="h$[0] = ?")
way("bound item of an array", "h$ = np.array([2.0, 1.0])\ng$ = h$.item", "g$(0)", set_item="h$[0] = ?")
way("bound sum of an array", "h$ = np.array([2.0, 1.0])\ng$ = h$.sum", "float(g$())", set_item="h$[0] = ?")
way("array subclass", "class A$(np.ndarray):\n    s = 2.0\nh$ = np.ones(2).view(A$)", "float(h$.s * h$[0])", rebind="h$.s = ?||A$.s = ?", set_item="h$[0] = ?")
way("tensor of an array made within", "h$ = np.array([2.0, 1.0], np.float32)", "ad.tensor(h$)", True, set_item="h$[0] = ?", replace="h$ = np.array([?, ?], np.float32)")
way("from_numpy within", "h$ = np.array([2.0, 1.0], np.float32)", "ad.from_numpy(h$)", True, set_item="h$[0] = ?", replace="h$ = np.array([?, ?], np.float32)")
way("as_tensor within", "h$ = np.array([2.0, 1.0], np.float32)", "ad.as_tensor(h$)", True, set_item="h$[0] = ?", fill="h$.fill(?)")
way("large array", "h$ = np.full(200_000, 2.0)", "float(h$[0])", set_item="h$[0] = ?")
way("array.array", "h$ = array.array('d', [2.0, 1.0])", "h$[0]", set_item="h$[0] = ?", grow="h$.insert(0, ?)", replace="h$ = array.array('d', [?])")
way("bound __getitem__ of array.array", "h$ = array.array('d', [2.0, 1.0])\ng$ = h$.__getitem__", "g$(0)", set_item="h$[0] = ?")
way("sum of array.array", "h$ = array.array('d', [2.0, 1.0])", "sum(h$)", set_item="h$[0] = ?", grow="h$.append(?)")
way("np.frombuffer of array.array", "h$ = array.array('d', [2.0, 1.0])\ng$ = np.frombuffer(h$)", "float(g$[0])", set_item="h$[0] = ?")
way("bytearray", "h$ = bytearray([2, 1])", "h$[0] * 1.0", set_item="h$[0] = 5", grow="h$.insert(0, 3)", clear="h$.clear()", replace="h$ = bytearray([7])")
way("bytes", "h$ = b'\\2'", "h$[0] * 1.0", replace="h$ = b'\\5'", type="h$ = bytearray(b'\\2')")
way("struct.unpack_from", "h$ = bytearray(struct.pack('d', 2.0))", "struct.unpack_from('d', h$)[0]", set_item="struct.pack_into('d', h$, 0, 5.0)")
way("int.from_bytes", "h$ = bytearray([2, 0])", "int.from_bytes(h$, 'little') * 1.0", set_item="h$[0] = 5")
way("memoryview", "k$ = bytearray([2, 1])\nh$ = memoryview(k$)", "h$[0] * 1.0", set_item="h$[0] = 5", behind="k$[0] = 5")
way("memoryview made within", "h$ = bytearray([2, 1])", "memoryview(h$)[0] * 1.0", set_item="h$[0] = 5")
way("memoryview of an array", "k$ = np.array([2.0])\nh$ = memoryview(k$)", "h$[0]", behind="k$[0] = ?")
way("ctypes number", "h$ = ctypes.c_double(2.0)", "h$.value", rebind="h$.value = ?", replace="h$ = ctypes.c_double(?)")
way("ctypes array", "h$ = (ctypes.c_double * 2)(2.0, 1.0)", "h$[0]", set_item="h$[0] = ?")
way("ctypes structure", "class C$(ctypes.Structure):\n    _fields_ = [('s', ctypes.c_double)]\nh$ = C$(2.0)", "h$.s", rebind="h$.s = ?")
way("ctypes pointer", "k$ = ctypes.c_double(2.0)\nh$ = ctypes.pointer(k$)", "h$.contents.value", behind="k$.value = ?")
way("ctypes by getattr", "h$ = ctypes.c_double(2.0)", "getattr(h$, 'value')", rebind="h$.value = ?")
way("BytesIO", "h$ = io.BytesIO(b'\\2')", "h$.getvalue()[0] * 1.0", write="h$.seek(0); h$.write(b'\\5')")
way("StringIO", "h$ = io.StringIO('2')", "float(h$.getvalue())", write="h$.seek(0); h$.write('5')")
way("position of StringIO", "h$ = io.StringIO('2345')", "h$.tell() + 2.0", write="h$.seek(2)")
way("Random of one's own", "h$ = random.Random(3)", "h$.random() + 2.0", setting="h$.seed(4)", replace="h$ = random.Random(5)")
way("state of a Random", "h$ = random.Random(3)", "h$.getstate()[1][0] % 5 + 1.0", setting="h$.seed(4)")
way("bound random", "g$ = random.Random(3).random", "g$() + 2.0", same="pass")
way("NumPy generator", "h$ = np.random.default_rng(3)", "h$.random() + 2.0", replace="h$ = np.random.default_rng(4)")
way("NumPy RandomState", "h$ = np.random.RandomState(3)", "h$.rand() + 2.0", setting="h$.seed(4)")
way("bound random of NumPy", "g$ = np.random.default_rng(3).random", "float(g$()) + 2.0", same="pass")
way("random.random", "random.seed(3)", "random.random() + 2.0", setting="random.seed(4)")
way("np.random.rand", "np.random.seed(3)", "float(np.random.rand()) + 2.0", setting="np.random.seed(4)")
way("random.shuffle", "random.seed(3)", "v$ = [1.0, 2.0, 3.0]\nrandom.shuffle(v$)\nv$[0]", setting="random.seed(4)")
way("compiled pattern", "h$ = re.compile('b+')", "len(h$.findall('abbbab')) * 1.0", replace="h$ = re.compile('a')")
way("match object", "h$ = re.match('(b)', 'bb')", "len(h$.group(1)) + 1.0", replace="h$ = re.match('(bb)', 'bb')")
way("re.sub with a function", "h$ = [2.0]", "float(re.sub('x', lambda m: str(h$[0]), 'x'))", set_item="h$[0] = ?")
way("exception kept", "h$ = ValueError(2.0)", "h$.args[0]", rebind="h$.args = (?,)", replace="h$ = ValueError(?)")
way("attribute of an exception", "h$ = ValueError()\nh$.s = 2.0", "h$.s", rebind="h$.s = ?", delete="del h$.s")
way("StopIteration's value", "h$ = StopIteration(2.0)", "h$.value", rebind="h$.value = ?")
way("notes of an exception", "h$ = ValueError()\nh$.add_note('2')", "len(h$.__notes__) + 1.0", grow="h$.add_note('3')")
way("bound method in C of a set", "h$ = {2.0}\ng$ = h$.__contains__", "(2 if g$(2.0) else 3)", clear="h$.clear()")
way("date", "import datetime\nh$ = [datetime.date(2026, 2, 3)]", "h$[0].month * 1.0", set_item="h$[0] = datetime.date(2026, 5, 3)")
way("path", "import pathlib\nh$ = Plain(p=pathlib.Path('ab'))", "len(str(h$.p)) * 1.0", rebind="h$.p = h$.p / 'c'")
way("file", "import tempfile\nh$ = tempfile.mkdtemp() + '/f'\nopen(h$, 'w').write('2')", "float(open(h$).read())", write="open(h$, 'w').write('5')")
way("path that exists", "import tempfile\nh$ = tempfile.mkdtemp() + '/f'", "(2 if os.path.exists(h$) else 3)", write="open(h$, 'w').write('5')")

# ---- iterators -----------------------------------------------------------------------------------

for _name, _setup in (
    ("iterator of a list", "h$ = [2.0, 3.0, 4.0, 5.0, 6.0, 7.0]\ng$ = iter(h$)"),
    ("generator", "h$ = [2.0, 3.0, 4.0, 5.0, 6.0, 7.0]\ng$ = (v for v in h$)"),
    ("itertools.count", "h$ = [0]\ng$ = itertools.count(2)"),
    ("itertools.cycle", "h$ = [2.0, 3.0]\ng$ = itertools.cycle(h$)"),
    ("itertools.repeat", "h$ = [0]\ng$ = itertools.repeat(2.0)"),
    ("map that is kept", "h$ = [2.0, 3.0, 4.0, 5.0, 6.0, 7.0]\ng$ = map(float, h$)"),
    ("zip that is kept", "h$ = [2.0, 3.0, 4.0, 5.0, 6.0, 7.0]\ng$ = (a for a, in zip(h$))"),
    ("reversed that is kept", "h$ = [2.0, 3.0, 4.0, 5.0, 6.0, 7.0]\ng$ = reversed(h$)"),
    ("itertools.chain that is kept", "h$ = [2.0, 3.0, 4.0, 5.0, 6.0, 7.0]\ng$ = itertools.chain(h$)"),
    ("iterator of a class", "h$ = [2.0]\nclass C$:\n    n = 1.0\n    def __iter__(self):\n        return self\n    def __next__(self):\n        self.n += 1\n        return self.n\ng$ = C$()"),
):  # fmt: skip
    way(_name, _setup, "next(g$)", set_item="h$[0] = ?", grow="h$.append(?)", advance="next(g$)", replace="g$ = iter([?] * 9)")
    way(f"{_name}, by a loop", _setup, "v$ = 0.0\nfor v$ in g$:\n    break\nv$", advance="next(g$)", replace="g$ = iter([?] * 9)")
way("bound __next__", "g$ = iter([2.0, 3.0, 4.0, 5.0, 6.0]).__next__", "g$()", advance="g$()")
way("bound send", "def k$():\n    n = 1.0\n    while True:\n        n += (yield n) or 1\ng$ = k$().send", "g$(None)", advance="g$(None)")
way("partial of next", "g$ = functools.partial(next, iter([2.0, 3.0, 4.0, 5.0, 6.0]))", "g$()", advance="g$()")
way("frame of a generator", "def k$():\n    n = 2.0\n    while True:\n        yield\n        n += 1\ng$ = k$()\nnext(g$)", "g$.gi_frame.f_locals['n']", advance="next(g$)")
way("length of an iterator", "g$ = iter([2.0, 3.0, 4.0, 5.0])", "operator.length_hint(g$) * 1.0", advance="next(g$)")
way("copy of an iterator", "g$ = iter([2.0, 3.0, 4.0, 5.0])", "next(copy.copy(g$))", advance="next(g$)")
way("itertools.tee", "g$, h$ = itertools.tee([2.0, 3.0, 4.0, 5.0, 6.0, 7.0])", "next(copy.copy(g$))", advance="next(g$)")

# ---- tensors -------------------------------------------------------------------------------------

TENSOR = "w$ = ad.tensor([2.0, 1.0], requires_grad=True)"
OF_TENSOR = {
    "tag": "w$.s = ?", "replace": "w$ = ad.tensor([?, 1.0], requires_grad=True)", "requires_grad": "w$.requires_grad_(not w$.requires_grad)",
    "write": "with ad.no_grad():\n    w$.mul_(1.5)", "data": "w$.data = w$.data * 0.5", "grad": "w$.grad = ad.ones(2)||w$.grad = None",
    "detached": "w$ = w$.detach()", "history": "w$ = w$ * 1.0", "type": "w$ = w$.detach().double()",
    "hook": "w$.requires_grad and w$.register_hook(lambda g: g * 0.5)", "view": "w$ = w$.detach()[1:].expand(2)||w$ = ad.ones(4)[2:]",
    "parameter": "w$ = nn.Parameter(w$.detach())",
}  # fmt: skip
for _name, _read in {
    "tensor": ("w$", True),
    "tensor's item": ("w$[0]", True),
    "tag of a tensor": ("getattr(w$, 's', 2.0)", False),
    "tag of a tensor, by hasattr": ("(2 if hasattr(w$, 's') else 3)", False),
    "tag of a tensor, by vars": ("vars(w$).get('s', 2.0)", False),
    "tag of a tensor, by try": ("try:\n    v$ = w$.s\nexcept AttributeError:\n    v$ = 3.0\nv$", False),
    "requires_grad": ("(2 if w$.requires_grad else 3)", False),
    "is_leaf": ("(2 if w$.is_leaf else 3)", False),
    "grad_fn is None": ("(2 if w$.grad_fn is None else 3)", False),
    "grad is None": ("(2 if w$.grad is None else 3)", False),
    "grad": ("(w$.grad if w$.grad is not None else ad.full((2,), 2.0))", True),
    "dtype": ("(2 if w$.dtype is ad.float32 else 3)", False),
    "shape": ("w$.shape[0] * 1.0", False),
    "len of a tensor": ("len(w$) * 1.0", False),
    "numel": ("w$.numel() * 1.0", False),
    "stride": ("w$.stride()[0] + 1.0", False),
    "is_contiguous": ("(2 if w$.is_contiguous() else 3)", False),
    "storage_offset": ("w$.storage_offset() + 2.0", False),
    "_version": ("w$._version + 2.0", False),
    "type of a tensor": ("(2 if isinstance(w$, nn.Parameter) else 3)", False),
    "is_inference": ("(2 if w$.is_inference() else 3)", False),
    "device": ("(2 if w$.device.type == 'cpu' else 3)", False),
    "retains_grad": ("(2 if w$.retains_grad else 3)", False),
    "_base": ("(2 if getattr(w$, '_base', None) is None else 3)", False),
    "data_ptr": ("(2 if w$.data_ptr() == w$.detach().data_ptr() else 3)", False),
    "value by item": ("w$[0].item()", False),
    "value by tolist": ("w$.tolist()[0]", False),
    "value by a branch": ("(2 if w$.sum() > 3 else 3)", False),
    "value by float": ("float(w$[0])", False),
    "value by numpy": ("float(w$.detach().numpy()[0])", False),
    "repr of a tensor": ("len(repr(w$)) / 10", False),
    "is_floating_point": ("(2 if w$.double().dtype == w$.dtype else 3)", False),
    "element_size": ("w$.element_size() / 2", False),
    "detach": ("w$.detach()", True),
    "data": ("w$.data", True),
    "gradient taken within": ("ad.autograd.grad((w$ * w$).sum(), w$)[0]", True),
}.items():
    way(_name, TENSOR, _read[0], _read[1], **OF_TENSOR)
for _name, _setup, _read, _is in (
    ("is of tensors", "k$ = w$", "(2 if k$ is w$ else 3)", False),
    ("tensor as a key", "k$ = {w$: 2.0}", "k$.get(w$, 3.0)", False),
    ("id of a tensor", "k$ = {id(w$): 2.0}\no$ = w$", "k$.get(id(w$), 3.0)", False),
    ("data_ptr of two", "k$ = w$.detach()", "(2 if k$.data_ptr() == w$.data_ptr() else 3)", False),
    ("tensor in a list", "k$ = [w$]", "k$[0]", True),
    ("tensors in a list, by is", "k$ = [w$]", "(2 if any(each is w$ for each in k$) else 3)", False),
    ("tensor in a dict", "k$ = {'w': w$}", "k$['w']", True),
    ("view of a tensor", "k$ = w$.detach()[:1]", "k$", True),
    ("weak reference of a tensor", "k$ = weakref.ref(w$)", "(w$ if k$() is None else k$() * 2)", True),
    ("closure of a tensor", "k$ = (lambda t: lambda: t * 2)(w$)", "k$()", True),
    ("partial of a tensor", "k$ = functools.partial(ad.mul, w$)", "k$(2.0)", True),
    ("bound method of a tensor", "k$ = w$.mul", "k$(2.0)", True),
    ("bound sum of a tensor", "k$ = w$.sum", "k$()", True),
    ("attribute that is a tensor", "k$ = Plain(w=w$)", "k$.w", True),
    ("default that is a tensor", "def k$(t=w$):\n    return t", "k$()", True),
    ("tag that is a tensor", "w$.s = ad.ones(2)", "w$.s", True),
    ("array of a tensor", "k$ = w$.detach().numpy()", "float(k$[0])", False),
    ("tensor of an array", "k$ = np.ones(2, np.float32)\nw$ = ad.from_numpy(k$)", "w$", True),
    ("iterator of a tensor", "k$ = iter(w$)", "next(k$)", True),
    ("object array of tensors", "k$ = np.empty(1, object)\nk$[0] = w$", "k$[0]", True),
    ("lru_cache of a tensor", "k$ = functools.cache(lambda: w$ * 2)", "k$()", True),
):  # fmt: skip
    way(_name, f"{TENSOR}\n{_setup}", _read, _is, **OF_TENSOR)
way("tensor subclass", "class T$(ad.Tensor):\n    s = 2.0\nw$ = ad.ones(2).as_subclass(T$)", "w$.s", rebind="T$.s = ?", tag="w$.s = ?")
way("generator's seed", "g$ = ad.Generator()\ng$.manual_seed(3)", "g$.initial_seed() * 1.0", seed="g$.manual_seed(5)")
way("draw", "ad.manual_seed(3)", "ad.rand(2)", True, seed="ad.manual_seed(4)")
way("draw of one's own", "g$ = ad.Generator()\ng$.manual_seed(3)", "ad.rand(2, generator=g$)", True, seed="g$.manual_seed(5)", replace="g$ = ad.Generator(); g$.manual_seed(9)")
way("list to a tensor", "h$ = [2.0, 1.0]", "ad.tensor(h$)", True, set_item="h$[0] = ?", replace="h$ = [?, ?]", reverse="h$.reverse()")

# ---- modules -------------------------------------------------------------------------------------

MODULE = (
    "class M$(nn.Module):\n    factor = 2.0\n    def __init__(self):\n        super().__init__()\n        self.w = nn.Parameter(ad.tensor([2.0, 1.0]))\n"
    "        self.register_buffer('b', ad.tensor([1.0, 3.0]))\n        self.parts = nn.ModuleList([nn.ReLU()])\n        self.p = 0.5\n"
    "    def forward(self, y):\n        for part in self.parts:\n            y = part(y)\n        return y * self.w\n"
    "class N$(nn.Module):\n    factor = 3.0\n    def forward(self, y):\n        return y * ?\nh$ = M$()"
)
OF_MODULE = {
    "train": "h$.train(not h$.training)", "grow": "h$.parts.append(nn.Tanh())", "set_item": "h$.parts[0] = nn.Sigmoid()", "shrink": "del h$.parts[0]",
    "rebind": "h$.p = ?", "buffer": "h$.b = ad.tensor([?, 1.0])||h$.register_buffer('c', ad.ones(2))", "parameter": "h$.w = nn.Parameter(ad.tensor([?, 1.0]))||h$.w = None",
    "write": "with ad.no_grad():\n    h$.w.mul_(1.5)||with ad.no_grad():\n    h$.b.add_(1)", "replace_class": "h$.__class__ = N$", "patch_method": "h$.forward = lambda y: y * ?||M$.forward = lambda self, y: y * ?",
    "hook": "h$.register_forward_hook(lambda m, i, o: o * 0.5)||h$.register_forward_pre_hook(lambda m, i: (i[0] * 0.5,))||h$.parts[0].register_forward_hook(lambda m, i, o: o * 0.5)" ,
    "load": "h$.load_state_dict({k: v * 0.5 for k, v in h$.state_dict().items()})", "requires_grad": "h$.requires_grad_(not h$.w.requires_grad)", "double": "h$.double()",
    "grad": "h$.w.grad = ad.ones(2)||h$.zero_grad()", "class_attribute": "M$.factor = ?", "shadow": "h$.factor = ?", "replace": "h$ = M$()", "delete": "del h$.b||del h$.p",
    "alias": "h$.v = h$.w||h$.b = h$.w.detach()", "global_hook": "handles.append(nn.modules.module.register_module_forward_hook(lambda m, i, o: o * 0.5))",
    "persistent": "h$._non_persistent_buffers_set.add('b')", "reorder": "h$._buffers['b'] = h$._buffers.pop('b')",
}  # fmt: skip
for _name, _read in {
    "module called": ("h$(ad.ones(2))", True),
    "module by forward": ("h$.forward(ad.ones(2))", True),
    "module by __call__": ("h$.__call__(ad.ones(2))", True),
    "module by map": ("next(map(h$, [ad.ones(2)]))", True),
    "module's parameter": ("h$.w", True),
    "module's buffer": ("h$.b", True),
    "module's parameter by get_parameter": ("h$.get_parameter('w')", True),
    "module's parameter by _parameters": ("h$._parameters['w']", True),
    "module's parameters()": ("next(h$.parameters())", True),
    "module's buffers()": ("next(iter(h$.buffers()))", True),
    "module's state_dict": ("h$.state_dict()['w']", True),
    "length of state_dict": ("len(h$.state_dict()) * 1.0", False),
    "sum of parameters": ("sum(q.sum() for q in h$.parameters())", True),
    "names of parameters": ("len([n for n, _ in h$.named_parameters()]) + 1.0", False),
    "module.training": ("(2 if h$.training else 3)", False),
    "module.training by getattr": ("(2 if getattr(h$, 'training') else 3)", False),
    "training of a part": ("(2 if h$.parts[0].training else 3)", False),
    "module's attribute": ("h$.p * 4", False),
    "module's class attribute": ("h$.factor", False),
    "module's attribute by attrgetter": ("operator.attrgetter('p')(h$) * 4", False),
    "length of a ModuleList": ("len(h$.parts) + 1.0", False),
    "type of a part": ("(2 if isinstance(h$.parts[0], nn.ReLU) else 3)", False),
    "modules()": ("len(list(h$.modules())) * 1.0", False),
    "children()": ("len(list(h$.children())) + 1.0", False),
    "get_submodule": ("(2 if type(h$.get_submodule('parts.0')) is nn.ReLU else 3)", False),
    "hasattr of a module": ("(2 if hasattr(h$, 'c') else 3)", False),
    "parameter is None": ("(2 if h$.w is None else 3)", False),
    "parameter's gradient is None": ("(2 if h$.w is None or h$.w.grad is None else 3)", False),
    "parameter wants gradients": ("(2 if h$.w is None or h$.w.requires_grad else 3)", False),
    "repr of a module": ("len(repr(h$)) / 100", False),
    "hooks of a module": ("len(h$._forward_hooks) + 2.0", False),
    "parameter shared": ("(2 if getattr(h$, 'v', 0) is h$.w else 3)", False),
    "extra state": ("(2 if h$.__class__ is M$ else 3)", False),
    "dropout": ("F.dropout(ad.ones(2), 0.5, h$.training)", True),
    "functional_call": ("ad.func.functional_call(h$, {'w': ad.ones(2)}, (ad.ones(2),))", True),
}.items():
    way(_name, MODULE, _read[0], _read[1], **OF_MODULE)
way("bound forward", MODULE + "\ng$ = h$.forward", "g$(ad.ones(2))", True, **OF_MODULE)
way("module in Sequential", MODULE + "\ng$ = nn.Sequential(h$, nn.Tanh())", "g$(ad.ones(2))", True, **OF_MODULE)
way("module in a list", MODULE + "\ng$ = [h$]", "g$[0](ad.ones(2))", True, **OF_MODULE)
way("module in a closure", MODULE + "\ng$ = (lambda m: lambda y: m(y))(h$)", "g$(ad.ones(2))", True, **OF_MODULE)
way("module in a partial", MODULE + "\ng$ = functools.partial(h$, ad.ones(2))", "g$()", True, **OF_MODULE)
way("parameters kept in a list", MODULE + "\ng$ = list(h$.parameters())", "g$[0]", True, **OF_MODULE)
way("deepcopy of a module", MODULE, "copy.deepcopy(h$)(ad.ones(2))", True, **OF_MODULE)
way("parameters counted", MODULE, "sum(q.numel() for q in h$.parameters()) * 1.0", **OF_MODULE)
way("layer's eps", "h$ = nn.LayerNorm(2)", "h$(ad.tensor([2.0, 1.0]))", True, rebind="h$.eps = 0.5", train="h$.eval()", parameter="h$.weight = nn.Parameter(ad.tensor([2.0, 3.0]))")
way("layer's p", "h$ = nn.Dropout(0.5)", "h$(ad.ones(2))", True, rebind="h$.p = 0.0", train="h$.eval()")
way("layer's slope", "h$ = nn.LeakyReLU(0.5)", "h$(-ad.ones(2))", True, rebind="h$.negative_slope = ?")
way("batch normalization", "h$ = nn.BatchNorm1d(1)", "h$(ad.tensor([[2.0], [1.0]])).flatten()", True, train="h$.eval()", rebind="h$.momentum = 0.5||h$.momentum = None||h$.track_running_stats = False", buffer="h$.running_mean = ad.ones(1)||h$.reset_running_stats()")
way("ModuleDict", "h$ = nn.ModuleDict({'a': nn.Tanh()})", "h$['a'](ad.ones(2))", True, set_item="h$['a'] = nn.Sigmoid()", delete="del h$['a']", grow="h$['b'] = nn.ReLU()")
way("ParameterList", "h$ = nn.ParameterList([ad.tensor([2.0, 1.0])])", "h$[0]", True, set_item="h$[0] = nn.Parameter(ad.ones(2))", grow="h$.append(ad.ones(2))")
way("ParameterDict", "h$ = nn.ParameterDict({'a': ad.tensor([2.0, 1.0])})", "h$['a']", True, set_item="h$['a'] = nn.Parameter(ad.ones(2))", grow="h$['b'] = ad.ones(2)")
way("parametrization", "h$ = nn.Linear(2, 2)\nnn.init.ones_(h$.weight)\nnn.init.ones_(h$.bias)", "h$(ad.ones(2))", True, parametrize="nn.utils.parametrize.register_parametrization(h$, 'weight', nn.Tanh())", write="with ad.no_grad():\n    h$.weight.mul_(0.5)")
way("function of a user as activation", "h$ = Plain(act=F.relu)", "h$.act(ad.tensor([2.0, -1.0]))", True, rebind="h$.act = ad.tanh||h$.act = F.silu||h$.act = lambda y: y * ?")
way("options of an optimizer", "w$ = nn.Parameter(ad.ones(2))\nh$ = ad.optim.SGD([w$], lr=2.0)", "h$.param_groups[0]['lr']", set_item="h$.param_groups[0]['lr'] = ?", grow="h$.add_param_group({'params': [nn.Parameter(ad.ones(1))], 'lr': 1.0})")
way("groups of an optimizer", "w$ = nn.Parameter(ad.ones(2))\nh$ = ad.optim.SGD([w$], lr=2.0)", "len(h$.param_groups) + 1.0", grow="h$.add_param_group({'params': [nn.Parameter(ad.ones(1))], 'lr': 1.0})")
way("state of an optimizer", "w$ = nn.Parameter(ad.ones(2))\nh$ = ad.optim.Adam([w$], lr=0.1)", "len(h$.state) + 2.0", step="w$.grad = ad.ones(2); h$.step()")
way("rate of a schedule", "w$ = nn.Parameter(ad.ones(2))\nh$ = ad.optim.SGD([w$], lr=2.0)\ng$ = ad.optim.lr_scheduler.StepLR(h$, 1)", "g$.get_last_lr()[0]", step="h$.step(); g$.step()")
way("epoch of a schedule", "w$ = nn.Parameter(ad.ones(2))\nh$ = ad.optim.SGD([w$], lr=2.0)\ng$ = ad.optim.lr_scheduler.StepLR(h$, 1)", "g$.last_epoch + 2.0", step="h$.step(); g$.step()")

# ---- installed libraries -------------------------------------------------------------------------

LIBRARY = (
    "import sysconfig\nl$ = types.ModuleType('l$')\nl$.__file__ = sysconfig.get_path('purelib') + '/l$.py'\n"
    "exec(compile('import operator\\nv, held = 2.0, {1: 2.0}\\ndef variable(): return v\\n"
    "def item(): return held[1]\\ndef by_getattr(o): return getattr(o, chr(115))\\n"
    "def by_dict(o): return o.__dict__[chr(115)]\\ndef by_getter(o): return operator.attrgetter(chr(115))(o)\\n"
    "class C:\\n    def of(self): return v\\ndef made(): return C()', l$.__file__, 'exec'), vars(l$))\n"
    "sys.modules['l$'] = l$\nh$ = Plain(s=2.0)"
)
for _read in ("l$.variable()", "l$.made().of()", "l$.C().of()"):
    way(f"variable of a library: {_read}", LIBRARY, _read, rebind="l$.v = ?")
way("item of a library", LIBRARY, "l$.item()", set_item="l$.held[1] = ?", rebind="l$.held = {1: ?}")
for _read in ("by_getattr", "by_dict", "by_getter"):
    way(f"{_read} of a library", LIBRARY, f"l$.{_read}(h$)", rebind="h$.s = ?", replace="h$ = Plain(s=?)")

# ---- the library's modes, and its functions replaced ---------------------------------------------

for _name, _read, _changes in (
    ("is_grad_enabled", "(2 if ad.is_grad_enabled() else 3)", "ad.set_grad_enabled(False)"),
    ("get_default_dtype", "(2 if ad.get_default_dtype() is ad.float32 else 3)", "ad.set_default_dtype(ad.float64)"),
    ("default dtype by a tensor", "ad.tensor([2.0, 1.0]).element_size() / 2", "ad.set_default_dtype(ad.float64)"),
    ("deterministic", "(2 if ad.are_deterministic_algorithms_enabled() else 3)", "ad.use_deterministic_algorithms(True)"),
    ("deterministic, warned", "(2 if ad.is_deterministic_algorithms_warn_only_enabled() else 3)", "ad.use_deterministic_algorithms(True, warn_only=True)"),
    ("deterministic debug mode", "ad.get_deterministic_debug_mode() + 2.0", "ad.set_deterministic_debug_mode(1)"),
    ("precision", "len(ad.get_float32_matmul_precision()) * 1.0", "ad.set_float32_matmul_precision('high')"),
    ("threads", "ad.get_num_threads() * 1.0", "ad.set_num_threads(ad.get_num_threads() + 1)"),
    ("inference mode", "(2 if ad.is_inference_mode_enabled() else 3)", "pass"),
    ("anomaly", "(2 if ad.is_anomaly_enabled() else 3)", "ad.set_detect_anomaly(True)"),
    ("autocast enabled", "(2 if ad.is_autocast_enabled('cpu') else 3)", "ad.set_autocast_enabled('cpu', True)"),
    ("autocast dtype", "(2 if ad.get_autocast_dtype('cpu') is ad.bfloat16 else 3)", "ad.set_autocast_dtype('cpu', ad.float16)"),
    ("autocast cache", "(2 if ad.is_autocast_cache_enabled() else 3)", "ad.set_autocast_cache_enabled(False)"),
    ("warn always", "(2 if ad.is_warn_always_enabled() else 3)", "ad.set_warn_always(True)"),
    ("print options", "len(str(ad.get_printoptions())) / 100", "ad.set_printoptions(precision=2)"),
    ("initial seed", "ad.initial_seed() % 5 + 1.0", "ad.manual_seed(8)"),
    ("state of the generator", "float(ad.get_rng_state().sum().item() % 7)", "ad.manual_seed(8)"),
    ("default device", "(2 if ad.get_default_device().type == 'cpu' else 3)", "pass"),
    ("interop threads", "ad.get_num_interop_threads() * 1.0", "pass"),
):  # fmt: skip
    way(_name, "", _read, switch=_changes)
    way(f"{_name}, by another name", f"g$ = lambda: {_read}", "g$()", switch=_changes)
way("bound is_grad_enabled", "g$ = ad.is_grad_enabled", "(2 if g$() else 3)", switch="ad.set_grad_enabled(False)")
for _name, _read, _change in (
    ("ad function replaced", "ad.tanh(ad.ones(2))", "ad.tanh = lambda y: y * ?"),
    ("F function replaced", "F.relu(ad.ones(2))", "F.relu = lambda y, *a, **k: y * ?"),
    ("F function replaced, in a layer", "nn.ReLU()(ad.ones(2))", "F.relu = lambda y, *a, **k: y * ?"),
    ("nn class replaced", "nn.Tanh()(ad.ones(2))", "nn.Tanh = nn.Sigmoid"),
    ("forward of a layer's class replaced", "nn.Tanh()(ad.ones(2))", "nn.Tanh.forward = lambda self, y: y * ?"),
    ("__call__ of nn.Module replaced", "nn.Tanh()(ad.ones(2))", "nn.Tanh.__call__ = lambda self, y: y * ?"),
    ("method of Tensor replaced", "ad.ones(2).sigmoid()", "ad.Tensor.sigmoid = lambda self: self * ?"),
    ("operator of Tensor replaced", "ad.ones(2) * 2.0", "ad.Tensor.__mul__ = lambda self, other: ad.add(self, other)"),
    ("method added to Tensor", "(ad.ones(2).mine() if hasattr(ad.Tensor, 'mine') else ad.ones(2))", "ad.Tensor.mine = lambda self: self + ?"),
    ("property added to Tensor", "getattr(ad.ones(2), 'mine', 2.0) * ad.ones(2)", "ad.Tensor.mine = property(lambda self: ?)"),
    ("init function replaced", "nn.init.ones_(ad.empty(2))", "nn.init.ones_ = lambda y: y.fill_(?)"),
    ("layer by its attribute", "nn.Softplus().beta * ad.ones(2)", "nn.Softplus = lambda: Plain(beta=?)"),
    ("checkpoint replaced", "ad.utils.checkpoint.checkpoint(ad.tanh, ad.ones(2), use_reentrant=False)", "ad.utils.checkpoint.checkpoint = lambda f, y, **k: y * ?"),
    ("no_grad replaced", "with ad.no_grad():\n    v$ = ad.ones(2)\nv$", "ad.no_grad = lambda: contextlib.nullcontext(ad.manual_seed(1))"),
    ("default argument of F", "F.leaky_relu(-ad.ones(2))", "F.leaky_relu.__defaults__ = (0.5, False)"),
    ("constant of the library", "ad.ones(2) * ad.pi", "ad.pi = ?"),
    ("attribute put on the library", "ad.ones(2) * getattr(F, 'mine', 2.0)", "F.mine = ?"),
    ("attribute put on a layer's class", "ad.ones(2) * getattr(nn.Tanh, 'mine', 2.0)", "nn.Tanh.mine = ?"),
    ("extra_repr replaced", "ad.ones(2) * len(repr(nn.Tanh()))", "nn.Tanh.extra_repr = lambda self: 'abc'"),
    ("parameters replaced", "ad.ones(2) * len(list(nn.Linear(2, 2).parameters()))", "nn.Linear.parameters = lambda self, recurse=True: iter([1])"),
):  # fmt: skip
    way(_name, "", _read, True, patch_adjoint=_change)
way("function of the library kept", "g$ = F.relu", "g$(ad.ones(2))", True, patch_adjoint="F.relu = lambda y, *a, **k: y * ?", replace="g$ = F.silu")
way("layer of a class that changes", "h$ = nn.Tanh()", "h$(ad.ones(2))", True, patch_adjoint="nn.Tanh.forward = lambda self, y: y * ?", replace_class="h$.__class__ = nn.Sigmoid", shadow_method="h$.forward = lambda y: y * ?")
way("function imported within", "", "from adjoint.nn.functional import relu as v$\nv$(ad.ones(2))", True, patch_adjoint="F.relu = lambda y, *a, **k: y * ?")

# ---- what a function leaves ----------------------------------------------------------------------

effect("append of a number", "e$ = []", "e$.append(1)", "e$")
effect("append of a tensor", "e$ = []", "e$.append(x.sum())", "e$")
effect("append of a tensor, cut", "e$ = []", "e$.append(x.detach().sum())", "e$")
effect("append of a bound method", "e$ = []\np$ = e$.append", "p$(1)", "e$")
effect("append of a bound method, a tensor", "e$ = []\np$ = e$.append", "p$(x.detach().sum())", "e$")
effect("extend", "e$ = []", "e$.extend([1, 2])", "e$")
effect("list plus", "e$ = []", "e$ += [1]", "e$")
effect("list insert", "e$ = [5]", "e$.insert(0, len(e$))", "e$")
effect("list pop", "e$ = list(range(9))", "x = x * e$.pop()", "e$")
effect("list reversed in place", "e$ = [1, 2, 3]", "e$.reverse()", "e$")
effect("list sorted in place", "e$ = [3, 1, 2]", "e$.sort()", "e$")
effect("list cleared", "e$ = [3, 1, 2]", "e$.clear()", "e$")
effect("item of a list", "e$ = [0, 0]", "e$[0] += 1", "e$")
effect("tensor in a list", "e$ = [0, 0]", "e$[0] = x.detach() * 2", "e$")
effect("items swapped", "e$ = [1, 2]", "e$[0], e$[1] = e$[1], e$[0]", "e$")
effect("slice of a list", "e$ = [1, 2, 3]", "e$[1:] = [e$[0]]", "e$")
effect("del of an item", "e$ = list(range(9))", "del e$[0]", "e$")
effect("item of a dict", "e$ = {'n': 0}", "e$['n'] += 1", "e$")
effect("new item of a dict", "e$ = {}", "e$['y'] = 1", "e$")
effect("tensor in a dict", "e$ = {}", "e$['y'] = x.detach().sum()", "e$")
effect("dict.update", "e$ = {}", "e$.update(n=len(e$), m=2)", "e$")
effect("dict.update of a bound method", "e$ = {}\np$ = e$.update", "p$(n=1)", "e$")
effect("dict.setdefault", "e$ = {}", "e$.setdefault('n', []).append(1)", "e$")
effect("dict.pop", "e$ = {n: n for n in range(9)}", "e$.pop(len(e$) - 1)", "e$")
effect("dict.popitem", "e$ = {n: n for n in range(9)}", "e$.popitem()", "e$")
effect("dict cleared", "e$ = {1: 2}", "e$.clear()", "e$")
effect("defaultdict", "e$ = collections.defaultdict(int)", "e$['n'] += 1", "e$")
effect("defaultdict that is read", "e$ = collections.defaultdict(int)", "e$[len(e$)]", "e$")
effect("Counter", "e$ = collections.Counter()", "e$['n'] += 1", "e$")
effect("Counter that counts on", "e$ = collections.Counter('aab')", "e$.update('b')", "dict(e$)")
effect("Counter.update", "e$ = collections.Counter()", "e$.update('ab')", "e$")
effect("OrderedDict moved", "e$ = collections.OrderedDict(a=1, b=2)", "e$.move_to_end('a')", "list(e$)")
effect("set.add", "e$ = set()", "e$.add(len(e$))", "e$")
effect("set.discard", "e$ = {1, 2}", "e$.discard(1)", "e$")
effect("deque.append", "e$ = collections.deque(maxlen=3)", "e$.append(1)", "e$")
effect("deque.rotate", "e$ = collections.deque([1, 2, 3])", "e$.rotate(1)", "e$")
effect("deque of tensors", "e$ = collections.deque(maxlen=2)", "e$.append(x.detach())", "e$")
effect("heappush", "e$ = [3, 5]", "heapq.heappush(e$, 1)", "e$")
effect("ChainMap", "e$ = collections.ChainMap({}, {'n': 0})", "e$['n'] += 1", "dict(e$)")
effect("UserDict", "e$ = collections.UserDict(n=0)", "e$['n'] += 1", "dict(e$)")
effect("attribute counted", "e$ = Plain(n=0)", "e$.n += 1", "vars(e$)")
effect("attribute made", "e$ = Plain()", "e$.n = 1", "vars(e$)")
effect("attribute that is a tensor", "e$ = Plain(t=ad.zeros(()))", "e$.t = x.detach().sum() + e$.t", "vars(e$)")
effect("attribute that is a list", "e$ = Plain(n=0)", "e$.n = [1, 2]", "vars(e$)")
effect("attribute that is text", "e$ = Plain(n='')", "e$.n += 'a'", "vars(e$)")
effect("attribute deleted", "e$ = Plain(n=0)", "e$.__dict__.pop('n', None)", "vars(e$)")
effect("setattr", "e$ = Plain(n=0)", "setattr(e$, 'n', e$.n + 1)", "vars(e$)")
effect("setattr of a computed name", "e$ = Plain()", "setattr(e$, chr(110), 1)", "vars(e$)")
effect("object.__setattr__", "e$ = Plain(n=0)", "object.__setattr__(e$, 'n', e$.n + 1)", "vars(e$)")
effect("another name of setattr", "e$ = Plain(n=0)\np$ = setattr", "p$(e$, 'n', e$.n + 1)", "vars(e$)")
effect("vars written", "e$ = Plain(n=0)", "vars(e$)['n'] += 1", "vars(e$)")
effect("__dict__ updated", "e$ = Plain(n=0)", "e$.__dict__.update(n=e$.n + 1)", "vars(e$)")
effect("class attribute counted", "class C$:\n    n = 0", "C$.n += 1", "C$.n")
effect("class attribute by self", "class C$:\n    n = 0\ne$ = C$()", "type(e$).n += 1", "C$.n")
effect("class attribute shadowed", "class C$:\n    n = 0\ne$ = C$()", "e$.n += 1", "C$.n, e$.n")
effect("slot counted", "class C$:\n    __slots__ = ('n',)\ne$ = C$()\ne$.n = 0", "e$.n += 1", "e$.n")
effect("property set", "class C$:\n    v = 0\n    n = property(lambda s: s.v, lambda s, v: setattr(s, 'v', v))\ne$ = C$()", "e$.n += 1", "e$.n")
effect("__setattr__ of one's own", "class C$:\n    def __setattr__(self, k, v):\n        self.__dict__[k] = v * 2\ne$ = C$()\ne$.n = 1", "e$.n = e$.n + 1", "e$.n")
effect("__setitem__ of one's own", "class C$:\n    n = 0\n    def __setitem__(self, k, v):\n        self.n += v\ne$ = C$()", "e$[0] = 1", "e$.n")
effect("__class__ set", "class C$:\n    pass\nclass D$:\n    pass\ne$ = C$()", "e$.__class__ = D$", "type(e$).__name__")
effect("method patched", "class C$:\n    def of(self):\n        return 1\ne$ = C$()", "C$.of = lambda self: 2", "e$.of()")
effect("dataclass field", "@dataclasses.dataclass\nclass C$:\n    n: int = 0\ne$ = C$()", "e$.n += 1", "e$.n")
effect("variable counted", "e$ = 0", "e$ += 1", "e$")
effect("variable that is a tensor", "e$ = ad.zeros(())", "e$ = e$ + x.detach().sum()", "e$")
effect("variable by globals()", "globals()['e$x'] = 0", "globals()['e$x'] += 1", "globals()['e$x']")
effect("function's attribute counted", "def e$():\n    pass\ne$.n = 0", "e$.n += 1", "e$.n")
effect("default that is written", "def e$(n=[0]):\n    n[0] += 1", "e$()", "e$.__defaults__")
effect("defaults set", "def e$(n=0):\n    return n", "e$.__defaults__ = (e$() + 1,)", "e$()")
effect("closure that counts", "def p$():\n    n = 0\n    def add():\n        nonlocal n\n        n += 1\n        return n\n    return add\ne$ = p$()", "x = x * e$()", "e$.__closure__[0].cell_contents")
effect("module's variable", "e$ = settings('effects$', n=0)", "e$.n += 1", "e$.n")
effect("module imported within, written", "settings('effects$', n=0)", "import effects$ as p$\np$.n += 1", "sys.modules['effects$'].n")
effect("sys.modules", "", "sys.modules['effects$'] = sys", "'effects$' in sys.modules")
effect("iterator advanced", "e$ = iter(range(9))", "x = x * next(e$)", "operator.length_hint(e$)")
effect("bound next", "e$ = iter(range(9))\np$ = e$.__next__", "x = x * p$()", "operator.length_hint(e$)")
effect("generator advanced", "e$ = (n for n in range(9))", "x = x * next(e$)", "e$.gi_frame.f_locals.get('n')")
effect("count advanced", "e$ = itertools.count()", "x = x * next(e$)", "repr(e$)")
effect("iterator's rest", "e$ = iter([1, 2, 3])", "x = x * sum(e$)", "operator.length_hint(e$)")
effect("generator's send", "def p$():\n    n = 0\n    while True:\n        n += yield n\ne$ = p$()\nnext(e$)", "e$.send(2)", "e$.gi_frame.f_locals")
effect("iterator of a class, advanced", "class C$:\n    n = 0\n    def __next__(self):\n        self.n += 1\n        return self.n\ne$ = C$()", "x = x * next(e$)", "e$.n")
effect("queue.put", "e$ = queue.Queue()", "e$.put(1)", "e$.qsize()")
effect("queue.get", "e$ = queue.Queue()\nfor n in range(9):\n    e$.put(n)", "x = x * e$.get()", "e$.qsize()")
effect("SimpleQueue.put", "e$ = queue.SimpleQueue()", "e$.put(1)", "e$.qsize()")
effect("queue of tensors", "e$ = queue.Queue()", "e$.put(x.detach())", "list(e$.queue)")
effect("event set", "e$ = threading.Event()", "e$.set()", "e$.is_set()")
effect("lock kept", "e$ = threading.Lock()", "e$.acquire(False)", "e$.locked()")
effect("thread started", "e$ = []", "p$ = threading.Thread(target=lambda: e$.append(1))\np$.start()\np$.join()", "e$")
effect("random of one's own", "e$ = random.Random(3)", "x = x * e$.random()", "e$.getstate()[1][-1]")
effect("bound random", "e$ = random.Random(3)\np$ = e$.random", "x = x * p$()", "e$.getstate()[1][-1]")
effect("random.random", "random.seed(3)", "x = x * random.random()", "random.getstate()[1][-1]")
effect("random.seed", "", "random.seed(5)", "random.getstate()[1][3]")
effect("np.random.rand", "np.random.seed(3)", "x = x * float(np.random.rand())", "int(np.random.get_state()[2])")
effect("NumPy generator", "e$ = np.random.default_rng(3)", "x = x * float(e$.random())", "e$.bit_generator.state['state']")
effect("uuid and os.urandom", "e$ = []", "e$.append(len(os.urandom(2)))", "e$")
effect("array written", "e$ = np.zeros(2)", "e$[0] += 1", "e$")
effect("array written by out", "e$ = np.zeros(2)", "np.add(e$, 1, out=e$)", "e$")
effect("array filled", "e$ = np.zeros(2)", "e$.fill(e$[0] + 1)", "e$")
effect("array by bound fill", "e$ = np.zeros(2)\np$ = e$.fill", "p$(3)", "e$")
effect("array by copyto", "e$ = np.zeros(2)", "np.copyto(e$, e$ + 1)", "e$")
effect("array by put", "e$ = np.zeros(2)", "np.put(e$, 0, 5)", "e$")
effect("array sorted", "e$ = np.array([3.0, 1.0])", "e$.sort()", "e$")
effect("array shuffled", "e$ = np.arange(5)\nnp.random.seed(3)", "np.random.shuffle(e$)", "e$")
effect("array reshaped", "e$ = np.zeros((2, 3))", "e$.shape = e$.shape[::-1]", "e$")
effect("array's flag", "e$ = np.zeros(2)", "e$.flags.writeable = False", "e$.flags.writeable")
effect("array by a view", "e$ = np.zeros(2)\np$ = e$[:1]", "p$ += 1", "e$")
effect("array by memoryview", "e$ = bytearray(2)\np$ = memoryview(e$)", "p$[0] = p$[0] + 1", "e$")
effect("object array", "e$ = np.array([0, None], object)", "e$[0] += 1", "e$.tolist()")
effect("ufunc.at", "e$ = np.zeros(2)", "np.add.at(e$, [0, 0], 1)", "e$")
effect("array.array written", "e$ = array.array('i', [0])", "e$[0] += 1", "e$.tolist()")
effect("array.array appended", "e$ = array.array('i', [0])", "e$.append(1)", "e$.tolist()")
effect("bytearray written", "e$ = bytearray(1)", "e$[0] += 1", "e$")
effect("bytearray extended", "e$ = bytearray(1)", "e$ += b'a'", "e$")
effect("struct.pack_into", "e$ = bytearray(8)", "struct.pack_into('d', e$, 0, 2.0)", "e$")
effect("ctypes number", "e$ = ctypes.c_int(0)", "e$.value += 1", "e$.value")
effect("ctypes array", "e$ = (ctypes.c_int * 1)(0)", "e$[0] += 1", "e$[0]")
effect("ctypes memset", "e$ = bytearray(2)\np$ = (ctypes.c_char * 2).from_buffer(e$)", "ctypes.memset(p$, 65, 2)", "e$")
effect("context variable set", "e$ = contextvars.ContextVar('e$', default=0)", "e$.set(e$.get() + 1)", "e$.get()")
effect("context variable borrowed", "e$ = contextvars.ContextVar('e$', default=0)", "p$ = e$.set(1)\nx = x * e$.get()\ne$.reset(p$)", "e$.get()")
effect("variable of a library counted", LIBRARY + "\nexec(compile('def count():\\n    global v\\n    v += 1\\n    return v', l$.__file__, 'exec'), vars(l$))", "x = x * l$.count()", "l$.v")
effect("bound set of a context variable", "e$ = contextvars.ContextVar('e$', default=0)\np$ = e$.set", "p$(5)", "e$.get()")
effect("thread local counted", "e$ = threading.local()\ne$.n = 0", "e$.n += 1", "e$.n")
effect("StringIO written", "e$ = io.StringIO()", "e$.write('a')", "e$.getvalue()")
effect("print into StringIO", "e$ = io.StringIO()", "print('a', file=e$)", "e$.getvalue()")
effect("print", "", "print('step')", "0")
effect("another name of print", "e$ = print", "e$('step')", "0")
effect("sys.stdout.write", "", "sys.stdout.write('step')", "0")
effect("warnings.warn", "", "warnings.warn('program: step')", "0")
effect("warnings.warn, another name", "e$ = warnings.warn", "e$('program: step')", "0")
effect("logging", "class H$(logging.Handler):\n    def emit(self, record):\n        e$.append(record.getMessage())\ne$ = []\np$ = logging.getLogger('program.effect$')\np$.setLevel(10)\np$.addHandler(H$())", "p$.info('step %d', len(e$))", "e$")
effect("logging that is off", "class H$(logging.Handler):\n    def emit(self, record):\n        e$.append(1)\ne$ = []\np$ = logging.getLogger('program.effect$')\np$.addHandler(H$())", "p$.debug('step')", "e$")
effect("logging level set", "e$ = logging.getLogger('program.effect$')", "e$.setLevel(10)", "e$.level")
effect("file written", "import tempfile\ne$ = tempfile.mkdtemp() + '/f'", "with open(e$, 'a') as p$:\n    p$.write('a')", "os.path.exists(e$) and open(e$).read()")
effect("environment written", "", "os.environ['PYTHON_EFFECT_$'] = '1'", "os.environ.get('PYTHON_EFFECT_$')")
effect("os.putenv", "", "os.environ.setdefault('PYTHON_EFFECT_$', '2')", "os.environ.get('PYTHON_EFFECT_$')")
effect("decimal's context", "", "decimal.getcontext().prec = 5", "decimal.getcontext().prec")
effect("np.seterr", "", "np.seterr(over='ignore')", "np.geterr()['over']")
effect("np.set_printoptions", "", "np.set_printoptions(precision=3)", "np.get_printoptions()['precision']")
effect("recursion limit", "e$ = sys.getrecursionlimit()", "sys.setrecursionlimit(e$ + 100)", "sys.getrecursionlimit() - e$")
effect("gc", "", "gc.disable()", "gc.isenabled()")
effect("sys.path", "", "sys.path.append('effect$')", "'effect$' in sys.path")
effect("warning filter", "", "warnings.simplefilter('ignore', ResourceWarning)", "warnings.filters[0][2].__name__")
effect("atexit", "e$ = []", "import atexit\natexit.unregister(print)\ne$.append(1)", "e$")
effect("weak set", "k$ = Plain()\ne$ = weakref.WeakSet()", "e$.add(k$)", "len(e$)")
effect("weak dict", "k$ = Plain()\ne$ = weakref.WeakValueDictionary()", "e$[1] = k$", "len(e$)")
effect("weak reference with a callback", "e$ = []", "p$ = Plain()\nq$ = weakref.ref(p$, lambda _: e$.append(1))\ndel p$", "e$")
effect("finalizer", "e$ = []\nclass C$:\n    def __del__(self):\n        e$.append(1)", "C$()", "e$")
effect("lru_cache filled", "@functools.lru_cache\ndef e$(n):\n    return n * 2", "x = x * e$(2)", "e$(2)")
effect("lru_cache of a tensor", "@functools.lru_cache\ndef e$(n):\n    return ad.ones(()) * n", "x = x * e$(2)", "e$(2)")
effect("cached_property filled", "class C$:\n    s = functools.cached_property(lambda self: 2.0)\ne$ = C$()", "x = x * e$.s", "vars(e$)")
effect("partial's keywords", "e$ = functools.partial(max, key=None)", "e$.keywords['key'] = abs", "e$.keywords['key'] is abs")
effect("singledispatch registered", "@functools.singledispatch\ndef e$(v):\n    return 1", "e$.register(int, lambda v: 2)", "e$(1)")
effect("abstract class registered", "class C$(abc.ABC):\n    pass\nclass D$:\n    pass", "C$.register(D$)", "issubclass(D$, C$)")
effect("class made", "class C$:\n    kinds = []\n    def __init_subclass__(cls):\n        C$.kinds.append(1)", "class D$(C$):\n    pass", "C$.kinds")
effect("context manager that counts", "e$ = []\n@contextlib.contextmanager\ndef p$():\n    e$.append('in')\n    yield\n    e$.append('out')", "with p$():\n    x = x * 2", "e$")
effect("try and finally", "e$ = []", "try:\n    x = x * 2\nfinally:\n    e$.append(1)", "e$")
effect("exception caught", "e$ = Plain(n=0)", "try:\n    e$.n += 1\n    raise ValueError\nexcept ValueError:\n    e$.n += 1", "e$.n")
effect("exception's args", "e$ = ValueError(0)", "e$.args = (e$.args[0] + 1,)", "e$.args")
effect("exception's note", "e$ = ValueError(0)", "e$.add_note('a')", "e$.__notes__ if hasattr(e$, '__notes__') else 0")
effect("ExitStack", "e$ = []\np$ = contextlib.ExitStack()\np$.callback(e$.append, 1)", "p$.close()", "e$")
effect("time", "e$ = []", "import time\ne$.append(time.time() > 0)", "e$")
effect("grad mode switched", "e$ = []", "ad.set_grad_enabled(False)", "ad.is_grad_enabled()")
effect("default dtype switched", "", "ad.set_default_dtype(ad.float64)", "str(ad.get_default_dtype())")
effect("determinism switched", "", "ad.use_deterministic_algorithms(True)", "ad.are_deterministic_algorithms_enabled()")
effect("precision switched", "", "ad.set_float32_matmul_precision('high')", "ad.get_float32_matmul_precision()")
effect("anomaly switched", "", "ad.set_detect_anomaly(True)", "ad.is_anomaly_enabled()")
effect("autocast switched", "", "ad.set_autocast_enabled('cpu', True)", "ad.is_autocast_enabled('cpu')")
effect("autocast dtype switched", "", "ad.set_autocast_dtype('cpu', ad.float16)", "str(ad.get_autocast_dtype('cpu'))")
effect("print options switched", "", "ad.set_printoptions(precision=2)", "str(ad.get_printoptions())")
effect("warn always switched", "", "ad.set_warn_always(True)", "ad.is_warn_always_enabled()")
effect("seed", "", "ad.manual_seed(7)", "ad.initial_seed()")
effect("seed, then a draw", "", "ad.manual_seed(7)\nx = x + ad.rand(2)", "ad.get_rng_state()")
effect("draw", "ad.manual_seed(3)", "x = x + ad.rand(2)", "ad.get_rng_state()")
effect("draw of a generator", "e$ = ad.Generator()\ne$.manual_seed(3)", "x = x + ad.rand(2, generator=e$)", "e$.get_state()")
effect("generator seeded", "e$ = ad.Generator()", "e$.manual_seed(5)", "e$.initial_seed()")
effect("no_grad entered", "e$ = ad.no_grad()", "e$.__enter__()", "ad.is_grad_enabled()")
effect("tensor written", "e$ = ad.zeros(2)", "e$.add_(1)", "e$")
effect("tensor's item written", "e$ = ad.zeros(2)", "e$[0] = x.detach()[0]", "e$")
effect("tensor's data", "e$ = ad.zeros(2)", "e$.data.add_(1)", "e$")
effect("tensor tagged", "e$ = ad.zeros(2)\ne$.n = 0", "e$.n += 1", "e$.n")
effect("tensor tagged with a tensor", "e$ = ad.zeros(2)", "e$.note = x.detach().sum()", "getattr(e$, 'note', 0)")
effect("tensor tagged by setattr", "e$ = ad.zeros(2)", "setattr(e$, 'note', 1)", "getattr(e$, 'note', 0)")
effect("tensor tagged by vars", "e$ = ad.zeros(2)", "vars(e$)['note'] = 1", "getattr(e$, 'note', 0)")
effect("argument tagged", "e$ = []", "x.note = 1\ne$ = [x.note]", "e$")
effect("requires_grad_", "e$ = ad.zeros(2)", "e$.requires_grad_()", "e$.requires_grad")
effect("requires_grad set", "e$ = ad.zeros(2, requires_grad=True)", "e$.requires_grad = False", "e$.requires_grad")
effect("gradient", "e$ = ad.ones(2, requires_grad=True)", "with ad.enable_grad():\n    (e$ * 2.0).sum().backward()", "e$.grad")
effect("gradient of the argument's loss", "e$ = ad.ones(2, requires_grad=True)", "with ad.enable_grad():\n    (e$ * x.detach()).sum().backward()", "e$.grad")
effect("gradient set", "e$ = ad.ones(2, requires_grad=True)", "e$.grad = ad.ones(2)", "e$.grad")
effect("gradient cleared", "e$ = ad.ones(2, requires_grad=True)\ne$.grad = ad.ones(2)", "e$.grad = None", "e$.grad")
effect("gradient scaled", "e$ = ad.ones(2, requires_grad=True)\ne$.grad = ad.ones(2)", "e$.grad.mul_(2)", "e$.grad")
effect("hook registered", "e$ = ad.ones(2, requires_grad=True)", "e$.register_hook(lambda g: g * 2)", "(e$ * 1.0).requires_grad")
effect("hook that appends", "e$ = []\nw$ = ad.ones(2, requires_grad=True)\nw$.register_hook(lambda g: e$.append(1))", "with ad.enable_grad():\n    (w$ * 2.0).sum().backward()", "e$, w$.grad")
effect("tensor's data replaced", "e$ = ad.zeros(2)", "e$.data = ad.ones(2)", "e$")
effect("tensor's shape changed", "e$ = ad.zeros(1, 2)", "e$.squeeze_()", "e$")
effect("tensor detached in place", "e$ = ad.ones(2, requires_grad=True) * 1", "e$.detach_()", "e$.requires_grad")
effect("array by its tensor", "k$ = np.zeros(2, np.float32)\ne$ = ad.from_numpy(k$)", "e$.add_(1)", "k$")
effect("tensor by its array", "e$ = ad.zeros(2)\nk$ = e$.numpy()", "k$[0] += 1", "e$")
effect("buffer written", "e$ = nn.BatchNorm1d(1)", "e$(ad.tensor([[2.0], [1.0]]))", "e$.running_mean, e$.num_batches_tracked")
effect("buffer set", "e$ = nn.Module()\ne$.register_buffer('b', ad.zeros(()))", "e$.b = e$.b + 1", "e$.b")
effect("buffer registered", "e$ = nn.Module()", "e$.register_buffer('b', ad.zeros(()))", "list(e$._buffers)")
effect("parameter registered", "e$ = nn.Module()", "e$.w = nn.Parameter(ad.ones(2))", "list(e$._parameters)")
effect("submodule added", "e$ = nn.Module()", "e$.part = nn.Tanh()", "list(e$._modules)")
effect("ModuleList appended", "e$ = nn.ModuleList()", "e$.append(nn.Tanh())", "len(e$)")
effect("module trained", "e$ = nn.Dropout(0.5)", "e$.eval()", "e$.training")
effect("module's hook", "e$ = nn.Tanh()", "e$.register_forward_hook(lambda m, i, o: None)", "len(e$._forward_hooks)")
effect("module's hook that appends", "e$ = []\np$ = nn.Tanh()\np$.register_forward_hook(lambda m, i, o: e$.append(1))", "x = p$(x)", "e$")
effect("module's hook that keeps", "e$ = {}\np$ = nn.Tanh()\np$.register_forward_hook(lambda m, i, o: e$.update(o=o.detach()))", "x = p$(x)", "e$")
effect("module's counter", "class C$(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.n = 0\n    def forward(self, y):\n        self.n += 1\n        return y * self.n\ne$ = C$()", "x = e$(x)", "e$.n")
effect("module's list", "class C$(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.n = []\n    def forward(self, y):\n        self.n.append(y.detach())\n        return y\ne$ = C$()", "x = e$(x)", "e$.n")
effect("parameter written", "e$ = nn.Linear(1, 1)", "with ad.no_grad():\n    e$.weight.fill_(2.0)", "e$.weight")
effect("parameter's requires_grad", "e$ = nn.Linear(1, 1)", "e$.requires_grad_(False)", "e$.weight.requires_grad")
effect("zero_grad", "e$ = nn.Linear(1, 1)\ne$.weight.grad = ad.ones(1, 1)", "e$.zero_grad()", "e$.weight.grad")
effect("optimizer's step", "w$ = nn.Parameter(ad.ones(2))\ne$ = ad.optim.SGD([w$], lr=0.1)", "with ad.enable_grad():\n    e$.zero_grad()\n    (w$ * 3.0).sum().backward()\n    e$.step()", "w$")
effect("optimizer's option", "w$ = nn.Parameter(ad.ones(2))\ne$ = ad.optim.SGD([w$], lr=0.1)", "e$.param_groups[0]['lr'] *= 0.5", "e$.param_groups[0]['lr']")
effect("function of the library patched", "", "F.relu = ad.tanh", "F.relu is ad.tanh")
effect("class of the library patched", "", "nn.Tanh.mine = 1", "hasattr(nn.Tanh, 'mine')")
effect("builtin patched", "", "builtins.mine$ = 1", "hasattr(builtins, 'mine$')")
effect("math patched", "", "math.mine = 1", "hasattr(math, 'mine')")
effect("list that held nothing", "e$ = [0]", "e$[0] = x", "[type(v).__name__ for v in e$]")
effect("identity of the argument kept", "e$ = []", "e$.append(id(x) > 0)", "e$")
effect("object made", "class C$:\n    n = 0\n    def __init__(self):\n        C$.n += 1", "C$()", "C$.n")
effect("object kept", "e$ = Plain(made=None)", "e$.made = Plain(n=1)", "vars(e$)")
effect("function kept", "e$ = Plain(made=None)", "e$.made = lambda: 2", "e$.made and e$.made()")
effect("singleton made", "class C$:\n    one = None\n    @classmethod\n    def get(cls):\n        if cls.one is None:\n            cls.one = cls()\n            cls.one.s = 2.0\n        return cls.one", "x = x * C$.get().s", "C$.one is None")
effect("returned list", "e$ = []", "e$ = [x.shape[0]]", "e$")
# fmt: on

# ---- what is not yet as it should be -------------------------------------------------------------

# What `ad.compile` gets silently wrong today: by what has to be mended, the ways (`way`, with
# `: change` for one kind of change alone; `: change` alone is that change in any way) and effects
# (`!effect`, with `: mode` for one mode alone), and places (`@place`). Programs are made without them; delete what has
# been mended. A test of the sweep says which entries are of no more use.
NOT_YET: dict[str, tuple[str, ...]] = {}


def is_not_yet(name: str, of: str = "") -> bool:
    """Whether `NOT_YET` has a way, or an effect (`!name`), as a whole, or with a change or mode."""
    return not {name, f"{name}: {of}", f": {of}"}.isdisjoint(_NOT_YET)


_NOT_YET = frozenset(entry for entries in NOT_YET.values() for entry in entries)
