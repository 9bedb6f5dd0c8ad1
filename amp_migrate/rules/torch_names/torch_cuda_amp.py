"""`torch.cuda.amp` and `torch.cpu.amp` become `torch.autocast` and `torch.amp`, with the device type they implied.

Deprecated: https://pytorch.org/docs/stable/amp.html#torch.cuda.amp.autocast
Current: https://pytorch.org/docs/stable/amp.html#torch.autocast
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from amp_migrate.findings import Code, Example
from amp_migrate.options import Options
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.sites.deprecated import STAR, Binding, Use, deprecated_uses
from amp_migrate.rules.migration import Output
from amp_migrate.rules.torch_names.imports import move_imports
from amp_migrate.rules.torch_names.old_branches import SINCE, for_old_torch, lets_older_in
from amp_migrate.rules.torch_names.uses import CODE, Refused, convert, refuse

AUTOCAST = "https://pytorch.org/docs/stable/amp.html#torch.autocast"
SCALER = "https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler"
CUSTOM = "https://pytorch.org/docs/stable/amp.html#torch.amp.custom_fwd"

CODES = (
    Code(
        "AMP901",
        "torch.cuda.amp.autocast becomes torch.autocast",
        "torch.cuda.amp.autocast",
        apex="Not Apex: torch's own name for it before 1.10, deprecated in 2.4. Its first argument is the switch.",
        native="torch.autocast takes the device type first, then dtype; the switch is enabled=.",
        why="Positional arguments mean other things in the new signature, so each gets its keyword. Names imported "
        "from torch.cuda.amp are imported from torch.amp.",
        links=("https://pytorch.org/docs/stable/amp.html#torch.cuda.amp.autocast", AUTOCAST),
        examples=(
            Example("with torch.cuda.amp.autocast(use_amp):\n", 'with torch.autocast("cuda", enabled=use_amp):\n'),
            Example(
                "from torch.cuda.amp import autocast\n\nwith autocast():\n",
                'from torch.amp import autocast\n\nwith autocast("cuda"):\n',
            ),
        ),
    ),
    Code(
        "AMP902",
        "torch.cuda.amp.GradScaler becomes torch.amp.GradScaler",
        "torch.cuda.amp.GradScaler",
        apex="Not Apex: deprecated in torch 2.4. Its first argument is init_scale.",
        native="torch.amp.GradScaler, since torch 2.3, takes the device first.",
        why="A positional scale would silently become the device and leave the scale at 65536.",
        links=("https://pytorch.org/docs/stable/amp.html#torch.cuda.amp.GradScaler", SCALER),
        examples=(
            Example(
                "scaler = torch.cuda.amp.GradScaler(2.0**10)\n",
                'scaler = torch.amp.GradScaler("cuda", init_scale=2.0**10)\n',
            ),
        ),
    ),
    Code(
        "AMP903",
        "torch.cuda.amp.custom_fwd and custom_bwd become torch.amp's",
        "torch.cuda.amp.custom_fwd",
        apex="Not Apex: deprecated in torch 2.4.",
        native="torch.amp.custom_fwd and custom_bwd, since torch 2.4, need device_type.",
        why="A bare decorator becomes a call, because device_type has no default.",
        links=("https://pytorch.org/docs/stable/amp.html#torch.cuda.amp.custom_fwd", CUSTOM),
        examples=(
            Example(
                "@torch.cuda.amp.custom_fwd(cast_inputs=torch.float32)\n",
                '@torch.amp.custom_fwd(cast_inputs=torch.float32, device_type="cuda")\n',
            ),
            Example("@torch.cuda.amp.custom_bwd\n", '@torch.amp.custom_bwd(device_type="cuda")\n'),
        ),
    ),
    Code(
        "AMP904",
        "What else torch.cuda.amp holds comes from torch.amp",
        "torch.cuda.amp",
        apex="Not Apex: imports, version probes and helpers such as autocast_mode._cast.",
        native="The same names under torch.amp; _cast takes the device type as its second argument.",
        why="An import that only serves deprecated names moves with them; none is left behind unused.",
        links=("https://pytorch.org/docs/stable/amp.html",),
        examples=(
            Example(
                "torch.cuda.amp.autocast_mode._cast(value, dtype)\n",
                'torch.amp.autocast_mode._cast(value, "cuda", dtype)\n',
            ),
        ),
    ),
    Code(
        "AMP905",
        "A deprecated name whose use cannot be decided",
        "torch.cuda.amp",
        apex="Not Apex: the module passed on, arguments from *args, a subclass whose construction is out of sight.",
        native="Still works with a FutureWarning; write the device type at the calls by hand.",
        why="The new signatures start with another argument. A caller that is not in sight would pass the wrong one.",
        links=(AUTOCAST, SCALER),
    ),
    Code(
        "AMP906",
        "A call of Apex's under the name of torch.cuda.amp",
        "torch.cuda.amp.initialize",
        apex="initialize, scale_loss and master_params are Apex's; so are its registrations.",
        native="torch.cuda.amp never had them: a run that comes there stops with AttributeError. With `from apex import amp` in "
        "the place of the import, amp-migrate takes the program for what it is and migrates it.",
        why="Somebody changed the import and not the calls. What such a program was meant to do is Apex's mixed precision.",
        links=(AUTOCAST, SCALER),
    ),
)


@dataclass
class Plan:
    """What cannot be converted in a project: single uses, and the bindings that must stay because of one."""

    refused: dict[Use, Refused] = field(default_factory=dict)
    kept: dict[Binding, str] = field(default_factory=dict)
    ignored: set[Use] = field(default_factory=set)  # by --select, --ignore or a comment

    def reason(self, use: Use) -> str | None:
        """Why a use stays as it is; None where it is converted."""
        if use in self.refused:
            return self.refused[use].reason
        return self.kept.get(use.binding) if use.binding is not None else None


def apply(project: Project, module: Module, options: Options, output: Output) -> None:
    """Convert the uses of one file, then move the imports they came through."""
    found = deprecated_uses(project)
    plan = _plan(project, found, output)
    edits = output.edit(module)
    for use in found.get(module, ()):
        if edits.gone(use.node) or use in plan.ignored:
            continue
        reason = plan.reason(use)
        if reason is not None:
            code = plan.refused[use].code if use in plan.refused else "AMP905"
            output.manual(module, use.node, code, use.construct, reason)
        else:
            convert(project, use, output)
            _younger(project, use, output)
    mine = {use.binding for use in found.get(module, ())}
    for binding, reason in plan.kept.items():
        if binding.scope.module is module and binding not in mine:
            place = binding.scope.bindings[binding.name][0] if binding.name != STAR else module.tree.body[0]
            output.manual(module, place, "AMP905", "torch.cuda.amp", reason)
    used = {use.binding for uses in found.values() for use in uses}
    move_imports(project, module, plan.kept, used, output)


def _younger(project: Project, use: Use, output: Output) -> None:
    """Tell of a test that lets in a torch whose torch.amp does not have a name yet."""
    module = use.module if use.binding is None else use.binding.scope.module
    bound = use.binding.scope.bindings.get(use.binding.name, ()) if use.binding is not None else [use.node]
    for node in bound:
        if use.name in CODE and lets_older_in(project, module, node, output.edit(module), use.name):
            since = ".".join(map(str, SINCE[use.name]))
            told = f"torch.amp has {use.name} since torch {since}, and the test around this lets older ones in: raise its bound"
            if told not in {f.message for f in output.findings.get(module, ())}:
                output.note(module, node, "AMP904", use.construct, told, "review")


def _plan(project: Project, found: dict[Module, list[Use]], output: Output) -> Plan:
    plan: Plan | None = project.__dict__.get("_deprecated_plan")
    if plan is not None:
        return plan
    plan = Plan()
    for module, uses in found.items():
        for use in uses:
            code = CODE.get(use.name, "AMP904")
            if use.binding is None and for_old_torch(project, module, use.node):
                plan.ignored.add(use)
                continue
            if not output.wants_at(module, use.node, code):
                plan.ignored.add(use)
                if use.binding is not None:
                    plan.kept.setdefault(use.binding, _waits(use, use.node, f"where {code} is ignored"))
                continue
            refused = refuse(project, use)
            if refused is not None:
                plan.refused[use] = refused
                if use.binding is not None:
                    plan.kept.setdefault(use.binding, _waits(use, refused.node, "which needs a hand first"))
            elif use.binding is not None:
                outside = _outside(project, module, use.binding)
                if outside is not None:
                    plan.kept.setdefault(use.binding, outside)
    project.__dict__["_deprecated_plan"] = plan
    return plan


def _waits(use: Use, node: ast.AST, why: str) -> str:
    line = getattr(node, "lineno", use.node.lineno)
    return f"shares its import with {use.module.display}:{line}, {why}"


def _outside(project: Project, module: Module, binding: Binding) -> str | None:
    """Why an import and its use cannot change together: one of them may not be written."""
    provider = binding.scope.module
    if module in project.targets and provider not in project.targets:
        return f"imported through {provider.display}: rewrite it together with this file"
    if module not in project.targets and provider in project.targets:
        return f"{module.display} uses it through {provider.display}: rewrite them together"
    return None
