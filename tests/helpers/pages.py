"""What stands in the code blocks of a page, and how to do it.

- ``python`` blocks are run as they are; those of a page are one program.
- A ``python`` block below a line ``<!-- File: NAME -->`` is written to that file instead; a command may run it.
- ``console`` blocks are run, but small: in this process, for a virtual second, with few clients. A block begins in the
  folder in which ``examples/`` lies. Where many processes would begin, the task is one without data. What is printed
  below a command must be what the command says; where that is an error, the command must fail. Of what installs
  packages only the extras are checked.
- ``toml`` blocks are read, and as a scenario if they are one.
- A block below a line ``<!-- Not run by the tests: … -->`` is not run; its ``spyker`` commands must be complete all
  the same.
- All other blocks are formulas and files.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOT_RUN = "<!-- Not run by the tests: "
FILE = re.compile(r"<!-- File: (\S+) -->")
KNOWN = ("python", "console", "toml", "")
HARMLESS = ("cat", "ls", "openssl")


@dataclass(frozen=True, slots=True)
class Block:
    language: str
    text: str
    line: int
    run: bool
    file: str | None = None


@dataclass(frozen=True, slots=True)
class Command:
    """A command line, and what stands below it."""

    text: str
    output: str


def blocks(page: str) -> Iterator[Block]:
    """The code blocks of a page."""
    lines, last, fence = page.splitlines(), "", ""
    begin, inside = 0, list[str]()
    for number, line in enumerate(lines, 1):
        if not fence:
            opening = re.match(r"\s*(`{3,})([\w-]*)", line)
            if opening:
                fence, language, begin, inside = opening[1], opening[2], number, []
            elif line.strip():
                last = line.strip()
        elif line.strip() == fence:
            file = FILE.fullmatch(last)
            text, name = "\n".join(inside) + "\n", None if file is None else file[1]
            yield Block(language, text, begin, not last.startswith(NOT_RUN), name)
            fence, last = "", ""
        else:
            inside.append(line)


def commands(text: str) -> Iterator[Command]:
    """The commands of a console block."""
    current, output = "", list[str]()
    for line in text.splitlines():
        if line.startswith(("$ ", "# ")):
            if current:
                yield Command(current, "\n".join(output))
            current, output = line[2:], []
        elif current.endswith("\\"):
            current = current[:-1] + line.strip()
        else:
            output.append(line)
    if current:
        yield Command(current, "\n".join(output))


def simple_commands(text: str) -> Iterator[list[str]]:
    """What a command line is made of, word by word."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars="&|;")
    lexer.whitespace_split, lexer.commenters = True, "#"
    words: list[str] = []
    for word in lexer:
        if word in ("&&", "|", ";"):
            yield words
            words = []
        else:
            words.append(word)
    if words:
        yield words


def program(page: str) -> str:
    """All that a page does, as one program."""
    parts = ["from pathlib import Path", "from pages import shell, toml"]
    for block in blocks(page):
        if block.file is not None:
            parts.append(f"Path({block.file!r}).write_text({block.text!r}, 'utf-8')")
        elif block.run and block.language == "python":
            parts.append(f"# line {block.line}\n{block.text}")
        elif block.run and block.language in ("console", "toml"):
            parts.append(f"{'shell' if block.language == 'console' else 'toml'}({block.text!r}, {block.line})")
    return "\n".join(parts) + "\n"


def shell(text: str, line: int) -> None:
    """Run a console block."""
    root = Path.cwd()
    try:
        for command in commands(text):
            said = io.StringIO()
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                codes = [run(words, said) for words in simple_commands(command.text)]
            where = f"the block in line {line}, {command.text!r}: {said.getvalue()}"
            assert any(codes) == command.output.startswith("spyker: "), where
            assert command.output.strip() in said.getvalue(), where
    finally:
        os.chdir(root)


def run(words: list[str], said: io.StringIO) -> int:
    """Run a command, such as people would write it, and return its exit code."""
    from spyker.cli.main import main

    if ">" in words:
        assert words[-2] == ">", words
        before, file = said.tell(), words[-1]
        code = run(words[:-2], said)
        Path(file).write_text(said.getvalue()[before:])
        return code
    match words:
        case ["cd", folder]:
            os.chdir(folder)
        case [".", ".venv/bin/activate"]:
            pass
        case ["spyker", *arguments]:
            try:
                return main([*arguments, *smaller(arguments)])
            except SystemExit as wrong:  # --version
                return int(wrong.code or 0)
        case ["pip", "install", *what]:
            check_extras(what)
        case ["python", script, *arguments] if script.endswith(".py"):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(sys, "argv", [script, *arguments, *smaller_script(arguments)])
                patch.syspath_prepend(str(Path.cwd()))
                runpy.run_path(script, run_name="__main__")
        case [tool, *_] if tool in HARMLESS:
            return done(words, said) if shutil.which(tool) else 0
        case _:
            raise AssertionError(f"{words[0]}: not known here. If it cannot be run, write {NOT_RUN}why --> above it")
    return 0


def done(words: list[str], said: io.StringIO) -> int:
    """Run a program."""
    ended = subprocess.run(words, capture_output=True, text=True, timeout=200)
    said.write(ended.stdout + ended.stderr)
    return ended.returncode


def smaller(arguments: list[str]) -> list[str]:
    """What makes a command small. The last word counts."""
    command = arguments[0]
    if command not in ("run", "compare", "sweep", "up") or "--resume" in arguments:
        return []
    fixed = any("clients=" in argument for argument in arguments)
    given = int(arguments[arguments.index("--clients") + 1]) if "--clients" in arguments else 100
    clients = [] if fixed else ["--clients", str(min(given, 4 if command == "up" else 8))]
    here = ["--workers", "0"] if command in ("run", "compare") else []
    light = command in ("sweep", "up") and not any("task" in argument for argument in arguments)
    two = ["--set", 'world.regions=["Paris", "Sydney"]'] if command == "up" and clients else []
    return ["--duration", "1", *clients, *here, *two, *(["--task", "quadratic"] if light else [])]


def smaller_script(arguments: list[str]) -> list[str]:
    """What makes an example small."""
    least = {"--steps": "2", "--duration": "0.5"}
    return [word for option in least if option in arguments for word in (option, least[option])]


def check_extras(what: list[str]) -> None:
    """Whether the extras that are to be installed exist."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    for word in what:
        named = re.search(r"\[([^\]]+)\]", word)
        for extra in named[1].split(",") if named else ():
            assert extra in extras, f"pip install {word}: there is no extra {extra}"


def check_arguments(text: str) -> None:
    """Whether the ``spyker`` commands of a block have the arguments that they need, without running them."""
    from spyker.cli.main import parser

    for command in commands(text):
        try:
            found = [words for words in simple_commands(command.text) if words and words[0] == "spyker"]
        except ValueError:  # a quotation that goes on in the next line
            continue
        for words in found:
            arguments = words[1 : words.index(">")] if ">" in words else words[1:]
            parser(arguments[0]).parse_args(arguments)


def toml(text: str, line: int) -> None:
    """Read a TOML block."""
    from spyker.config.scenario import SECTIONS, TOP, load

    table = tomllib.loads(text)
    if table.keys() <= {*TOP, *SECTIONS, "task"}:
        load(table)
