"""``spyker completion``: a script that lets a shell complete commands, options and names.

The script holds all words, taken from the commands themselves when it is made. So a Tab costs nothing, where asking
Python would cost half a second; after an upgrade, or when a package with algorithms or tasks was installed, make it
again.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from spyker.algorithms.builtin import ALGORITHMS
from spyker.api.examples import all_examples
from spyker.cli.help import Parser, examples
from spyker.config import algorithms
from spyker.config.presets import PRESETS
from spyker.config.scenario import SECTIONS, TOP, every_key
from spyker.tasks import task_names
from spyker.tasks.data.catalogue import DATASETS
from spyker.tasks.partition import PARTITIONS

FILES, FOLDERS, NOTHING = "files", "folders", "nothing"  # what may stand somewhere, if not one of some words
SHELLS = ("bash", "zsh", "fish")


def add_completion(commands: Any) -> None:
    """``spyker completion``."""
    parser = commands.add_parser(
        "completion",
        help="let your shell complete commands, options and names with Tab",
        description="Print a script for a shell. In .bashrc or .zshrc, source a file that holds it; fish finds it in "
        "~/.config/fish/completions/spyker.fish. Make it anew after an upgrade.",
    )
    parser.add_argument("shell", choices=SHELLS, help="whose script to print")
    examples(
        parser,
        "spyker completion bash > ~/.local/share/bash-completion/completions/spyker",
        "spyker completion zsh > ~/.spyker-completion.zsh  # and in .zshrc: source ~/.spyker-completion.zsh",
        "spyker completion fish > ~/.config/fish/completions/spyker.fish",
    )
    parser.set_defaults(command=command_completion)


def command_completion(args: argparse.Namespace) -> int:
    """Print the script."""
    from spyker.cli.main import parser  # which knows this command, too

    print(fish(parser()) if args.shell == "fish" else bash(parser(), zsh=args.shell == "zsh"), end="")
    return 0


def known_names() -> dict[str, list[str]]:
    """Names that an option, or an argument by its metavar, may have. Others follow from how they are declared."""
    who, tasks = algorithms.NAMES.known(), task_names.NAMES.known()
    sections = SECTIONS | algorithms.parameter_sections(ALGORITHMS["stride"])
    keys = [f"{key}=" for key in (*TOP, "task.name", "task.partition", *every_key(sections))]
    return {
        "--algorithm": who,
        "--algorithms": who,
        "--task": tasks,
        "--preset": list(PRESETS),
        "--partition": list(PARTITIONS),
        "--set": keys,
        "--vary": keys,
        "NAME": list(DATASETS),
        "EXAMPLE": [example.name for example in all_examples()],
    }


def may_be(action: argparse.Action, known: dict[str, list[str]]) -> list[str] | str:
    """What may stand where an action wants a value: some words, or files, folders, nothing that we know."""
    name = action.option_strings[-1] if action.option_strings else str(action.metavar)
    if action.choices is not None:
        return [str(choice) for choice in action.choices]
    if name in known:
        return known[name]
    if action.metavar == "DIR":
        return FOLDERS
    return FILES if action.type is Path else NOTHING


def takes_value(action: argparse.Action) -> bool:
    """Whether an option is followed by a value."""
    return action.nargs != 0


def bare(parser: Parser, known: dict[str, list[str]]) -> list[str] | str:
    """What may stand where there is no option before it: all words that its arguments may be, or files."""
    values = [may_be(action, known) for action in parser.arguments if not action.option_strings]
    words = [word for value in values if not isinstance(value, str) for word in value]
    return words or (FILES if FILES in values else NOTHING)


def bash(root: Parser, *, zsh: bool = False) -> str:
    """The script for bash, and for zsh, which understands it."""
    known = known_names()
    options, free = [], []
    places: dict[str, list[str]] = {}  # patterns "command option", by what may stand behind that
    for command, parser in root.commands.items():
        options.append(f"    {command}) options={shlex.quote(' '.join(['-h', *parser.options]))} ;;")
        free.append(f'    "{command} "*) {meaning(bare(parser, known))} ;;')
        for action in parser.arguments:
            if takes_value(action):
                found = [f'"{command} {option}"' for option in action.option_strings]
                places.setdefault(meaning(may_be(action, known)), []).extend(found)
    patterns = [f"    {'|'.join(found)}) {value} ;;" for value, found in places.items() if found]
    lines = [
        "# Made by spyker completion; source it.",
        *(["autoload -U +X compinit && compinit", "autoload -U +X bashcompinit && bashcompinit"] if zsh else []),
        "_spyker() {",
        '  local word="${COMP_WORDS[COMP_CWORD]}" before="" command="${COMP_WORDS[1]}" options="" head="" kind=files',
        '  local words=""',
        f"  local commands={shlex.quote(' '.join(root.commands))}",
        "  COMPREPLY=()",
        "  if [[ $COMP_CWORD -eq 1 ]]; then",
        '    COMPREPLY=($(compgen -W "$commands --help --version" -- "$word"))',
        "    return",
        "  fi",
        '  [[ "${COMP_WORDS[COMP_CWORD-1]}" == -* ]] && before="${COMP_WORDS[COMP_CWORD-1]}"',
        '  case "$command" in',
        *options,
        "  esac",
        '  if [[ "$word" == -* ]]; then',
        '    COMPREPLY=($(compgen -W "$options" -- "$word"))',
        "    return",
        "  fi",
        '  case "$command $before" in',
        *patterns,
        *free,
        "  esac",
        '  case "$kind" in',
        '    files) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$word")) ;;',
        '    folders) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -d -- "$word")) ;;',
        "    words)",
        '      [[ "$word" == *,* ]] && head="${word%,*},"',
        '      COMPREPLY=($(compgen -P "$head" -W "$words" -- "${word##*,}"))',
        '      [[ "${COMPREPLY[*]}" == *= ]] && compopt -o nospace 2>/dev/null ;;',
        "  esac",
        "}",
        "complete -F _spyker spyker",
    ]
    return "\n".join(lines) + "\n"


def meaning(value: list[str] | str) -> str:
    """What a script does about a place."""
    return f"kind={value}" if isinstance(value, str) else f"kind=words words={shlex.quote(' '.join(value))}"


def fish(root: Parser) -> str:
    """The script for fish."""
    known = known_names()
    lines = ["# Made by spyker completion.", "complete -c spyker -f"]
    helps = {choice.dest: choice.help for action in root.arguments for choice in subactions(action)}
    for command, parser in root.commands.items():
        lines.append(f"complete -c spyker -n __fish_use_subcommand -a {command} -d {quoted(helps[command])}")
        behind = f"complete -c spyker -n '__fish_seen_subcommand_from {command}'"
        for action in parser.arguments:
            value = may_be(action, known)
            if not action.option_strings:
                lines.append(behind + fish_value(value, "-F"))
                continue
            long = " ".join(f"-l {option[2:]}" for option in action.option_strings if option.startswith("--"))
            wanted = fish_value(value, "-r -F") if takes_value(action) else ""
            lines.append(f"{behind} {long}{wanted} -d {quoted(action.help)}")
    return "\n".join(lines) + "\n"


def subactions(action: argparse.Action) -> Sequence[argparse.Action]:
    """The entries of a list of commands, which have its help."""
    get: Callable[[], Iterable[argparse.Action]] | None = getattr(action, "_get_subactions", None)
    return list(get()) if get else []


def fish_value(value: list[str] | str, files: str) -> str:
    """How fish is told what may stand somewhere."""
    if isinstance(value, list):
        return f" -x -a {quoted(' '.join(value))}"
    return {FILES: f" {files}", FOLDERS: " -x -a '(__fish_complete_directories)'", NOTHING: " -x"}[value]


def quoted(text: object) -> str:
    """A text in single quotes, for fish."""
    return "'" + str(text or "").replace("\\", "\\\\").replace("'", "\\'") + "'"
