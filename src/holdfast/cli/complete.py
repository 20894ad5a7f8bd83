"""Completion in the shell: commands, options and their values, in bash, zsh and fish.

The shell's script calls `holdfast` with _HOLDFAST_COMPLETE set and the words so far in COMP_WORDS, one a
line. The answer is one line for each word on offer, for zsh and fish with a tab and what it is about; the
line `<files>` asks the shell to offer paths too.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from holdfast.cli.app import ROOT_OPTIONS, Group, find_command, load, summaries
from holdfast.config.options import FILES, FieldSpec, Options, fields_of
from holdfast.config.output import say
from holdfast.config.parser import HELP, flags_of
from holdfast.core.errors import InputError, OutputError, UnknownName

Offer = tuple[str, str]  # the word, and what it is about

BASH = """\
_holdfast_completion() {
    local IFS=$'\\n'
    local last
    COMPREPLY=( $( env COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD \\
                   _HOLDFAST_COMPLETE=complete_bash $1 2>/dev/null ) )
    last=$(( ${#COMPREPLY[@]} - 1 ))
    if [ $last -ge 0 ] && [ "${COMPREPLY[$last]}" = "<files>" ]; then
        unset "COMPREPLY[$last]"
        compopt -o filenames 2>/dev/null
        COMPREPLY+=( $( compgen -f -- "${2}" ) )
    fi
}

complete -F _holdfast_completion holdfast
"""
ZSH = """\
#compdef holdfast

_holdfast_completion() {
    local line
    local -a lines offers
    lines=("${(@f)$(env COMP_WORDS="${(F)words[1,$CURRENT]}" COMP_CWORD=$((CURRENT - 1)) \\
        _HOLDFAST_COMPLETE=complete_zsh ${words[1]} 2>/dev/null)}")
    for line in $lines; do
        if [[ $line == "<files>" ]]; then
            _files
        else
            offers+=("${${line%%$'\\t'*}//:/\\\\:}:${line#*$'\\t'}")
        fi
    done
    (( $#offers )) && _describe holdfast offers
}

if [ "$funcstack[1]" = "_holdfast" ]; then
    _holdfast_completion "$@"
else
    compdef _holdfast_completion holdfast
fi
"""
FISH = """\
function _holdfast_completion
    set -l words (commandline -opc) (commandline -ct)
    for line in (env COMP_WORDS=(string join \\n -- $words | string collect) \\
            COMP_CWORD=(math (count $words) - 1) _HOLDFAST_COMPLETE=complete_fish holdfast 2>/dev/null)
        if test "$line" = "<files>"
            __fish_complete_path (commandline -ct)
        else
            echo $line
        end
    end
end

complete --no-files --command holdfast --arguments "(_holdfast_completion)"
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


def answer(shell: str) -> None:
    """Print the completions in the form that `shell` needs: complete_bash, complete_zsh."""
    text = os.environ.get("COMP_WORDS", "")
    words = text.split("\n") if "\n" in text else text.split()
    count = int(os.environ.get("COMP_CWORD") or len(words) - 1)
    bash = shell == "complete_bash"
    words = [*words, ""][1 : count + 1]
    words = _rejoined(words) if bash else words
    last = words[-1] if words else ""
    cut = last.rfind("=") + 1 if bash else 0  # bash takes what is behind it for the word
    lines = []
    for word, about in offers(words or [""]):
        if word == FILES:
            lines += [FILES] if bash or "=" not in last else []
        elif word.startswith(last):
            lines.append(word[cut:] if bash else f"{word}\t{about or word}")
    if lines:
        say("\n".join(lines))


def _rejoined(words: list[str]) -> list[str]:
    """The words as they were typed: bash splits --rule=coco into three."""
    typed: list[str] = []
    for word in words:
        if typed and (word == "=" or typed[-1].endswith("=")):
            typed[-1] += word
        else:
            typed.append(word)
    return typed


def offers(words: list[str]) -> Iterator[Offer]:
    """What may stand in the place of the last word."""
    *before, last = words
    _, node, rest = find_command(before)
    if isinstance(node, Group):
        if not rest:
            yield from summaries(node)
            if node.itself:
                yield from _of_command(load(node.itself).options, rest, last)
            elif last.startswith("-"):
                yield from ROOT_OPTIONS.items() if not before else ()
                yield "--help", ""
        elif len(before) == 1 and rest[0] in ROOT_OPTIONS and rest[0] != "--version":
            yield from ((shell, "") for shell in SCRIPTS)
        return
    yield from _of_command(load(node).options, rest, last)


def _of_command(shape: type[Options], before: list[str], last: str) -> Iterator[Offer]:
    named = flags_of(shape)
    previous = named.get(before[-1]) if before else None
    if previous is not None and previous.kind is not bool:
        yield from ((value, "") for value in previous.completions())
    elif last.startswith("-"):
        name, glue, _ = last.partition("=")
        if glue and name in named:
            yield from ((v if v == FILES else f"{name}={v}", "") for v in named[name].completions())
        else:
            given = {named[word].name for word in before if word in named and not named[word].repeats}
            flags = [spec for spec in fields_of(shape) if not spec.positional and spec.name not in given]
            for spec in flags:
                yield f"--no-{spec.key}" if spec.default is True else spec.label, spec.option.help
            yield HELP[1], "Print this help and exit."
    else:
        places = [spec for spec in fields_of(shape) if spec.positional]
        number = len(_loose(before, named))
        if places and (number < len(places) or places[-1].many):
            yield from ((value, "") for value in places[min(number, len(places) - 1)].completions())


def _loose(words: list[str], named: dict[str, FieldSpec]) -> list[str]:
    """The words that are neither flags nor their values."""
    loose, value = [], False
    for word in words:
        if not value and not word.startswith("-"):
            loose.append(word)
        value = not value and word in named and named[word].kind is not bool
    return loose


def shell_named(name: str) -> str:
    """The shell that was named, else the one this process was called from."""
    if name and name not in SCRIPTS:
        raise UnknownName("shell", name, SCRIPTS)
    for shell in (name, _parent(), Path(os.environ.get("SHELL", "")).name):
        if shell in SCRIPTS:
            return shell
    raise InputError("cannot detect the shell; use --install-completion bash, zsh or fish")


def _parent() -> str:
    try:
        return Path(f"/proc/{os.getppid()}/comm").read_text().strip()
    except OSError:
        return ""


def install(shell: str) -> str:
    """What was done: the script is where the shell finds it, also in every later session."""
    home = Path.home()
    homes = {
        "bash": home / ".bash_completions" / "holdfast.sh",
        "zsh": home / ".zfunc" / "_holdfast",
        "fish": home / ".config" / "fish" / "completions" / "holdfast.fish",
    }
    lines = {
        "bash": (home / ".bashrc", f"source '{homes['bash']}'"),
        "zsh": (home / ".zshrc", "fpath+=~/.zfunc; autoload -Uz compinit; compinit"),
    }
    try:
        homes[shell].parent.mkdir(parents=True, exist_ok=True)
        homes[shell].write_text(SCRIPTS[shell])
        if shell in lines:
            start, line = lines[shell]
            known = start.read_text() if start.is_file() else ""
            if line not in known.splitlines():
                start.write_text(f"{known.rstrip()}\n\n{line}\n".lstrip())
    except OSError as problem:
        raise OutputError(f"{problem.filename}: {problem.strerror}; see --show-completion {shell}") from None
    return f"{shell} completion installed in {homes[shell]}; open a new {shell} to use it"
