"""The routes by which half values leave a region: containers, several outputs, methods, objects, files: AMP535."""

from __future__ import annotations

import pytest

from amp_migrate.audit import Doubt
from tests.audit.helpers import doubts, doubts_of

NET = """
import numpy as np
import pickle
import torch
import torch.nn.functional as F
from apex import amp

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(4, 4)
        self.head = torch.nn.Linear(4, 2)

    def forward(self, x):
        hidden = F.relu(self.body(x))
        return hidden, self.head(hidden), x.argmax(1)

    def infer(self, x):
        outs = []
        for row in x:
            outs += [self.head(self.body(row))]
        return [torch.stack(outs), torch.zeros(len(outs), dtype=torch.long)]

    def score(self, x):
        return self.classify(self.body(x))

    def classify(self, x):
        return self.head(x)

    def scored(self, x):
        return {"logits": self.head(self.body(x))}
"""
SETUP = """
model = Net().cuda()
teacher = Net().cuda()
teacher.load_state_dict(torch.load("teacher.pt"))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="LEVEL")
"""
SETUP_NOW = SETUP.replace(
    'model, optimizer = amp.initialize(model, optimizer, opt_level="LEVEL")', "scaler = torch.amp.GradScaler()"
)
REGION = 'with torch.autocast("cuda", dtype=torch.float16):'


def found(level: str, inside: str, after: str, more: str = "", shared: str = "") -> list[Doubt]:
    """`inside` stands in a region now, `after` behind it; each line by line in the body of a loop over `loader`, which shares
    with the file what is said first."""
    lines = [*inside.splitlines(), *after.splitlines()]
    body = f"def run(args, loader):\n    {shared}kept = []\n    total = 0\n    for x, y in loader:\n"
    before = NET + more + SETUP + body + "".join(f"        {line}\n" for line in lines)
    now = NET.replace("from apex import amp\n", "") + more + SETUP_NOW + body + f"        {REGION}\n"
    now += "".join(f"            {line}\n" for line in inside.splitlines())
    now += "".join(f"        {line}\n" for line in after.splitlines())
    ends = "    return kept\n\n\nrun(args, loader)\n"
    return [d for d in doubts((before + ends).replace("LEVEL", level), now + ends) if d.code == "AMP535"]


@pytest.mark.parametrize(
    "after",
    [
        "kept.append(out)\np = F.softmax(torch.cat(kept), dim=1)",
        "kept += [out]\np = F.softmax(torch.stack(kept), dim=1)",
        "kept.extend(out.split(1))\np = F.softmax(torch.cat(kept), dim=1)",
        "kept.append((out, y))\nfor o, t in kept:\n    p = F.softmax(o, dim=1)",
        "kept = {'logits': out, 'target': y}\np = F.softmax(kept['logits'], dim=1)",
        "for name, o in {'a': out}.items():\n    p = F.softmax(o, dim=1)",
        "for o, t in zip([out], [y]):\n    p = F.softmax(o, dim=1)",
        "for i, o in enumerate([out, out]):\n    p = F.softmax(o, dim=1)",
        "p = F.softmax(out / args.temperature, dim=1)",
        "one, *others = [o for o in (out, y)]\np = F.softmax(next(iter([out])), dim=1)",
        "total = total + out\np = F.softmax(total, dim=1)",
    ],
)
def test_through_containers_and_arithmetic(after: str) -> None:
    (doubt,) = found("O1", "_, out, _ = model(x)", after)
    assert "softmax" in doubt.message
    assert doubt.verdict == "review"


@pytest.mark.parametrize(
    "after",
    [
        "kept.append(out.float())\np = F.softmax(torch.cat(kept), dim=1)",
        "p = best.cpu().numpy()",  # an index
        "kept.append((out, y))\nfor o, t in kept:\n    p = F.softmax(t, dim=1)",
        "mask = y.float()\np = F.softmax(mask, dim=1)",
    ],
)
def test_what_is_cast_or_never_was_half(after: str) -> None:
    assert not found("O1", "_, out, best = model(x)", after)


def test_each_of_several_outputs_is_what_the_model_makes_it() -> None:
    inside = "outs = model.infer(x)"
    assert len(found("O1", inside, "mel, lengths = [o.cpu() for o in outs]\nnp.save('mel.npy', mel)")) == 1
    assert not found("O1", inside, "mel, lengths = [o.cpu() for o in outs]\nnp.save('lengths.npy', lengths)")


def test_a_method_that_runs_the_model_through_its_parts() -> None:
    (doubt,) = found(
        "O1", "ys = [model.score(v) for v in (x, x)]", "kept.append(torch.stack(ys).mean(0).cpu().numpy())"
    )
    assert "model.score" in doubt.message
    assert not found(
        "O1", "ys = [model.score(v) for v in (x, x)]", "kept.append(torch.stack(ys).float().mean(0).cpu().numpy())"
    )


def test_a_line_that_several_models_come_to_is_told_once() -> None:
    inside = "_, out, _ = model(x)\n_, other, _ = teacher(x)"
    more = "\ndef score(o):\n    return F.softmax(o, dim=1)\n"
    (doubt,) = found("O1", inside, "kept.append(score(out))\nkept.append(score(other))", more)
    assert "softmax" in doubt.message


def test_what_only_picks_rows_computes_nothing() -> None:
    after = "kept.append(out)\nkept, targets = shuffle(kept, [y])"
    more = "\nfrom sklearn.utils import shuffle\n"
    assert not found("O1", "_, out, _ = model(x)", after, more)
    (doubt,) = found("O1", "_, out, _ = model(x)", f"{after}\np = F.softmax(torch.stack(kept), dim=1)", more)
    assert doubt.message.startswith("F.softmax(")


def test_an_entry_of_a_dictionary_that_a_method_returns() -> None:
    after = "kept.append(outs['logits'].cpu())\np = torch.stack(kept).mean(0)"
    (doubt,) = found("O1", "outs = model.scored(x)", after)
    assert "mean" in doubt.message
    assert not found("O2", "outs = model.scored(x)", after)  # O2 patched the forward alone: this came in half


def test_a_network_that_initialize_was_not_given() -> None:
    (doubt,) = found("O1", "_, out, _ = teacher(x)", "p = F.softmax(out, dim=1)")
    assert "teacher" in doubt.message
    (doubt,) = found("O2", "_, out, _ = teacher(x)", "p = torch.sigmoid(out)")
    assert "teacher" in doubt.message


def test_what_is_no_network_gives_nothing_half() -> None:
    assert not found("O1", "ids = tokenizer.encode(x)", "p = F.softmax(ids, dim=1)")


def test_files() -> None:
    inside = "_, out, best = model(x)"
    for store in ("torch.save(kept, 'a.pt')", "pickle.dump({'out': kept}, f)", "np.save('a.npy', kept)"):
        (doubt,) = found("O2", inside, f"kept.append(out)\n{store}")
        assert "float16" in doubt.message
    assert not found("O2", inside, "torch.save(best, 'a.pt')")
    assert not found("O2", inside, "torch.save(model.state_dict(), 'a.pt')")


def test_numbers_that_take_the_dtype_of_an_output() -> None:
    (doubt,) = found("O2", "_, out, _ = model(x)", "n = torch.tensor(1).to(out) * total")
    assert "2048" in doubt.message
    assert not found("O1", "_, out, _ = model(x)", "n = torch.tensor(1).to(out) * total")
    assert not found("O2", "_, out, _ = model(x)", "n = torch.tensor(1).to(out.device) * total")


def test_numpy_functions_that_are_handed_a_tensor() -> None:
    assert len(found("O1", "_, out, _ = model(x)", "out = out.cpu()\nm = np.clip(out, 0, 1)")) == 1
    assert not found("O1", "_, out, _ = model(x)", "out = out.cpu()\nm = np.argmax(out, 1)")


SAVER = """
class ProbabilitySaver:
    def add(self, ids, predictions):
        self.rows = torch.sigmoid(predictions).data.cpu().numpy()

class IdSaver:
    def add(self, ids, predictions):
        self.rows = ids
"""


@pytest.mark.parametrize(
    "made", ["saver = ProbabilitySaver()", "saver = make(ProbabilitySaver)", "saver = savers[kind]()"]
)
def test_an_object_that_is_handed_the_output(made: str) -> None:
    (doubt,) = found("O1", "_, out, _ = model(x)", f"{made}\nsaver.add(y, out)", SAVER)
    assert "torch.sigmoid(predictions)" in doubt.message


def test_an_object_that_is_seen_to_be_another() -> None:
    assert not found("O1", "_, out, _ = model(x)", "saver = IdSaver()\nsaver.add(y, out)", SAVER)


def test_the_caller_of_a_method_that_returns_the_output() -> None:
    encoder = """
import torch
from apex import amp

class Encoder:
    def __init__(self, model):
        self.model = model

    def encode(self, texts):
        vectors = []
        for x in texts:
            INDENT_, out = self.model(x)
            vectors.extend(out.cpu().split(1))
        return torch.cat(vectors)
"""
    script = """
import torch
from apex import amp
from encoder import Encoder

def main(texts):
    model = torch.nn.Linear(2, 2)
    model = amp.initialize(model, opt_level="O1")
    encoder = Encoder(model)
    found = encoder.encode(texts)
    index.search(found.numpy())

main([])
"""
    region = 'with torch.autocast("cuda", dtype=torch.float16):\n                '
    before = {"encoder.py": encoder.replace("INDENT", ""), "train.py": script}
    after = {
        "encoder.py": encoder.replace("INDENT", region).replace("from apex import amp\n", ""),
        "train.py": script.replace('    model = amp.initialize(model, opt_level="O1")\n', "").replace(
            "from apex import amp\n", "# autocast is in the encoder\n"
        ),
    }
    doubts = [d for d in doubts_of(before, after) if d.code == "AMP535"]
    assert [(d.path, "numpy()" in d.message) for d in doubts] == [("train.py", True)]


def test_apex_cast_nothing_on_the_cpu() -> None:
    """`.cpu()` gave float32, and the products of that were float32: it is half that is multiplied now."""
    inside, after = "_, out, _ = model(x)", "a = out.cpu()\nscores = torch.matmul(a, a.t())"
    (doubt,) = found("O1", inside, after)
    assert "matmul" in doubt.message
    assert not found("O1", inside, "scores = torch.matmul(out, out.t())")


def test_a_function_that_a_name_stands_for() -> None:
    more = "\ndef probabilities(logits):\n    return F.softmax(logits, dim=1)\n"
    (doubt,) = found("O1", "_, out, _ = model(x)", "measure = probabilities\np = measure(out)", more)
    assert "softmax" in doubt.message


def test_what_a_part_of_a_network_gave_inside_of_it_was_half() -> None:
    """O2 cast what the model's own forward gave, and no layer's."""
    before = """
import torch
from apex import amp

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = make()
        self.bce = torch.nn.BCELoss()

    def forward(self, x, y):
        guess = self.body(x)
        return self.bce(guess.sigmoid(), y)

model = Net().cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O2")
for x, y in loader:
    optimizer.zero_grad()
    loss = model(x, y)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
"""
    after = (
        before.replace("from apex import amp\n", "")
        .replace(
            "        return self.bce(guess.sigmoid(), y)",
            '        with torch.autocast("cuda", enabled=False):\n            return self.bce(guess.sigmoid().float(), y)',
        )
        .replace(
            'model, optimizer = amp.initialize(model, optimizer, opt_level="O2")',
            'scaler = torch.amp.GradScaler("cuda")',
        )
        .replace(
            "    loss = model(x, y)",
            '    with torch.autocast("cuda", dtype=torch.float16):\n        loss = model(x, y)',
        )
        .replace(
            "    with amp.scale_loss(loss, optimizer) as scaled_loss:\n        scaled_loss.backward()\n    optimizer.step()",
            "    scaler.scale(loss).backward()\n    scaler.step(optimizer)\n    scaler.update()",
        )
    )
    assert not [d for d in doubts(before, after) if d.code == "AMP535"]


@pytest.mark.parametrize(
    "kept",
    [
        "F.adaptive_avg_pool1d(out, 4)",
        "F.max_pool1d(out, 1)",
        "F.pad(out, (0, 0))",
        "F.celu(out)",
        "out.repeat_interleave(2, 0)",
    ],
)
def test_what_keeps_its_dtype_brings_a_half_value_to_float32_weights(kept: str) -> None:
    inside = "with torch.no_grad(): out = model.scored(x)['logits']"
    (doubt,) = found("O1", inside, f"out = {kept}\ntotal = total + teacher.head(out)")
    assert "the weights of teacher.head are float32" in doubt.message


SHOWING = """
latest = None

def show():
    image = latest[0]
    draw(image.cpu().detach().numpy())

def draw(image):
    print(image)
"""


@pytest.mark.parametrize(
    ("shared", "after", "expected"),
    [
        ("global latest\n    ", "latest = out\nshow()", True),
        ("global latest\n    ", "latest = out.float()\nshow()", False),
        ("global latest\n    ", "latest = out.argmax(1)\nshow()", False),
        ("", "latest = out\nshow()", False),  # another variable
    ],
)
@pytest.mark.parametrize("level", ["O1", "O2"])
def test_what_a_function_reads_from_a_variable_of_its_file(shared: str, after: str, expected: bool, level: str) -> None:
    told = found(level, "out = model(x)[1]", after, SHOWING, shared)
    assert bool([d for d in told if "image.cpu().detach()" in d.message]) == expected


@pytest.mark.parametrize("level", ["O1", "O2"])
@pytest.mark.parametrize(
    ("line", "expected"), [("latest = model(x)[1]", True), ("latest = model(x)[1].float()", False)]
)
def test_what_the_code_of_a_file_leaves_to_its_functions(line: str, expected: bool, level: str) -> None:
    head, tail = NET + SHOWING, "show()\n"
    loop = "for x, y in loader:\n    "
    before = f"{head}{SETUP}{loop}{line}\n    show()\n".replace("LEVEL", level)
    now = f"{head}{SETUP_NOW}{loop}{REGION}\n        {line}\n    {tail}".replace("from apex import amp\n", "")
    told = [d for d in doubts(before, now) if d.code == "AMP535" and "NumPy" in d.message]
    assert bool(told) == expected
