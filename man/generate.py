#!/usr/bin/env python3
"""Generates a man page from a template and from the command's own description of its options, so that the two always agree.

Usage: generate.py ADAPTDL TEMPLATE > PAGE

In the template, these lines are replaced:
  @COMMANDS@          by the table of commands
  @SYNOPSIS COMMAND@  by the usage of the command and of each of its verbs
  @OPTIONS COMMAND@   by the options of the command, and a section for each of its verbs
@VERSION@ is replaced anywhere.
"""

import json
import pathlib
import re
import subprocess
import sys


def escaped(text):
    """Escapes text so that roff shows it literally."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    return "\\&" + text if text.startswith((".", "'")) else text


def sentence(text):
    return escaped(text[0].upper() + text[1:] + ".")


def option_term(option):
    names = ", ".join(f"\\fB{escaped(name)}\\fR" for name in option["names"])
    return f"{names} \\fI{escaped(option['value'])}\\fR" if option["value"] else names


def definitions(command):
    lines = []
    for argument in command["arguments"]:
        lines += [".TP", f"\\fI{escaped(argument['name'])}\\fR", sentence(argument["help"])]
    for option in command["options"]:
        lines += [".TP", option_term(option), sentence(option["help"])]
    return lines


def works_alone(command):
    """Returns whether the command can be used without a verb."""
    return not command["commands"] or command["arguments"]


def synopsis(command):
    words = command["usage"].split()
    fixed = 1 + len(command["path"].split())
    own = [f"\\fB{escaped(' '.join(words[:fixed]))}\\fR {escaped(' '.join(words[fixed:]))}", ".br"]
    nested = [line for verb in command["commands"] for line in synopsis(verb)]
    return own + nested if works_alone(command) else nested


def options(command):
    lines = definitions(command) if works_alone(command) else []
    for verb in command["commands"]:
        lines += [f".SS {escaped(verb['path'])}", sentence(verb["summary"])]
        if verb["footer"]:
            lines += [escaped(verb["footer"])]
        lines += definitions(verb)
    return lines


def table(commands):
    lines = []
    for command in commands:
        lines += [".TP", f"\\fBadaptdl {escaped(command['name'])}\\fR", sentence(command["summary"])]
    return lines


def main(adaptdl, template):
    commands = json.loads(
        subprocess.run([adaptdl, "help", "--dump-json"], capture_output=True, check=True, text=True).stdout
    )
    version = subprocess.run([adaptdl, "--version"], capture_output=True, check=True, text=True).stdout.split()[1]
    by_name = {command["name"]: command for command in commands}
    for line in pathlib.Path(template).read_text().splitlines():
        mark = re.fullmatch(r"@(COMMANDS|SYNOPSIS|OPTIONS)(?: (\w+))?@", line)
        if mark is None:
            print(line.replace("@VERSION@", version))
            continue
        make = {"COMMANDS": lambda _: table(commands), "SYNOPSIS": synopsis, "OPTIONS": options}[mark[1]]
        print("\n".join(make(by_name[mark[2]] if mark[2] else None)))


if __name__ == "__main__":
    main(*sys.argv[1:])
