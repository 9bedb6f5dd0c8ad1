"""What slots lead to: a search over numbers says what one over the slots themselves says."""

from __future__ import annotations

import ast
import random

import pytest

from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.reach import Reach
from tests.reading.test_project import project


def slots(*names: str) -> list[Slot]:
    return [Slot("scope", name) for name in names]


def test_the_nearest_come_first_and_each_once() -> None:
    flows = {"a": "bc", "b": "d", "c": "db", "d": "a"}
    reach = Reach(lambda slot: slots(*flows.get(slot.name, "")))
    assert [s.name for s in reach.of(slots("a"))] == list("abcd")
    assert [s.name for s in reach.of(slots("d", "c", "d"))] == list("dcab")


def test_what_is_left_out_hides_what_only_it_leads_to() -> None:
    flows = {"a": "bc", "b": "d", "c": "e"}
    reach = Reach(lambda slot: slots(*flows.get(slot.name, "")))
    assert {s.name for s in reach.of(slots("a"), but=lambda slot: slot.name == "b")} == set("ace")
    assert {s.name for s in reach.of(slots("a"))} == set("abcde")  # nothing of it is kept for the next


def test_a_way_by_methods_of_some_classes_alone_is_not_gone_besides_them() -> None:
    p = project(train="class A: pass\nclass B: pass\n")
    one, other = sorted(p.classes.values(), key=lambda cls: cls.name)
    guards = {("a", "b"): {one}, ("a", "c"): {one, other}, ("b", "d"): {None, one}}
    flows = {"a": "bc", "b": "d"}
    reach = Reach(
        lambda slot: slots(*flows.get(slot.name, "")), lambda source, target: guards.get((source.name, target.name))
    )

    def found(*besides: object) -> str:
        return "".join(sorted(s.name for s in reach.of(slots("a"), besides)))  # type: ignore[arg-type]

    assert found() == "abcd"
    assert found(one) == "ac"
    assert found(one, other) == "a"
    assert "".join(sorted(s.name for s in reach.of(slots("b"), (one, other)))) == "bd"


@pytest.mark.parametrize("seed", range(20))
def test_it_is_the_same_as_a_plain_search(seed: int) -> None:
    chance = random.Random(seed)
    nodes = slots(*map(str, range(30)))
    flows = {n: chance.sample(nodes, chance.randrange(4)) for n in nodes}
    reach = Reach(lambda slot: flows[slot])
    for start in chance.sample(nodes, 5):
        plain, todo = {start}, [start]
        while todo:
            more = [s for s in flows[todo.pop()] if s not in plain]
            plain |= set(more)
            todo += more
        assert set(reach.of([start])) == plain


def test_fields_that_come_to_be_alike_later_are_seen_by_the_next_search() -> None:
    p = project(
        train="""
        class A:
            def __init__(self, net):
                self.net = net
        class B:
            def __init__(self):
                self.net = None
        def run(flag, made):
            thing = A(made) if flag else B()
            while thing.net:
                pass
        """
    )
    family = {cls.name: cls.family for cls in p.classes.values()}
    first, second = Slot(family["A"], "net"), Slot(family["B"], "net")
    assert second not in set(p.reached([first]))
    asked = next(n.test for n in ast.walk(p.modules[0].tree) if isinstance(n, ast.While))
    p.slot(p.modules[0], asked)
    assert second in set(p.reached([first]))
