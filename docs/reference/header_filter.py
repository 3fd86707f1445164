"""Converts the plain comments of a public header to Doxygen's syntax, as Doxygen's input filter: header_filter.py HEADER

Every line keeps its number, so that Doxygen's warnings refer to lines of the header.

- A comment documents the declaration below it and the declarations that follow without a blank line or their own comment.
  A comment at the end of a declaration documents only that declaration.
- The leading comment documents the class or namespace that the file is named after, or otherwise the file.
- `// --- TITLE ---` begins a group of members. Other comments are omitted.
- Indented lines are code, except in lists. Backquotes enclose code. `X::y`, `x.h` and `docs/x.md` are references.
- Some declarations need no comment, and are omitted if they have none: destructors, default, copy and move operations,
  overriding functions, and members of iterators.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|(?<!\d)\'(?:\\.|[^\'\\])*\'|//.*')
COMMENT = re.compile(r"\s*//(.*)")
SECTION = re.compile(r" --- (.*) ---$")
PREPROCESSOR = re.compile(r"\s*#")
ACCESS = re.compile(r"\s*(public|protected|private):")
SCOPE = re.compile(
    r"(?:template <.*?> )?(class|struct|union|enum|namespace)\b(?: class| \[\[\w+\]\])? ?([\w:]*)[^()=]*$")
REQUIRES = re.compile(r"template <.*> requires\b[^)]*\)?$")
REFERENCE = re.compile(
    r"(?<![\w:/<])(?:docs/[\w-]+\.md|[\w/]*\w\.h|(?!(?:at|c10|c10d|nlohmann|std|torch)::)\w+(?:::\w+)+)\b(?:\(\))?")
SPECIAL = re.compile(r'[\\@<>#&$%"*|\[\]`]|(?<!\w)_|_(?!\w)|-(?=-)|(?<=-)-')
LABEL = re.compile(r"(?<=[.\n]\n)( ?)([A-Z]\w+(?: \w+){0,2}:) ")
STATEMENT = re.compile(r"[;{}](\s*//.*)?$", re.MULTILINE)


class Declaration:
    """A declaration that starts at the beginning of a line."""

    def __init__(self, line, scope):
        self.first = self.last = line
        self.scope = scope  # the declaration of the enclosing class or namespace
        self.raw = ""  # the text of the declaration up to its body
        self.kind, self.name = "", ""  # kind and name of the scope that the declaration opens
        self.is_iterator = False

    @property
    def text(self):
        return " ".join(self.raw.split())

    def qualified(self):
        return "::".join(([self.scope.qualified()] if self.scope else []) + [self.name])

    def is_boilerplate(self):
        kind, name = (self.scope.kind, self.scope.name) if self.scope else ("", "")
        if kind == "namespace":  # an out-of-class definition of a member needs no comment
            return re.match(r"[^=(]*::~?\w+\(", self.text) is not None
        if kind not in ("class", "struct"):
            return False
        constructor = rf"^(explicit )?{name}\((const {name} ?&|{name} ?&&)?( ?\w+)?\)"
        assignment = rf"\boperator=\((const )?{name} ?&"
        others = r"^(virtual )?~|(= delete|= default|\boverride|\bfinal)$"
        return self.scope.is_iterator or re.search(f"{constructor}|{assignment}|{others}", self.text) is not None


def read_declarations(lines):
    """Returns the declarations by their first line, and the scope depth of each line that begins outside a declaration."""
    found, outside, scopes = {}, {}, []
    current, parentheses, braces = None, 0, 0
    for number, line in enumerate(lines):
        if current is None:
            outside[number] = len(scopes)
        if PREPROCESSOR.match(line) or ACCESS.match(line):
            continue
        for char in TOKEN.sub(lambda token: "" if token[0].startswith("//") else '""', line) + " ":
            in_enum = scopes and scopes[-1].kind == "enum"
            if current is None:
                if char == "}":
                    scopes.pop()
                if char in " };,":
                    continue
                current = Declaration(number, scopes[-1] if scopes else None)
                if number in outside:
                    found.setdefault(number, current)
            current.last = number
            if braces:
                braces += {"{": 1, "}": -1}.get(char, 0)
                if braces == parentheses == 0 and not REQUIRES.match(current.text):
                    current = None
                continue
            parentheses += {"(": 1, ")": -1}.get(char, 0)
            if parentheses == 0 and char == "{" and (scope := SCOPE.match(current.text)):
                current.kind, current.name = scope.groups()
                scopes.append(current)
                current = None
            elif char == "{":
                braces = 1
            elif parentheses == 0 and (char == ";" or in_enum and char in ",}"):
                if char == "}":
                    scopes.pop()
                elif scopes and current.text.startswith("using difference_type "):
                    scopes[-1].is_iterator = True
                current = None
            else:
                current.raw += char
    return found, outside


def escape(text):
    return SPECIAL.sub(r"\\\g<0>", text)


def prose(text, scope):
    """Converts text without code to Doxygen's syntax. References are looked up in the scope."""
    parts, end = [], 0
    for match in REFERENCE.finditer(text):
        name, target = match[0], match[0].removesuffix("()")
        if "::" in name and not name.startswith("adaptdl::"):
            target = scope + target
        is_document = name.startswith("docs/") and (ROOT / name).is_file()
        parts += [escape(text[end:match.start()]), name if is_document else f'@ref {target} "{name}"']
        end = match.end()
    return "".join([*parts, escape(text[end:])])


def find_code(comment):
    """Returns, for each line of a comment, whether it is code."""
    code = []
    for number, line in enumerate(comment):
        is_after_code = number > 0 and code[-1]
        is_first = number == 0 or is_after_code or not comment[number - 1].strip()
        code.append(is_after_code if not line.strip() else is_first and line.startswith("   "))
    for number in reversed(range(len(comment))):
        if not comment[number].strip() and code[number:number + 2] != [True, True]:
            code[number] = False  # an empty line at the end of a code block
    return code


def documentation(comment, scope="", labels=False):
    """Converts the lines of a comment, without their slashes, to Doxygen's syntax. Returns them, and whether each is code."""
    code = find_code(comment)
    spans = "\n".join("" if is_code else line for line, is_code in zip(comment, code)).split("`")
    if len(spans) % 2 == 0:
        spans[-2:] = ["`".join(spans[-2:])]
    parts = [f"<code>{escape(span)}</code>" if number % 2 else prose(span, scope) for number, span in enumerate(spans)]
    text = "".join(parts)
    result = (LABEL.sub(r"\1@nl **\2** ", text) if labels else text).split("\n")
    for number in range(len(comment)):
        if code[number]:
            result[number] = comment[number][2:]
        if code[number] and (number == 0 or not code[number - 1]):
            end = code.index(False, number) if False in code[number:] else len(code)
            language = "cpp" if STATEMENT.search("\n".join(comment[number:end])) else "unparsed"
            begin = f" @code{{.{language}}}"
            if number == 0:
                result[0] = begin + result[0]
            else:
                result[number - 1] += begin
            if end == len(code):
                result[-1] = comment[-1][2:] + " @endcode"
            else:
                result[end] = " @endcode" + result[end]
    return result, code


def join(lines):
    """Joins lines of documentation. A single line becomes the brief description, which lists of members show in full, as with
    comments of three slashes."""
    return (" @brief" if len(lines) == 1 else "") + "@nl".join(lines).replace("*/", "*&#47;")


class Filter:
    """Converts a header."""

    def __init__(self, path):
        self.path = path
        self.lines = path.read_text(encoding="utf-8").splitlines()
        self.result = list(self.lines)
        self.declarations, self.outside = read_declarations(self.lines)
        self.main = self.find_main()

    def find_main(self):
        """Returns the class or namespace that the file is named after and that has no comment of its own, or None."""
        word = self.path.stem.replace("_", "")
        for declaration in self.declarations.values():
            if declaration.kind == "namespace" and declaration.name.endswith("::" + self.path.stem):
                return declaration
            is_class = declaration.kind in ("class", "struct")
            is_named = declaration.name.removesuffix("Impl").lower().endswith(word)
            if is_class and is_named and not COMMENT.match(self.lines[declaration.first - 1]):
                return declaration
        return None

    def convert(self):
        above, open_groups, number = {}, set(), 0  # above: depth -> the comment that documents the declarations that follow
        while number < len(self.lines):
            line, depth = self.lines[number], self.outside.get(number)
            if depth is None:
                pass
            elif comment := COMMENT.match(line):
                end = next(n for n in range(number, len(self.lines)) if not COMMENT.match(self.lines[n]))
                if title := SECTION.match(comment[1]):
                    self.result[number] = "/** @} */ " * (depth in open_groups) + f"/** @name {title[1]} */ /** @{{ */"
                    open_groups.add(depth)
                elif number == 0:
                    self.convert_leading(end)
                elif end in self.declarations:
                    above[depth] = self.convert_block(number, end)
                    self.convert_declaration(self.declarations[end], "")
                    above[depth + 1] = None
                    number = end
                else:
                    above[depth] = None
            elif number in self.declarations:
                self.convert_declaration(self.declarations[number], above.get(depth))
                above[depth + 1] = None
            else:
                above[depth] = None
                if depth in open_groups and (ACCESS.match(line) or line.strip().startswith("}")):
                    self.result[number] = "/** @} */ " + line
                    open_groups.discard(depth)
            number += 1
        return self.result

    def convert_block(self, first, last, **options):
        """Converts a comment. Returns it as one line without its code, to be used for the declarations that follow."""
        lines, code = documentation([COMMENT.match(line)[1] for line in self.lines[first:last]], **options)
        self.result[first:last] = ["///" + line for line in lines]
        texts = [re.sub(r"@code.*|@endcode", "", line) for line, is_code in zip(lines, code) if not is_code]
        return join(texts)

    def convert_leading(self, last):
        """Converts the leading comment, which is followed by `#pragma once` and an empty line."""
        if self.main is None:
            self.convert_block(0, last, scope="adaptdl::", labels=True)
            self.result[last] = "/// @file"
        else:
            name = self.main.qualified()
            self.convert_block(0, last, labels=True)
            self.result[last] = f"/// @{self.main.kind} {name}"
            self.result[last + 1] = f'/** Declares @ref {name} "{name}". @file */'

    def convert_declaration(self, declaration, above):
        """Converts a declaration. `above` is the comment above the preceding declarations, or empty if the declaration has its own
        comment directly above."""
        first, last = declaration.first, declaration.last
        is_uncommented = above != "" and declaration is not self.main
        text = self.take_comment_behind(last)
        if not text and is_uncommented and declaration.is_boilerplate():
            if re.search(r"\(const .*= delete$", declaration.text) and "operator" not in declaration.text:
                text = " Not copyable."
            else:
                self.result[first:last + 1] = [""] * (last + 1 - first)
        else:
            text = text or above
        if text:
            self.result[first] = f"/**{text} */ {self.result[first]}"
        elif is_uncommented and declaration.kind in ("class", "struct"):
            # Doxygen would not warn about an undocumented class without members.
            access = "public:" if declaration.kind == "struct" else ""
            self.result[last] = self.result[last].replace("{", f"{{ private: int undocumented; {access}", 1)

    def take_comment_behind(self, number):
        """Removes the comment at the end of a line and its continuation on the lines below. Returns it as one line."""
        begin = next((token.start() for token in TOKEN.finditer(self.lines[number]) if token[0].startswith("//")), None)
        if begin is None or self.lines[number][begin:].startswith("// NOLINT"):
            return ""
        lines = [self.lines[number][begin + 2:]]
        while self.lines[number + len(lines)].startswith(" " * begin + "//"):
            lines.append(self.lines[number + len(lines)][begin + 2:])
        for line in range(number, number + len(lines)):
            self.result[line] = self.result[line][:begin].rstrip()
        return join(documentation(lines)[0])


if __name__ == "__main__":
    print("\n".join(Filter(pathlib.Path(sys.argv[1])).convert()))
