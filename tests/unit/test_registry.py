"""A registry: what a folder holds is found by its modules."""

import sys
from abc import ABC, abstractmethod

import pytest

from backend.refused import Refused
from backend.registry import Registry


class Fruit(ABC):
    order = 0

    @abstractmethod
    def taste(self) -> str: ...


sys.modules.setdefault("fruit_base", sys.modules[__name__])

APPLES = """
from fruit_base import Fruit
class Pome(Fruit):
    def taste(self): return "mild"
class Pear(Pome):
    name = "pear"
class Apple(Pome):
    name = "apple"
"""
LEMON = """
from fruit_base import Fruit
from orchards.apples import Apple
class Lemon(Fruit):
    name, order = "lemon", -1
    def taste(self): return "sour"
class Unripe(Fruit):
    name = "unripe"
class Stone:
    name = "stone"
"""


@pytest.fixture
def orchard(tmp_path, monkeypatch):
    folder = tmp_path / "orchards"
    folder.mkdir()
    for name, text in {"__init__": "", "apples": APPLES, "lemon": LEMON}.items():
        (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield folder
    for name in [name for name in sys.modules if name.split(".")[0] == "orchards"]:
        del sys.modules[name]


def test_what_the_folder_holds_is_found_in_order(orchard):
    fruits = Registry("orchards", Fruit)
    assert fruits.names() == ["lemon", "apple", "pear"]
    assert [fruit.taste() for fruit in fruits] == ["sour", "mild", "mild"]
    assert fruits["pear"] is fruits["pear"] and len(fruits) == 3
    assert "pear" in fruits and "unripe" not in fruits and ["pear"] not in fruits


def test_nothing_is_imported_before_it_is_asked_for(orchard):
    fruits = Registry("orchards", Fruit)
    assert "orchards.lemon" not in sys.modules
    assert fruits["lemon"].taste() == "sour"


@pytest.mark.parametrize(
    "name, said",
    [
        ("aple", "there is no orchard 'aple': did you mean apple?"),
        ("xyz", "there is no orchard 'xyz': use one of lemon, apple, pear"),
        (7, "there is no orchard 7: use one of lemon, apple, pear"),
        ([], r"there is no orchard \[\]: use one of lemon, apple, pear"),
    ],
)
def test_an_unknown_name_is_answered_with_those_near_it(orchard, name, said):
    with pytest.raises(Refused, match=said.replace("?", r"\?")):
        Registry("orchards", Fruit)[name]


def test_two_of_one_name_are_a_mistake(orchard):
    (orchard / "zest.py").write_text(LEMON)
    with pytest.raises(TypeError, match=r"orchards.zest and orchards.lemon both name a 'lemon'"):
        Registry("orchards", Fruit).names()


def test_one_is_had_alone_by_its_module(orchard):
    fruits = Registry("orchards", Fruit)
    assert fruits.alone("lemon").taste() == "sour"
    (orchard / "quince.py").write_text("raise ImportError('not asked for')")
    assert Registry("orchards", Fruit).alone("lemon").name == "lemon"
    with pytest.raises(ImportError):
        fruits.alone("plum")
