"""Recipes are commands that the command line takes, and stop at the first that fails."""

import shlex

import pytest

from backend import recipes
from backend.__main__ import parser
from backend.evaluation.recipes import RECIPES as MEASURING
from backend.training.recipes import RECIPES as TRAINING


@pytest.mark.parametrize("name", [*TRAINING, *MEASURING])
def test_every_command_of_a_recipe_is_understood(name):
    found = recipes.lines((TRAINING | MEASURING)[name], "a folder", ["--model", "tiny"])
    assert any("--model tiny" in line for line in found) or name in ("adapters", "smoke")
    for _, module, *arguments in map(shlex.split, found):
        assert module == "backend.training.card" or parser().parse_args(arguments)


def test_a_recipe_stops_where_a_command_fails(capfd):
    commands = {"both": ["-c 'import sys; sys.exit(3)'", "-c 'print(5)'"]}
    assert recipes.run(commands, ["both"]) == 3
    assert "print(5)" not in capfd.readouterr().out
    assert recipes.run(commands, ["both", "--print"]) == 0
