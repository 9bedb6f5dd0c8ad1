"""Programs whose framework chooses Apex, one a construct that `amp_migrate/rules/frameworks/` rewrites.

Each trains a few steps, and prints what its framework made of the setting: it is run as it comes out of the rewriter.
"""

from __future__ import annotations

_DATA = """
import torch
from torch import nn

torch.manual_seed(0)
data = [(torch.randn(8, 16), torch.randint(0, 4, (8,))) for _ in range(6)]
"""

LIGHTNING = (
    """
import {package} as pl
"""
    + _DATA
    + """

class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))

    def training_step(self, batch, batch_idx):
        x, y = batch
        return nn.functional.cross_entropy(self.layers(x), y)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
trainer = pl.Trainer(max_epochs=1, accelerator="gpu", devices=1, {setting}, **quiet)
trainer.fit(Net(), torch.utils.data.DataLoader(data, batch_size=None))
scaler = trainer.precision_plugin.scaler
assert trainer.global_step == 6
print(trainer.precision, type(scaler).__name__, "scale", scaler.get_scale())
"""
)

TRANSFORMERS = (
    _DATA
    + """
from transformers import Trainer, TrainingArguments


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))

    def forward(self, x, labels):
        logits = self.layers(x)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


rows = [{"x": x, "labels": y} for batch in data for x, y in zip(*batch)]
arguments = TrainingArguments(
    "out",
    max_steps=6,
    per_device_train_batch_size=8,
    report_to=[],
    save_strategy="no",
    disable_tqdm=True,
    fp16=True,
    fp16_opt_level="O2",
    half_precision_backend="apex",
)
trainer = Trainer(model=Net(), args=arguments, train_dataset=rows)
trainer.train()
assert trainer.state.global_step == 6
print("fp16", trainer.args.fp16, "scale", trainer.accelerator.scaler.get_scale())
"""
)

DEEPSPEED = (
    """
import os

import deepspeed
"""
    + _DATA
    + """
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", LOCAL_RANK="0", WORLD_SIZE="1")
config = {
    "train_batch_size": 8,
    "amp": {"enabled": True, "opt_level": "%s"},
    "gradient_clipping": 1.0,
}
torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=torch.distributed.HashStore())
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
for x, y in data:
    loss = nn.functional.cross_entropy(engine(x.to(engine.device)%s), y.to(engine.device))
    engine.backward(loss)
    engine.step()
assert engine.global_steps == 6
print("steps", engine.global_steps, next(engine.module.parameters()).dtype)
"""
)

IGNITE = (
    _DATA
    + """
from apex import amp
from ignite.engine import create_supervised_evaluator, create_supervised_trainer

model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
trainer = create_supervised_trainer(model, optimizer, nn.CrossEntropyLoss(), device="cuda", amp_mode="apex")
evaluator = create_supervised_evaluator(model, device="cuda")
trainer.run(data, max_epochs=1)
evaluator.run(data)
assert trainer.state.iteration == 6
print("scale", trainer.state.scaler.get_scale(), "evaluated in", evaluator.state.output[0].dtype)
"""
)

CATALYST = (
    _DATA
    + """
from catalyst import dl

model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader([(x, y) for batch in data for x, y in zip(*batch)], batch_size=8)
runner = dl.SupervisedRunner()
runner.train(
    model=model,
    criterion=nn.CrossEntropyLoss(),
    optimizer=optimizer,
    loaders={"train": loader},
    num_epochs=1,
    %s,
)
print(type(runner.engine).__name__, "steps", runner.global_batch_step if hasattr(runner, "global_batch_step") else runner.batch_step)
"""
)

MMENGINE = (
    """
from mmengine.optim import build_optim_wrapper
"""
    + _DATA
    + """

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))


model = Net().cuda()
optim_wrapper = dict(
    type="ApexOptimWrapper",
    opt_level="O1",
    loss_scale=%s,
    optimizer=dict(type="SGD", lr=0.1),
    clip_grad=dict(max_norm=1.0),
)
wrapper = build_optim_wrapper(model, optim_wrapper)
for x, y in data:
    with wrapper.optim_context(model):
        loss = nn.functional.cross_entropy(model.layers(x.cuda()), y.cuda())
    wrapper.update_params(loss)
print(type(wrapper).__name__, "scale", wrapper.loss_scaler.get_scale())
"""
)

_PLUGIN = 'plugins=[ApexMixedPrecisionPlugin(amp_level="O1")]'
_IMPORT = "from pytorch_lightning.plugins import ApexMixedPrecisionPlugin\n"
_TRAINER = 'precision=16, amp_backend="apex", amp_level="O2"'

PROGRAMS = {
    "lightning_trainer": LIGHTNING.format(package="pytorch_lightning", setting=_TRAINER),
    "lightning_plugin": _IMPORT + LIGHTNING.format(package="pytorch_lightning", setting=_PLUGIN),
    "lightning_package": LIGHTNING.format(package="lightning.pytorch", setting=_TRAINER),
    "transformers": TRANSFORMERS,
    "deepspeed_o1": DEEPSPEED % ("O1", ""),
    "deepspeed_o2": DEEPSPEED % ("O2", ".half()"),
    "ignite": IGNITE,
    "catalyst_engine": CATALYST % 'engine=dl.APEXEngine("cuda:0", apex_kwargs=dict(opt_level="O1"))',
    "catalyst_fp16": CATALYST % 'fp16=dict(apex=True, opt_level="O1")',
    "mmengine_dynamic": MMENGINE % '"dynamic"',
    "mmengine_static": MMENGINE % '"512"',
}
