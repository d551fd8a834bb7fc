"""Counts how the package is built, each against a limit that may only go down.

    python tools/house.py                   the table; fails where a count is over its limit
    python tools/house.py --files COUNT     where a count comes from (a part of its name is enough)

Counts come from source text alone: nothing of the package is imported. What a file says is kept in
`build/house.json` by the hash of its bytes, so that a second run reads only what has changed
(house_facts.py).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import house_facts
from house_facts import Facts, facts_of_module, facts_of_page

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "adjoint"
CACHE = Path("build/house.json")

# Rooms in the order in which data passes: a room imports rooms of earlier lines, and of its own.
# `adjoint/__init__.py` is the face, which imports all of them. What has no line is out of order.
ORDER = (
    ("core",),
    ("ir",),
    ("backends",),
    ("runtime",),
    ("ops",),
    ("autograd",),
    ("tensor", "printing"),
    ("namespaces",),
    ("nn", "optim", "data", "io", "amp", "distributions", "distributed", "models"),
    ("reactive",),
    ("compiler",),
    ("interop",),
    ("torch_api",),
    ("tools",),
)
FACE, MAIN = "(face)", "__main__"
ON_THE_FACE = {"torch_api", "tools"}  # rooms that use the package as a program does

# Rooms in which a variable says what it holds.
NAMED_WELL = {"compiler", "ir", "runtime", "autograd"}

# The first words of docstrings that only who knows the answer can read: no noun, no verb.
RIDDLE = re.compile(
    r"(What|Those|That|These|It|Of|Which|Who|They|Its|Also|The same|Another|So|By|Apart)\b"
)


# ---- the house -----------------------------------------------------------------------------------


class Item(NamedTuple):
    """One thing that counts, and the file that it is in."""

    file: str
    line: int
    text: str


class House:
    """What all files say."""

    modules: dict[str, Facts]  # by path; the package's
    pages: dict[str, Facts]  # by path; those of docs
    paths: dict[str, str]  # of modules, by their dotted names
    edges: dict[tuple[str, str], Item]  # imports between files, by their paths
    at_run_time: set[tuple[str, str]]  # those that are not for types only

    def __init__(self, modules: dict[str, Facts], pages: dict[str, Facts]) -> None:
        self.modules, self.pages = modules, pages
        self.edges, self.at_run_time = {}, set()
        self.paths = paths = {dotted(path): path for path in modules}
        for path, facts in modules.items():
            for line, name, module, typing in facts["imports"]:
                target = paths.get(name) or nearest(module, paths)
                if target is None or target == path:
                    continue
                self.edges.setdefault((path, target), Item(path, line, f"imports {target}"))
                if not typing:
                    self.at_run_time.add((path, target))

    def names_of_any(self, path: str) -> set[str]:
        """Any, and what is another name of it in a file or where the file imports it from."""
        names = {"Any", *(name for _, name in self.modules[path]["aliases"])}
        for _, name, module, _ in self.modules[path]["imports"]:
            short = name.removeprefix(module + ".")
            source = self.modules.get(self.paths.get(module, ""), {"aliases": []})
            if any(short == alias for _, alias in source["aliases"]):
                names.add(short)
        return names

    def items(self, kind: str) -> Iterator[tuple[str, list[Any]]]:
        """All items of a kind, with their files."""
        for path, facts in {**self.modules, **self.pages}.items():
            for item in facts.get(kind, ()):
                yield path, item

    def between_rooms(self) -> dict[tuple[str, str], list[Item]]:
        """Imports at run time from one room into another, by the pair."""
        pairs = defaultdict(list)
        for source, target in sorted(self.at_run_time):
            pair = room(source), room(target)
            if pair[0] != pair[1]:
                pairs[pair].append(self.edges[source, target])
        return pairs


def dotted(path: str) -> str:
    """A file's name as a module."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def nearest(name: str, paths: dict[str, str]) -> str | None:
    """The file of a module, or of the nearest package above that there is; None for others'."""
    while name:
        if name in paths:
            return paths[name]
        name = name.rpartition(".")[0]
    return None


def room(path: str) -> str:
    """The folder at the package's top that a file is in, or the file's own name."""
    name = path.split("/")[1].removesuffix(".py")
    return FACE if name == "__init__" else name


def circles(pairs: Iterable[tuple[str, str]]) -> list[list[str]]:
    """Groups in which each reaches each (Tarjan's strongly connected components), largest first;
    what is alone is none.
    """
    after = defaultdict(list)
    for source, target in pairs:
        after[source].append(target)
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    kept: list[list[str]] = []
    for root in sorted(after):
        if root in index:
            continue
        work = [(root, iter(after[root]))]
        index[root] = low[root] = len(index)
        stack.append(root)
        while work:
            node, rest = work[-1]
            for following in rest:
                if following not in index:
                    index[following] = low[following] = len(index)
                    stack.append(following)
                    work.append((following, iter(after.get(following, ()))))
                    break
                if low[following] >= 0:  # on the stack
                    low[node] = min(low[node], index[following])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    group = [stack.pop()]
                    while group[-1] != node:
                        group.append(stack.pop())
                    low.update(dict.fromkeys(group, -1))
                    if len(group) > 1:
                        kept.append(sorted(group))
    return sorted(kept, key=len, reverse=True)


# ---- the counts ----------------------------------------------------------------------------------


class Result(NamedTuple):
    """A count, and what it is made of."""

    value: float
    items: list[Item]


def counted(items: Iterable[Item]) -> Result:
    """The number of items."""
    each = sorted(items)
    return Result(len(each), each)


def folders_at_the_top(house: House) -> Result:
    """Rooms that are folders."""
    kept = {room(path): Item(path, 1, room(path)) for path in sorted(house.modules, reverse=True)
            if path.count("/") > 1}  # fmt: skip
    return counted(kept.values())


def files_at_the_top(house: House) -> Result:
    """Rooms that are files."""
    return counted(
        Item(path, 1, room(path))
        for path in house.modules
        if path.count("/") == 1 and room(path) not in (FACE, MAIN)
    )


def pairs_of_rooms(house: House) -> Result:
    """Rooms of which one imports the other, for each direction."""
    pairs = house.between_rooms()
    return Result(
        len(pairs),
        [each._replace(text=f"{a} -> {b}: {each.text}") for (a, b), items in sorted(pairs.items())
         for each in items],
    )  # fmt: skip


def against_the_order(house: House) -> Result:
    """Imports between files of rooms that ORDER does not allow."""
    level = {name: number for number, names in enumerate(ORDER) for name in names}
    level[FACE] = level[MAIN] = len(ORDER)
    return counted(
        each._replace(text=f"{a} -> {b}: {each.text}")
        for (a, b), items in house.between_rooms().items()
        if (a not in level or b not in level or level[a] < level[b])
        and not (b == FACE and a in ON_THE_FACE)
        for each in items
    )


def circles_of_rooms(house: House) -> Result:
    """Groups of rooms that import each other."""
    pairs = house.between_rooms()
    groups = circles(pairs)
    items = [
        each._replace(text=f"circle of {len(group)}: {a} -> {b}")
        for group in groups
        for (a, b), each_of in sorted(pairs.items())
        if a in group and b in group
        for each in each_of
    ]
    return Result(len(groups), items)


def largest_circle_of_files(house: House) -> Result:
    """Files that import each other, imports for types among them."""
    group = next(iter(circles(house.edges)), [])
    return counted(Item(path, 1, f"circle of {len(group)}") for path in group)


def over(kind: str, most: int, words: str) -> Callable[[House], Result]:
    """A count of items whose size is over a number."""

    def result(house: House) -> Result:
        return counted(
            Item(path, item[0], f"{item[1] if len(item) > 2 else 'file'}: {item[-1]} {words}")
            for path, item in house.items(kind)
            if item[-1] > most
        )

    return result


def names_in_files(house: House) -> Result:
    """Class names that three files or more have."""
    places = defaultdict(list)
    for path, (line, name) in house.items("classes"):
        places[name].append(Item(path, line, f"class {name}"))
    kept = [each for each in places.values() if len({item.file for item in each}) > 2]
    return Result(len(kept), [item for each in kept for item in each])


def names_in_folders(house: House) -> Result:
    """File names that three folders or more have."""
    places = defaultdict(list)
    for path in sorted(house.modules):
        name = Path(path).name
        if name != "__init__.py":
            places[name].append(Item(path, 1, name))
    kept = [each for each in places.values() if len(each) > 2]
    return Result(len(kept), [item for each in kept for item in each])


def share(items: list[Item], total: int) -> Result:
    """What part of all the items are, in percent with one decimal."""
    return Result(round(100 * len(items) / total, 1) if total else 0.0, sorted(items))


def riddles(house: House) -> Result:
    """Docstrings without a noun or verb in front."""
    texts = list(house.items("docstrings"))
    kept = [Item(path, line, text) for path, (line, text) in texts if RIDDLE.match(text)]
    return share(kept, len(texts))


def any_in(*rooms: str) -> Callable[[House], Result]:
    """Annotations that are Any, or another name of it, in these rooms; in all others for none."""

    def result(house: House) -> Result:
        total, items = 0, []
        for path, facts in house.modules.items():
            if room(path) in rooms if rooms else room(path) not in ANY:
                names = house.names_of_any(path)
                total += len(facts["annotations"])
                items += [Item(path, *each) for each in facts["annotations"] if each[1] in names]
        return share(items, total)

    return result


def named_found(house: House) -> Result:
    """Variables called `found` in rooms that name their variables well."""
    return counted(
        Item(path, line, name)
        for path, (line, name) in house.items("found")
        if room(path) in NAMED_WELL
    )


def longest_paragraph(house: House) -> Result:
    """Words of the longest paragraph of a page."""
    each = [Item(path, item[0], f"{item[1]} words") for path, item in house.items("paragraphs")]
    each.sort(key=lambda item: -int(item.text.split()[0]))
    return Result(int(each[0].text.split()[0]) if each else 0, each[:50])


def ignored_types(house: House) -> Result:
    """Comments that tell mypy to ignore a line."""
    return counted(Item(path, line, text) for path, (line, text) in house.items("ignores"))


def taken_outside_of_try(house: House) -> Result:
    """Modes and other context variables that are set outside of the `try` that sets them back."""
    names = {"MODE", *(name for _, (_, name) in house.items("variables"))}
    return counted(
        Item(path, line, f"{name}.set(...)")
        for path, (line, name) in house.items("unguarded")
        if name in names
    )


class Count(NamedTuple):
    """A number, its limit, and what to do where it is over it."""

    name: str
    limit: float
    result: Callable[[House], Result]
    remedy: str


# Percent of annotations that are Any, by room; "" is all other rooms together.
ANY = {
    "amp": 23.7, "autograd": 4.8, "backends": 20.2, "compiler": 5.5, "core": 6.2, "data": 23.1,
    "distributed": 26.4, "distributions": 67.3, "interop": 48.8, "io": 38.7, "ir": 5.8,
    "models": 40.2, "namespaces": 33.9, "nn": 24.7, "ops": 36.2, "optim": 25.7, "reactive": 23.0,
    "runtime": 9.7, "tensor": 38.9, "tools": 14.1, "torch_api": 26.7,
    "": 25.4,
}  # fmt: skip

# The limits may only go down.
COUNTS = (
    Count("folders at the top", 20, folders_at_the_top, "put the folder into a room of ORDER"),
    Count("files at the top", 2, files_at_the_top, "put the file into a room of ORDER"),
    Count("pairs of rooms", 155, pairs_of_rooms, "import a room that this one imports already"),
    Count("imports against the order", 0, against_the_order,
          "import rooms above this one only (ORDER), or move what both need up"),
    Count("circles of rooms", 0, circles_of_rooms, "cut the import that goes back up"),
    Count("largest circle of files", 5, largest_circle_of_files,
          "cut one import of the circle, also where it is for types only"),
    Count("files over 600 lines", 21, over("lines", 600, "lines"), "split the file by subject"),
    Count("functions over 60 lines", 5, over("functions", 60, "lines"),
          "split the function: its steps have names"),
    Count("named tuples over 10 fields", 0, over("tuples", 10, "fields"),
          "group the fields that belong together"),
    Count("class names in 3 files or more", 6, names_in_files, "name the class by what differs"),
    Count("file names in 3 folders or more", 12, names_in_folders, "name the file by its subject"),
    Count("docstrings without a noun or verb in front, %", 0.1, riddles,
          "begin with a noun or verb that says what this is (DESIGN 8)"),
    Count("variables called found", 2, named_found, "say what the variable holds"),
    Count("longest paragraph of docs, words", 119, longest_paragraph,
          "one subject a paragraph, at most 120 words"),
    *(
        Count(f"annotations that are Any in {name or 'other rooms'}, %", limit,
              any_in(*[name] * bool(name)), "name the type, or a protocol of what is needed")
        for name, limit in ANY.items()
    ),
    Count("type: ignore", 420, ignored_types, "give the types that make it unnecessary"),
    Count("modes set outside of their try", 15, taken_outside_of_try,
          "set inside of the try whose finally sets back, or where a signal cannot split it"),
)  # fmt: skip


# ---- reading, and the command --------------------------------------------------------------------


def reader() -> str:
    """The hash of what reads the files: another one may see other facts."""
    return hashlib.sha256(Path(house_facts.__file__).read_bytes()).hexdigest()


def read_cache(root: Path) -> dict[str, Any]:
    """What the last run has kept: facts by file, those of this reader only, and passing counts."""
    try:
        kept = json.loads((root / CACHE).read_text())
    except (OSError, ValueError):
        kept = {}
    files = kept.get("files", {}) if kept.get("by") == reader() else {}
    return {"by": reader(), "files": files, "passed": kept.get("passed", {})}


def write_cache(root: Path, kept: dict[str, Any]) -> None:
    """Keep this for the next run; a file that was half written is read as none."""
    (root / CACHE).parent.mkdir(exist_ok=True)
    (root / CACHE).write_text(json.dumps(kept))


def read_house(root: Path, kept: dict[str, Any]) -> House:
    """Read what has changed since the last run; `kept` then has all."""
    files: dict[str, list[Any]] = {}
    for path in sorted(sources(root)):
        data = (root / path).read_bytes()
        digest = hashlib.sha256(data).hexdigest()
        before = kept["files"].get(path)
        if before is None or before[0] != digest:
            text = data.decode()
            facts = facts_of_module(path, text) if path.endswith(".py") else facts_of_page(text)
            before = [digest, facts]
        files[path] = before
    kept["files"] = files
    modules = {path: facts for path, (_, facts) in files.items() if path.endswith(".py")}
    pages = {path: facts for path, (_, facts) in files.items() if path.endswith(".md")}
    return House(modules, pages)


def sources(root: Path) -> Iterator[str]:
    """The package's files and the pages that are written by hand, as paths from the root."""
    for folder, suffix in ((PACKAGE, "*.py"), ("docs", "*.md")):
        for file in (root / folder).rglob(suffix):
            path = file.relative_to(root).as_posix()
            if not path.startswith("docs/reference/"):
                yield path


def explanation(count: Count, result: Result, passed: dict[str, int]) -> list[str]:
    """What a count over its limit is made of: the files in which it has risen since the last run
    that passed, or all where that is not known.
    """
    now = Counter(item.file for item in result.items)
    risen = {file for file, number in now.items() if number > passed.get(file, 0)}
    items = [item for item in result.items if item.file in risen] or result.items
    since = "new since the last run that passed" if passed else "these are all"
    lines = [f"{count.name}: {result.value:g}, limit {count.limit:g}; {count.remedy} ({since}):"]
    lines += [f"  {item.file}:{item.line}: {item.text}" for item in items[:20]]
    if len(items) > 20:
        lines.append(f"  and {len(items) - 20} more (--files {count.name!r})")
    return lines


def check(root: Path, counts: Iterable[Count] = COUNTS) -> list[str]:
    """Print the table; what is over its limit, in words."""
    kept = read_cache(root)
    house = read_house(root, kept)
    said: list[str] = []
    print(f"{'':48} {'today':>8} {'limit':>8}")
    for count in counts:
        result = count.result(house)
        is_over = result.value > count.limit
        mark = "  over" if is_over else "  lower it" if result.value < count.limit else ""
        print(f"{count.name:48} {result.value:8g} {count.limit:8g}{mark}")
        if is_over:
            said += explanation(count, result, kept["passed"].get(count.name, {}))
        else:
            kept["passed"][count.name] = Counter(item.file for item in result.items)
    write_cache(root, kept)
    return said


def show_files(root: Path, part: str, counts: Iterable[Count] = COUNTS) -> list[str]:
    """Print what the counts are made of whose names have this part; an error where none has."""
    kept = read_cache(root)
    house = read_house(root, kept)
    named = [count for count in counts if part in count.name]
    for count in named:
        result = count.result(house)
        print(f"{count.name}: {result.value:g}")
        for item in result.items:
            print(f"  {item.file}:{item.line}: {item.text}")
    names = ", ".join(count.name for count in counts)
    return [] if named else [f"no count is called {part!r}; there are {names}"]


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """The command; 1 where a count is over its limit."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--files", metavar="COUNT", help="where a count comes from")
    part = parser.parse_args(arguments).files
    errors = show_files(root, part) if part else check(root)
    for line in errors:
        print(line, file=sys.stderr)
    return bool(errors)


if __name__ == "__main__":
    sys.exit(main())
