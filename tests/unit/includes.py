"""Checks that each component of the source includes exactly the components and libraries that docs/architecture.md gives it.

A component is a folder with its subfolders, unless these are components of their own.
"""

import graphlib
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLES = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
# Where the headers of a component are searched, besides beside the file itself.
ROOTS = [ROOT / path for path in ("runtime/include", "runtime/src", "sched", "cli", "trainer/include", "trainer/src")]
COMPATIBILITY = ROOT / "trainer/compat"  # headers that stand for a library's own


def cells(header):
    """The rows below a header line of a table, each as the lists of names in backticks in its cells."""
    rows = TABLES.split(header + "\n")[1].split("\n\n")[0].splitlines()[1:]
    return [[re.findall(r"`([^`]+)`", cell) for cell in row.split("|")[1:-1]] for row in rows]


def component_of(path):
    parents = [str(parent.relative_to(ROOT)) for parent in path.parents if parent.is_relative_to(ROOT)]
    return next((parent for parent in parents if parent in allowed), None)


def resolve(file, name):
    return next((base / name for base in [file.parent, *ROOTS] if (base / name).is_file()), None)


allowed = {component: set(included) for [component], _, included in cells("| Component | What it does | May include |")}
libraries = {header: set(components) for _, [header], components in cells("| Library | Header | Components |")}
found = {component: set() for component in allowed}
users = {header: set() for header in libraries}
problems, files = [], 0
for file in sorted(path for component in allowed for ending in ("h", "cc") for path in (ROOT / component).rglob(f"*.{ending}")):
    component = component_of(file)
    if file.is_relative_to(COMPATIBILITY) or component is None:
        continue
    files += 1
    for name in re.findall(r'^#include "(.+)"', file.read_text(encoding="utf-8"), re.MULTILINE):
        target = resolve(file, name)
        if target is None:
            problems.append(f"{file.relative_to(ROOT)} includes {name}, which is in no component")
        elif (other := component_of(target)) != component:
            found[component].add(other)
            if other not in allowed[component]:
                problems.append(f"{file.relative_to(ROOT)} includes {name}, but {component} may not include {other}")
    for name in re.findall(r"^#include <(.+)>", file.read_text(encoding="utf-8"), re.MULTILINE):
        header = name.split("/")[0]
        if header in libraries:
            users[header].add(component)
            if component not in libraries[header]:
                problems.append(f"{file.relative_to(ROOT)} includes {name}, which {component} may not")
for kind, table, real in (("component", allowed, found), ("library", libraries, users)):
    for name in table:
        for extra in sorted(table[name] - real[name]):
            problems.append(f"docs/architecture.md: {kind} {name} has {extra}, which no include needs; remove it")
try:
    graphlib.TopologicalSorter(allowed).prepare()
except graphlib.CycleError as error:
    problems.append(f"docs/architecture.md: components include each other: {' -> '.join(reversed(error.args[1]))}")
print("\n".join(dict.fromkeys(problems)) or f"{files} files in {len(allowed)} components")
sys.exit(1 if problems or files < 500 else 0)
