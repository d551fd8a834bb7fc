"""PyTorch programs run after changing their import line, with the same losses."""

from __future__ import annotations

import importlib
import pathlib
import re
import sys
import types

import numpy as np
import pytest

import adjoint as ad
from tests.sweep import one_in

EXAMPLES = pathlib.Path(__file__).parent.parent / "examples"
STEPS = 20
NAMES = {
    "actor_critic": "gymnasium", "binary_weights": "sklearn", "burgers_pinn": None,
    "char_gpt": None, "char_lstm": None, "dcgan": "sklearn", "diffusion": "sklearn",
    "digits_cnn": "sklearn", "digits_mlp": "sklearn", "forward_forward": "sklearn",
    "gan": "sklearn", "gaussian_process": None, "hessian": "sklearn", "karate_gcn": None,
    "maml": None, "multitask": "sklearn", "neural_ode": None, "private_sgd": "sklearn",
    "profile_training": None, "sac": "gymnasium", "siamese": "sklearn",
    "super_resolution": "sklearn", "transfer": "sklearn", "translate_dates": None, "unet": None,
    "vae": "sklearn", "vit": "sklearn", "xor": None,
}  # fmt: skip

IMPORTS = """
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
import torch.utils.data as data
import torch.autograd
import torch.cuda
import torch.backends.cudnn as cudnn
import torch.linalg
import torch.fft
import torch.random
import torch.version
import torch.nn.init as init
from torch import Tensor, nn, optim, autograd, cuda, linalg, fft
from torch import FloatTensor, LongTensor, DoubleTensor, IntTensor, BoolTensor, ByteTensor
from torch import float32, float64, int64, bool, device, dtype, Generator, Size
from torch import no_grad, enable_grad, set_grad_enabled, inference_mode, is_grad_enabled
from torch import manual_seed, set_default_dtype, get_num_threads, set_num_threads
from torch.autograd import Function, Variable, grad, backward, gradcheck, gradgradcheck
from torch.autograd.function import Function, once_differentiable
from torch.autograd.functional import hessian, hvp, jacobian, jvp, vhp, vjp
from torch.accelerator import current_accelerator, is_available
from torch.cuda import device_count, is_available
from torch.backends import cudnn, mkl, mps, openmp
import torch.distributions as dist
from torch.distributions import Bernoulli, Categorical, Independent, MultivariateNormal, Normal
from torch.distributions import kl_divergence
from torch.distributions.categorical import Categorical
from torch.distributions.normal import Normal
from torch.distributions.transforms import TanhTransform
from torch.utils.tensorboard import SummaryWriter
from torch.linalg import cholesky, inv, norm, solve, svd
from torch.nn import CrossEntropyLoss, Linear, Module, ModuleList, Parameter, Sequential
from torch.nn import LSTM, GRU, Embedding, MultiheadAttention, TransformerEncoderLayer
from torch.nn.functional import cross_entropy, log_softmax, pad, relu, scaled_dot_product_attention
from torch.nn.init import kaiming_normal_, xavier_uniform_, zeros_
from torch.nn.modules import Module
from torch.nn.modules.activation import MultiheadAttention, ReLU
from torch.nn.modules.batchnorm import BatchNorm2d, _BatchNorm
from torch.nn.modules.container import ModuleDict, ParameterList, Sequential
from torch.nn.modules.conv import Conv2d, _ConvNd
from torch.nn.modules.dropout import Dropout
from torch.nn.modules.linear import Linear
from torch.nn.modules.loss import CrossEntropyLoss, _Loss, _WeightedLoss
from torch.nn.modules.module import Module
from torch.nn.modules.normalization import LayerNorm
from torch.nn.modules.pooling import MaxPool2d
from torch.nn.modules.rnn import LSTM, RNNBase
from torch.nn.modules.sparse import Embedding
from torch.nn.modules.transformer import TransformerEncoder
from torch.nn.modules.utils import _pair, _single, _triple
from torch.nn.parameter import Buffer, Parameter
from torch.nn.utils import clip_grad_norm_, clip_grad_value_, parameters_to_vector
from torch.nn.utils import vector_to_parameters
from torch.nn.utils.clip_grad import clip_grad_norm_
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence
from torch.nn.utils.rnn import PackedSequence, pad_sequence
from torch.optim import LBFGS, SGD, Adam, AdamW, Optimizer, RMSprop
from torch.optim.adam import Adam
from torch.optim.adamw import AdamW
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler, OneCycleLR, StepLR
from torch.optim.optimizer import Optimizer
from torch.optim.sgd import SGD
from torch.optim.swa_utils import AveragedModel, SWALR
import torch.profiler
from torch.profiler import ProfilerAction, ProfilerActivity, profile, record_function, schedule
from torch.profiler import supported_activities, tensorboard_trace_handler
import torch.autograd.profiler as profiler
from torch.autograd.profiler import profile, record_function
from torch.random import fork_rng
from torch.special import digamma, expit, xlogy
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
from torch.utils.data import BatchSampler, ConcatDataset, DataLoader, Dataset, IterableDataset
from torch.utils.data import RandomSampler, Sampler, SequentialSampler, Subset, TensorDataset
from torch.utils.data import WeightedRandomSampler, default_collate, get_worker_info, random_split
from torch.utils.data.dataloader import DataLoader, default_collate
from torch.utils.data.dataset import Dataset, TensorDataset
from torch.utils.data.sampler import SubsetRandomSampler
"""


@pytest.mark.parametrize("line", IMPORTS.strip().splitlines())
def test_import_lines_of_pytorch_programs(line):
    exec(re.sub(r"\btorch\b", "adjoint", line), {})


class Draws:
    """Random numbers that do not depend on the framework."""

    def __init__(self, torch):
        self.torch = torch
        self.generator = np.random.default_rng(0)

    def randn(self, *shape):
        return self.torch.from_numpy(self.generator.standard_normal(shape).astype(np.float32))

    def randint(self, low, high, shape):
        return self.torch.from_numpy(self.generator.integers(low, high, shape))

    def randperm(self, n):
        return self.torch.from_numpy(self.generator.permutation(n))

    def multinomial(self, weights, count):
        bounds = np.cumsum(weights.numpy(), axis=1)
        points = self.generator.random((len(bounds), count)) * bounds[:, -1:]
        return self.torch.from_numpy((points[:, :, None] >= bounds[:, None]).sum(axis=2))


def load(name, framework):
    """The example as a module whose programs compute with `framework`."""
    source = (EXAMPLES / f"{name}.py").read_text()
    imports = r"^((?:import|from) )adjoint\b(?!\.utils\.progress)"  # bars: not PyTorch's business
    source = re.sub(imports, rf"\1{framework}", source, flags=re.MULTILINE)
    module = types.ModuleType(name)
    exec(compile(source, f"{name}.py", "exec"), vars(module))
    own = importlib.import_module(framework)
    draws = Draws(own)

    class WithDraws(types.ModuleType):
        def __getattr__(self, attribute):
            return getattr(own, attribute)

    assert module.torch is own
    module.torch = WithDraws("torch")
    for function in ("randn", "randint", "randperm", "multinomial"):
        setattr(module.torch, function, getattr(draws, function))
    return module


LOOSE = {"unet": 1e-3}  # Adam makes whole steps of gradients that are but rounding
OPTIONS = {  # what would draw from the framework's own generator
    "digits_mlp": ({"dropout": 0.0}, {"shuffle": False})
}


@pytest.mark.parametrize("name", one_in(3, sorted(NAMES)))
def test_an_example_has_the_same_losses_with_pytorch(name, monkeypatch):
    torch = pytest.importorskip("torch")
    if NAMES[name] is not None:
        pytest.importorskip(NAMES[name])
    build, run = OPTIONS.get(name, ({}, {}))
    ours, theirs = load(name, "adjoint"), load(name, "torch")
    ad.manual_seed(0)
    model, peer = ours.build_model(**build), theirs.build_model(**build)
    weights = {key: torch.tensor(value.numpy()) for key, value in model.state_dict().items()}
    peer.load_state_dict(weights)  # strict: the same names
    np.testing.assert_allclose(
        ours.train(model, STEPS, **run),
        theirs.train(peer, STEPS, **run),
        rtol=LOOSE.get(name, 1e-4),
    )


def test_every_example_is_compared():
    graphs = {"block_descent", "neat", "neat_gradient", "pricing"}
    steps = {"dqn_graph", "ewc_graph", "ppo_graph"}
    ours = {"gan_graph", "tbptt", "transfer_graph", *graphs, *steps}  # of Graph
    own = {"compiled_training", "exported_training", "inference"}  # beside PyTorch's own ways
    own |= {"own_backend"}  # of adjoint
    own |= {"ddp_digits", "zero_gpt"}  # several ranks, as one process: tests/distributed
    own |= {"elastic_digits", "ray_digits"}  # on Ray, likewise
    own |= {"finetune_timm", "lora_llama"}  # its torch is adjoint, also in timm and transformers
    helpers = {"digits", "interleaved", "record_results"}
    programs = {path.stem for path in EXAMPLES.glob("*.py")}
    assert programs - ours - own - helpers == set(NAMES)


def test_examples_name_the_framework_in_imports_only():
    """Otherwise replacing the import lines would not be enough."""
    for name in NAMES:
        source = (EXAMPLES / f"{name}.py").read_text()
        body = re.sub(r"^(import|from) .*$|ADJOINT_SMOKE", "", source, flags=re.MULTILINE)
        assert "adjoint" not in body, name


without_cuda = pytest.mark.skipif(ad.cuda.is_available(), reason="there is a CUDA device")


@without_cuda
def test_answers_about_devices_are_true():
    assert not ad.cuda.is_available() and ad.cuda.device_count() == 0
    assert ad.accelerator.current_accelerator() is None and not ad.accelerator.is_available()
    assert not ad.backends.cudnn.is_available() and ad.backends.cudnn.version() is None
    assert not ad.backends.mps.is_available() and not ad.backends.cuda.is_built()
    assert ad.version.cuda is None
    device = ad.device("cuda" if ad.cuda.is_available() else "cpu")
    assert ad.ones(2).to(device).device.type == "cpu"


@without_cuda
def test_seeding_no_device_leaves_the_processor_alone():
    ad.manual_seed(3)
    ad.cuda.manual_seed_all(7)
    ad.cuda.manual_seed(7)
    a = ad.rand(4)
    ad.manual_seed(3)
    assert a.equal(ad.rand(4))


@without_cuda
@pytest.mark.parametrize(
    "ask",
    [
        ad.cuda.synchronize, ad.cuda.current_device, ad.cuda.get_device_name, ad.cuda.init,
        ad.cuda.Stream, ad.cuda.Event, ad.accelerator.synchronize,
        ad.accelerator.current_device_index,
        lambda: ad.cuda.set_device(0), lambda: ad.ones(2).to("cuda"), lambda: ad.ones(2).cuda(),
    ],
)  # fmt: skip
def test_what_needs_a_device_is_refused(ask):
    with pytest.raises(ad.DeviceError, match="is_available"):
        ask()


def test_threads_of_matrix_products_can_be_set():
    before = ad.get_num_threads()
    ad.set_num_threads(1)
    assert ad.get_num_threads() == 1
    ad.set_num_threads(before)
    assert ad.get_num_threads() == before
    for wrong in (0, -1):
        with pytest.raises(RuntimeError, match="positive"):
            ad.set_num_threads(wrong)
    with pytest.raises(TypeError, match="str"):
        ad.set_num_threads("2")


def test_settings_of_cudnn_are_kept():
    cudnn = ad.backends.cudnn
    with cudnn.flags(enabled=False, benchmark=True):
        assert (cudnn.enabled, cudnn.benchmark) == (False, True)
    assert (cudnn.enabled, cudnn.benchmark) == (True, False)


def test_submodules_are_those_of_the_package():
    assert sys.modules["adjoint.nn"] is ad.nn
    assert importlib.import_module("adjoint.utils.data").DataLoader is ad.data.DataLoader
