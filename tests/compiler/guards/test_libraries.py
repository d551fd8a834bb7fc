"""What functions of installed libraries read is followed: module variables, attributes by names
that they compute, classes, closures and defaults.
"""

from __future__ import annotations

import calendar
import collections
import contextvars
import decimal
import os
import sys
import sysconfig
import types

import pytest

import adjoint as ad
from adjoint.core.errors import Unsupported

SOURCE = """
import dataclasses, functools, inspect, operator
from dataclasses import asdict

counter, prefix, table, kept = 2.0, "hid", {"k": 2.0}, []
settings = type("Settings", (), {})()
settings.scale = 2.0
getter = operator.attrgetter("hidden")


def count():
    global counter
    counter += 1
    return counter


def variable(): return counter
def item(): return table["k"]
def setting(): return settings.scale
def setting_by_name(): return getattr(settings, "sca" + "le")
def by_getattr(o): return getattr(o, prefix + "den")
def by_constant(o): return getattr(o, "hidden")
def by_default(o): return getattr(o, prefix + "den", 1.0)
def by_hasattr(o): return 2.0 if hasattr(o, prefix + "den2") else 3.0
def by_vars(o): return vars(o)[prefix + "den"]
def by_dict(o): return o.__dict__[prefix + "den"]
def by_values(o): return sum(o.__dict__.values())
def by_dir(o): return sum(getattr(o, n) for n in dir(o) if n.startswith(prefix))
def by_getter(o): return getter(o)
def by_new_getter(o): return operator.attrgetter(prefix + "den")(o)
def by_caller(o): return operator.methodcaller("__getattribute__", prefix + "den")(o)
def by_object(o): return object.__getattribute__(o, prefix + "den")
def by_map(o): return sum(map(getattr, [o], [prefix + "den"]))
def by_reduce(o): return functools.reduce(getattr, [prefix + "den"], o)
def by_static(o): return inspect.getattr_static(o, prefix + "den")
def by_format(o): return float("{0.hidden}".format(o))
def by_named_dict(o): return getattr(o, "__dict__")[prefix + "den"]
def set_on_class(o):
    if hasattr(type(o), prefix + "den3"): return 3.0
    setattr(type(o), prefix + "den3", 1.0)
    return getattr(o, prefix + "den3")
def by_absent(o):
    absent = [getattr(o, n + prefix, 1.0) for n in ("a", "b", "c")]
    return absent[0] + 10 * absent[1] + 100 * absent[2]
def by_any_dict(o):
    for each in (kept, o): read = each
    return read.__dict__[prefix + "den"]
def by_setattr(o):
    setattr(o, prefix + "den", 1 + getattr(o, prefix + "den"))
    return getattr(o, prefix + "den")


class Kind:
    scale, held = 2.0, []
    def of_class(self): return self.scale
    def of_type(self): return type(self).scale
    def of_variable(self): return counter
    def of_item(self): return table["k"]
    def of_held(self): return len(self.held)
    @classmethod
    def made(cls): return cls()


class Mapped:
    other = None
    def __getattribute__(self, name):
        if name == "alias": name = prefix + "den"
        return super().__getattribute__(name)
    def item(self): return super().__getattribute__("__dict__").get("hidden", 1.0)
    def computed_item(self): return super().__getattribute__("__dict__")[prefix + "den"]
    def own_item(self): return self.__dict__["hidden"]
    def own(self): return self.__dict__[prefix + "den"]
    def own_in_a_loop(self): return sum(self.__dict__.get(prefix + n) for n in ("den",))
    def of_other(self):
        self = self.other
        return self.__dict__[prefix + "den"]
    def of_other_in_a_loop(self):
        held = (self.__dict__.get(prefix + n) for n in ("den",))
        self = self.other
        return sum(held)
    def set_by_super(self):
        super().__setattr__(prefix + "den", 1 + super().__getattribute__(prefix + "den"))
        return self.own_item()


class Aliased:
    hid_names = {"alias": "hidden"}
    def __getattribute__(self, name):
        names = super().__getattribute__(prefix + "_names")
        return super().__getattribute__(names.get(name, name))


def own_item(o): return o.__dict__["hidden"]
def unless(o, rare): return rarely(o) if rare else o.hidden
def rarely(o): return asdict(o)


class Descriptor:
    def __get__(self, instance, owner): return getattr(instance, "_" + prefix)


def make(): return Kind()
def made_in_a_table(): return {"k": Kind}["k"]().of_variable()
instance = Kind()
def of_instance(): return instance.of_class()
def nested():
    def inner(): return counter
    return inner
def closure():
    held = [2.0]
    def get(): return held[0]
    def put(value): held[0] = value
    return get, put
get, put = closure()
def default(held=[2.0]): return held[0]
"""


CLASS = """
@dataclasses.dataclass
class Options:
    steps: float = 2.0


steps = iter(())
def options(): return Options().steps
"""


def library(name):
    """A module that is as if it were installed."""
    made = types.ModuleType(name)
    made.__file__ = os.path.join(sysconfig.get_path("purelib"), name, "__init__.py")
    exec(compile(SOURCE, made.__file__, "exec"), made.__dict__)
    return made


@pytest.fixture
def lib(monkeypatch):
    made = library("adjoint_test_library")
    monkeypatch.setitem(sys.modules, made.__name__, made)
    return made


def results(function, changes):
    """What a function gives before, between and after changes."""
    given = []
    for change in (*changes, lambda: None):
        given.append(function(ad.ones(1)).item())
        change()
    return given


BY_NAME = sorted(
    line.partition("(")[0].removeprefix("def ")
    for line in SOURCE.splitlines()
    if line.startswith("def by_")
)


@pytest.mark.parametrize("name", BY_NAME)
@pytest.mark.parametrize("way", ["of the module", "by itself"])
def test_what_a_library_reads_by_a_computed_name_is_followed(lib, name, way):
    def changed(call):
        holder = type("Holder", (), {})()
        holder.hidden, holder.other = 2.0, 1.0
        own = {"lib": lib, "alone": getattr(lib, name), "holder": holder}
        called = f"lib.{name}" if way == "of the module" else "alone"
        function = eval(f"lambda x: x * {called}(holder)", own)
        changes = [
            lambda: setattr(holder, "hidden", 5.0), lambda: setattr(holder, "hidden2", 1.0),
            lambda: setattr(holder, "hidden", 7.0),
        ]  # fmt: skip
        return results(call(function), changes)

    assert changed(ad.compile) == changed(lambda function: function)


WAYS_TO_A_CLASS = """
class kind: pass
it = kind()
it.draws = iter(())


def a_use(): return it.draws
def make():
    made = kind()
    made.draws = 2.0
    return made
def f(x): return (make() if x.shape else a_use()).draws * x
"""


def test_a_way_to_a_class_is_none_to_its_objects():
    """The iterator, which only code that does not run reaches, is not read."""
    own = {}
    exec(WAYS_TO_A_CLASS, own)
    assert results(ad.compile(own["f"]), []) == [2.0]


def test_what_a_library_sets_on_a_class_after_it_asked_for_it_is_put_back(lib):
    kind = type("Kind", (), {})
    holder = kind()
    with pytest.raises(Unsupported, match="attributes of the class Kind were added"):
        ad.compile(lambda x: x * lib.set_on_class(holder))(ad.ones(1))
    assert not hasattr(kind, "hidden3")


READ = [
    "alias", "item()", "computed_item()", "own_item()", "own()", "own_in_a_loop()", "of_other()",
    "of_other_in_a_loop()", "set_by_super()",
]  # fmt: skip


@pytest.mark.parametrize("read", READ)
def test_what_a_class_of_a_library_reads_of_its_objects_is_followed(lib, read):
    def changed(call):
        kind = type("Kind", (lib.Mapped,), {})
        it, other = kind(), kind()
        it.other = other.other = other
        it.hidden = other.hidden = 2.0
        function = eval(f"lambda x: x * it.{read}", {"it": it})
        changes = [
            lambda: setattr(it, "hidden", 5.0), lambda: setattr(other, "hidden", 7.0),
            lambda: setattr(it, "hidden2", 1.0),
        ]  # fmt: skip
        return results(call(function), changes)

    assert changed(ad.compile) == changed(lambda function: function)


@pytest.mark.parametrize(
    "read", ["it.alias", "it.item()", "lib.own_item(plain)", "lib.unless(it, False)"]
)
def test_what_a_library_might_have_read_is_not_guarded(lib, read):
    """`draws`, which nobody reads, could not be followed."""
    it = type("Kind", (lib.Mapped,), {})()
    it.hidden, it.draws = 2.0, iter(())
    plain = type("Plain", (), {})()
    plain.hidden, plain.draws = 2.0, iter(())
    scaled = ad.compile(eval(f"lambda x: x * {read}", {"it": it, "lib": lib, "plain": plain}))
    changes = [lambda: (setattr(it, "hidden", 5.0), setattr(plain, "hidden", 5.0))]
    assert results(scaled, changes) == [2.0, 5.0]


def test_code_that_python_writes_for_a_class_of_a_library_is_no_users(lib):
    """Names in the user's code lead to variables of a library, such as the iterator there."""
    exec(compile(CLASS, lib.__file__, "exec"), lib.__dict__)
    assert results(ad.compile(lambda x: x * lib.options()), []) == [2.0]


def test_a_way_to_read_attributes_that_reads_another_first_is_followed(lib):
    """What is looked at while it tells what it reads asks it for `__class__`, in which it tells
    once more.
    """

    def changed(call):
        aliased = lib.Aliased()
        aliased.hidden = 2.0
        function = call(lambda x: x * aliased.alias)
        return results(function, [lambda: setattr(aliased, "hidden", 5.0)])

    assert changed(ad.compile) == changed(lambda function: function)


STATE = {
    "variable": (lambda lib: lambda x: x * lib.variable(), ("counter",)),
    "item": (lambda lib: lambda x: x * lib.item(), ("table", "k")),
    "setting": (lambda lib: lambda x: x * lib.setting(), ("settings", "scale")),
    "setting by name": (lambda lib: lambda x: x * lib.setting_by_name(), ("settings", "scale")),
    "class": (lambda lib: lambda x: x * lib.make().of_class(), ("Kind", "scale")),
    "type": (lambda lib: lambda x: x * lib.make().of_type(), ("Kind", "scale")),
    "variable in a method": (lambda lib: lambda x: x * lib.make().of_variable(), ("counter",)),
    "item in a method": (lambda lib: lambda x: x * lib.make().of_item(), ("table", "k")),
    "list of a class": (lambda lib: lambda x: x * lib.Kind.made().of_held(), ("Kind", "held", 0)),
    "class in a table": (lambda lib: lambda x: x * lib.made_in_a_table(), ("counter",)),
    "instance": (lambda lib: lambda x: x * lib.of_instance(), ("instance", "scale")),
    "function within": (lambda lib: lambda x: x * lib.nested()(), ("counter",)),
    "counted": (lambda lib: lambda x: x * lib.count(), ("counter",)),
}


def put(lib, path, value):
    *way, last = path
    holder = lib
    for each in way:
        holder = getattr(holder, each)
    if isinstance(holder, dict):
        holder[last] = value
    elif isinstance(holder, list):
        holder.insert(last, value)
    else:
        setattr(holder, last, value)


@pytest.mark.parametrize("name", STATE)
def test_state_of_a_library_is_followed(name):
    make, path = STATE[name]

    def changed(call):
        lib = library("adjoint_test_library")
        function = call(make(lib))
        return results(function, [lambda n=n: put(lib, path, n) for n in (5.0, 6.0)])

    assert changed(ad.compile) == changed(lambda function: function)


def test_closures_and_defaults_of_a_library_are_followed(lib):
    closed = ad.compile(lambda x: x * lib.get())
    changes = [lambda: lib.put(5.0), lambda: lib.put(6.0)]
    assert results(closed, changes) == [2.0, 5.0, 6.0]
    with_default = ad.compile(lambda x: x * lib.default())
    changes = [
        lambda: lib.default.__defaults__[0].insert(0, 5.0),
        lambda: setattr(lib.default, "__defaults__", ([6.0],)),
    ]
    assert results(with_default, changes) == [2.0, 5.0, 6.0]


def test_a_descriptor_of_a_library_is_followed(lib):
    kind = type("Kind", (), {"scale": lib.Descriptor(), "_hid": 2.0})
    it = kind()
    scaled = ad.compile(lambda x: x * it.scale)
    changes = [lambda: setattr(kind, "_hid", 5.0), lambda: setattr(it, "_hid", 6.0)]
    assert results(scaled, changes) == [2.0, 5.0, 6.0]


def test_code_of_a_library_to_which_nothing_leads_is_followed_by_its_module(lib):
    lib.table["f"] = lib.nested()  # which has no name of the library's

    def changed(call):
        lib.counter = 2.0
        held = {"f": lib.table["f"]}
        return results(
            call(lambda x: x * next(iter(held.values()))()), [lambda: put(lib, ("counter",), 5.0)]
        )

    assert changed(ad.compile) == changed(lambda function: function) == [2.0, 5.0]


def test_a_bound_method_of_a_module_of_python_is_followed():
    first = ad.compile(lambda x: x * (1 + calendar.firstweekday()))
    try:
        changes = [lambda: calendar.setfirstweekday(6), lambda: calendar.setfirstweekday(2)]
        assert results(first, changes) == [1.0, 7.0, 3.0]
    finally:
        calendar.setfirstweekday(0)


def test_a_context_variable_is_followed():
    variable = contextvars.ContextVar("variable", default=2.0)
    held = contextvars.ContextVar("held")
    held.set({"scale": 2.0})

    def borrows(x):
        token = variable.set(variable.get() + 1)
        y = x * variable.get() * held.get()["scale"]
        variable.reset(token)
        return y

    def keeps(x):
        variable.set(variable.get() + 1)
        return x * variable.get()

    changes = [lambda: variable.set(5.0), lambda: held.get().update(scale=3.0)]
    assert results(ad.compile(borrows), changes) == [6.0, 12.0, 18.0]
    with pytest.raises(Unsupported, match=r"variable was 5\.0 and is 6\.0"):
        ad.compile(keeps)(ad.ones(1))
    assert variable.get() == 5.0


def test_what_a_refused_function_has_changed_is_put_back_by_no_method_of_the_users():
    counted, kept = collections.Counter("aab"), []

    def f(x):
        counted.update("b")
        kept.append(object())
        decimal.getcontext().prec = 5
        return x

    before = decimal.getcontext().prec
    with pytest.raises(Unsupported, match="changes Python's own state"):
        ad.compile(f)(ad.ones(1))
    assert (dict(counted), kept, decimal.getcontext().prec) == ({"a": 2, "b": 1}, [], before)


class Odd(dict):
    """A dict whose own methods must not run where its contents are looked at."""

    def keys(self):
        raise AssertionError("keys() has run")

    values = items = get = keys


def test_containers_are_looked_at_by_no_method_of_the_users():
    odd = Odd(scale=2.0)
    scaled = ad.compile(lambda x: x * odd["scale"])
    assert results(scaled, [lambda: odd.update(scale=5.0)]) == [2.0, 5.0]


def test_a_dtype_that_has_no_arrays_is_constant():
    held = types.SimpleNamespace(dtypes={"narrow": ad.float8_e4m3fn}, scale=2.0)
    scaled = ad.compile(lambda x: x * held.scale * (2 if "narrow" in held.dtypes else 3))
    assert results(scaled, [lambda: setattr(held, "scale", 3.0)]) == [4.0, 6.0]


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
def test_a_function_in_the_place_of_an_optimizers_method_is_followed(kind):
    def changed(call):
        w = ad.nn.Parameter(ad.ones(2))
        optimizer = getattr(ad.optim, kind)([w], lr=0.1)

        def step(x):
            optimizer.zero_grad()
            (w * x).sum().backward()
            optimizer.step()
            return (w * x).sum().detach() * 1

        changes = [
            lambda: None, lambda: setattr(optimizer, "step", lambda: None), lambda: None,
            lambda: delattr(optimizer, "step"),
        ]  # fmt: skip
        return results(call(step), changes)

    assert changed(ad.compile) == pytest.approx(changed(lambda function: function))


def test_objects_that_import_when_an_attribute_is_asked_are_left_alone():
    """As Keras has them for packages that are not installed."""

    class Lazily:
        def __getattr__(self, name):
            raise ImportError(f"{name} is of a package that is not installed")

    class Scaled:
        held = Lazily()

        def __init__(self):
            self.own, self.scale = Lazily(), 3.0

        def run(self, x):
            return x * self.scale

    scaled = Scaled()
    program = ad.compile(lambda x: scaled.run(x))
    assert program(ad.ones(2)).tolist() == [3.0, 3.0]
    scaled.scale = 4.0
    assert program(ad.ones(2)).tolist() == [4.0, 4.0]
