"""Functions that a variable holds where it is called: what these calls give them."""

from __future__ import annotations

from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.values import run_by_variables
from tests.reading.test_project import project

LIBRARY = """
def train(model, check, other):
    check(model, 3)
    other(1)
"""
MAIN = """
import library

if library.FAST:
    def check(net, times):
        kept = net
else:
    def check(network, times):
        return network

def alone(net):
    return net

def main(model):
    library.train(model, check, alone)
"""


def test_all_that_a_variable_may_hold_is_given_what_its_call_is_given() -> None:
    """Both definitions of a name; not what goes to another variable."""
    p = project(library=LIBRARY, main=MAIN)
    functions = {(f.name, f.positional[0]): f for f in p.functions.values()}
    model = Slot(functions["train", "model"].scope, "model")
    found = run_by_variables.given(p, {model})
    first, second = functions["check", "net"].scope, functions["check", "network"].scope
    assert {Slot(first, "net"), Slot(first, "kept"), Slot(second, "network")} <= found
    assert Slot(functions["alone", "net"].scope, "net") not in found
    for scope, name in ((first, "net"), (second, "network")):
        assert run_by_variables.values_of(p, Slot(scope, name)) == [model]
    assert run_by_variables.values_of(p, Slot(first, "times")) == [None]
    assert run_by_variables.values_of(p, model) == []
