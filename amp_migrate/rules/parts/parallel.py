"""`apex.parallel.DistributedDataParallel` becomes torch's; what else `apex.parallel` offers for gradients is reported.

Apex: https://nvidia.github.io/apex/parallel.html
Native: https://pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import replace

from amp_migrate.findings import Code, Example, Review
from amp_migrate.reading.gradients.frozen import frozen_after, frozen_whole
from amp_migrate.reading.gradients.last_turn import unread_in_last_turn
from amp_migrate.reading.program.definitions import literal
from amp_migrate.reading.program.module import FUNCTION_NODES, Module
from amp_migrate.reading.program.processes import tied
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.sites.apex import Site, find_sites
from amp_migrate.rules.migration import Output
from amp_migrate.rules.parts.counterpart import Manual, Native, is_type_test, named_arguments, value_of
from amp_migrate.rules.parts.derived import Constructed, constructed
from amp_migrate.rules.parts.devices import device_of, of_first
from amp_migrate.rules.parts.parallel_differs import (
    NATIVE_DDP,
    NATIVE_PARAMETERS,
    UNUSED,
    beside,
    differs,
    waits_in_vain,
)
from amp_migrate.writing.calls import Argument, arguments_of
from amp_migrate.writing.edits import Edits

APEX = "https://nvidia.github.io/apex/parallel.html"
NATIVE = "https://pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html"
COMMUNICATION = "https://pytorch.org/docs/stable/distributed.html"

CODES = (
    Code(
        "AMP601",
        "Apex DistributedDataParallel becomes torch's",
        "parallel.DistributedDataParallel",
        apex="Broadcasts the parameters once, averages gradients during backward, or after it with delay_allreduce=True. "
        "In either mode only the gradients that arrive are averaged: parameters may go without. Buffers stay apart.",
        native="Averages likewise, sizes its own buckets, broadcasts buffers before every forward, and raises at the second "
        "iteration if a parameter got no gradient ('Expected to have finished reduction'). Refuses a model of which none wants one.",
        why="Apex's communication settings have no meaning there and go. device_ids is written where the program names "
        "its device in torch.cuda.set_device; without it torch uses the device the module is on, as Apex did. A model "
        "with parameters that take no part in a step (a pooler that nothing reads, layers drawn at random) needs "
        "find_unused_parameters=True; it costs time, so it is written only where the program shows such a part: one that nothing "
        "uses, one that a mode of the forward leaves out, a head that a caller picks, what the last of a list of "
        "blocks hands on, or one that a comment names. A single process raises, too. Torch looks at the last forward before a "
        "backward: what that does not use it takes for unused, and raises ('mark a variable ready only once') where another "
        "forward gives it a gradient. static_graph=True takes several forwards that use different parts, and parameters that "
        "never get a gradient, as long as they are the same in every step: not where steps of different kinds take turns. Or "
        "call the wrapped model once, with all the batches. Nothing of this is said of a model that only runs without "
        "gradients, of torchvision's classifiers, and where the program wraps the same model in torch's class itself, without "
        "Apex. Of buffers nothing is said where no file has a network with any that are written to. "
        "broadcast_buffers = False keeps the statistics of batch normalization apart, as Apex did; it is set where one "
        "rank runs the model by itself, and would wait for the others.",
        links=(APEX, NATIVE),
        examples=(
            Example(
                "import torch\nfrom apex.parallel import DistributedDataParallel as DDP\n\n"
                "torch.cuda.set_device(args.local_rank)\n"
                "model = DDP(model.cuda(), delay_allreduce=True)\n",
                "import torch\nfrom torch.nn.parallel import DistributedDataParallel as DDP\n\n"
                "torch.cuda.set_device(args.local_rank)\n"
                "model = DDP(model.cuda(), device_ids=[args.local_rank])\n",
            ),
        ),
    ),
    Code(
        "AMP602",
        "Apex's manual gradient reduction has no counterpart",
        "parallel.Reducer",
        apex="Reducer.reduce() averages the gradients when the program says so; flat_dist_call runs a collective over "
        "flattened tensors.",
        native="DistributedDataParallel with no_sync() for the steps that only accumulate, or one all_reduce per "
        "gradient.",
        why="When gradients are reduced decides where they may be unscaled and clipped; that cannot be guessed.",
        links=(APEX, COMMUNICATION),
    ),
    Code(
        "AMP603",
        "apex.parallel.multiproc becomes torchrun",
        "parallel.multiproc",
        apex="Starts one process per GPU: python -m apex.parallel.multiproc train.py.",
        native="torchrun --nproc_per_node=N train.py, which hands the rank over in the variable LOCAL_RANK.",
        why="The launcher stands outside the program, and the way the rank arrives changes.",
        links=(APEX, "https://pytorch.org/docs/stable/elastic/run.html"),
    ),
    Code(
        "AMP604",
        "apex.parallel.ReduceOp is torch's",
        "parallel.ReduceOp",
        apex="Hands torch.distributed.ReduceOp on, under whichever name the installed torch has it.",
        native="torch.distributed.ReduceOp.",
        why="It is the same class.",
        links=(APEX, COMMUNICATION),
        examples=(
            Example(
                "import torch\nfrom apex.parallel import ReduceOp\n\n"
                "torch.distributed.all_reduce(mean, ReduceOp.SUM, group)\n",
                "import torch\n\ntorch.distributed.all_reduce(mean, torch.distributed.ReduceOp.SUM, group)\n",
            ),
        ),
    ),
)

DDP = "apex.parallel.DistributedDataParallel"
REDUCE_OP = "apex.parallel.ReduceOp"
MEMBERS = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR")
OPERATIONS = {REDUCE_OP, *(f"{REDUCE_OP}.{member}" for member in MEMBERS)}
NAMES = frozenset({DDP, "apex.parallel.Reducer", "apex.parallel.flat_dist_call", *OPERATIONS})

# In Apex's order, after the module: what tunes its communication, and has no meaning to torch.
DROPPED = (
    "message_size",
    "delay_allreduce",
    "shared_param",
    "allreduce_trigger_params",
    "retain_allreduce_buffers",
    "allreduce_always_fp32",
    "num_allreduce_streams",
    "allreduce_communicators",
    "gradient_average",
    "gradient_predivide_factor",
    "gradient_average_split_factor",
    "prof",
)
SWITCHED = frozenset({"disable_allreduce", "enable_allreduce"})


LAUNCHER = "apex.parallel.multiproc"


def launches(module: Module) -> Iterator[tuple[ast.Constant, bool]]:
    """Strings that name Apex's launcher; with each, whether it is part of a command and not only told to the reader."""
    if LAUNCHER not in module.text:
        return
    for node in walk(module.tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and LAUNCHER in node.value:
            parent = module.parents.get(node)
            yield node, not isinstance(parent, (ast.Expr, ast.keyword))


def convert(project: Project, site: Site) -> Native | Manual:
    """What becomes of a use of `apex.parallel` other than its batch normalization."""
    if site.name in OPERATIONS:
        return Native("AMP604", (site.name.replace("apex.parallel", "torch.distributed"),), "the same class")
    if site.name != DDP:
        return Manual(
            "AMP602",
            f"torch has no {site.short}: wrap the model in DistributedDataParallel (no_sync() where a step only "
            "accumulates), or all_reduce the gradients before they are unscaled",
        )
    if site.call is None:
        calls = constructed(project, site, ("module", *DROPPED))
        if isinstance(calls, str):
            return Manual("AMP601", calls)
        if not calls and is_type_test(site):  # nothing is wrapped here; see AMP653
            return Native("AMP601", (NATIVE_DDP,), "asks for torch's DistributedDataParallel")
        without = f", constructed without {', '.join(_gone(calls))}" if calls else ""
        message = f"torch's DistributedDataParallel{without}{differs(project, site.module, ())}"
        return Native("AMP601", (NATIVE_DDP,), message, "look", beside=tuple(calls))
    return _call(project, site, site.call)


def _gone(calls: list[Constructed]) -> list[str]:
    """The arguments that calls lose, by name; those given by position are Apex's own too."""
    kept = [{id(a.node) for a in arguments} for _, _, arguments in calls]
    gone = [
        a for (_, call, _), stays in zip(calls, kept, strict=True) for a in arguments_of(call) if id(a) not in stays
    ]
    named = [a.arg for a in gone if isinstance(a, ast.keyword) and a.arg is not None]
    return list(dict.fromkeys(named or ["Apex's own arguments"]))


def _call(project: Project, site: Site, call: ast.Call) -> Native | Manual:
    named = named_arguments(call, ("module", *DROPPED))
    given = {name: argument for name, argument in named if name is not None}
    if any(name is None for name, _ in named):
        return Manual("AMP601", "unpacked arguments may hold Apex's own: write torch's DistributedDataParallel by hand")
    of_torch = [name for name in given if name in NATIVE_PARAMETERS - {"module"}]
    if of_torch and not any(name in DROPPED for name in given):
        message = (
            f"torch's DistributedDataParallel, as before wherever this ran: Apex's takes no {' or '.join(of_torch)}"
        )
        return Native("AMP601", (NATIVE_DDP,), message, "as-is")
    if "gradient_average" in given and literal(value_of(given["gradient_average"])) is not True:
        return Manual(
            "AMP601",
            "torch's DistributedDataParallel always averages: multiply the loss by the world size where "
            "gradient_average is False",
        )
    # A file that switches what it wraps itself is no reason to leave others alone.
    others = tied(project, {site.module}) - {site.module}
    switching = [m for m in others if _switches(m) and not any(s.name == DDP for s in find_sites(project, m))]
    switching += [site.module] if _switches(site.module) else []
    if switching and (switching != [site.module] or switches(site.module) is None):
        return Manual(
            "AMP601",
            "the program turns the reduction off and on (disable_allreduce): put the steps that only accumulate under "
            "torch's no_sync() first",
        )
    untrained = frozen_whole(site.module, site.module.statement(call), ast.unparse(call.args[0])) if call.args else None
    if untrained is not None:
        return Manual(
            "AMP601",
            f"torch's DistributedDataParallel refuses a model that is frozen whole, as line {getattr(untrained, 'lineno', 0)} leaves "
            "it: use it as it is, without .module where it is read and in the keys of its state",
        )
    arguments = [Argument(argument) for name, argument in named if name not in DROPPED]
    sibling = beside(site, call)
    taken = [k for k in sibling.keywords if k.arg not in given] if sibling is not None else []
    taken = [k for k in taken if not of_first(site.module, k)]
    arguments += [Argument(None, f"{k.arg}={site.module.source(k.value)}") for k in taken]
    given |= {k.arg: k for k in taken if k.arg is not None}
    device = None if "device_ids" in given else device_of(project, site)
    if device is not None:
        arguments.append(Argument(None, f"device_ids=[{device}]"))
    frozen = _frozen(site, call) if "find_unused_parameters" not in given else None
    unread = None
    if frozen is None and UNUSED not in given and call.args and not _recomputes(project):
        unread = unread_in_last_turn(project, site.module, call.args[0])
    if frozen is not None or unread is not None:
        arguments.append(Argument(None, f"{UNUSED}=True"))
    dropped = [name for name in given if name in DROPPED]
    unknown = [name for name in given if name not in DROPPED and name not in NATIVE_PARAMETERS]
    message = "torch's DistributedDataParallel"
    if dropped:
        message += f" without {', '.join(dropped)}"
    if unknown:
        message += f"; it takes no {', '.join(unknown)} either"
    if sibling is not None:
        how = "with the arguments of" if taken else "as in"
        message += f", {how} line {sibling.lineno}, where the same model is wrapped without Apex"
    if frozen is not None:
        message += f", with find_unused_parameters, for line {frozen} freezes a part once it is wrapped"
    if unread is not None:
        message += f", with {UNUSED}=True, since {unread}{ASKED_FOR['AMP651'][3]}"
    # A program that wraps the same model in torch's knows whether its parameters all take part.
    all_take_part = (
        frozen is not None or unread is not None or sibling is not None or not waits_in_vain(project, site, call)
    )
    told = differs(project, site.module, [*given, *([UNUSED] if all_take_part else [])])
    review: Review = "review" if unknown else "look" if told else "as-is"
    message += told
    return Native("AMP601", (NATIVE_DDP,), message, review, tuple(arguments))


# What the audit finds out about the model that a call wraps, the argument that answers it, why it is there, what it costs.
ASKED_FOR = {
    "AMP651": (
        UNUSED,
        "True",
        "a part of the model gets no gradient",
        " (torch looks through the graph of each forward then, which costs time)",
    ),
    "AMP652": ("broadcast_buffers", "False", "one rank runs the model by itself", ""),
}
ATTRIBUTES = frozenset({"broadcast_buffers"})  # torch 2.13 warns of the argument, and torch before it has no other


def answered(decision: Native | Manual | None, site: Site, codes: Mapping[str, str]) -> Native | Manual | None:
    """A call of torch's class with what answers the doubts about it, by their codes, with what is seen: an argument, or an
    attribute that is set of what it gives; what is said of this model beside it is not said of models in general."""
    if not isinstance(decision, Native) or decision.code != "AMP601" or decision.arguments is None:
        return decision
    for code in sorted(ASKED_FOR.keys() & set(codes)):
        name, value, why, costs = ASKED_FOR[code]
        told, *differences = [d for d in decision.message.split("; ") if f"{name}={value}" not in d]
        arguments, then = decision.arguments, decision.then
        if not only_said(code, codes):
            kept = _kept_as(site) if name in ATTRIBUTES else None
            if kept is not None:
                then = f"{kept}.{name} = {value}"
            else:
                arguments = (*arguments, Argument(None, f"{name}={value}"))
            told += f", with {name}={value}, since {codes[code] or why}{costs}"
        decision = replace(
            decision,
            arguments=arguments,
            then=then,
            message="; ".join([told, *differences]),
            review=decision.review if decision.review == "review" else "look",
        )
    return decision


def _kept_as(site: Site) -> str | None:
    """What the wrapped model is kept as, where its statement does no more: `model`, `self.model`."""
    stmt = site.stmt
    if not isinstance(stmt, ast.Assign) or stmt.value is not site.call or len(stmt.targets) != 1:
        return None
    target = stmt.targets[0]
    return site.module.source(target) if isinstance(target, (ast.Name, ast.Attribute)) else None


def only_said(code: str, codes: Mapping[str, str]) -> bool:
    """Whether a doubt is told by itself, and no argument answers it for sure."""
    return code == "AMP651" and not codes[code]


def _recomputes(project: Project) -> bool:
    """Whether a program recomputes activations, beside which torch may refuse to look for parameters without gradients."""
    return any(
        "torch.utils.checkpoint" in module.text
        or "gradient_checkpointing" in module.text  # which a library does
        or "torch.utils.checkpoint" in (t for scope in module.scopes.values() for t in scope.imports.values())
        for module in project.modules
    )


def _frozen(site: Site, call: ast.Call) -> int | None:
    """The line that freezes a part of the model once it is wrapped: the gradients torch's class then waits for never come."""
    stmt = site.module.statement(call)
    if not isinstance(stmt, ast.Assign) or stmt.value is not call or len(stmt.targets) != 1:
        return None
    node = frozen_after(site.module, stmt, ast.unparse(stmt.targets[0]))
    return getattr(node, "lineno", None)


def switches(module: Module) -> list[tuple[ast.Expr, str]] | None:
    """Statements that turn the reduction off and on, with what does so for torch: the attribute that no_sync() sets.

    None where one is not a statement of its own, or where the program has methods of such a name.
    """
    found: list[tuple[ast.Expr, str]] = []
    for node in module.nodes:
        if isinstance(node, FUNCTION_NODES) and node.name in SWITCHED:
            return None
        if isinstance(node, ast.Attribute) and node.attr in SWITCHED:
            call = module.parents[node]
            stmt = module.parents.get(call)
            if not (isinstance(call, ast.Call) and call.func is node and not call.args and isinstance(stmt, ast.Expr)):
                return None
            on = node.attr == "enable_allreduce"
            found.append((stmt, f"{module.source(node.value)}.require_backward_grad_sync = {on}"))
    return found


def switch_reduction(module: Module, edits: Edits, output: Output) -> None:
    """`model.disable_allreduce()`, once the model is wrapped by torch."""
    for stmt, text in switches(module) or ():
        edits.replace(stmt, text)
        name = "enable_allreduce" if text.endswith("True") else "disable_allreduce"
        message = (
            "the reduction is switched by the attribute that no_sync() sets; torch asks for it in the forward, so it must "
            "be set before"
        )
        output.done(module, stmt, "AMP601", f"parallel.DistributedDataParallel.{name}", message, "review")


def _switches(module: Module) -> bool:
    return any(word in module.text for word in SWITCHED) and any(
        isinstance(node, ast.Attribute) and node.attr in SWITCHED for node in walk(module.tree)
    )
