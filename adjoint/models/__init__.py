"""Well-known models, written with `adjoint.nn`, under the names that their weights have elsewhere.

GPT-2, BERT, Llama and ViT load what Hugging Face's transformers saves; ResNet and MobileNetV2 have
torchvision's names.
"""

from .bert import Bert, BertConfig, BertForMaskedLM, BertForSequenceClassification
from .generation import KeyValueCache
from .gpt2 import GPT2, GPT2Config
from .llama import Llama, LlamaConfig
from .mobilenet import MobileNetV2, mobilenet_v2
from .pretrained import Config, Pretrained
from .resnet import ResNet, resnet18, resnet34
from .vit import ViT, ViTConfig, ViTForImageClassification

__all__ = [
    "GPT2", "Bert", "BertConfig", "BertForMaskedLM", "BertForSequenceClassification", "Config",
    "GPT2Config", "KeyValueCache", "Llama", "LlamaConfig", "MobileNetV2", "Pretrained", "ResNet",
    "ViT", "ViTConfig", "ViTForImageClassification", "mobilenet_v2", "resnet18", "resnet34",
]  # fmt: skip
