"""Writes a C++ source that defines the string_view NAME, which HEADER declares: the bytes of a program or library, padded to whole
blocks. Usage: embed.py PROGRAM SOURCE HEADER NAMESPACE NAME"""

import pathlib
import sys

program, source = map(pathlib.Path, sys.argv[1:3])
header, namespace, name = sys.argv[3:]
BLOCK, LINE = 4096, 64
data = program.read_bytes()
data += bytes(-len(data) % BLOCK)
lines = "\n".join(
    '"' + "".join(f"\\x{byte:02x}" for byte in data[at : at + LINE]) + '"' for at in range(0, len(data), LINE)
)
source.write_text(f"""#include "{header}"

namespace {namespace} {{
constexpr char kBytes[] =
{lines};
const std::string_view {name}(kBytes, sizeof(kBytes) - 1);
}}  // namespace {namespace}
""")
