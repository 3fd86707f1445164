"""Checks that each component includes exactly the components and libraries that docs/architecture.md lists for it.

A component is a directory with its subdirectories, except those that are components themselves. Within a component, a
directory may only include those that the table of directories lists before it. Also checks the limits for the sizes of files
and directories, and that all unit tests are compiled.
"""

import graphlib
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLES = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
# Headers are searched for in the directory of the file that includes them, then in these directories.
ROOTS = [ROOT / path for path in ("runtime/include", "runtime/src", "sched", "cli", "trainer/include", "trainer/src")]
COMPATIBILITY = ROOT / "trainer/compat"  # headers that replace those of libraries


def cells(header):
    """Returns the rows below a table's header line. Each row is a list that contains, for each cell, the names in backticks."""
    rows = TABLES.split(header + "\n")[1].split("\n\n")[0].splitlines()[1:]
    return [[re.findall(r"`([^`]+)`", cell) for cell in row.split("|")[1:-1]] for row in rows]


def component_of(path):
    parents = [str(parent.relative_to(ROOT)) for parent in path.parents if parent.is_relative_to(ROOT)]
    return next((parent for parent in parents if parent in allowed), None)


def resolve(file, name):
    return next((base / name for base in [file.parent, *ROOTS] if (base / name).is_file()), None)


def directory_of(path, top):
    """Returns the directory below `top` that contains the file or, for a public header, its source: "." if that is `top` itself,
    None if the file is elsewhere."""
    if path.is_relative_to(top.parent / "include"):
        path = next(top.rglob(f"{path.stem}.cc"), path)
    if not path.is_relative_to(top) or component_of(path) != component_of(top / "x.h"):
        return None
    parts = path.relative_to(top).parts
    return parts[0] if len(parts) > 1 else "."


allowed = {component: set(included) for [component], _, included in cells("| Component | What it does | May include |")}
# A library is named after the first of its headers, which may be files or directories of headers.
used = cells("| Library | Headers | Components |")
libraries = {headers[0]: set(components) for _, headers, components in used}
library_of = {header: headers[0] for _, headers, _ in used for header in headers}
# Files that are directly in the component's directory may include those of all its subdirectories.
layers = {ROOT / top: [*directories, "."] for [top], directories in cells("| Path | Directories, lowest first |")}
modules = {}  # by directory
found = {component: set() for component in allowed}
users = {header: set() for header in libraries}
problems, files = [], 0
for file in sorted(path for top in ("cli", "runtime", "sched", "trainer") for path in (ROOT / top).rglob("*.*")):
    if file.suffix not in (".cc", ".h") or file.is_relative_to(COMPATIBILITY) or file == ROOT / "cli/main.cc":
        continue
    component = component_of(file)
    if component is None:
        problems.append(f"docs/architecture.md: {file.relative_to(ROOT)} is in no component")
        continue
    files += 1
    modules.setdefault(file.parent, set()).add(file.stem)
    top = next((top for top in layers if directory_of(file, top)), None)
    own = top and directory_of(file, top)
    if top and own not in layers[top]:
        problems.append(f"docs/architecture.md: the directory {own} is not listed for {top.relative_to(ROOT)}")
    for bracket, name in re.findall(r'^[ \t]*#[ \t]*include[ \t]*(["<])(.+?)[">]', file.read_text(encoding="utf-8"), re.MULTILINE):
        library, target = library_of.get(name.split("/")[0]), resolve(file, name)
        if library:
            users[library].add(component)
            if component not in libraries[library]:
                problems.append(f"{file.relative_to(ROOT)} includes {name}, which {component} may not")
        elif target is None:
            if bracket == '"':
                problems.append(f"{file.relative_to(ROOT)} includes {name}, which is in no component")
        elif top and (lower := directory_of(target, top)) and layers[top].index(lower) > layers[top].index(own):
            problems.append(f"{file.relative_to(ROOT)} includes {name}, but {own} may not include {lower}")
        elif (other := component_of(target)) != component:
            found[component].add(other)
            if other not in allowed[component]:
                problems.append(f"{file.relative_to(ROOT)} includes {name}, but {component} may not include {other}")
for file in (path for top in ("cli", "runtime", "sched", "share", "tests", "trainer") for path in (ROOT / top).rglob("*.*")):
    if file.suffix in (".cc", ".h", ".py", ".sh") and (lines := file.read_text(encoding="utf-8").count("\n")) > 400:
        problems.append(f"{file.relative_to(ROOT)} has {lines} lines; divide it into files of at most 400")
for directory, names in modules.items():
    if len(names) > 24:
        problems.append(f"{directory.relative_to(ROOT)} has {len(names)} modules; divide it into directories of at most 24")
for file in (ROOT / "tests/unit").glob("*/*_test.cc"):
    topic = file.name.removesuffix("_test.cc")
    if not re.search(rf"'(?:{topic}|{topic.removeprefix('image_')})'", (file.parent / "meson.build").read_text(encoding="utf-8")):
        problems.append(f"{file.relative_to(ROOT)} is not in {file.parent.relative_to(ROOT)}/meson.build, so it is not compiled")
for top, directories in layers.items():
    for name in directories:
        if name != "." and not any((top / name).glob("*.cc")):
            problems.append(f"docs/architecture.md: {top.relative_to(ROOT)} has no directory {name}; remove it")
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
