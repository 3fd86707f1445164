"""Checks that no two types of the product have the same name. A program that links both could call the destructor of the wrong type."""

import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROOMS = ("cli", "runtime", "sched", "trainer")
NAMESPACE = re.compile(r"(?:inline )?namespace ?([\w:]*) \{$")
TYPE = re.compile(r"(?:template <.*> )?(?:struct|class|enum(?: class)?) (\w+)(?: final)?(?: : [^;]*)? \{")


def types_in(text):
    """Yields the qualified names of the types that are defined in named namespaces. Namespaces and types begin in the first column."""
    namespaces = []
    for line in text.splitlines():
        if opened := NAMESPACE.match(line):
            namespaces.append(opened[1])
        elif line.startswith("}  // namespace"):
            namespaces.pop()
        elif (defined := TYPE.match(line)) and "" not in namespaces:
            yield "::".join([*namespaces, defined[1]])


places = collections.defaultdict(set)
for path in sorted(file for room in ROOMS for ending in ("h", "cc") for file in (ROOT / room).rglob(f"*.{ending}")):
    for name in types_in(path.read_text(encoding="utf-8")):
        places[name].add(str(path.relative_to(ROOT)))
problems = [f"{name} is defined in {' and '.join(sorted(files))}" for name, files in places.items() if len(files) > 1]
print("\n".join(problems) or f"{len(places)} types")
sys.exit(1 if problems or len(places) < 500 else 0)
