"""The optimizer kept in something: a property, an attribute, a dict, a tuple, a list that a loop walks."""

from __future__ import annotations

from tests.metamorphic.transforms.optimizers import in_place, prepared

PROPERTY = """
class Training:
    def __init__(self, optimizer):
        self._optimizer = optimizer

    @property
    def optimizer(self):
        return self._optimizer
"""
GETTER = """
class Training:
    def __init__(self, optimizer):
        self._optimizer = optimizer

    def get_optimizer(self):
        return self._optimizer
"""

TRANSFORMS = {
    "property": prepared("training", "{name} = Training({optimizer})", "{name}.optimizer.step()", PROPERTY),
    "getter": prepared("training", "{name} = Training({optimizer})", "{name}.get_optimizer().step()", GETTER),
    "attribute of a plain object": prepared(
        "state",
        "{name} = State()\n{name}.optimizer = {optimizer}",
        "{name}.optimizer.step()",
        "class State:\n    pass\n",
    ),
    "value of a dict": prepared("state", '{name} = {{"optimizer": {optimizer}}}', '{name}["optimizer"].step()'),
    "element of a tuple": prepared("pair", "{name} = ('sgd', {optimizer})", "{name}[1].step()"),
    "loop over a list": prepared("members", "{name} = [{optimizer}]", "for member in {name}:\n    member.step()"),
    "loop over a literal": in_place("for each in [{}]:\n    each.step()".format),
    "comprehension": prepared("members", "{name} = [{optimizer}]", "[member.step() for member in {name}]"),
    "ensemble": prepared(
        "members",
        "{name} = [('only', {optimizer})]",
        "for member_name, member in zip(['only'], [m for _, m in {name}]):\n    member.step()",
    ),
}
