"""Mutants that no test has to see, with the reason. By file and what the mutant is (`Mutant.told`)."""

from __future__ import annotations

ARGUED: dict[tuple[str, str], str] = {
    (
        "amp_migrate/audit/checks/absent.py",
        "constant: '4' -> '5' in 'DEPTH = 4  # functions that hand a None on to each other'",
    ): "a limit of how far is looked: one more costs time and proves no less",
    (
        "amp_migrate/audit/checks/absent.py",
        "condition: 'change.same.get(change.after.s' -> 'True' in 'if change.same.get(change.after.statement(node)) is None:'",
    ): "what an unchanged statement reads stopped at the same call before, which is asked next",
    (
        "amp_migrate/audit/checks/absent.py",
        "comparison: '<' -> '<=' in 'return syntax.text(call.func) == syntax.text(other.func) and'",
    ): "how far apart two calls may stand to be the same one is a guess: 40 lines are as good as 39",
    (
        "amp_migrate/audit/checks/absent.py",
        "condition: 'node.kind == \"leave\" or stmt i' -> 'False' in 'if node.kind == \"leave\" or stmt is None:'",
    ): "what a block evaluates when it is left it evaluated when it was entered, and was read there",
    (
        "amp_migrate/audit/checks/calls.py",
        "connective: 'or' -> 'and' in 'if now is None or then is None:'",
    ): "both calls are written alike, and whether it can be told what arrives where depends on the stars in them alone",
    (
        "amp_migrate/audit/checks/switch.py",
        "condition: 'repr(key)[1:-1] not in module.' -> 'False' in 'if repr(key)[1:-1] not in module.text:'",
    ): "spares looking through files that cannot have the key",
    (
        "amp_migrate/audit/checks/switch.py",
        "constant: '1' -> '2' in 'if repr(key)[1:-1] not in module.text:'",
    ): "spares looking through files that cannot have the key: a part of it does as well",
    (
        "amp_migrate/verify/verdicts/scale.py",
        "constant: '0' -> '1' in 'advances = Counter({step: n for step, n in advances.items() '",
    ): "an advance of one is what is taken where there is none",
    (
        "amp_migrate/verify/verdicts/known.py",
        "comparison: '<' -> '<=' in 'return scale if scale != 1.0 and abs(factor / scale - 1) < 0'",
    ): "no two numbers are exactly 0.02 apart beside 1: what float64 has there are multiples of 2**-53",
    (
        "amp_migrate/audit/checks/whole.py",
        "condition: 'not gone' -> 'False' in 'if not gone:'",
    ): "spares looking through the program: of no call that went nothing is told",
    (
        "amp_migrate/audit/checks/state.py",
        "constant: '3' -> '4' in 'if depth > 3 or not isinstance(target, ast.Name):'",
    ): "a limit of how far is looked: one more costs time and proves no less",
    (
        "amp_migrate/audit/checks/assigned.py",
        "constant: '0' -> '1' in 'def _scales(program: Program, function: Function, depth: int'",
    ): "a limit of how far is looked, of methods that call each other: one less is as good a guess",
    (
        "amp_migrate/rules/stepping/accumulation.py",
        "comparison: '<' -> '<=' in 'if looped and loss.call.lineno < step.call.lineno:'",
    ): "a scaled backward and a step that stand on one line stand in the same loops",
}
