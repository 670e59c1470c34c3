"""The networks that the losses train: images of 32x32 and 224x224, and plain feature vectors.

resnet     ResNet, resnet18, resnet34, resnet50    stem "cifar" for 32x32, "imagenet" for 224x224; torchvision's names
base       CNN5                                    a small one for images of any size, on a CPU
           MLP                                     on features, or anything flattened to them
           Classifier, replace_head                their base class; a new last layer for fine-tuning
           create_model, register_model, ...       the models by name
weights    load_weights                            from a state dict; pickled objects are refused

Every model maps ``x [N, ...]`` to logits ``[N, K]``; with ``features=True`` it gives the input of its last layer too.

>>> import torch
>>> model = create_model("resnet18", classes=10)
>>> logits, features = model(torch.zeros(2, 3, 32, 32), features=True)
>>> tuple(logits.shape), tuple(features.shape)
((2, 10), (2, 512))

A file added here enters the catalogue by being here; plug-ins add further networks, as the experiments' cnn8
(``noiseproof.paper.networks.CNN8``), and readers of files of torch's.
"""

import importlib
import pkgutil

from noiseproof.models.base import CNN5, MLP, Classifier, create_model, find_model, list_models, register_model, replace_head
from noiseproof.models.resnet import ResNet, resnet18, resnet34, resnet50
from noiseproof.models.weights import load_weights

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["CNN5", "MLP", "Classifier", "ResNet", "resnet18", "resnet34", "resnet50"]
__all__ += ["create_model", "find_model", "list_models", "load_weights", "register_model", "replace_head"]
