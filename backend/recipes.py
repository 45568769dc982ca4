"""Commands that make one thing together, by its name: printed and run one by one until one fails."""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence

Recipes = Mapping[str, Sequence[str]]


def lines(recipe: Sequence[str], data: str, more: Sequence[str]) -> list[str]:
    """The arguments of python, command by command. {data} in a recipe is the folder of data, {more} what is added."""
    return [command.format(data=shlex.quote(data), more=shlex.join(more)).strip() for command in recipe]


def run(recipes: Recipes, arguments: Sequence[str] | None = None) -> int:
    """Run the recipe that is named; the exit status is that of the first command that fails, or 0."""
    parser = argparse.ArgumentParser(allow_abbrev=False, epilog="Other arguments are handed on to the commands.")
    parser.add_argument("name", choices=recipes)
    parser.add_argument("--data-folder", default="../shared/data", help="folder of the data sets (../shared/data)")
    parser.add_argument("--print", action="store_true", help="print the commands; run none")
    given, more = parser.parse_known_args(arguments)
    for line in lines(recipes[given.name], given.data_folder, more):
        print(f"python {line}", flush=True)
        if not given.print and (failed := subprocess.run([sys.executable, *shlex.split(line)]).returncode):
            return failed
    return 0
