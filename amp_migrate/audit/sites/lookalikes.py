"""What methods of networks are called, and calls that look like those of one by the name of a field, and run a method of a
tensor or of a text, or make something."""

from __future__ import annotations

import ast
import re

from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module

# What Transformers calls the network under a head, which ends in a normalization.
HEADLESS = frozenset("bert roberta albert electra distilbert deberta longformer transformer base_model".split())
# Methods of a model that run it.
RUNNING = HEADLESS | frozenset(
    "forward infer inference generate predict sample module encode decode extract_features encode_image encode_text "
    "embed score log_prob reverse backbone head".split()
)
# What networks call their parts: `model.rag.question_encoder(ids)`.
PARTS = re.compile(r"(?:^|_)(?:encoder|decoder|backbone|embeddings|classifier|head)$")
# Methods that every nn.Module has, and that run nothing.
PLAIN = frozenset(
    "train eval to cuda cpu half float double bfloat16 parameters named_parameters modules named_modules children "
    "named_children buffers named_buffers state_dict load_state_dict zero_grad apply requires_grad_ register_buffer "
    "register_parameter register_forward_hook register_forward_pre_hook register_backward_hook add_module no_sync "
    "share_memory get_parameter set_extra_state save save_pretrained resize_token_embeddings get_input_embeddings "
    "reduce_gradients needs_reduction type append extend remove pop keys values items get update".split()
)
# Of tensors; data sets and networks have fields of such names.
REDUCING = frozenset("sum mean std var prod max min".split())


def reduces(call: ast.Call) -> bool:
    """Whether a call reduces a tensor, where a network is given an input: `loss.mean()`, `x.mean(dim=1)`, `x.max(-1)`."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in REDUCING:
        return False
    return not any(isinstance(n, (ast.Name, ast.Call)) for value in call.args for n in syntax.walk(value))


def of_value(call: ast.Call) -> bool:
    """`encoded["ids"].index(end)`: what a list has, asked of an item; `url.encode("utf-8")`, `name.split(":", 1)`: what text
    and bytes have, which no network runs without an input."""
    if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Subscript):
        key = call.func.value.slice
        if hasattr(list, call.func.attr) and isinstance(key, ast.Constant) and isinstance(key.value, str):
            return True
    if not isinstance(call.func, ast.Attribute) or (not hasattr(str, call.func.attr) and call.func.attr != "decode"):
        return False
    given = [*syntax.given(call)]
    texts = [v for v in given if isinstance(v, ast.Constant) and isinstance(v.value, str)]
    plain = call.func.attr in ("encode", "decode")
    return all(isinstance(v, ast.Constant) for v in given) and (len(texts) == len(given) if plain else bool(texts))


def makes_itself(module: Module, call: ast.Call) -> bool:
    """`model = model(config)`: a class picked out of some is called there, and makes the model."""
    stmt = module.parents.get(call)
    return isinstance(stmt, ast.Assign) and any(syntax.text(t) == syntax.text(call.func) for t in stmt.targets)


def opens(module: Module, call: ast.Call) -> bool:
    """Whether a call makes a context manager: `with model.no_sync():`, `stack.enter_context(ctx())`."""
    parent = module.parents.get(call)
    return isinstance(parent, ast.withitem) or (
        isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute) and parent.func.attr == "enter_context"
    )
