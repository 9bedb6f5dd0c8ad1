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
# What tokenizers alone have, and what their methods alone take.
OF_TOKENIZERS = frozenset(
    "add_special_tokens add_tokens all_special_tokens batch_decode batch_encode_plus bos_token convert_ids_to_tokens "
    "convert_tokens_to_ids convert_tokens_to_string encode_plus eos_token max_len_single_sentence special_tokens_map "
    "unk_token".split()
)
TOKENIZING = frozenset(
    "add_special_tokens clean_up_tokenization_spaces skip_special_tokens return_token_type_ids".split()
)
# Of tensors; data sets and networks have fields of such names.
REDUCING = frozenset("sum mean std var prod max min".split())


def reduces(call: ast.Call) -> bool:
    """Whether a call reduces a tensor, where a network is given an input: `loss.mean()`, `x.mean(dim=1)`, `x.max(-1)`."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in REDUCING:
        return False
    return not any(isinstance(n, (ast.Name, ast.Call)) for value in call.args for n in syntax.walk(value))


def _of_value(call: ast.Call) -> bool:
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


def of_others(call: ast.Call, tokenizers: frozenset[str]) -> bool:
    """Whether a method is that of a value, or makes text of numbers or numbers of text: by a tokenizer, which a network may
    keep, as it is given what those take, or asked elsewhere for what they have."""
    if _of_value(call):
        return True
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in ("encode", "decode"):
        return False
    return any(k.arg in TOKENIZING for k in call.keywords) or syntax.last(call.func.value) in tokenizers


def tokenizers(module: Module) -> set[str]:
    """What a file asks for something that tokenizers alone have."""
    asked = (n for word in module.words & OF_TOKENIZERS for n in module.loads.get(word, ()))
    return {syntax.last(n.value) for n in asked if isinstance(n, ast.Attribute)} - {"self", ""}


def _makes_itself(module: Module, call: ast.Call) -> bool:
    """`model = model(config)`: a class picked out of some is called there, and makes the model."""
    stmt = module.parents.get(call)
    return isinstance(stmt, ast.Assign) and any(syntax.text(t) == syntax.text(call.func) for t in stmt.targets)


def makes(module: Module, call: ast.Call) -> bool:
    """Whether a call makes a network, or a context manager: `with model.no_sync():`, `stack.enter_context(ctx())`."""
    parent = module.parents.get(call)
    return (
        _makes_itself(module, call)
        or isinstance(parent, ast.withitem)
        or (
            isinstance(parent, ast.Call)
            and isinstance(parent.func, ast.Attribute)
            and parent.func.attr == "enter_context"
        )
    )
