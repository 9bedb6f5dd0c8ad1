"""Autocast regions as a person would write them: what is taken in, and what is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, rewrite, rewrite_files, run_files
from tests.rules.programs import APEX_LOOP, MODEL, apex
from tests.rules.test_autocast import AUTOCAST, check_region
from tests.rules.trained import check_trained

NETWORK = """
import torch
from torch import nn

def to_gpu(x):
    return x.contiguous().cuda()

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(4, 3)
    def parse_batch(self, batch):
        x, y = batch
        longest = torch.max(y).item()
        return to_gpu(x).float(), to_gpu(y)[:longest]
    def encode(self, x):
        return self.last(x)
    def similarity(self, x):
        return torch.matmul(x, x.t())
    def forward(self, x):
        return self.encode(x)
"""
TRAIN = """
import torch
from apex import amp
from network import Net
from project import criterion, loader

model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
for batch in loader:
    {line}
    output = model(x)
    loss = criterion(output, y)
    optimizer.zero_grad()
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
"""


def trained(line: str) -> str:
    """The training script once migrated, beside a network that stands in a file of its own."""
    return check_files({"train.py": TRAIN.format(line=line), "network.py": NETWORK})["train.py"]


# -- methods of the model --------------------------------------------------------------------------------------------


def test_a_method_that_only_moves_data_is_no_forward() -> None:
    after = trained("x, y = model.parse_batch(batch)")
    assert f"    x, y = model.parse_batch(batch)\n    {AUTOCAST}\n        output = model(x)\n" in after


@pytest.mark.parametrize("method", ["encode", "similarity", "unknown_method"])
def test_a_method_that_runs_parts_of_the_network_or_cannot_be_seen_is_one(method: str) -> None:
    after = trained(f"x, y = model.{method}(batch[0]), batch[1]")
    assert f"    {AUTOCAST}\n        x, y = model.{method}(batch[0]), batch[1]\n        output = model(x)\n" in after


# -- plain numbers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", ["[ceil(x) * 32 for x in y.shape[2:]]", "math.sqrt(x.size(0))"])
def test_plain_numbers_on_the_way_are_not_computed_in_a_region(size: str) -> None:
    """`x` is a tensor that the model computed, and a plain number in the list of sizes."""
    preparing = f"if large:\n    size = {size}\n    y = resize(y, size)\nshow(y)\n"
    check_region(
        f"x = model(x)\n{preparing}loss = criterion(x, y)\n",
        f"with region:\n    x = model(x)\n{preparing}with region:\n    loss = criterion(x, y)\n",
    )


# -- several that are one --------------------------------------------------------------------------------------------


def test_branches_that_move_data_and_run_the_model_share_one_region_with_the_loss() -> None:
    branches = """
if args.meta:
    x, meta = x
    x, meta, y = x.to(device), meta.to(device), y.to(device)
    logits = model(x, meta)
else:
    x, y = x.to(device), y.to(device)
    logits = model(x)
loss = criterion(logits, y)
"""
    check_region(branches, "with region:" + branches.replace("\n", "\n    ").rstrip(" "))


def test_cheap_tensor_code_between_the_forward_and_a_loss_in_branches_is_taken_in() -> None:
    lines = """
features = model(x)
if args.pair:
    first, second = torch.chunk(features, 2, dim=1)
    shifted = first.view(-1, 2)
    sizes = [second.size(0)]
    loss = contrast(first, second)
    shown = loss * 0.5
else:
    loss = contrast(features)
"""
    check_region(lines, "with region:" + lines.replace("\n", "\n    ").rstrip(" "))


def test_what_is_done_to_a_tensor_in_the_region_may_be_done_to_another_beside_it() -> None:
    lines = "features = model(x)\nif wide:\n    features = gather(features)\n    y = gather(y)\nloss = contrast(features, y)\n"
    check_region(lines, "with region:\n" + "".join(f"    {line}\n" for line in lines.splitlines()))


@pytest.mark.parametrize(
    "line",
    [
        "meter.update(features.mean().item())",
        "values.append(features.tolist())",
        "y = next(targets)",
        "print(x.shape)",
        "optimizer.zero_grad()",
        "extra = prepare(y)",
    ],
)
def test_loading_logging_and_what_nobody_can_see_keep_regions_apart(line: str) -> None:
    between = f"{line}\n{line}\nif flag:\n    {line}\n"
    check_region(
        f"features = model(x)\n{between}loss = criterion(features, y)\n",
        f"with region:\n    features = model(x)\n{between}with region:\n    loss = criterion(features, y)\n",
    )


def test_a_forward_without_gradients_keeps_a_region_of_its_own() -> None:
    check_region(
        "with torch.no_grad():\n    first = model(x)\nshift = first.detach()\nloss = criterion(model(x), shift)\n",
        """
with torch.no_grad(), torch.autocast("cuda", dtype=torch.float16):
    first = model(x)
with region:
    shift = first.detach()
    loss = criterion(model(x), shift)
""",
    )


# -- one that is too wide --------------------------------------------------------------------------------------------


def test_an_elif_stays_one_and_the_region_goes_into_its_body() -> None:
    between = "log(x)\nlog(y)\nlog(loss)\nlog(1)\n"
    before = """
loss = model(x, y)
{between}
if task == "a":
    for name in names:
        log(name)
        log(loss[name])
        log(loss[name].item())
elif task == "b":
    {region}loss = torch.sqrt(loss.sum(dim=1))
loss = loss.mean()
"""
    check_region(
        before.format(between=between, region=""),
        before.format(between=between, region="with region:\n        ").replace(
            "loss = model(x, y)", "with region:\n    loss = model(x, y)"
        ),
    )


def test_a_region_around_nothing_but_an_if_goes_into_its_body() -> None:
    body = "output = model(x)\n{}loss = criterion(output, y)\n"
    between = "log(x)\nlog(y)\nlog(1)\nlog(2)\n"
    check_region(
        body.format(between + "if measure:\n    score(criterion(output, y).item())\n" + between),
        "with region:\n    output = model(x)\n"
        + between
        + "if measure:\n    with region:\n        score(criterion(output, y).item())\n"
        + between
        + "with region:\n    loss = criterion(output, y)\n",
    )


@pytest.mark.parametrize("line", ["loss = loss.mean()", "loss = loss / 4", "loss = loss.mean() / steps"])
def test_arithmetic_that_autocast_leaves_alone_needs_no_region(line: str) -> None:
    between = "log(x)\nif flag:\n    log(y)\n"
    check_region(
        f"loss = model(x, y)\n{between}if several:\n    log(loss)\n    {line}\n",
        f"with region:\n    loss = model(x, y)\n{between}if several:\n    log(loss)\n    {line}\n",
    )


# -- helpers of the network ------------------------------------------------------------------------------------------

HELPED = {
    "train.py": TRAIN.format(line="x, y = batch"),
    "network.py": """
        import torch
        from torch import nn
        from long import encode

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.model = nn.Linear(4, 3)
            def forward(self, x):
                return encode(self.model, x)
        """,
    "long.py": """
        def encode(model, x):
            return model(x)
        """,
}


def test_a_function_that_only_a_forward_calls_runs_in_the_region_around_that_forward() -> None:
    results = rewrite_files(HELPED)
    assert results["long.py"].after is None
    assert "with torch.autocast" in (results["train.py"].after or "")


def test_a_function_that_others_call_as_well_has_a_region() -> None:
    files = dict(HELPED)
    files["train.py"] = "from long import encode\n" + files["train.py"].replace("= model(x)", "= encode(model, x)")
    assert "with torch.autocast" in (rewrite_files(files)["long.py"].after or "")


# -- backwards of other functions ------------------------------------------------------------------------------------


def test_a_call_that_runs_a_backward_of_its_own_stays_outside() -> None:
    attack = "def attack(inputs):\n    change = inputs.sum()\n    change.backward()\n    return inputs.grad\n"
    check_region(
        "output = model(x)\nif adversarial:\n    x = attack(x)\n    output = model(x)\nloss = criterion(output, y)\n",
        "with region:\n    output = model(x)\nif adversarial:\n    x = attack(x)\n    with region:\n"
        "        output = model(x)\nwith region:\n    loss = criterion(output, y)\n",
        model=attack + MODEL,
    )


KEPT = """
class Memory:
    def __init__(self, name):
        self.name, self.kept = name, []

    def keep(self, values):
        self.kept.append(values)

    def loss(self):
        return sum(v.mean() for v in self.kept) / 40


def folder(name):
    return len(name)


def train(model, optimizer):
    start = folder("model")
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1", verbosity=0)
    memory = Memory(start)
    for x, y in loader:
        size = folder("x" * len(x))
        memory = Memory(size)
        for part in (0, 1):
            output = model(x + part)
            scores = torch.nn.functional.logsigmoid(-((output - y) ** 2))
            memory.keep(-scores)
        loss = memory.loss()
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 0.5)
        optimizer.step()
        optimizer.zero_grad()


train(model, optimizer)
"""


def test_a_loss_that_an_object_keeps_is_followed_from_the_forward_to_the_object() -> None:
    """What is not between the two, though the loss needs it, is in no region: no forward was seen on the way to it once,
    and whatever it needs was taken for one."""
    after = check_trained(KEPT)
    lines = after.splitlines()
    regions = [i for i, line in enumerate(lines) if "torch.autocast(" in line]
    assert [lines[i + 1].strip() for i in regions] == ["output = model(x + part)", "loss = memory.loss()"]
    inside = lines[regions[0] + 1 : regions[0] + 4]
    assert [line.strip()[:6] for line in inside] == ["output", "scores", "memory"]


# -- what only counts ------------------------------------------------------------------------------------------------

COUNTED = """
class Losses(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = build()
    def forward(self, x, y, reduced=False):
        output = self.body(x)
        return output if reduced else torch.clamp(output * y, -1, 1)

model = Losses()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O2")
rows = 0
for step, (x, y) in enumerate(loader):
    loss = model(x, y)
    {count}
    loss = loss.mean() / 2
    with amp.scale_loss(loss, optimizer, delay_unscale=step % 2 == 0) as scaled_loss:
        scaled_loss.backward()
    print(loss.item())
    if step % 2:
        seen.append(clip_grad_norm_(amp.master_params(optimizer), 1.0))
        optimizer.step()
        optimizer.zero_grad()
seen.append(rows)
"""


@pytest.mark.parametrize("count", ["rows += loss.numel()", "rows += len(loss) * 1", "rows = loss.size(0)"])
def test_a_statement_that_counts_does_not_part_a_loss_from_its_mean(count: str) -> None:
    after = check_trained(COUNTED.format(count=count))
    then = "loss = loss.mean() / 2\n    scaler.scale(loss).backward()"
    assert f"        loss = model(x, y).float()\n        {count}\n        {then}" in after


def test_a_statement_that_reads_numbers_from_the_device_stays_out_of_the_region() -> None:
    after = check_trained(COUNTED.format(count="rows += loss.max().item()"))
    assert "        rows +=" not in after


BAG = """
    {imports}
    import torch
    from apex import amp

    class Trainer:
        def __init__(self, batch_fn):
            self.model = torch.nn.Linear(2, 2)
            self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
            self.batch_fn = batch_fn
            self.model, self.optimizer = amp.initialize(self.model, self.optimizer)

        def train(self, loader):
            parts = {made}(model=self.model, optimizer=self.optimizer, batch_fn=self.batch_fn)
            for batch in loader:
                self.step(parts, batch)

        def step(self, parts, batch):
            x, y = parts.batch_fn(batch)
            x = x + 1
            out = parts.model(x)
            loss = torch.nn.functional.cross_entropy(out, y)
            parts.optimizer.zero_grad()
            with amp.scale_loss(loss, parts.optimizer) as scaled_loss:
                scaled_loss.backward()
            parts.optimizer.step()
            with torch.no_grad():
                return parts.model(x + 1)
"""


@pytest.mark.parametrize(
    ("imports", "made"),
    [
        ("import types", "types.SimpleNamespace"),
        ("import munch\n    def bag(**kept):\n        return munch.Munch(dict(**kept))", "bag"),
        ("from unseen.parts import bag", "bag"),
    ],
)
def test_what_is_called_a_model_begins_the_region_not_what_prepares_the_batch(imports: str, made: str) -> None:
    text = rewrite(BAG.replace("{imports}", imports).replace("{made}", made)).after or ""
    region = 'with torch.autocast("cuda", dtype=torch.float16):\n            out = parts.model(x)\n            loss'
    assert f"x = x + 1\n        {region}" in text
    # What an object from outside was made with by a name is its attribute of that name: the model, wherever it is run.
    assert 'torch.no_grad(), torch.autocast("cuda", dtype=torch.float16):' in text


@pytest.mark.parametrize("name", ["format_loss", "loss_text", "write_losses", "loss_history"])
def test_what_only_tells_of_losses_computes_none(name: str) -> None:
    loop = APEX_LOOP + f"\nprint('epoch ' + {name}(loss.item()))"
    result = rewrite(apex(loop))
    assert result.after is not None
    assert result.after.count("torch.autocast(") == 1
    assert f"\n    print('epoch ' + {name}(loss.item()))" in result.after


SIDE_BY_SIDE = """
import json

import torch
from torch import nn
from apex import amp

SEEN = []


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(4, 3)

    def forward(self, x):
        out = self.last(x)
        SEEN.append(str(out.dtype))
        return out


def run(model, criterion, optimizer, batches, parts=False, warm=1):
    share = 0.1
    for phase in ("train", "val"):
        for x, y in batches:
            optimizer.zero_grad()
            if phase == "val":
                with torch.no_grad():
                    outputs = model(x)
            else:
                outputs = model(x)

            if parts:
                part = {}
                soft = nn.Softmax(dim=1)
                for i in range(2):
                    part[i] = outputs[i]
                score = soft(part[0]) + soft(part[1])
                _, best = torch.max(score.data, 1)
                loss = criterion(part[0], y)
                loss += criterion(part[1], y)
            else:
                loss = criterion(outputs, y)
                _, best = torch.max(outputs.data, 1)

            if warm and phase == "train":
                share = min(1.0, share + 0.9)
                loss *= share

            if phase == "train":
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
                optimizer.step()


if __name__ == "__main__":
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    run(model, nn.CrossEntropyLoss(), optimizer, [(torch.ones(2, 4), torch.tensor([0, 1]))])
    print(json.dumps(SEEN))
"""


def test_regions_with_nothing_between_them_are_one(tmp_path: Path) -> None:
    after = check_files({"main.py": SIDE_BY_SIDE}, device="cpu")
    assert after["main.py"].count("torch.autocast(") == 1
    assert run_files(tmp_path, after, "main.py") == ["torch.float16"] * 2


PLAYED = """
import numpy as np
import torch
from apex import amp
from games import actions_of, env, steps

model = torch.nn.Linear(4, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")


def as_array(x):
    return x.cpu().numpy()


def play(state):
    rewards = []
    for _ in range(steps):
        with torch.no_grad():
            score = model(state)
        action = score.argmax(-1)
        LINES
        rewards.append(reward)
    loss = (model(state).sum(-1) * torch.stack(rewards)).mean()
    with amp.scale_loss(loss, optimizer) as scaled:
        scaled.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    "lines",
    [
        "state, reward, done = env.step(as_array(action))",
        "state, reward, done = env.step(action.cpu())\n        reward = torch.from_numpy(reward.astype(np.float32))",
        "pairs = torch.utils.data.TensorDataset(action)\n        reward = next(iter(torch.utils.data.DataLoader(pairs)))[0]",
    ],
)
def test_what_comes_of_an_output_through_a_game_or_a_data_set_is_no_part_of_the_loss(lines: str) -> None:
    text = rewrite(PLAYED.replace("LINES", lines)).after
    assert text is not None
    assert f"        {lines}\n        rewards.append(reward)\n" in text
    assert "            score = model(state)\n        action = score" in text


EVALUATED = """
import torch
from apex import amp
from data import batches

model = torch.nn.Linear(4, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
for x, y in batches:
    loss = torch.nn.functional.cross_entropy(model(x), y)
    with amp.scale_loss(loss, optimizer) as scaled:
        scaled.backward()
    optimizer.step()
    optimizer.zero_grad()
found = []
for x, _ in batches:
    with torch.no_grad():
        scores = model(x)
        LINES
"""


@pytest.mark.parametrize(
    ("lines", "joined"),
    [
        ("scores = scores.view(-1).tolist()", True),
        ("found += scores.tolist()", True),
        ("found += rank(scores.tolist())", False),
    ],
)
def test_what_makes_numbers_of_an_output_is_no_reason_for_a_region_of_its_own(lines: str, joined: bool) -> None:
    text = rewrite(EVALUATED.replace("LINES", lines)).after
    assert text is not None
    assert ("with torch.no_grad(), torch.autocast(" in text) == joined
