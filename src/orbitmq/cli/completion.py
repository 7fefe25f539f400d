"""`orbitmq completion bash|zsh|fish`: a script that completes commands, flags and names.

In: the parsers of all commands. Out: a script for a shell, on standard output.

Rules:
1. Words come from the parsers themselves, so that a new command is completed as well.
2. Where a topic or a group is wanted, the cluster's own names are offered: the script asks
   `orbitmq … list`, with a second's patience.
"""

import argparse
from collections.abc import Iterator
from typing import NamedTuple

from orbitmq.cli.main import make_parser
from orbitmq.cli.process import say

EXAMPLES = """\
examples:
  source <(orbitmq completion bash)                now; put it into ~/.bashrc to keep it
  orbitmq completion zsh > "${fpath[1]}/_orbitmq"
  orbitmq completion fish > ~/.config/fish/completions/orbitmq.fish
"""

NAMES = {
    "TOPIC": "orbitmq topic list --timeout 1 2>/dev/null",
    "GROUP": "orbitmq group list --names --timeout 1 2>/dev/null",
}
"""What a positional argument of this name is completed with. No character of them means anything
inside double quotes, in any of the shells."""


class Place(NamedTuple):
    """What may follow a command: `orbitmq topic show` has its flags and names of topics."""

    command: str
    words: list[str]
    names: str
    """A key of NAMES, or nothing."""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add this command to the command line."""
    parser = subparsers.add_parser(
        "completion",
        help="print a script that completes commands in a shell",
        description="Print a script that completes commands, flags and names in a shell.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=SHELLS, help="which shell")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the script; return the exit code."""
    say(SHELLS[arguments.shell](list(places("orbitmq", make_parser()))).rstrip("\n"))
    return 0


def places(command: str, parser: argparse.ArgumentParser) -> Iterator[Place]:
    """Return what may follow each command, from the parsers (rule 1)."""
    words: list[str] = []
    names = ""
    for action in parser._actions:  # noqa: SLF001 - argparse has no public way to list them
        if action.help == argparse.SUPPRESS:
            continue
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - as above
            words += action.choices
            for word, inner in action.choices.items():
                yield from places(f"{command} {word}", inner)
        elif action.option_strings:
            words += [option for option in action.option_strings if option.startswith("--")]
        elif action.choices:
            words += map(str, action.choices)
        elif action.metavar in NAMES and not names:
            names = str(action.metavar)
    yield Place(command, words, names)


def _patterns(found: list[Place]) -> str:
    return "|".join(f'"{place.command}"' for place in found if place.command != "orbitmq")


def bash(found: list[Place]) -> str:
    """Return the script for bash."""
    cases = "\n".join(
        f'        "{place.command}") words="{" ".join(place.words)}"'
        + (f' names="$({NAMES[place.names]})"' if place.names else "")
        + " ;;"
        for place in found
    )
    return f"""\
# Completion of orbitmq for bash: source <(orbitmq completion bash)
_orbitmq() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} path=orbitmq words="" names="" i
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "$path ${{COMP_WORDS[i]}}" in
            {_patterns(found)}) path="$path ${{COMP_WORDS[i]}}" ;;
        esac
    done
    case "$path" in
{cases}
    esac
    [[ $current == -* ]] && names=""
    COMPREPLY=($(compgen -W "$words $names" -- "$current"))
}}
complete -o default -F _orbitmq orbitmq
"""


def zsh(found: list[Place]) -> str:
    """Return the script for zsh."""
    cases = "\n".join(
        f'        "{place.command}") offered=({" ".join(place.words)})'
        + (f' names=(${{(f)"$({NAMES[place.names]})"}})' if place.names else "")
        + " ;;"
        for place in found
    )
    return f"""\
#compdef orbitmq
# Completion of orbitmq for zsh: orbitmq completion zsh > "${{fpath[1]}}/_orbitmq"
_orbitmq() {{
    local path_=orbitmq i
    local -a offered names
    for ((i = 2; i < CURRENT; i++)); do
        case "$path_ ${{words[i]}}" in
            {_patterns(found)}) path_="$path_ ${{words[i]}}" ;;
        esac
    done
    case "$path_" in
{cases}
    esac
    compadd -- $offered $names
    _files
}}
if [[ $funcstack[1] == _orbitmq ]]; then _orbitmq "$@"; else compdef _orbitmq orbitmq; fi
"""


def fish(found: list[Place]) -> str:
    """Return the script for fish."""
    known = " ".join(f'"{place.command}"' for place in found)
    lines = [
        "# Completion of orbitmq for fish:",
        "# orbitmq completion fish > ~/.config/fish/completions/orbitmq.fish",
        "function __orbitmq_path",
        "    set -l path orbitmq",
        "    for word in (commandline -opc)[2..-1]",
        f'        contains -- "$path $word" {known}; and set path "$path $word"',
        "    end",
        "    echo $path",
        "end",
    ]
    for place in found:
        when = f"-n 'test (__orbitmq_path) = \"{place.command}\"'"
        flags = [word for word in place.words if word.startswith("--")]
        others = [word for word in place.words if not word.startswith("--")]
        lines += [f"complete -c orbitmq {when} -l {flag[2:]}" for flag in flags]
        if others:
            lines.append(f'complete -c orbitmq -f {when} -a "{" ".join(others)}"')
        if place.names:
            lines.append(f'complete -c orbitmq -f {when} -a "({NAMES[place.names]})"')
    return "\n".join(lines) + "\n"


SHELLS = {"bash": bash, "zsh": zsh, "fish": fish}
