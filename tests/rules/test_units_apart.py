"""Programs that set up twice, each with a model of its own: what one reads is no gradient of the other's."""

from __future__ import annotations

from tests.rules.helpers import check_files, rewrite
from tests.rules.programs import apex
from tests.rules.trained import check_trained

TWICE = """
def prune(module):
    module.weight.grad.data.add_(0.01 * torch.sign(module.weight.data))
    seen.append(module.weight.grad.norm().item())


def warm_up():
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for i, (x, y) in enumerate(loader):
        loss = criterion(model(x), y)
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        if i % 2:
            optimizer.step()
            optimizer.zero_grad()
    seen.append(model(loader[0][0]).detach().float().sum())


def train():
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for x, y in loader:
        loss = criterion(model(x), y)
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        prune(model[0])
        seen.append(clip_grad_norm_(amp.master_params(optimizer), 10.0))
        optimizer.step()
        optimizer.zero_grad()


warm_up()
train()
"""


def test_a_reader_of_another_set_up_is_none_of_this_one() -> None:
    after = check_trained(TWICE)
    assert after.count("scaler.unscale_(optimizer)") == 1


SWITCHED = """
import torch

mixed_precision = True
try:
    from apex import amp
except:
    print("Apex recommended for mixed precision training: https://github.com/NVIDIA/apex")
    mixed_precision = False
"""
LOOP = """
    if not mixed_precision:
        teacher.eval()
    loss = criterion(model(x), teacher(x))
    optimizer.zero_grad()
    if mixed_precision:
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
    else:
        loss.backward()
    optimizer.step()
    """


def test_a_flag_that_another_condition_turns_off_too_is_the_switch() -> None:
    prepare = (
        'if device.type == "cpu":\n    mixed_precision = False\n'
        'if mixed_precision:\n    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")'
    )
    imports = SWITCHED.replace("import torch\n", "") + "from project import device, teacher"
    after = rewrite(apex(LOOP, prepare, imports=imports)).after
    assert after is not None
    assert 'if device.type == "cpu":\n    mixed_precision = False\n' in after
    assert 'GradScaler("cuda", enabled=mixed_precision)' in after
    assert 'torch.autocast("cuda", dtype=torch.float16, enabled=mixed_precision)' in after
    assert "    if not mixed_precision:\n        teacher.eval()\n" in after
    assert "    scaler.scale(loss).backward()\n" in after
    assert "apex" not in after.lower()


def test_a_flag_of_the_import_alone_goes_with_it() -> None:
    prepare = 'if mixed_precision:\n    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")'
    imports = SWITCHED.replace("import torch\n", "") + "from project import teacher"
    after = rewrite(
        apex(LOOP.replace("if not mixed_precision:\n        teacher.eval()\n    ", ""), prepare, imports=imports)
    ).after
    assert after is not None
    assert "mixed_precision" not in after


FEATURES = """
import torch
from apex import amp


class Features:
    def __call__(self, x):
        with amp.disable_casts():
            return torch.log(x + 1)
"""
TRAINING = """
import torch
from apex import amp
from features import Features


def main(loader):
    features = Features()
    model = torch.nn.Linear(2, 2).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for x in loader:
        loss = model(features(x)).sum()
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
"""
INFERENCE = """
import torch
from apex import amp
from features import Features


def main(loader):
    features = Features()
    model = torch.nn.Linear(2, 2).cuda()
    model = amp.initialize(model, opt_level="O3")
    for x in loader:
        print(model(features(x)))
"""


def test_a_class_that_training_and_inference_make_leaves_them_apart() -> None:
    """What runs a model and scales nothing is given no scaler for what the class does in both."""
    after = check_files({"features.py": FEATURES, "train.py": TRAINING, "inference.py": INFERENCE})
    assert "scaler = torch.amp.GradScaler" in after["train.py"]
    assert "scaler" not in after["inference.py"].lower()
    assert "with torch.autocast(" in after["inference.py"]
    assert 'with torch.autocast("cuda", enabled=False)' in after["features.py"]
