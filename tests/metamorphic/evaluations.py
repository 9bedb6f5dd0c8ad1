"""For fixtures with something to evaluate: a second script that uses train.py without Apex having been set up.

It ran in float32 and must go on to, to the bit.
"""

from __future__ import annotations

EVALUATIONS = {
    "imagenet": """
import torch
from train import Net, synthetic, validate

torch.manual_seed(3)
loader = torch.utils.data.DataLoader(synthetic(32), batch_size=16)
validate(loader, Net().cuda(), torch.nn.CrossEntropyLoss(), torch.device("cuda"))
""",
    "clip_every_micro_batch": """
import argparse
import torch
from train import PatchMixer, build_loader, validate

torch.manual_seed(3)
validate(argparse.Namespace(), build_loader(64, 32), PatchMixer().cuda(), torch.device("cuda"))
""",
    "computed_opt_level": """
import torch
from train import RelationHead, inference, make_data

torch.manual_seed(3)
model = RelationHead().cuda()
print(inference(model, *make_data(256), torch.device("cuda")))
with torch.no_grad():
    print(model(make_data(8)[0].cuda()).sum().item())
""",
    "kfold": """
import torch
from torch.utils.data import DataLoader, TensorDataset
from train import DEVICE, TabularNet, valid_fn

torch.manual_seed(3)
data = TensorDataset(torch.randn(64, 30), torch.ones(64, 4))
loss, predictions = valid_fn(TabularNet(30, 4).to(DEVICE), DataLoader(data, batch_size=32), torch.nn.BCEWithLogitsLoss())
print(loss, predictions.sum())
""",
    "backward_helper": """
import argparse
import torch
from train import build_model, evaluate

torch.manual_seed(3)
args = argparse.Namespace(device=torch.device("cuda"))
print(evaluate(args, build_model().cuda(), [(torch.randn(16, 10), torch.randn(16)) for _ in range(3)]))
""",
    "delay_unscale_variable": """
import torch
import train
from torch.utils.data import DataLoader

train.device = torch.device("cuda")
torch.manual_seed(3)
loader = DataLoader(train.make_split(64), batch_size=32, collate_fn=train.collate)
model = train.VisualEntailment().cuda()
train.validate(model, loader)
print(model(next(iter(loader))).sum().item())
""",
    "trainer_class": """
import torch
from torch.utils.data import DataLoader
from train import TextCNN, Trainer, make_dataset

torch.manual_seed(3)
trainer = Trainer(TextCNN(), None, DataLoader(make_dataset(64), batch_size=32), use_amp=False)
print(trainer.evaluate())
print(trainer.model(torch.zeros(2, 18, dtype=torch.long).cuda()).sum().item())
""",
    "inference_only": """
import torch
from train import Ranker, predict

torch.manual_seed(3)
print(predict(Ranker().cuda(), torch.randn(64, 16).cuda(), 32, False).sum().item())
""",
    "nnunet_trainer": """
import torch
from train import NetworkTrainer

trainer = NetworkTrainer(fp16=False)
trainer.initialize()
trainer.network.eval()
with torch.no_grad():
    print(trainer.run_iteration(trainer.val_gen, False))
""",
    "run_glue": """
import argparse
import torch
from train import TinyEncoder, evaluate, load_examples

torch.manual_seed(3)
args = argparse.Namespace(eval_batch_size=32, device=torch.device("cuda"))
model = TinyEncoder().cuda()
evaluate(args, load_examples(64), model)
print(model(torch.zeros(2, 12, dtype=torch.long).cuda())[0].sum().item())
""",
    "accumulation_clip": """
import torch
from train import CharLM, make_corpus

torch.manual_seed(3)
print(CharLM().cuda()(make_corpus(8).cuda()).sum().item())
""",
    "o2_float_outputs": """
import torch
import train

train.device = torch.device("cuda")
torch.manual_seed(3)
net = train.UNet().cuda()
train.validate(net, torch.utils.data.DataLoader(train.SquaresDataset(32, seed=5), batch_size=16))
with torch.no_grad():
    print(net(torch.randn(2, 1, 16, 16).cuda()).sum().item())
""",
    "static_scale": """
import torch
from train import Transducer

torch.manual_seed(3)
print(Transducer().cuda()(torch.randn(4, 12).cuda()).sum().item())
""",
    "amp_argument": """
import torch
from train import Vocoder

torch.manual_seed(3)
print(Vocoder().cuda()(torch.randn(4, 4, 12).cuda()).sum().item())
""",
}
EVALUATIONS = {name: text.lstrip("\n") for name, text in EVALUATIONS.items()}
