"""Ordinary training programs, as users of PyTorch write them, on which `graph.step()` is judged.

Each is a function of `block` and `steps`. What an iteration computes stands inside `with block():`,
and nothing else in a program knows of graphs: with `contextlib.nullcontext` it is plain eager
execution, whose numbers are the right ones. It returns what a user would log, as (nested) lists of
floats and NumPy arrays; the first entry is a list with one value or more for each part of the run.
Programs differ on purpose in what stands inside the block: the forward pass, or `backward`, too, or
the optimizer's step. In `PROGRAMS` they are by their names.
"""

from __future__ import annotations

import copy
import dataclasses
import enum
import functools
import itertools
import random
from collections import deque

import numpy as np

import adjoint as ad
from adjoint import nn
from adjoint.nn import functional as F
from adjoint.nn.utils import parametrizations, parametrize
from adjoint.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from adjoint.optim import lr_scheduler, swa_utils
from adjoint.utils.checkpoint import checkpoint
from adjoint.utils.data import DataLoader, TensorDataset

PROGRAMS = {}


def seeded(program):
    """The program with the same random numbers in each run."""

    @functools.wraps(program)
    def run(block, steps):
        ad.manual_seed(0)
        np.random.seed(0)
        random.seed(0)
        return program(block, steps)

    return run


def training(program):
    """A program of the table."""
    PROGRAMS[program.__name__] = seeded(program)
    return program


def variants(make, **ways):
    """A program of the table for each way to make it."""
    for name, way in ways.items():
        program = make(way)
        program.__name__ = name
        training(program)


def mlp(*sizes):
    """Linear layers of these sizes with tanh between them."""
    layers = []
    for size, following in itertools.pairwise(sizes):
        layers += [nn.Linear(size, following), nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def floats(tensors):
    """The numbers of tensors of one element, and of what is a number already."""
    return [x if isinstance(x, float) else x.item() for x in tensors]


def arrays(tensors):
    """The values of tensors, each an array of its own."""
    return [tensor.detach().numpy().copy() for tensor in tensors]


def weights(module):
    """The values of a module's parameters and buffers."""
    return arrays(module.state_dict().values())


def update(optimizer, loss):
    """A step of an optimizer down the gradient of this loss alone."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def regression_data(rows=8, inputs=4, outputs=2):
    """A batch, and targets that depend on it."""
    x = ad.randn(rows, inputs)
    return x, ad.sin(x @ ad.randn(inputs, outputs))


# ---- regression and classification: what is inside the block, what is logged ---------------------


@training
def regression_with_the_forward_pass_inside(block, steps):
    """Losses are kept as tensors and read after the loop."""
    x, y = regression_data()
    model, criterion = mlp(4, 8, 2), nn.MSELoss()
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(steps):
        with block():
            loss = criterion(model(x), y)
        update(optimizer, loss)
        losses.append(loss)
    return [floats(losses), weights(model)]


@training
def regression_with_backward_inside(block, steps):
    """Losses are kept detached; gradients are logged, too."""
    x, y = regression_data()
    model = mlp(4, 8, 2)
    optimizer = ad.optim.Adam(model.parameters(), lr=0.01)
    losses, norms = [], []
    for _ in range(steps):
        optimizer.zero_grad()
        with block():
            loss = F.mse_loss(model(x), y)
            loss.backward()
        norms.append(ad.stack([p.grad.norm() for p in model.parameters()]).norm())
        optimizer.step()
        losses.append(loss.detach())
    return [floats(losses), floats(norms), weights(model)]


@training
def regression_with_everything_inside(block, steps):
    """The loss and the prediction of each step are read after the loop."""
    model = mlp(4, 8, 2)
    optimizer = ad.optim.AdamW(model.parameters(), lr=0.01)
    losses, predictions = [], []
    for _ in range(steps):
        with block():
            x = ad.randn(8, 4)
            prediction = model(x)
            loss = F.smooth_l1_loss(prediction, x[:, :2].cos())
            update(optimizer, loss)
        losses.append(loss.detach())
        predictions.append(prediction)
    return [floats(losses), arrays(predictions), weights(model)]


@training
def regression_without_modules(block, steps):
    """Weights are tensors, updated in place under no_grad."""
    x, y = regression_data()
    w = ad.randn(4, 8, requires_grad=True)
    v = ad.randn(8, 2, requires_grad=True)
    losses, history = [], []
    for _ in range(steps):
        with block():
            loss = ((x @ w).tanh() @ v - y).pow(2).mean()
        loss.backward()
        with ad.no_grad():
            for parameter in (w, v):
                parameter -= 0.05 * parameter.grad
                parameter.grad.zero_()
        losses.append(loss.item())
        history.append(w.detach().clone())
    return [floats(losses), arrays(history), arrays([w, v])]


@training
def regression_by_autograd_grad(block, steps):
    """New weights are new tensors of each step."""
    x, y = regression_data()
    w = ad.zeros(4, 2, requires_grad=True)
    losses = []
    for _ in range(steps):
        with block():
            loss = (x @ w - y).square().mean()
            (gradient,) = ad.autograd.grad(loss, w)
            w = (w - 0.1 * gradient).detach().requires_grad_()
        losses.append(loss)
    return [floats(losses), arrays([w])]


@training
def classification_with_accuracy(block, steps):
    """The number of right answers is counted from the logits that trained."""
    model = mlp(4, 8, 3)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    x = ad.randn(8, 4)
    labels = x[:, :3].argmax(1)
    losses, right = [], 0
    for _ in range(steps):
        with block():
            logits = model(x)
            loss = F.cross_entropy(logits, labels)
        update(optimizer, loss)
        right += (logits.argmax(1) == labels).sum().item()
        losses.append(loss.item())
    return [losses, float(right)]


@training
def predictions_read_after_the_step_that_changed_the_weights(block, steps):
    """The accuracy is computed after `optimizer.step()`, from logits of before."""
    x, y = regression_data(outputs=3)
    labels = y.argmax(1)
    model = mlp(4, 8, 3)
    optimizer = ad.optim.Adam(model.parameters(), lr=0.1)
    seen = []
    for _ in range(steps):
        with block():
            logits = model(x)
            loss = F.cross_entropy(logits, labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        seen.append(logits.softmax(1).max(1).values.mean().item())
    return [seen, weights(model)]


@training
def running_average_of_losses(block, steps):
    """An exponential average and a sum are kept as tensors, outside the block."""
    x, y = regression_data()
    model = mlp(4, 8, 2)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1)
    average, total, averages = None, ad.zeros(()), []
    for _ in range(steps):
        with block():
            loss = F.mse_loss(model(x), y)
        update(optimizer, loss)
        average = loss.detach() if average is None else 0.9 * average + 0.1 * loss.detach()
        total += loss.detach()
        averages.append(average)
    return [floats(averages), total.item()]


@training
def running_average_inside_the_block(block, steps):
    """The sum is a tensor that is written in place by each step."""
    x, y = regression_data()
    model = mlp(4, 8, 2)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1)
    total, count, means = ad.zeros(1), 0, []
    for _ in range(steps):
        with block():
            loss = F.mse_loss(model(x), y)
            update(optimizer, loss)
            total += loss.detach()
            count += 1
            means.append(total / count)
    return [floats(means), total.item()]


@training
def best_loss_kept_as_a_tensor(block, steps):
    """The smallest loss so far, its step, and the prediction that gave it."""
    model = mlp(4, 8, 2)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.5)
    best, best_prediction, bests = None, None, []
    for _ in range(steps):
        x = ad.randn(4, 4)
        with block():
            prediction = model(x)
            loss = (prediction - x[:, 2:]).abs().mean()
        update(optimizer, loss)
        if best is None or loss < best:
            best, best_prediction = loss, prediction
        bests.append(best)
    return [floats(bests), arrays([best_prediction])]


@training
def losses_of_one_epoch_summed_and_read_at_its_end(block, steps):
    """`total = total + loss` keeps the histories of a whole epoch, as careless programs do."""
    x, y = regression_data()
    model = mlp(4, 8, 2)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1)
    epochs, total = [], 0.0
    for step in range(steps):
        with block():
            loss = F.mse_loss(model(x), y)
        update(optimizer, loss)
        total = total + loss
        if step % 3 == 2:
            epochs.append(total.item() / 3)
            total = 0.0
    return [epochs, weights(model)]


@training
def loader_with_a_smaller_last_batch(block, steps):
    """Batches of 4, 4 and 2 rows, shuffled."""
    x, y = regression_data(rows=10)
    loader = DataLoader(TensorDataset(x, y), batch_size=4, shuffle=True)
    model = mlp(4, 8, 2)
    optimizer = ad.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    while len(losses) < steps:
        for inputs, targets in loader:
            with block():
                loss = F.mse_loss(model(inputs), targets)
            update(optimizer, loss)
            losses.append(loss.detach())
    return [floats(losses), weights(model)]


@training
def validation_between_steps(block, steps):
    """The validation loss is computed under no_grad, in the block as well."""
    x, y = regression_data()
    held_out, expected = regression_data()
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 2))
    optimizer = ad.optim.Adam(model.parameters(), lr=0.02)
    losses, validation = [], []
    for step in range(steps):
        model.train()
        with block():
            loss = F.mse_loss(model(x), y)
        update(optimizer, loss)
        losses.append(loss.item())
        if step % 2 == 1:
            model.eval()
            with ad.no_grad(), block():
                validation.append(F.mse_loss(model(held_out), expected))
    return [floats(losses), floats(validation)]


@training
def inference_mode_between_steps(block, steps):
    """Inference mode is entered inside the block."""
    x, y = regression_data()
    model = mlp(4, 8, 2)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1)
    losses, outputs = [], []
    for _ in range(steps):
        with block():
            loss = F.mse_loss(model(x), y)
            update(optimizer, loss)
            with ad.inference_mode():
                outputs.append(model(x))
        losses.append(loss)
    return [floats(losses), [output.numpy().copy() for output in outputs]]


@training
def convolutions_and_batch_norm(block, steps):
    """A small convolutional network; running statistics are logged."""
    model = nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(12, 3),
    )  # fmt: skip
    optimizer = ad.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    images, labels = ad.randn(4, 1, 4, 4), ad.tensor([0, 1, 2, 1])
    losses, means = [], []
    for _ in range(steps):
        with block():
            loss = F.cross_entropy(model(images), labels)
        update(optimizer, loss)
        losses.append(loss.detach())
        means.append(model[1].running_mean.clone())
    return [floats(losses), arrays(means), weights(model)]


@training
def attention_block(block, steps):
    """A transformer's encoder layer with a causal mask made inside the block."""
    layer = nn.TransformerEncoderLayer(8, 2, dim_feedforward=16, dropout=0.1, batch_first=True)
    head = nn.Linear(8, 1)
    optimizer = ad.optim.Adam([*layer.parameters(), *head.parameters()], lr=0.01)
    x = ad.randn(2, 5, 8)
    y = x.mean(2, keepdim=True)
    losses = []
    for _ in range(steps):
        with block():
            mask = ad.triu(ad.full((5, 5), float("-inf")), diagonal=1)
            loss = F.mse_loss(head(layer(x, src_mask=mask)), y)
        update(optimizer, loss)
        losses.append(loss.item())
    return [floats(losses), weights(head)]


# ---- optimizers and schedules --------------------------------------------------------------------


@training
def lbfgs_with_the_block_in_its_closure(block, steps):
    """The optimizer calls the block as often as it likes; numbers are of double precision."""
    x, y = (part.double() for part in regression_data())
    model = mlp(4, 4, 2).double()
    optimizer = ad.optim.LBFGS(model.parameters(), lr=0.5, max_iter=3, history_size=4)

    def closure():
        optimizer.zero_grad()
        with block():
            loss = F.mse_loss(model(x), y)
        loss.backward()
        return loss

    losses = [optimizer.step(closure) for _ in range(steps)]
    return [floats(losses), weights(model)]


@training
def closure_inside_the_block(block, steps):
    """`optimizer.step(closure)` as a whole is inside."""
    x, y = regression_data()
    model = mlp(4, 4, 2)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1)

    def closure():
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        return loss

    losses = []
    for _ in range(steps):
        with block():
            losses.append(optimizer.step(closure))
    return [floats(losses), weights(model)]


@training
def schedules_of_the_learning_rate(block, steps):
    """Steps down, with a warm-up before."""
    x, y = regression_data()
    model = mlp(4, 8, 2)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.2)
    warm_up = lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=3)
    falling = lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.9)
    schedule = lr_scheduler.SequentialLR(optimizer, [warm_up, falling], milestones=[3])
    losses, rates = [], []
    for _ in range(steps):
        with block():
            loss = F.mse_loss(model(x), y)
        update(optimizer, loss)
        schedule.step()
        losses.append(loss)
        rates.append(schedule.get_last_lr()[0])
    return [floats(losses), rates, weights(model)]


@training
def learning_rate_that_waits_for_a_plateau(block, steps):
    """The schedule reads the loss after the optimizer's step."""
    x, y = regression_data()
    model = mlp(4, 8, 2)
    optimizer = ad.optim.SGD(model.parameters(), lr=1.5)
    schedule = lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=1)
    losses, rates = [], []
    for _ in range(steps):
        with block():
            loss = F.mse_loss(model(x), y)
        update(optimizer, loss)
        schedule.step(loss)
        losses.append(loss.item())
        rates.append(optimizer.param_groups[0]["lr"])
    return [losses, rates]


@training
def gradient_accumulation(block, steps):
    """Four small batches for each step of the optimizer."""
    model = mlp(4, 8, 2)
    optimizer = ad.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    optimizer.zero_grad()
    for step in range(steps):
        x = ad.randn(2, 4)
        with block():
            loss = F.mse_loss(model(x), x[:, :2]) / 4
        loss.backward()
        losses.append(loss.detach())
        if step % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()
    return [
        floats(losses),
        weights(model),
        arrays(p.grad for p in model.parameters() if p.grad is not None),
    ]


@training
def gradient_accumulation_in_one_block(block, steps):
    """The inner loop is inside the block, and gradients stay zero tensors between."""
    model = mlp(4, 8, 2)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=False)
        with block():
            for _ in range(3):
                x = ad.randn(2, 4)
                loss = F.mse_loss(model(x), x[:, :2]) / 3
                loss.backward()
                losses.append(loss.item())
        optimizer.step()
    return [floats(losses), weights(model)]


@training
def gradients_clipped_by_norm(block, steps):
    """The norm before clipping is logged, as a tensor."""
    model = mlp(4, 8, 2)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.5)
    losses, norms = [], []
    for _ in range(steps):
        x = ad.randn(4, 4)
        with block():
            loss = (model(x) - 3 * x[:, :2]).pow(2).sum()
            optimizer.zero_grad()
            loss.backward()
            norms.append(nn.utils.clip_grad_norm_(model.parameters(), 0.5))
        optimizer.step()
        losses.append(loss)
    return [floats(losses), floats(norms), weights(model)]


@training
def gradients_clipped_by_value(block, steps):
    """Gradients are written in place, and logged before and after."""
    x, y = regression_data()
    model = mlp(4, 8, 2)
    optimizer = ad.optim.RMSprop(model.parameters(), lr=0.01)
    losses, before, after = [], [], []
    for _ in range(steps):
        with block():
            loss = F.l1_loss(model(x), y, reduction="sum")
        optimizer.zero_grad()
        loss.backward()
        before.append(model[0].weight.grad.clone())
        nn.utils.clip_grad_value_(model.parameters(), 0.2)
        after.append(model[0].weight.grad.clone())
        optimizer.step()
        losses.append(loss.detach())
    return [floats(losses), arrays(before), arrays(after)]


@training
def groups_of_parameters(block, steps):
    """One group is added when half of the steps are done."""
    x, y = regression_data()
    body, head = mlp(4, 8), nn.Linear(8, 2)
    optimizer = ad.optim.SGD([{"params": head.parameters(), "lr": 0.1}], lr=0.01, weight_decay=0.1)
    losses = []
    for step in range(steps):
        if step == steps // 2:
            optimizer.add_param_group({"params": body.parameters()})
        with block():
            loss = F.mse_loss(head(body(x).tanh()), y)
        update(optimizer, loss)
        losses.append(loss.item())
    return [floats(losses), weights(body), weights(head)]


@training
def optimizer_replaced_in_the_middle(block, steps):
    """Adam first, then SGD, and the state of the first is logged."""
    x, y = regression_data()
    model = mlp(4, 8, 2)
    optimizer = first = ad.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for step in range(steps):
        if step == steps // 2:
            optimizer = ad.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
        with block():
            loss = F.mse_loss(model(x), y)
            update(optimizer, loss)
        losses.append(loss)
    return [floats(losses), arrays(first.state[p]["exp_avg"] for p in model.parameters())]


@training
def mixed_precision(block, steps):
    """autocast around the forward pass, gradients scaled."""
    x, y = regression_data()
    model = mlp(4, 8, 2)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1)
    scaler = ad.amp.GradScaler("cpu", init_scale=8.0)
    losses = []
    for _ in range(steps):
        with block(), ad.autocast("cpu", dtype=ad.bfloat16):
            output = model(x)
            loss = F.mse_loss(output.float(), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.detach())
    return [floats(losses), weights(model)]


# ---- adversarial networks ------------------------------------------------------------------------


def gan():
    """A generator and a discriminator."""
    return mlp(2, 8, 4), mlp(4, 8, 1)


@training
def gan_with_two_optimizers(block, steps):
    """The discriminator sees `fake.detach()`, the generator is trained through it."""
    generator, discriminator = gan()
    of_g = ad.optim.Adam(generator.parameters(), lr=0.01)
    of_d = ad.optim.Adam(discriminator.parameters(), lr=0.01)
    criterion = nn.BCEWithLogitsLoss()
    ones, zeros = ad.ones(4, 1), ad.zeros(4, 1)
    losses_d, losses_g = [], []
    for _ in range(steps):
        real, noise = ad.randn(4, 4) + 2, ad.randn(4, 2)
        with block():
            fake = generator(noise)
            loss_d = criterion(discriminator(real), ones)
            loss_d = loss_d + criterion(discriminator(fake.detach()), zeros)
            update(of_d, loss_d)
            loss_g = criterion(discriminator(fake), ones)
            update(of_g, loss_g)
        losses_d.append(loss_d)
        losses_g.append(loss_g)
    return [floats(losses_d), floats(losses_g), weights(generator), weights(discriminator)]


@training
def gan_with_a_block_for_each_network(block, steps):
    """The optimizers' steps stand between the blocks; the fake batch is used in both."""
    generator, discriminator = gan()
    of_g = ad.optim.SGD(generator.parameters(), lr=0.1)
    of_d = ad.optim.SGD(discriminator.parameters(), lr=0.1)
    log = []
    for _ in range(steps):
        with block():
            fake = generator(ad.randn(4, 2))
            score_real = discriminator(ad.randn(4, 4).abs())
            score_fake = discriminator(fake.detach())
            loss_d = F.softplus(-score_real).mean() + F.softplus(score_fake).mean()
        update(of_d, loss_d)
        with block():
            loss_g = F.softplus(-discriminator(fake)).mean()
        update(of_g, loss_g)
        log += [loss_d, loss_g, score_real.mean(), score_fake.mean()]
    return [floats(log), weights(generator), weights(discriminator)]


@training
def gan_that_sees_real_and_fake_in_one_batch(block, steps):
    """One call of the discriminator on both, split afterwards."""
    generator, discriminator = gan()
    of_g = ad.optim.Adam(generator.parameters(), lr=0.01)
    of_d = ad.optim.Adam(discriminator.parameters(), lr=0.01)
    log = []
    for _ in range(steps):
        real, noise = ad.rand(4, 4), ad.randn(4, 2)
        with block():
            fake = generator(noise)
            real_score, fake_score = discriminator(ad.cat([real, fake.detach()])).chunk(2)
            loss_d = F.relu(1 - real_score).mean() + F.relu(1 + fake_score).mean()
        update(of_d, loss_d)
        with block():
            loss_g = -discriminator(generator(noise)).mean()
        update(of_g, loss_g)
        log += [loss_d, loss_g, fake.std()]
    return [floats(log), weights(generator)]


@training
def gan_with_a_gradient_penalty(block, steps):
    """The critic's loss holds the norm of a gradient (create_graph)."""
    generator, critic = gan()
    of_g = ad.optim.Adam(generator.parameters(), lr=0.01)
    of_c = ad.optim.Adam(critic.parameters(), lr=0.01)
    log = []
    for step in range(steps):
        with block():
            real, fake = ad.randn(4, 4) + 1, generator(ad.randn(4, 2))
            share = ad.rand(4, 1)
            between = (share * real + (1 - share) * fake).detach().requires_grad_()
            (slope,) = ad.autograd.grad(critic(between).sum(), between, create_graph=True)
            penalty = ((slope.norm(2, dim=1) - 1) ** 2).mean()
            loss_c = critic(fake.detach()).mean() - critic(real).mean() + 10 * penalty
        update(of_c, loss_c)
        log += [loss_c, penalty]
        if step % 2:
            with block():
                loss_g = -critic(generator(ad.randn(4, 2))).mean()
            update(of_g, loss_g)
            log.append(loss_g)
    return [floats(log), weights(generator), weights(critic)]


@training
def gan_whose_critic_is_clamped(block, steps):
    """Wasserstein: the critic's weights are clamped through `.data`."""
    generator, critic = gan()
    of_g = ad.optim.RMSprop(generator.parameters(), lr=0.01)
    of_c = ad.optim.RMSprop(critic.parameters(), lr=0.01)
    log = []
    for _ in range(steps):
        for _ in range(2):
            with block():
                loss_c = critic(generator(ad.randn(4, 2)).detach()).mean()
                loss_c = loss_c - critic(ad.randn(4, 4) * 2).mean()
            update(of_c, loss_c)
            for parameter in critic.parameters():
                parameter.data.clamp_(-0.1, 0.1)
            log.append(loss_c)
        with block():
            loss_g = -critic(generator(ad.randn(4, 2))).mean()
        update(of_g, loss_g)
        log.append(loss_g)
    return [floats(log), weights(critic)]


# ---- reinforcement learning ----------------------------------------------------------------------


def walk(state, action):
    """An environment of four numbers: the next state, and what the action was worth."""
    state = np.tanh(state + 0.3 * np.random.randn(4).astype(np.float32))
    return state.astype(np.float32), float(state[action] - 0.1 * action)


@training
def reinforce(block, steps):
    """Log-probabilities of an episode are kept, and summed with their returns at its end."""
    policy = mlp(4, 8, 3)
    optimizer = ad.optim.Adam(policy.parameters(), lr=0.02)
    losses, returns_of_all, state = [], [], np.zeros(4, np.float32)
    for _ in range(steps):
        kept, rewards = [], []
        for _ in range(4):
            with block():
                logits = policy(ad.from_numpy(state))
                action = ad.multinomial(logits.softmax(0), 1).item()
                kept.append(logits.log_softmax(0)[action])
            state, reward = walk(state, action)
            rewards.append(reward)
        returns = np.cumsum(rewards[::-1])[::-1].copy()
        with block():
            loss = -(ad.stack(kept) * ad.tensor(returns, dtype=kept[0].dtype)).sum()
        update(optimizer, loss)
        losses.append(loss.item())
        returns_of_all.append(returns[0])
    return [floats(losses), returns_of_all, weights(policy)]


@training
def reinforce_with_distributions_and_a_baseline(block, steps):
    """The baseline is a running average of rewards, a tensor; the entropy is logged."""
    policy = mlp(4, 8, 3)
    optimizer = ad.optim.SGD(policy.parameters(), lr=0.1)
    baseline, losses, entropies = ad.zeros(()), [], []
    for _ in range(steps):
        states = ad.randn(6, 4)
        with block():
            choice = ad.distributions.Categorical(logits=policy(states))
            actions = choice.sample()
            rewards = states.gather(1, actions[:, None]).squeeze(1)
            entropy = choice.entropy().mean()
            loss = -(choice.log_prob(actions) * (rewards - baseline)).mean() - 0.01 * entropy
        update(optimizer, loss)
        baseline = 0.9 * baseline + 0.1 * rewards.mean()
        losses.append(loss)
        entropies.append(entropy.detach())
    return [floats(losses), floats(entropies), baseline.item()]


@training
def actor_critic(block, steps):
    """One body with two heads; the advantage is detached."""
    body, actor, critic = nn.Linear(4, 8), nn.Linear(8, 3), nn.Linear(8, 1)
    parameters = [*body.parameters(), *actor.parameters(), *critic.parameters()]
    optimizer = ad.optim.Adam(parameters, lr=0.02)
    state, log = np.zeros(4, np.float32), []
    for _ in range(steps):
        with block():
            hidden = body(ad.tensor(state)).tanh()
            log_probabilities, value = actor(hidden).log_softmax(0), critic(hidden).squeeze()
            action = int(ad.multinomial(log_probabilities.exp(), 1))
            state, reward = walk(state, action)
            with ad.no_grad():
                following = critic(body(ad.tensor(state)).tanh()).squeeze()
            advantage = reward + 0.9 * following - value
            loss = -log_probabilities[action] * advantage.detach() + 0.5 * advantage**2
            update(optimizer, loss)
        log += [loss, value, advantage]
    return [floats(log), weights(body)]


@training
def actor_critic_over_a_rollout(block, steps):
    """Values and log-probabilities of several blocks go into one loss, outside of any block."""
    actor, critic = mlp(4, 8, 2), mlp(4, 8, 1)
    optimizer = ad.optim.Adam([*actor.parameters(), *critic.parameters()], lr=0.02)
    state, log = np.zeros(4, np.float32), []
    for _ in range(steps):
        chosen, values, rewards = [], [], []
        for _ in range(3):
            with block():
                x = ad.tensor(state)[None]
                policy = ad.distributions.Categorical(logits=actor(x))
                values.append(critic(x)[0, 0])
            action = policy.sample()
            chosen.append(policy.log_prob(action)[0])
            state, reward = walk(state, action.item())
            rewards.append(reward)
        values, chosen = ad.stack(values), ad.stack(chosen)
        advantages = ad.tensor(rewards).cumsum(0).flip(0) - values
        loss = advantages.pow(2).mean() - (chosen * advantages.detach()).mean()
        update(optimizer, loss)
        log += [loss, values.mean(), chosen.sum()]
    return [floats(log), weights(actor), weights(critic)]


def ppo(old_log_probabilities):
    """PPO, several epochs on one rollout, where old log-probabilities are kept in some way."""

    def program(block, steps):
        policy, value = mlp(4, 8, 3), mlp(4, 8, 1)
        optimizer = ad.optim.Adam([*policy.parameters(), *value.parameters()], lr=0.03)
        losses, ratios, kept = [], [], []
        for _ in range(-(-steps // 3)):
            states, actions = ad.randn(8, 4), ad.randint(0, 3, (8,))
            rewards = states.gather(1, actions[:, None]).squeeze(1)

            def log_probability(states=states, actions=actions):
                return policy(states).log_softmax(1).gather(1, actions[:, None]).squeeze(1)

            with block():
                old = old_log_probabilities(log_probability)
            kept.append(old)
            for _ in range(3):
                with block():
                    ratio = (log_probability() - old).exp()
                    estimate = value(states).squeeze(1)
                    advantage = (rewards - estimate).detach()
                    gain = ad.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
                    loss = F.mse_loss(estimate, rewards) - gain
                update(optimizer, loss)
                losses.append(loss.detach())
                ratios.append(ratio.mean())
        return [floats(losses), floats(ratios), arrays(kept)]

    return program


def _detached(log_probability):
    return log_probability().detach()


def _without_gradients(log_probability):
    with ad.no_grad():
        return log_probability()


def _cloned(log_probability):
    return log_probability().clone().detach()


def _through_numpy(log_probability):
    return ad.from_numpy(log_probability().detach().numpy())


variants(
    ppo,
    ppo_with_old_values_detached=_detached,
    ppo_with_old_values_under_no_grad=_without_gradients,
    ppo_with_old_values_cloned=_cloned,
    ppo_with_old_values_through_numpy=_through_numpy,
)


@training
def dqn_with_a_copied_target_network(block, steps):
    """copy.deepcopy makes the target network anew every three steps."""
    network = mlp(4, 8, 3)
    target = copy.deepcopy(network)
    optimizer = ad.optim.Adam(network.parameters(), lr=0.02)
    losses, targets = [], []
    for step in range(steps):
        states, following = ad.randn(6, 4), ad.randn(6, 4)
        actions, rewards = ad.randint(0, 3, (6, 1)), ad.randn(6)
        with block():
            values = network(states).gather(1, actions).squeeze(1)
            with ad.no_grad():
                wanted = rewards + 0.9 * target(following).max(1).values
            loss = F.smooth_l1_loss(values, wanted)
        update(optimizer, loss)
        if step % 3 == 2:
            target = copy.deepcopy(network)
        losses.append(loss.item())
        targets.append(wanted)
    return [floats(losses), arrays(targets), weights(target)]


@training
def dqn_with_a_loaded_target_network(block, steps):
    """load_state_dict of state_dict every three steps; a memory read by Python's random."""
    network, target = mlp(4, 8, 3), mlp(4, 8, 3)
    target.load_state_dict(network.state_dict())
    target.eval()
    optimizer = ad.optim.SGD(network.parameters(), lr=0.1)
    memory, losses, state = deque(maxlen=20), [], np.zeros(4, np.float32)
    for step in range(steps):
        with ad.no_grad(), block():
            greedy = network(ad.from_numpy(state)).argmax().item()
        action = random.randrange(3) if random.random() < 0.3 else greedy
        following, reward = walk(state, action)
        memory.append((state, action, reward, following))
        state = following
        states, actions, rewards, nexts = zip(*random.choices(memory, k=4), strict=True)
        with block():
            values = network(ad.tensor(np.stack(states)))[ad.arange(4), ad.tensor(actions)]
            best = target(ad.tensor(np.stack(nexts))).max(dim=1)[0].detach()
            loss = F.mse_loss(values, ad.tensor(rewards) + 0.9 * best)
            update(optimizer, loss)
        if step % 3 == 2:
            target.load_state_dict(network.state_dict())
        losses.append(loss)
    return [floats(losses), weights(network), weights(target)]


@training
def double_dqn_with_soft_updates(block, steps):
    """The target network follows under no_grad, inside the block."""
    network = mlp(4, 8, 3)
    target = copy.deepcopy(network).requires_grad_(False)
    optimizer = ad.optim.Adam(network.parameters(), lr=0.05)
    log = []
    for _ in range(steps):
        states, following, rewards = ad.randn(6, 4), ad.randn(6, 4), ad.randn(6)
        with block():
            best = network(following).argmax(1, keepdim=True)
            wanted = rewards + 0.9 * target(following).gather(1, best).squeeze(1)
            loss = F.mse_loss(network(states).amax(1), wanted)
            update(optimizer, loss)
            with ad.no_grad():
                for slow, fast in zip(target.parameters(), network.parameters(), strict=True):
                    slow.mul_(0.9).add_(fast, alpha=0.1)
        log += [loss, wanted.mean(), best.float().mean()]
    return [floats(log), weights(target)]


@training
def policy_evaluation_by_temporal_differences(block, steps):
    """A table of values is written in place; the error of each step is kept."""
    values = ad.zeros(6)
    errors, place = [], 0
    for _ in range(steps):
        following = (place + random.choice((1, 2))) % 6
        with block():
            error = 0.1 * place + 0.9 * values[following] - values[place]
            values[place] += 0.5 * error
        errors.append(error)
        place = following
    return [floats(errors), arrays([values])]


@training
def value_iteration(block, steps):
    """Each table is computed from the one before, and all are kept."""
    transitions = ad.rand(3, 5, 5).softmax(2)
    rewards = ad.randn(3, 5)
    tables = [ad.zeros(5)]
    for _ in range(steps):
        with block():
            tables.append((rewards + 0.8 * transitions @ tables[-1]).max(0).values)
    return [floats(table.sum() for table in tables), arrays(tables)]


@training
def bandit_with_preferences(block, steps):
    """Preferences are a parameter; the chosen arm is an index of Python."""
    preferences = nn.Parameter(ad.zeros(4))
    optimizer = ad.optim.SGD([preferences], lr=0.4)
    average, log = 0.0, []
    for step in range(steps):
        with block():
            chances = preferences.softmax(0)
            arm = int(np.random.choice(4, p=chances.detach().double().softmax(0).numpy()))
            reward = arm * 0.5 + float(np.random.randn())
            loss = -chances[arm].log() * (reward - average)
        update(optimizer, loss)
        average += (reward - average) / (step + 1)
        log.append(chances)
    return [[value for row in arrays(log) for value in row.tolist()], average]


# ---- recurrent networks --------------------------------------------------------------------------


@training
def truncated_backpropagation_through_an_lstm(block, steps):
    """The state is detached after each part of the sequence."""
    lstm, head = nn.LSTM(3, 6, batch_first=True), nn.Linear(6, 1)
    optimizer = ad.optim.Adam([*lstm.parameters(), *head.parameters()], lr=0.02)
    sequence = ad.sin(ad.arange(0, 2 * steps * 3).float() / 5).view(2, steps, 3)
    state, losses, states = None, [], []
    for step in range(steps):
        x = sequence[:, step : step + 1]
        with block():
            output, state = lstm(x, state)
            loss = F.mse_loss(head(output), x.mean(2, keepdim=True))
        update(optimizer, loss)
        state = tuple(part.detach() for part in state)
        losses.append(loss.detach())
        states.append(state[0])
    return [floats(losses), arrays(states), weights(lstm)]


@training
def truncated_backpropagation_through_a_cell_by_hand(block, steps):
    """The state is cleared every fourth step; detaching stands inside the block."""
    inner, outer, head = nn.Linear(3, 6), nn.Linear(6, 6, bias=False), nn.Linear(6, 1)
    parameters = [p for m in (inner, outer, head) for p in m.parameters()]
    optimizer = ad.optim.SGD(parameters, lr=0.1)
    h, losses = ad.zeros(2, 6), []
    for step in range(steps):
        if step % 4 == 0:
            h = ad.zeros(2, 6)
        with block():
            h = h.detach()
            loss = 0.0
            for x in ad.randn(3, 2, 3):
                h = (inner(x) + outer(h)).tanh()
                loss = loss + (head(h).squeeze(1) - x.sum(1)).square().mean()
            update(optimizer, loss)
        losses.append(loss.item())
    return [floats(losses), arrays([h]), weights(outer)]


class Remembering(nn.Module):
    """A recurrent cell that keeps its state in an attribute."""

    def __init__(self):
        super().__init__()
        self.cell, self.head, self.h = nn.GRUCell(3, 6), nn.Linear(6, 1), None

    def forward(self, x):
        h = x.new_zeros(x.shape[0], 6) if self.h is None else self.h.detach()
        self.h = self.cell(x, h)
        return self.head(self.h)


@training
def state_in_an_attribute(block, steps):
    """The module itself keeps and detaches its state."""
    model = Remembering()
    optimizer = ad.optim.Adam(model.parameters(), lr=0.02)
    losses, states = [], []
    for step in range(steps):
        x = ad.randn(2, 3)
        with block():
            loss = F.mse_loss(model(x), x.sum(1, keepdim=True))
        update(optimizer, loss)
        states.append(model.h)
        if step % 5 == 4:
            model.h = None
        losses.append(loss)
    return [floats(losses), arrays(states), weights(model)]


class Leaky(nn.Module):
    """A layer whose trace is a buffer that forward writes in place."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 4)
        self.register_buffer("trace", ad.zeros(4))
        self.calls = 0

    def forward(self, x):
        y = self.linear(x)
        with ad.no_grad():
            self.trace.mul_(0.5).add_(y.mean(0))
        self.calls += 1
        return y - self.trace / self.calls


@training
def state_in_a_buffer_and_a_counter(block, steps):
    """forward writes a buffer and counts its calls."""
    model = Leaky()
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1)
    losses, traces = [], []
    for _ in range(steps):
        x = ad.randn(4, 3)
        with block():
            loss = model(x).pow(2).mean() + model(-x).abs().mean()
        update(optimizer, loss)
        losses.append(loss.detach())
        traces.append(model.trace.clone())
    return [floats(losses), arrays(traces), float(model.calls)]


@training
def sequence_to_sequence_with_teacher_forcing(block, steps):
    """Python's random decides which word the decoder sees next."""
    embedding, encoder, decoder, head = (
        nn.Embedding(5, 4), nn.GRU(4, 6, batch_first=True), nn.GRUCell(4, 6), nn.Linear(6, 5),
    )  # fmt: skip
    parameters = [p for m in (embedding, encoder, decoder, head) for p in m.parameters()]
    optimizer = ad.optim.Adam(parameters, lr=0.02)
    losses, decoded = [], []
    for _ in range(steps):
        words = ad.randint(0, 5, (2, 4))
        with block():
            h = encoder(embedding(words))[1][0]
            word, loss, chosen = ad.zeros(2, dtype=ad.int64), 0.0, []
            for place in range(4):
                h = decoder(embedding(word), h)
                logits = head(h)
                loss = loss + F.cross_entropy(logits, words[:, place])
                guess = logits.argmax(1)
                word = words[:, place] if random.random() < 0.5 else guess
                chosen.append(guess)
        update(optimizer, loss)
        losses.append(loss.item())
        decoded.append(ad.stack(chosen, 1))
    return [floats(losses), arrays(decoded)]


@training
def sequences_of_several_lengths(block, steps):
    """Packed sequences whose lengths change from step to step."""
    lstm, head = nn.LSTM(3, 5, batch_first=True), nn.Linear(5, 1)
    optimizer = ad.optim.SGD([*lstm.parameters(), *head.parameters()], lr=0.2)
    losses = []
    for _ in range(steps):
        lengths = sorted(np.random.randint(1, 5, 3).tolist(), reverse=True)
        x = ad.randn(3, lengths[0], 3)
        with block():
            packed = pack_padded_sequence(x, lengths, batch_first=True)
            output, _ = pad_packed_sequence(lstm(packed)[0], batch_first=True)
            last = output[ad.arange(3), ad.tensor(lengths) - 1]
            loss = F.mse_loss(head(last).squeeze(1), x[:, 0].sum(1))
        update(optimizer, loss)
        losses.append(loss)
    return [floats(losses), weights(lstm)]


@training
def text_generated_between_steps(block, steps):
    """Sampling under no_grad goes on from the state that it got."""
    embedding, rnn, head = nn.Embedding(6, 4), nn.RNN(4, 8), nn.Linear(8, 6)
    parameters = [p for m in (embedding, rnn, head) for p in m.parameters()]
    optimizer = ad.optim.Adam(parameters, lr=0.03)
    text = ad.arange(7).view(7, 1) % 6
    losses, generated = [], []
    for _ in range(steps):
        with block():
            logits = head(rnn(embedding(text[:-1]))[0])
            loss = F.cross_entropy(logits.flatten(0, 1), text[1:].flatten())
        update(optimizer, loss)
        losses.append(loss.detach())
        word, state = ad.zeros(1, 1, dtype=ad.int64), None
        for _ in range(3):
            with ad.no_grad(), block():
                output, state = rnn(embedding(word), state)
                word = ad.multinomial(head(output)[0].softmax(1), 1)
            generated.append(word)
    return [floats(losses), arrays(generated)]


# ---- modules called several times, and shared ----------------------------------------------------


@training
def siamese_network(block, steps):
    """One module on both of a pair, with a contrastive loss."""
    model = mlp(4, 8, 3)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1)
    losses, distances = [], []
    for _ in range(steps):
        first, second, same = ad.randn(4, 4), ad.randn(4, 4), ad.randint(0, 2, (4,)).float()
        with block():
            distance = F.pairwise_distance(model(first), model(second))
            apart = (1 - same) * F.relu(1 - distance).pow(2)
            loss = (same * distance.pow(2) + apart).mean()
        update(optimizer, loss)
        losses.append(loss.item())
        distances.append(distance)
    return [floats(losses), arrays(distances), weights(model)]


@training
def siamese_network_on_one_pair(block, steps):
    """The same two tensors in every step, the second branch without gradients."""
    model, predictor = mlp(4, 8, 3), nn.Linear(3, 3)
    optimizer = ad.optim.SGD([*model.parameters(), *predictor.parameters()], lr=0.1)
    first, second = ad.randn(4, 4), ad.randn(4, 4)
    losses = []
    for _ in range(steps):
        with block():
            a, b = model(first), model(second)
            loss = -F.cosine_similarity(predictor(a), b.detach()).mean() / 2
            loss = loss - F.cosine_similarity(predictor(b), a.detach()).mean() / 2
            update(optimizer, loss)
        losses.append(loss)
    return [floats(losses), weights(predictor)]


@training
def triplets(block, steps):
    """One module three times, the hardest negative chosen by an index."""
    model, criterion = mlp(4, 8, 3), nn.TripletMarginLoss(margin=1.0)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.02)
    losses = []
    for _ in range(steps):
        anchors, positives, others = ad.randn(4, 4), ad.randn(4, 4), ad.randn(6, 4)
        with block():
            a, p, n = model(anchors), model(positives), model(others)
            hardest = ad.cdist(a, n).argmin(1)
            loss = criterion(a, p, n[hardest])
        update(optimizer, loss)
        losses.append(loss.detach())
    return [floats(losses), weights(model)]


@training
def ensemble_of_networks(block, steps):
    """All members in one loss; their spread is logged."""
    members = nn.ModuleList(mlp(4, 8, 1) for _ in range(3))
    optimizer = ad.optim.Adam(members.parameters(), lr=0.02)
    x = ad.randn(6, 4)
    y = x.norm(dim=1, keepdim=True)
    losses, spreads = [], []
    for _ in range(steps):
        with block():
            outputs = ad.stack([member(x) for member in members])
            loss = (outputs - y).square().mean()
        update(optimizer, loss)
        losses.append(loss.item())
        spreads.append(outputs.std(0).mean())
    return [floats(losses), floats(spreads)]


@training
def ensemble_trained_in_turn(block, steps):
    """Each step trains another member, with an optimizer of its own."""
    members = [mlp(4, 8, 1) for _ in range(3)]
    optimizers = [ad.optim.SGD(member.parameters(), lr=0.1) for member in members]
    x = ad.randn(6, 4)
    y = x.norm(dim=1, keepdim=True)
    losses, together = [], []
    for step in range(steps):
        member, optimizer = members[step % 3], optimizers[step % 3]
        with block():
            loss = F.mse_loss(member(x), y)
        update(optimizer, loss)
        losses.append(loss)
        with block(), ad.no_grad():
            together.append(sum(member(x) for member in members) / 3)
    return [floats(losses), arrays(together)]


@training
def shared_embeddings(block, steps):
    """One embedding for two inputs, and its weight as the last layer."""
    embedding, middle = nn.Embedding(7, 4), nn.Linear(8, 4)
    optimizer = ad.optim.SGD([*embedding.parameters(), *middle.parameters()], lr=0.3)
    losses = []
    for _ in range(steps):
        left, right, target = ad.randint(0, 7, (3, 5))
        with block():
            both = ad.cat([embedding(left), embedding(right)], dim=1)
            logits = F.linear(middle(both).tanh(), embedding.weight)
            loss = F.cross_entropy(logits, target)
        update(optimizer, loss)
        losses.append(loss.detach())
    return [floats(losses), weights(embedding)]


@training
def tied_weights(block, steps):
    """The decoder's weight is the encoder's parameter itself, and is untied in the middle."""
    encoder, decoder = nn.Linear(5, 5, bias=False), nn.Linear(5, 5, bias=False)
    decoder.weight = encoder.weight
    x, losses = ad.randn(4, 5), []
    optimizer = ad.optim.SGD(encoder.parameters(), lr=0.2)
    for step in range(steps):
        if step == steps // 2:
            decoder.weight = nn.Parameter(encoder.weight.detach().clone())
            parameters = [*encoder.parameters(), *decoder.parameters()]
            optimizer = ad.optim.SGD(parameters, lr=0.2)
        with block():
            loss = F.mse_loss(decoder(encoder(x).tanh()), x)
        update(optimizer, loss)
        losses.append(loss.item())
    return [floats(losses), weights(encoder), weights(decoder)]


@training
def two_heads_with_one_criterion(block, steps):
    """The criterion is one module, called on both heads' outputs."""
    body, left, right = nn.Linear(4, 8), nn.Linear(8, 2), nn.Linear(8, 2)
    criterion = nn.MSELoss()
    parameters = [p for m in (body, left, right) for p in m.parameters()]
    optimizer = ad.optim.Adam(parameters, lr=0.02)
    x, y = regression_data()
    log = []
    for _ in range(steps):
        with block():
            hidden = ad.relu(body(x))
            first, second = criterion(left(hidden), y), criterion(right(hidden), -y.abs())
            loss = first + 0.5 * second
        update(optimizer, loss)
        log += [first, second, loss]
    return [floats(log), weights(body)]


@training
def tasks_with_learned_uncertainties(block, steps):
    """backward of each task's loss separately, the body's graph retained."""
    body, heads = nn.Linear(4, 8), nn.ModuleDict({"a": nn.Linear(8, 2), "b": nn.Linear(8, 2)})
    doubts = nn.ParameterDict({name: nn.Parameter(ad.zeros(())) for name in heads})
    parameters = [*body.parameters(), *heads.parameters(), *doubts.parameters()]
    optimizer = ad.optim.SGD(parameters, lr=0.02)
    x, y = regression_data()
    log = []
    for _ in range(steps):
        optimizer.zero_grad()
        with block():
            hidden = body(x).tanh()
            for name, sign in (("a", 1.0), ("b", -1.0)):
                error = F.mse_loss(heads[name](hidden), sign * y)
                loss = error * (-doubts[name]).exp() + doubts[name]
                loss.backward(retain_graph=True)
                log.append(loss)
        optimizer.step()
    return [floats(log), arrays(doubts.values())]


@training
def simple_contrastive_learning(block, steps):
    """Two noisy views of a batch through one network; a mask made by `eye` in the block."""
    model = mlp(4, 8, 3)
    optimizer = ad.optim.Adam(model.parameters(), lr=0.02)
    x, losses = ad.randn(4, 4), []
    for _ in range(steps):
        with block():
            views = ad.cat([x + 0.1 * ad.randn(4, 4), x * (1 + 0.1 * ad.randn(4, 4))])
            z = F.normalize(model(views), dim=1)
            similarity = (z @ z.T / 0.5).masked_fill(ad.eye(8, dtype=ad.bool), float("-inf"))
            loss = F.cross_entropy(similarity, (ad.arange(8) + 4) % 8)
        update(optimizer, loss)
        losses.append(loss)
    return [floats(losses), weights(model)]


@training
def contrastive_learning_with_a_queue(block, steps):
    """Momentum contrast: keys are written into a queue in place, the key network follows slowly."""
    model = mlp(4, 8, 3)
    slow = copy.deepcopy(model).requires_grad_(False)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.2)
    queue, place = F.normalize(ad.randn(8, 3), dim=1), 0
    losses, queues = [], []
    for _ in range(steps):
        x = ad.randn(4, 4)
        with block():
            q = F.normalize(model(x), dim=1)
            with ad.no_grad():
                for old, new in zip(slow.parameters(), model.parameters(), strict=True):
                    old.data = old.data * 0.9 + new.data * 0.1
                k = F.normalize(slow(x + 0.1), dim=1)
            logits = ad.cat([(q * k).sum(1, keepdim=True), q @ queue.clone().T], dim=1) / 0.2
            loss = F.cross_entropy(logits, ad.zeros(4, dtype=ad.int64))
        update(optimizer, loss)
        queue[place : place + 4] = k
        place = (place + 4) % 8
        losses.append(loss.detach())
        queues.append(queue.clone())
    return [floats(losses), arrays(queues), weights(slow)]


# ---- other networks' values: penalties, teachers, frozen parts, averages -------------------------


@training
def elastic_weight_consolidation(block, steps):
    """The first task's weights and squared gradients hold back the second."""
    model = mlp(4, 8, 2)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1)
    first, second = regression_data(), regression_data()
    losses, anchor, importance = [], None, None
    for step in range(steps):
        x, y = first if step < steps // 2 else second
        if step == steps // 2:
            anchor = {name: p.detach().clone() for name, p in model.named_parameters()}
            importance = {name: p.grad.clone() ** 2 for name, p in model.named_parameters()}
        with block():
            loss = F.mse_loss(model(x), y)
            if anchor is not None:
                for name, p in model.named_parameters():
                    loss = loss + 10 * (importance[name] * (p - anchor[name]) ** 2).sum()
        update(optimizer, loss)
        losses.append(loss.item())
    return [floats(losses), arrays(anchor.values()), weights(model)]


@training
def distance_to_the_first_weights(block, steps):
    """The anchor is `p.data.clone()`, and its distance is logged as a tensor."""
    x, y = regression_data()
    model = mlp(4, 8, 2)
    start = [p.data.clone() for p in model.parameters()]
    optimizer = ad.optim.Adam(model.parameters(), lr=0.02)
    losses, distances = [], []
    for _ in range(steps):
        with block():
            pairs = zip(model.parameters(), start, strict=True)
            distance = sum((p - p0).norm() ** 2 for p, p0 in pairs)
            loss = F.mse_loss(model(x), y) + 0.1 * distance
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss)
        distances.append(distance)
    return [floats(losses), floats(distances)]


def distillation(new_batch):
    """A student learns a frozen teacher's softened answers."""

    def program(block, steps):
        teacher, student = mlp(4, 16, 3).eval(), mlp(4, 4, 3)
        for p in teacher.parameters():
            p.requires_grad = False
        optimizer = ad.optim.Adam(student.parameters(), lr=0.03)
        x, losses, answers = ad.randn(6, 4), [], []
        for _ in range(steps):
            if new_batch:
                x = ad.randn(6, 4)
            with block():
                answer = teacher(x)
                soft = F.softmax(answer / 2, dim=1)
                student_log = F.log_softmax(student(x) / 2, dim=1)
                loss = F.kl_div(student_log, soft, reduction="batchmean") * 4
            update(optimizer, loss)
            losses.append(loss.detach())
            answers.append(answer)
        return [floats(losses), arrays(answers), weights(student)]

    return program


variants(distillation, distillation_of_one_batch=False, distillation_of_changing_batches=True)


@training
def frozen_backbone_with_a_changing_head(block, steps):
    """The backbone is called on the same batch in every step, once under no_grad, too."""
    backbone, head = mlp(4, 8, 6).requires_grad_(False), nn.Linear(6, 2)
    optimizer = ad.optim.SGD(head.parameters(), lr=0.2)
    x, y = regression_data()
    losses = []
    for step in range(steps):
        with block():
            if step % 2:
                features = backbone(x)
            else:
                with ad.no_grad():
                    features = backbone(x)
            loss = F.mse_loss(head(features), y)
        update(optimizer, loss)
        losses.append(loss.item())
    return [floats(losses), weights(head)]


@training
def gradual_unfreezing(block, steps):
    """One more layer learns after each third of the steps."""
    model = mlp(4, 6, 6, 2)
    layers = [layer for layer in model if isinstance(layer, nn.Linear)]
    optimizer = ad.optim.Adam(model.parameters(), lr=0.02)
    x, y = regression_data()
    losses, counts = [], []
    for step in range(steps):
        for depth, layer in enumerate(reversed(layers)):
            layer.requires_grad_(step * 3 >= depth * steps)
        with block():
            loss = F.mse_loss(model(x), y)
        update(optimizer, loss)
        losses.append(loss)
        counts.append(float(sum(p.grad is not None for p in model.parameters())))
    return [floats(losses), counts, weights(model)]


@training
def layers_frozen_in_the_middle(block, steps):
    """A layer that learned is frozen, its batch norm put into evaluation mode."""
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 2))
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    losses = []
    for step in range(steps):
        x = ad.randn(5, 4)
        if step == steps // 2:
            model[:2].requires_grad_(False)
            model[1].eval()
        with block():
            loss = F.mse_loss(model(x), x[:, :2])
        update(optimizer, loss)
        losses.append(loss.detach())
    return [floats(losses), weights(model)]


@training
def averaged_model(block, steps):
    """swa_utils.AveragedModel is updated after each step, and evaluated in the block."""
    x, y = regression_data()
    model = mlp(4, 8, 2)
    average = swa_utils.AveragedModel(model)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.3)
    losses, of_average = [], []
    for _ in range(steps):
        with block():
            loss = F.mse_loss(model(x), y)
        update(optimizer, loss)
        average.update_parameters(model)
        losses.append(loss.item())
        with block(), ad.no_grad():
            of_average.append(F.mse_loss(average(x), y))
    return [floats(losses), floats(of_average), weights(average)]


@training
def averaged_weights_swapped_in(block, steps):
    """An average by hand is put into the model for each evaluation, and taken out again."""
    x, y = regression_data()
    model = mlp(4, 8, 2)
    shadow = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = ad.optim.Adam(model.parameters(), lr=0.05)
    losses, of_shadow = [], []
    for _ in range(steps):
        with block():
            loss = F.mse_loss(model(x), y)
            update(optimizer, loss)
        losses.append(loss)
        for name, p in model.named_parameters():
            shadow[name] = 0.8 * shadow[name] + 0.2 * p.detach()
        backup = {name: p.data for name, p in model.named_parameters()}
        for name, p in model.named_parameters():
            p.data = shadow[name]
        with ad.no_grad(), block():
            of_shadow.append(F.mse_loss(model(x), y))
        for name, p in model.named_parameters():
            p.data = backup[name]
    return [floats(losses), floats(of_shadow), arrays(shadow.values())]


@training
def mean_teacher(block, steps):
    """A loss between a student and its own average; the buffers are averaged, too."""
    student = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 2))
    teacher = copy.deepcopy(student)
    optimizer = ad.optim.SGD(student.parameters(), lr=0.1)
    losses = []
    for _ in range(steps):
        x = ad.randn(5, 4)
        with block():
            with ad.no_grad():
                wanted = teacher(x + 0.1 * ad.randn(5, 4))
            output = student(x)
            loss = F.mse_loss(output, wanted) + F.mse_loss(output, x[:, :2])
        update(optimizer, loss)
        with ad.no_grad():
            new = student.state_dict()
            for name, value in teacher.state_dict().items():
                if value.is_floating_point():
                    value.lerp_(new[name], 0.2)
        losses.append(loss.detach())
    return [floats(losses), weights(teacher)]


def early_stopping(keep):
    """The weights of the smallest validation loss are kept in some way and restored in the end."""

    def program(block, steps):
        x, y = regression_data()
        model = mlp(4, 8, 2)
        optimizer = ad.optim.SGD(model.parameters(), lr=1.0)
        best, kept, losses = float("inf"), None, []
        for _ in range(steps):
            with block():
                loss = F.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            if loss.item() < best:
                best, kept = loss.item(), keep(model)
            optimizer.step()
            losses.append(loss.item())
        model.load_state_dict(kept)
        with block(), ad.no_grad():
            restored = F.mse_loss(model(x), y)
        return [floats(losses), restored.item(), weights(model)]

    return program


def _deepcopied(model):
    return copy.deepcopy(model.state_dict())


def _clones(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def _views(model):  # which show what the weights become, as they do in PyTorch
    return {name: value.detach() for name, value in model.named_parameters()}


variants(
    early_stopping,
    early_stopping_with_a_deep_copy=_deepcopied,
    early_stopping_with_clones=_clones,
    early_stopping_with_mere_views=_views,
)


@training
def weight_norm(block, steps):
    """The parametrization by length and direction, removed in the middle."""
    layer = parametrizations.weight_norm(nn.Linear(4, 8))
    model = nn.Sequential(layer, nn.Tanh(), nn.Linear(8, 2))
    x, y = regression_data()
    optimizer = ad.optim.SGD(model.parameters(), lr=0.2)
    losses = []
    for step in range(steps):
        if step == steps // 2:
            parametrize.remove_parametrizations(layer, "weight")
            optimizer = ad.optim.SGD(model.parameters(), lr=0.1)
        with block():
            loss = F.mse_loss(model(x), y)
        update(optimizer, loss)
        losses.append(loss)
    return [floats(losses), weights(model)]


@training
def spectral_norm(block, steps):
    """Its power iteration writes buffers in each call, and the module is called twice."""
    model = nn.Sequential(
        parametrizations.spectral_norm(nn.Linear(4, 6)), nn.Tanh(), nn.Linear(6, 1)
    )
    optimizer = ad.optim.SGD(model.parameters(), lr=0.2)
    losses = []
    for _ in range(steps):
        with block():
            loss = model(ad.randn(3, 4)).mean() - model(ad.randn(3, 4) + 1).mean()
        update(optimizer, loss)
        losses.append(loss.detach())
    return [floats(losses), weights(model)]


class Symmetric(nn.Module):
    """A matrix made of its upper triangle."""

    def forward(self, x):
        return x.triu() + x.triu(1).transpose(-1, -2)


@training
def parametrization_of_the_user(block, steps):
    """A weight that is symmetric by a module of the user's."""
    layer = nn.Linear(4, 4)
    parametrize.register_parametrization(layer, "weight", Symmetric())
    optimizer = ad.optim.Adam(layer.parameters(), lr=0.05)
    x, losses = ad.randn(5, 4), []
    for _ in range(steps):
        with block():
            loss = (layer(layer(x)) - x).pow(2).mean() + 0.01 * layer.weight.abs().sum()
        update(optimizer, loss)
        losses.append(loss.item())
    return [floats(losses), arrays([layer.weight])]


# ---- curriculum: attributes of modules that change -----------------------------------------------


class Kind(enum.Enum):
    """How a module combines two halves."""

    SUM = 1
    PRODUCT = 2


@dataclasses.dataclass
class Options:
    """What a module is told."""

    slope: float = 1.0


LIMITS = {"top": 5.0}


class Settings(nn.Module):
    """A module whose forward reads attributes of every sort."""

    shift = 0.0

    def __init__(self):
        super().__init__()
        self.linear, self.conv = nn.Linear(4, 4), nn.Conv1d(1, 2, 3)
        self.scale, self.scales, self.ends = 1.0, [1.0, 2.0], (0, 2)
        self.names, self.shown, self.kind = {"bias": 0.0}, {0, 1}, Kind.SUM
        self.options, self.number = Options(), np.float32(1.0)
        self.table, self.plain = np.ones(4, np.float32), ad.ones(4)
        self.act, self.mode, self.steps = ad.relu, "mean", 0
        self.count = 0
        self.dropout, self.slope = nn.Dropout(0.0), nn.LeakyReLU(0.1)
        self.linears = nn.ModuleList([nn.Linear(4, 4)])
        self.register_buffer("level", ad.ones(4))

    def forward(self, x):
        self.count += 1
        h = self.act(self.linear(x)) * self.scale * self.scales[0] * float(self.number)
        h = h + self.names["bias"] + self.shift * h.cos() + self.options.slope * h
        h = h + self.plain * self.level
        for linear in self.linears:
            h = self.slope(linear(self.dropout(h)) - 1)
        if 0 not in self.shown:
            h = h.sin()
        first, second = h[:, self.ends[0] : self.ends[1]], h[:, -1:]
        h = first + second if self.kind is Kind.SUM else first * second
        h = h.clamp(max=LIMITS["top"]) + self.conv(x[:, None]).mean((1, 2))[:, None]
        return getattr(h, self.mode)() * ad.from_numpy(self.table).mean()


def _replace_layer(model):
    model.linears[0] = nn.Linear(4, 4)


def _write_parameter(model):
    with ad.no_grad():
        model.linear.weight[0] = 0.5


CHANGES = {
    "attribute": lambda model: setattr(model, "scale", 2.0),
    "list_changed_in_place": lambda model: model.scales.__setitem__(0, 7),
    "list_turned_around": lambda model: model.scales.reverse(),
    "tuple_replaced": lambda model: setattr(model, "ends", (1, 4)),
    "dict_changed_in_place": lambda model: model.names.update(bias=0.5),
    "set_changed_in_place": lambda model: model.shown.discard(0),
    "enum": lambda model: setattr(model, "kind", Kind.PRODUCT),
    "dataclass_field": lambda model: setattr(model.options, "slope", -0.5),
    "numpy_number": lambda model: setattr(model, "number", np.float32(0.3)),
    "numpy_array_written_in_place": lambda model: model.table.__setitem__(0, 3.0),
    "tensor_replaced": lambda model: setattr(model, "plain", ad.full((4,), -1.0)),
    "tensor_written_in_place": lambda model: model.plain.mul_(3.0),
    "buffer_replaced": lambda model: setattr(model, "level", ad.arange(4.0)),
    "buffer_written_in_place": lambda model: model.level.zero_(),
    "replaced_function": lambda model: setattr(model, "act", ad.tanh),
    "name_of_a_function": lambda model: setattr(model, "mode", "sum"),
    "padding": lambda model: setattr(model.conv, "padding", (2,)),
    "stride": lambda model: setattr(model.conv, "stride", (2,)),
    "dropout": lambda model: setattr(model.dropout, "p", 0.5),
    "slope_of_a_layer": lambda model: setattr(model.slope, "negative_slope", 0.7),
    "attribute_of_the_instance_over_the_class": lambda model: setattr(model, "shift", 1.0),
    "layer_replaced": _replace_layer,
    "layer_appended": lambda model: model.linears.append(nn.Linear(4, 4)),
    "layer_taken_away": lambda model: setattr(model, "linears", nn.ModuleList()),
    "parameter_replaced": lambda model: setattr(model.linear, "bias", nn.Parameter(ad.ones(4))),
    "parameter_taken_away": lambda model: setattr(model.linear, "bias", None),
    "parameter_written_in_place": _write_parameter,
    "forward_replaced": lambda model: setattr(
        model.linear, "forward", lambda x: F.linear(x, model.linear.weight).sin()
    ),
    "global_dict": lambda model: LIMITS.update(top=-1.0),
    "hook_added": lambda model: model.linear.register_forward_hook(lambda m, args, y: y * 0.5),
}


def curriculum(change):
    """A frozen module, always on the same batch, is changed in the middle: nothing else tells a
    step that what the steps before computed is of no use any more."""

    def program(block, steps):
        model, gain = Settings().requires_grad_(False), nn.Parameter(ad.ones(()))
        optimizer = ad.optim.SGD([gain], lr=0.05)
        x, losses = ad.randn(5, 4), []
        for step in range(steps):
            if step == steps // 2:
                change(model)
            with block():
                loss = (gain * model(x) - 1).square()
            update(optimizer, loss)
            losses.append(loss.detach())
        LIMITS["top"] = 5.0
        return [floats(losses), float(model.count), gain.item()]

    return program


variants(curriculum, **{f"curriculum_by_{name}": change for name, change in CHANGES.items()})


@training
def curriculum_in_every_step(block, steps):
    """An attribute, a list and an argument that is a number all grow from step to step."""
    model = Settings()
    optimizer = ad.optim.SGD(model.parameters(), lr=0.02)
    criterion, losses = nn.HuberLoss(), []
    for step in range(steps):
        x = ad.randn(step % 3 + 2, 4)
        model.scale = 1 + step / steps
        model.scales[0] = 1.0 - step / steps
        criterion.delta = 0.1 + step / steps
        with block():
            loss = criterion(model(x), x.mean())
        update(optimizer, loss)
        losses.append(loss.detach())
    return [floats(losses), weights(model)]


class Annealed(nn.Module):
    """Counts its own calls, and softens its answer by their number."""

    def __init__(self):
        super().__init__()
        self.linear, self.calls = nn.Linear(4, 3), 0

    def forward(self, x, temperature=1.0):
        if self.training:
            self.calls += 1
        return (self.linear(x) / (temperature + 1 / self.calls)).softmax(1)


@training
def temperature_that_the_module_counts_itself(block, steps):
    """It is called with the same batch; with another keyword, at times."""
    model = Annealed()
    optimizer = ad.optim.SGD(model.parameters(), lr=0.5)
    x, losses = ad.randn(5, 4), []
    for step in range(steps):
        with block():
            chances = model(x) if step % 3 else model(x, temperature=0.5)
            loss = F.nll_loss(chances.log(), ad.tensor([0, 1, 2, 0, 1]))
        update(optimizer, loss)
        losses.append(loss.item())
    return [floats(losses), float(model.calls)]


@training
def layers_appended_while_training(block, steps):
    """Progressive growing, with a new optimizer each time."""
    body, head = nn.Sequential(nn.Linear(4, 4), nn.Tanh()), nn.Linear(4, 2)
    x, y = regression_data()
    losses = []
    for step in range(steps):
        if step % (steps // 3 + 1) == 0:
            body.append(nn.Linear(4, 4)).append(nn.Tanh())
            parameters = [*body.parameters(), *head.parameters()]
            optimizer = ad.optim.Adam(parameters, lr=0.02)
        with block():
            loss = F.mse_loss(head(body(x)), y)
        update(optimizer, loss)
        losses.append(loss)
    return [floats(losses), weights(body)]


@training
def pruning_in_the_middle(block, steps):
    """Small weights are set to zero by a mask, which is applied after each step."""
    model = mlp(4, 8, 2)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1)
    x, y = regression_data()
    mask, losses = None, []
    for step in range(steps):
        if step == steps // 2:
            weight = model[0].weight.detach()
            mask = (weight.abs() > weight.abs().median()).float()
        with block():
            loss = F.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if mask is not None:
                model[0].weight.data.mul_(mask)
        losses.append(loss.detach())
    return [floats(losses), weights(model)]


# ---- random numbers ------------------------------------------------------------------------------


class Skipping(nn.Module):
    """Layers that are left out by chance."""

    def __init__(self, chance):
        super().__init__()
        self.layers, self.chance = nn.ModuleList(nn.Linear(4, 4) for _ in range(4)), chance
        self.head = nn.Linear(4, 4)

    def forward(self, x):
        for layer in self.layers:
            if not self.training or self.chance() > 0.4:
                x = x + layer(x).tanh()
        return self.head(x)


def layer_drop(chance):
    """Layers are dropped by random numbers of some library."""

    def program(block, steps):
        model = Skipping(chance)
        optimizer = ad.optim.SGD(model.parameters(), lr=0.05)
        x, losses = ad.randn(5, 4), []
        for _ in range(steps):
            with block():
                loss = F.mse_loss(model(x), x.roll(1, 1))
            update(optimizer, loss)
            losses.append(loss.item())
        return [floats(losses), weights(model)]

    return program


variants(
    layer_drop,
    layer_drop_by_python=random.random,
    layer_drop_by_numpy=np.random.rand,
    layer_drop_by_tensors=lambda: ad.rand(()),
)


@training
def dropout(block, steps):
    """Three sorts of dropout, on the same batch; and an evaluation without."""
    model = nn.Sequential(
        nn.Linear(4, 8), nn.Dropout(0.5), nn.Unflatten(1, (2, 4)), nn.Dropout1d(0.2), nn.Flatten()
    )
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1)
    x, losses, clean = ad.randn(5, 4), [], []
    for _ in range(steps):
        with block():
            loss = F.dropout(model(x), 0.1).sum(1).sub(1).square().mean()
            update(optimizer, loss)
        losses.append(loss)
        model.eval()
        with block():
            clean.append(model(x).detach())
        model.train()
    return [floats(losses), arrays(clean)]


@training
def dropout_left_on_for_uncertainty(block, steps):
    """Many passes of one batch give a mean and a deviation."""
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.3), nn.Linear(8, 1))
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1)
    x, y = regression_data(outputs=1)
    losses, doubts = [], []
    for _ in range(steps):
        with block():
            loss = F.mse_loss(model(x), y)
        update(optimizer, loss)
        losses.append(loss.detach())
        with ad.no_grad(), block():
            passes = ad.stack([model(x) for _ in range(4)])
            doubts.append(passes.std(0))
    return [floats(losses), arrays(doubts)]


@training
def noise_drawn_inside_the_block(block, steps):
    """Inputs, noise, a permutation and a mask are drawn there."""
    model = mlp(4, 8, 2)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1)
    losses, noises = [], []
    for _ in range(steps):
        with block():
            x = ad.rand(6, 4)[ad.randperm(6)]
            noise = 0.1 * ad.randn_like(x)
            kept = ad.bernoulli(ad.full((6, 1), 0.7))
            loss = ((model(x + noise) - x[:, :2]).square() * kept).mean()
        update(optimizer, loss)
        losses.append(loss.item())
        noises.append(noise)
    return [floats(losses), arrays(noises)]


@training
def augmentation_by_numpy(block, steps):
    """Images are shifted and flipped inside the block, as NumPy draws it."""
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(18, 2))
    optimizer = ad.optim.SGD(model.parameters(), lr=0.05)
    images, labels = ad.randn(4, 1, 5, 5), ad.tensor([0, 1, 1, 0])
    losses = []
    for _ in range(steps):
        with block():
            x = images.roll(int(np.random.randint(-1, 2)), 3)
            if np.random.rand() < 0.5:
                x = x.flip(3)
            loss = F.cross_entropy(model(x), labels)
        update(optimizer, loss)
        losses.append(loss)
    return [floats(losses), weights(model)]


@training
def mixup(block, steps):
    """Batches are mixed with a permutation of themselves, the share drawn by NumPy."""
    x, y = regression_data()
    model = mlp(4, 8, 2)
    optimizer = ad.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for _ in range(steps):
        share = float(np.random.beta(0.4, 0.4))
        order = ad.randperm(8)
        with block():
            output = model(share * x + (1 - share) * x[order])
            loss = share * F.mse_loss(output, y) + (1 - share) * F.mse_loss(output, y[order])
        update(optimizer, loss)
        losses.append(loss.detach())
    return [floats(losses), weights(model)]


@training
def generator_of_the_user(block, steps):
    """Random numbers of a generator, and of the global one between."""
    mine = ad.Generator().manual_seed(7)
    model = nn.Linear(3, 1)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(steps):
        with block():
            x = ad.randn(4, 3, generator=mine)
            loss = (model(x) - x.sum(1, keepdim=True) - 0.1 * ad.randn(4, 1)).square().mean()
        update(optimizer, loss)
        losses.append(loss.item())
    return [floats(losses), arrays([ad.randn(2, generator=mine), ad.randn(2)])]


@training
def seed_set_again_in_each_epoch(block, steps):
    """The same noise comes every third step."""
    model = nn.Sequential(nn.Linear(3, 6), nn.Dropout(0.5), nn.Linear(6, 1))
    optimizer = ad.optim.SGD(model.parameters(), lr=0.02)
    losses, noises = [], []
    for step in range(steps):
        if step % 3 == 0:
            ad.manual_seed(5)
        with block():
            noise = ad.randn(4, 3)
            loss = model(noise).square().mean()
        update(optimizer, loss)
        losses.append(loss)
        noises.append(noise)
    return [floats(losses), arrays(noises)]


# ---- hooks ---------------------------------------------------------------------------------------


@training
def activations_stored_by_a_forward_hook(block, steps):
    """They are read after the loop, and one makes part of the loss."""
    model = mlp(4, 8, 2)
    stored, means = {}, []
    model[1].register_forward_hook(lambda module, args, y: stored.update(hidden=y))
    model[0].register_forward_hook(lambda module, args, y: means.append(y.detach().mean()))
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1)
    x, y = regression_data()
    losses, hidden = [], []
    for _ in range(steps):
        with block():
            loss = F.mse_loss(model(x), y) + 0.1 * stored["hidden"].abs().mean()
        update(optimizer, loss)
        losses.append(loss.detach())
        hidden.append(stored["hidden"])
    return [floats(losses), floats(means), arrays(hidden)]


@training
def hooks_that_change_inputs_and_outputs(block, steps):
    """A hook scales by a number that Python counts, and is removed in the middle."""
    model = mlp(4, 8, 2)
    calls = [0]

    def scale(module, args):
        calls[0] += 1
        return (args[0] * (1 + 1 / calls[0]),)

    handle = model[0].register_forward_pre_hook(scale)
    model[2].register_forward_hook(lambda module, args, output: output.tanh() * 2)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1)
    x, y = regression_data()
    losses = []
    for step in range(steps):
        if step == steps // 2:
            handle.remove()
        with block():
            loss = F.mse_loss(model(x), y)
        update(optimizer, loss)
        losses.append(loss.item())
    return [floats(losses), float(calls[0])]


@training
def hooks_on_tensors(block, steps):
    """One notes the gradient of an activation, one scales that of a parameter."""
    model = mlp(4, 8, 2)
    model[0].weight.register_hook(lambda g: g * 0.5)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1)
    x, y = regression_data()
    losses, noted = [], []
    for _ in range(steps):
        with block():
            hidden = model[1](model[0](x))
            hidden.register_hook(lambda g: noted.append(g.norm()))
            loss = F.mse_loss(model[2](hidden), y)
        update(optimizer, loss)
        losses.append(loss)
    return [floats(losses), floats(noted)]


@training
def hook_on_gradients_of_a_module(block, steps):
    """A full backward hook scales gradients by a number that grows."""
    model = mlp(4, 8, 2)
    noted = []

    def scale(module, into, out):
        noted.append(out[0].norm())
        return (into[0] * len(noted) / 10,)

    model[1].register_full_backward_hook(scale)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1)
    x, y = regression_data()
    losses = []
    for _ in range(steps):
        with block():
            loss = F.mse_loss(model(x), y)
            update(optimizer, loss)
        losses.append(loss.detach())
    return [floats(losses), floats(noted), weights(model)]


@training
def hook_after_accumulation(block, steps):
    """Each parameter is updated by a hook, as soon as its gradient is there."""
    model = mlp(4, 8, 2)

    def descend(parameter):
        parameter.data.sub_(parameter.grad, alpha=0.1)
        parameter.grad = None

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(descend)
    x, y = regression_data()
    losses = []
    for _ in range(steps):
        with block():
            loss = F.mse_loss(model(x), y)
            loss.backward()
        losses.append(loss.item())
    return [floats(losses), weights(model)]


@training
def gradients_of_activations_retained(block, steps):
    """`retain_grad` on what is computed, read after backward."""
    model = mlp(4, 8, 2)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1)
    x, y = regression_data()
    losses, gradients = [], []
    for _ in range(steps):
        with block():
            hidden = model[:2](x)
            hidden.retain_grad()
            loss = F.mse_loss(model[2](hidden), y)
        update(optimizer, loss)
        losses.append(loss)
        gradients.append(hidden.grad)
    return [floats(losses), arrays(gradients)]


# ---- automatic differentiation -------------------------------------------------------------------


class Rounded(ad.autograd.Function):
    """Rounding whose gradient passes straight through."""

    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, g):
        return g


class Reversed(ad.autograd.Function):
    """The identity, whose gradient is turned around and scaled."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return -ctx.scale * g, None


class Cubed(ad.autograd.Function):
    """A power whose input is saved."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * g


@training
def functions_of_the_user(block, steps):
    """Quantized weights by a straight-through estimator, and a function that saves its input."""
    model = nn.Linear(4, 3)
    optimizer = ad.optim.Adam(model.parameters(), lr=0.05)
    losses = []
    for _ in range(steps):
        x = ad.randn(5, 4)
        with block():
            weight = Rounded.apply(model.weight * 8) / 8
            loss = (Cubed.apply(F.linear(x, weight, model.bias)) - x[:, :3]).abs().mean()
        update(optimizer, loss)
        losses.append(loss.detach())
    return [floats(losses), weights(model)]


@training
def gradient_reversal(block, steps):
    """Domain adaptation: the scale of the reversal is a number that grows."""
    body, label, domain = mlp(4, 8), nn.Linear(8, 2), nn.Linear(8, 2)
    parameters = [p for m in (body, label, domain) for p in m.parameters()]
    optimizer = ad.optim.SGD(parameters, lr=0.1)
    log = []
    for step in range(steps):
        source, target = ad.randn(4, 4), ad.randn(4, 4) + 1
        with block():
            hidden = body(ad.cat([source, target])).tanh()
            of_label = F.cross_entropy(label(hidden[:4]), (source[:, 0] > 0).long())
            where = ad.tensor([0] * 4 + [1] * 4)
            of_domain = F.cross_entropy(domain(Reversed.apply(hidden, step / steps)), where)
            loss = of_label + of_domain
        update(optimizer, loss)
        log += [of_label, of_domain]
    return [floats(log), weights(body)]


@training
def checkpointed_segments(block, steps):
    """Activations are computed again in backward, with the same dropout."""
    first = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.3))
    second = nn.Linear(8, 2)
    optimizer = ad.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)
    x, y = regression_data()
    losses = []
    for _ in range(steps):
        with block():
            hidden = checkpoint(first, x, use_reentrant=False)
            loss = F.mse_loss(second(hidden), y)
        update(optimizer, loss)
        losses.append(loss.item())
    return [floats(losses), weights(first)]


@training
def meta_learning(block, steps):
    """MAML: two inner steps whose gradients are differentiated."""
    w, b = nn.Parameter(0.5 * ad.randn(1, 8)), nn.Parameter(ad.zeros(8))
    v = nn.Parameter(0.5 * ad.randn(8, 1))
    optimizer = ad.optim.Adam([w, b, v], lr=0.02)

    def network(x, w, b, v):
        return (x @ w + b).tanh() @ v

    losses = []
    for _ in range(steps):
        with block():
            phase = ad.rand(1) * 3
            fast = [w, b, v]
            for _ in range(2):
                x = ad.rand(4, 1)
                error = F.mse_loss(network(x, *fast), (x + phase).sin())
                gradients = ad.autograd.grad(error, fast, create_graph=True)
                fast = [p - 0.1 * g for p, g in zip(fast, gradients, strict=True)]
            x = ad.rand(4, 1)
            loss = F.mse_loss(network(x, *fast), (x + phase).sin())
        update(optimizer, loss)
        losses.append(loss)
    return [floats(losses), arrays([w, b, v])]


@training
def reptile(block, steps):
    """A copy of the model learns a task; the model moves towards the copy."""
    model = mlp(1, 8, 1)
    losses = []
    for _ in range(steps):
        copied = copy.deepcopy(model)
        optimizer = ad.optim.SGD(copied.parameters(), lr=0.1)
        phase = random.random() * 3
        for _ in range(2):
            x = ad.rand(4, 1)
            with block():
                loss = F.mse_loss(copied(x), (x + phase).sin())
            update(optimizer, loss)
            losses.append(loss.detach())
        with ad.no_grad():
            for slow, fast in zip(model.parameters(), copied.parameters(), strict=True):
                slow += 0.5 * (fast - slow)
    return [floats(losses), weights(model)]


@training
def physics_informed_network(block, steps):
    """The residual of an equation holds second derivatives of the output by the input."""
    model = mlp(1, 8, 1)
    optimizer = ad.optim.Adam(model.parameters(), lr=0.02)
    t = ad.linspace(0, 1, 5)[:, None]
    losses, residuals = [], []
    for _ in range(steps):
        with block():
            x = t.clone().requires_grad_()
            u = model(x)
            (du,) = ad.autograd.grad(u.sum(), x, create_graph=True)
            (ddu,) = ad.autograd.grad(du.sum(), x, create_graph=True)
            residual = ddu + u
            loss = residual.square().mean() + (u[0] - 1).square().sum() + du[0].square().sum()
        update(optimizer, loss)
        losses.append(loss.item())
        residuals.append(residual)
    return [floats(losses), arrays(residuals)]


@training
def product_with_the_hessian(block, steps):
    """The greatest curvature by power iteration, while the network learns."""
    model = mlp(3, 4, 1)
    parameters = list(model.parameters())
    optimizer = ad.optim.SGD(parameters, lr=0.05)
    x, y = regression_data(inputs=3, outputs=1)
    direction = [ad.randn_like(p) for p in parameters]
    losses, curvatures = [], []
    for _ in range(steps):
        with block():
            loss = F.mse_loss(model(x), y)
            gradients = ad.autograd.grad(loss, parameters, create_graph=True)
            along = sum((g * d).sum() for g, d in zip(gradients, direction, strict=True))
            products = ad.autograd.grad(along, parameters, retain_graph=True)
            norm = sum(p.square().sum() for p in products).sqrt()
            direction = [p / norm for p in products]
        update(optimizer, loss)
        losses.append(loss)
        curvatures.append(norm)
    return [floats(losses), floats(curvatures)]


@training
def attack_on_the_input(block, steps):
    """Adversarial training: the batch is moved along the sign of its gradient."""
    model = mlp(4, 8, 3)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.2)
    losses, moved = [], []
    for _ in range(steps):
        x = ad.randn(5, 4)
        labels = x[:, :3].argmax(1)
        with block():
            x.requires_grad_()
            (gradient,) = ad.autograd.grad(F.cross_entropy(model(x), labels), x)
            attacked = (x + 0.1 * gradient.sign()).detach()
            loss = F.cross_entropy(model(attacked), labels)
        update(optimizer, loss)
        losses.append(loss.detach())
        moved.append(attacked)
    return [floats(losses), arrays(moved)]


@training
def image_optimized_in_place_of_weights(block, steps):
    """The input is the parameter, the network stays; the gradient is normalized in place."""
    model = mlp(4, 8, 1).requires_grad_(False)
    image = ad.zeros(2, 4, requires_grad=True)
    scores, images = [], []
    for _ in range(steps):
        with block():
            score = model(image).sum() - 0.1 * image.square().sum()
            score.backward()
        with ad.no_grad():
            image.grad /= image.grad.norm() + 1e-8
            image += 0.2 * image.grad
        image.grad.zero_()
        scores.append(score)
        images.append(image.detach().clone())
    return [floats(scores), arrays(images)]


def functional_layers(x, parameters):
    """A network that is a function of its parameters."""
    for number in range(0, len(parameters), 2):
        x = F.linear(x, parameters[number], parameters[number + 1]).tanh()
    return x


@training
def functional_parameters(block, steps):
    """Parameters are a list that each step replaces by a new list."""
    parameters = [ad.randn(6, 4) * 0.5, ad.zeros(6), ad.randn(2, 6) * 0.5, ad.zeros(2)]
    x, y = regression_data()
    losses, firsts = [], []
    for _ in range(steps):
        parameters = [p.requires_grad_() for p in parameters]
        with block():
            loss = F.mse_loss(functional_layers(x, parameters), y)
            gradients = ad.autograd.grad(loss, parameters)
            parameters = [
                (p - 0.2 * g).detach() for p, g in zip(parameters, gradients, strict=True)
            ]
        losses.append(loss.item())
        firsts.append(parameters[0])
    return [floats(losses), arrays(firsts)]


@training
def two_losses_with_projected_gradients(block, steps):
    """Gradients of two tasks, made orthogonal where they disagree (read by item)."""
    model = mlp(4, 6, 2)
    parameters = list(model.parameters())
    optimizer = ad.optim.SGD(parameters, lr=0.1)
    x, y = regression_data()
    log = []
    for _ in range(steps):
        with block():
            output = model(x)
            first, second = F.mse_loss(output, y), F.l1_loss(output, -y)
            g = ad.cat(
                [p.flatten() for p in ad.autograd.grad(first, parameters, retain_graph=True)]
            )
            h = ad.cat([p.flatten() for p in ad.autograd.grad(second, parameters)])
            agreement = g @ h
            if agreement.item() < 0:
                g = g - agreement / h.square().sum() * h
        for p, part in zip(parameters, (g + h).split([p.numel() for p in parameters]), strict=True):
            p.grad = part.view_as(p)
        optimizer.step()
        log += [first, second, agreement]
    return [floats(log), weights(model)]


# ---- writes: through `.data`, in place, through NumPy --------------------------------------------


@training
def weights_written_through_data(block, steps):
    """Gradient descent with momentum, by hand, through `.data`; weights decay in between."""
    model = mlp(4, 8, 2)
    x, y = regression_data()
    velocity = [ad.zeros_like(p) for p in model.parameters()]
    losses = []
    for _ in range(steps):
        with block():
            loss = F.mse_loss(model(x), y)
            loss.backward()
        for v, p in zip(velocity, model.parameters(), strict=True):
            v.mul_(0.9).add_(p.grad)
            p.data -= 0.1 * v
            p.data[0] *= 0.99
            p.grad = None
        losses.append(loss)
    return [floats(losses), arrays(velocity), weights(model)]


@training
def data_replaced(block, steps):
    """`p.data = ...` gives a parameter other memory in each step."""
    model = mlp(4, 8, 2)
    x, y = regression_data()
    losses = []
    for _ in range(steps):
        with block():
            loss = F.mse_loss(model(x), y)
        gradients = ad.autograd.grad(loss, list(model.parameters()))
        for p, g in zip(model.parameters(), gradients, strict=True):
            p.data = p.data - 0.1 * g
        losses.append(loss.detach())
    return [floats(losses), weights(model)]


@training
def activations_written_in_place(block, steps):
    """+=, masked_fill_ and relu_ on what was computed."""
    first, second = nn.Linear(4, 8), nn.Linear(8, 2)
    optimizer = ad.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)
    x, y = regression_data()
    losses, outputs = [], []
    for _ in range(steps):
        with block():
            hidden = first(x)
            hidden[:, 0] += 1.0
            hidden.masked_fill_(ad.rand(8, 8) < 0.1, 0.0)
            hidden.relu_()
            output = second(hidden)
            output *= 2
            loss = F.mse_loss(output, y)
        update(optimizer, loss)
        losses.append(loss.item())
        outputs.append(output)
    return [floats(losses), arrays(outputs)]


@training
def outputs_written_in_place_after_the_block(block, steps):
    """What a step computed is the program's own: it may be written, after gradients were taken."""
    model = mlp(4, 8, 2)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1)
    x, y = regression_data()
    losses, outputs = [], []
    for step in range(steps):
        with block():
            output = model(x)
            loss = F.mse_loss(output, y)
        update(optimizer, loss)
        shown = output.detach()
        shown[0] = float(step)
        shown += 1
        losses.append(loss.detach().mul_(2))
        outputs.append(output)
    return [floats(losses), arrays(outputs)]


@training
def views_written_in_place(block, steps):
    """Rows of a buffer are views that the block writes; all of it makes the loss."""
    model = nn.Linear(3, 4)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1)
    memory = ad.zeros(5, 4)
    losses, seen = [], []
    for step in range(steps):
        x = ad.randn(3)
        row = memory[step % 5]
        with block():
            written = model(x)
            row.copy_(written.detach())
            memory[:, 0].mul_(0.9)
            target = memory.mean(0)
            loss = (written - target).square().sum() + written.square().mean()
        update(optimizer, loss)
        losses.append(loss)
        seen.append(row.clone())
    return [floats(losses), arrays(seen), arrays([memory])]


@training
def rows_of_a_result_filled_one_by_one(block, steps):
    """A tensor is made in the block and its rows are assigned, with gradients."""
    model = nn.Linear(3, 2)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(steps):
        x = ad.randn(4, 3)
        with block():
            collected = ad.zeros(4, 2)
            for number in range(4):
                collected[number] = model(x[number])
            loss = (collected.cumsum(0) - x[:, :2]).square().mean()
        update(optimizer, loss)
        losses.append(loss.detach())
    return [floats(losses), weights(model)]


@training
def one_buffer_of_numpy_filled_again_and_again(block, steps):
    """The loader's array is the same in every step, and so is the tensor that shows it."""
    buffer = np.zeros((4, 4), np.float32)
    x = ad.from_numpy(buffer)
    model = mlp(4, 8, 2)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1)
    losses, outputs = [], []
    for _ in range(steps):
        buffer[:] = np.random.randn(4, 4)
        with block():
            output = model(x)
            loss = F.mse_loss(output, x[:, :2])
        update(optimizer, loss)
        losses.append(loss.item())
        outputs.append(output)
    return [floats(losses), arrays(outputs)]


@training
def one_buffer_of_numpy_shown_by_new_tensors(block, steps):
    """from_numpy inside the block, always of the same memory; old inputs show what is there now."""
    buffer = np.zeros((4, 4), np.float32)
    model = mlp(4, 8, 2)
    optimizer = ad.optim.Adam(model.parameters(), lr=0.02)
    losses, inputs = [], []
    for _ in range(steps):
        np.copyto(buffer, np.random.randn(4, 4))
        with block():
            x = ad.from_numpy(buffer)
            loss = F.mse_loss(model(x), x[:, :2].abs())
            update(optimizer, loss)
        losses.append(loss)
        inputs.append(x)
    return [floats(losses), arrays(inputs)]


@training
def inputs_written_through_numpy(block, steps):
    """`x.numpy()[:] = ...` between the steps; targets are written in place."""
    x, y = ad.zeros(4, 4), ad.zeros(4, 2)
    shown = x.numpy()
    model = mlp(4, 8, 2)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(steps):
        shown[:] = np.random.randn(4, 4)
        y[step % 4] = float(step % 3)
        with block():
            loss = F.mse_loss(model(x), y)
        update(optimizer, loss)
        losses.append(loss.detach())
    return [floats(losses), weights(model)]


@training
def weights_written_through_numpy(block, steps):
    """Weights are clipped by NumPy, in the memory that they share with the array."""
    model = mlp(4, 8, 2)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.3)
    x, y = regression_data()
    losses = []
    for _ in range(steps):
        with block():
            loss = F.mse_loss(model(x), y)
        update(optimizer, loss)
        for p in model.parameters():
            array = p.detach().numpy()
            np.clip(array, -0.4, 0.4, out=array)
        losses.append(loss.item())
    return [floats(losses), weights(model)]


@training
def inputs_filled_with_copy(block, steps):
    """Static inputs, as graphs of other libraries want them: `x.copy_(batch)`."""
    x, y = ad.zeros(4, 4), ad.zeros(4, 2)
    model = mlp(4, 8, 2)
    optimizer = ad.optim.Adam(model.parameters(), lr=0.02)
    losses, outputs = [], []
    for _ in range(steps):
        batch = ad.randn(4, 4)
        x.copy_(batch)
        y.copy_(batch[:, :2].sin())
        with block():
            output = model(x)
            loss = F.mse_loss(output, y)
        update(optimizer, loss)
        losses.append(loss)
        outputs.append(output)
    return [floats(losses), arrays(outputs)]


@training
def inputs_normalized_by_running_statistics(block, steps):
    """Mean and variance are tensors of the program, replaced inside the block."""
    mean, variance, count = ad.zeros(4), ad.ones(4), 1
    model = mlp(4, 8, 2)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1)
    losses, means = [], []
    for _ in range(steps):
        x = 3 * ad.randn(5, 4) + 1
        with block():
            count += 1
            mean = mean + (x.mean(0) - mean) / count
            variance = variance + (x.var(0) - variance) / count
            normal = (x - mean) / (variance + 1e-5).sqrt()
            loss = F.mse_loss(model(normal), x[:, :2].sign())
        update(optimizer, loss)
        losses.append(loss.detach())
        means.append(mean)
    return [floats(losses), arrays(means), arrays([variance])]


@training
def tensors_made_inside_the_block(block, steps):
    """tensor, arange, one_hot and full, of numbers that change from step to step."""
    model = nn.Linear(5, 3)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.3)
    losses = []
    for step in range(steps):
        with block():
            words = ad.tensor([step % 5, (2 * step) % 5, random.randrange(5)])
            x = F.one_hot(words, 5).float() * ad.full((5,), 1.0 + step / 10)
            x = x + ad.arange(step, step + 5) / 10
            loss = F.cross_entropy(model(x), ad.as_tensor(np.arange(3) % (step % 2 + 1)))
        update(optimizer, loss)
        losses.append(loss.item())
    return [floats(losses), weights(model)]


@training
def replay_memory_in_one_tensor(block, steps):
    """Rows of a tensor are written outside of the block and drawn inside."""
    memory, model = ad.zeros(16, 4), mlp(4, 8, 1)
    optimizer = ad.optim.Adam(model.parameters(), lr=0.02)
    losses, drawn = [], []
    for step in range(steps):
        memory[step % 16] = ad.randn(4)
        with block():
            batch = memory[ad.randint(0, min(step + 1, 16), (4,))]
            loss = F.mse_loss(model(batch), batch.sum(1, keepdim=True))
        update(optimizer, loss)
        losses.append(loss)
        drawn.append(batch)
    return [floats(losses), arrays(drawn)]


@training
def proximal_steps(block, steps):
    """Lasso: small weights are set to zero under no_grad, inside the block."""
    x = ad.randn(8, 6)
    y = x[:, :1] - 2 * x[:, 1:2]
    w = ad.zeros(6, 1, requires_grad=True)
    losses, zeros = [], []
    for _ in range(steps):
        with block():
            loss = F.mse_loss(x @ w, y)
            loss.backward()
            with ad.no_grad():
                w -= 0.1 * w.grad
                w.copy_(w.sign() * (w.abs() - 0.05).clamp(min=0))
                w.grad = None
            zeros.append((w == 0).sum())
        losses.append(loss.detach())
    return [floats(losses), floats(zeros), arrays([w])]


# ---- control flow --------------------------------------------------------------------------------


@training
def large_losses_are_skipped(block, steps):
    """A read of the loss decides whether the weights change."""
    model = mlp(4, 8, 2)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.2)
    losses, skipped = [], 0
    for _ in range(steps):
        x = ad.randn(3, 4) * random.choice((1.0, 4.0))
        with block():
            loss = F.mse_loss(model(x), x[:, :2])
        losses.append(loss.item())
        if loss.item() > 2.0:
            skipped += 1
            continue
        update(optimizer, loss)
    return [floats(losses), float(skipped), weights(model)]


@training
def decisions_inside_the_block(block, steps):
    """The loss is another one where the first is small, or where the output is negative."""
    model = mlp(4, 8, 2)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1)
    losses, ways = [], []
    for _ in range(steps):
        x = ad.randn(3, 4)
        with block():
            output = model(x)
            loss = F.mse_loss(output, x[:, :2])
            if loss > 0.8:
                loss = F.l1_loss(output, x[:, :2])
            elif output.mean() < 0:
                loss = loss + output.mean().square()
            ways.append(float(bool((loss < 0.5).any())))
            update(optimizer, loss)
        losses.append(loss)
    return [floats(losses), ways]


@training
def hard_examples_only(block, steps):
    """Examples are chosen by their losses, so that the number of rows changes."""
    model = mlp(4, 8, 2)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1)
    losses, counts = [], []
    for _ in range(steps):
        x = ad.randn(6, 4)
        with block():
            each = F.mse_loss(model(x), x[:, :2], reduction="none").mean(1)
            hard = each[each > each.mean()]
            loss = hard.mean() + each.topk(2).values.sum() / 10
        update(optimizer, loss)
        losses.append(loss.detach())
        counts.append(float(len(hard)))
    return [floats(losses), counts]


@training
def backtracking_line_search(block, steps):
    """The step is halved until the loss falls; each try is a block of its own."""
    model = mlp(4, 6, 2)
    parameters = list(model.parameters())
    x, y = regression_data()
    losses, sizes = [], []
    for _ in range(steps):
        with block():
            loss = F.mse_loss(model(x), y)
        gradients = ad.autograd.grad(loss, parameters)
        size, start = 4.0, nn.utils.parameters_to_vector(parameters).detach()
        slope = ad.cat([g.flatten() for g in gradients])
        while size > 0.01:
            nn.utils.vector_to_parameters(start - size * slope, parameters)
            with ad.no_grad(), block():
                tried = F.mse_loss(model(x), y)
            if tried < loss:
                break
            size /= 2
        losses.append(loss.item())
        sizes.append(size)
    return [floats(losses), sizes, weights(model)]


@training
def exceptions_inside_the_block(block, steps):
    """A module raises on bad batches; the program catches it and goes on."""

    class Checked(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers, self.seen = mlp(4, 8, 2), 0

        def forward(self, x):
            self.seen += 1
            hidden = self.layers[:2](x)
            if x[0, 0] > 0.5:
                raise ValueError("a bad batch")
            return self.layers[2](hidden)

    model = Checked()
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1)
    losses, caught = [], []
    for step in range(steps):
        x = ad.randn(4, 4)
        try:
            with block():
                output = model(x)
                loss = F.mse_loss(output, x[:, :2])
                if step % 4 == 1:
                    _ = output @ ad.ones(3, 3)  # of the wrong shape
        except (ValueError, RuntimeError) as error:
            caught.append(float(type(error) is ValueError))
            continue
        update(optimizer, loss)
        losses.append(loss)
    return [[*floats(losses), *caught], float(model.seen), weights(model)]


@training
def exception_after_writes(block, steps):
    """What a block wrote before it raised stays written, as without a block."""
    model, total = nn.Linear(3, 1), ad.zeros(3)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1)
    losses, kept = [], None
    for step in range(steps):
        x = ad.randn(4, 3)
        try:
            with block():
                total += x.mean(0)
                kept = model(x + total)
                if step % 3 == 1:
                    raise KeyError(step)
                loss = kept.square().mean()
        except KeyError:
            loss = (kept - 1).abs().mean()
        update(optimizer, loss)
        losses.append(loss.detach())
    return [floats(losses), arrays([total, kept])]


@training
def nested_blocks(block, steps):
    """A helper enters the block by itself, inside and outside of another."""
    model, head = mlp(4, 8), nn.Linear(8, 2)
    optimizer = ad.optim.SGD([*model.parameters(), *head.parameters()], lr=0.1)
    x, y = regression_data()

    def features(x):
        with block():
            return model(x).tanh()

    losses, norms = [], []
    for _ in range(steps):
        with block():
            hidden = features(x)
            loss = F.mse_loss(head(hidden), y)
            update(optimizer, loss)
        losses.append(loss.item())
        norms.append(features(x).norm().detach())
        norms.append(hidden.norm().detach())
    return [floats(losses), floats(norms)]


@training
def several_blocks_in_one_step(block, steps):
    """Forward, loss, backward and the optimizer's step, each in a block of its own."""
    model, criterion = mlp(4, 8, 2), nn.MSELoss()
    optimizer = ad.optim.Adam(model.parameters(), lr=0.02)
    x, y = regression_data()
    losses = []
    for _ in range(steps):
        with block():
            output = model(x)
        with block():
            loss = criterion(output, y)
        with block():
            optimizer.zero_grad()
            loss.backward()
        with block():
            optimizer.step()
        losses.append(loss)
    return [floats(losses), weights(model)]


@training
def all_steps_in_one_block(block, steps):
    """The loop itself is inside."""
    model = mlp(4, 8, 2)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1)
    x, y = regression_data()
    losses = []
    with block():
        for _ in range(steps):
            loss = F.mse_loss(model(x), y)
            update(optimizer, loss)
            losses.append(loss.detach())
    return [floats(losses), weights(model)]


@training
def block_entered_at_times(block, steps):
    """Every second step is eager; validation of one model is the training of another."""
    model = mlp(4, 8, 2)
    optimizer = ad.optim.Adam(model.parameters(), lr=0.02)
    x, y = regression_data()
    losses = []
    for step in range(steps):
        if step % 2:
            with block():
                loss = F.mse_loss(model(x), y)
        else:
            loss = F.mse_loss(model(x), y)
        update(optimizer, loss)
        losses.append(loss.item())
    return [floats(losses), weights(model)]


@training
def loss_of_the_step_before(block, steps):
    """The loss of a step holds the outputs of the step before, which keep their values."""
    model = mlp(4, 8, 2)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1)
    x, previous, losses = ad.randn(5, 4), None, []
    for _ in range(steps):
        with block():
            output = model(x)
            loss = F.mse_loss(output, x[:, :2])
            if previous is not None:
                loss = loss + F.mse_loss(output, previous.detach())
        update(optimizer, loss)
        previous = output
        losses.append(loss)
    return [floats(losses), weights(model)]


@training
def backward_of_the_step_before(block, steps):
    """Gradients of one batch are taken when the next one was computed already."""
    model = mlp(4, 8, 2)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1)
    waiting, losses = None, []
    for _ in range(steps):
        x = ad.randn(4, 4)
        with block():
            loss = F.mse_loss(model(x), x[:, :2])
        if waiting is not None:
            waiting.backward()
        waiting = loss
        losses.append(loss.detach())
        if len(losses) % 4 == 0:
            waiting.backward()
            waiting = None
            optimizer.step()
            optimizer.zero_grad()
    return [floats(losses), weights(model)]


class Encoder(nn.Module):
    """A module with keywords, whose result is a dictionary with None in it."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x, *, mask=None, scale=1.0, with_norm=False):
        hidden = self.linear(x) * scale
        if mask is not None:
            hidden = hidden * mask
        return {"hidden": hidden, "norm": hidden.norm() if with_norm else None, "rows": len(x)}


@training
def dictionaries_and_keywords(block, steps):
    """Arguments come and go: a mask, a number, a flag."""
    model = Encoder()
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(steps):
        batch = {"x": ad.randn(3, 4), "mask": ad.rand(3, 4).round() if step % 3 else None}
        with block():
            result = model(**batch, scale=1 + step % 2, with_norm=step % 4 == 0)
            loss = (result["hidden"] - batch["x"]).square().sum() / result["rows"]
            if result["norm"] is not None:
                loss = loss + 0.1 * result["norm"]
        update(optimizer, loss)
        losses.append(loss.item())
    return [floats(losses), weights(model)]


@training
def saved_and_loaded_in_the_middle(block, steps):
    """Model and optimizer go on in new objects, from state dicts."""
    x, y = regression_data()
    model = mlp(4, 8, 2)
    optimizer = ad.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for step in range(steps):
        if step == steps // 2:
            saved = copy.deepcopy([model.state_dict(), optimizer.state_dict()])
            model = mlp(4, 8, 2)
            optimizer = ad.optim.Adam(model.parameters(), lr=0.5)
            model.load_state_dict(saved[0])
            optimizer.load_state_dict(saved[1])
        with block():
            loss = F.mse_loss(model(x), y)
        update(optimizer, loss)
        losses.append(loss)
    return [floats(losses), weights(model)]


@training
def model_made_anew_for_each_fold(block, steps):
    """Cross-validation: models come and go while one graph stays."""
    x, y = regression_data()
    losses, scores = [], []
    for fold in range(3):
        kept = [row for row in range(8) if row % 3 != fold]
        model = mlp(4, 6, 2)
        optimizer = ad.optim.SGD(model.parameters(), lr=0.2)
        for _ in range(steps // 3):
            with block():
                loss = F.mse_loss(model(x[kept]), y[kept])
            update(optimizer, loss)
            losses.append(loss.detach())
        with block(), ad.no_grad():
            scores.append(F.mse_loss(model(x[fold::3]), y[fold::3]))
    return [floats(losses), floats(scores)]


# ---- without labels ------------------------------------------------------------------------------


@training
def autoencoder(block, steps):
    """Encoder and decoder, with a penalty on the code, which is kept."""
    encoder, decoder = nn.Linear(6, 2), nn.Linear(2, 6)
    optimizer = ad.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=0.02)
    x, losses, codes = ad.rand(8, 6), [], []
    for _ in range(steps):
        with block():
            code = encoder(x).sigmoid()
            loss = F.binary_cross_entropy_with_logits(decoder(code), x) + 0.01 * code.abs().sum()
        update(optimizer, loss)
        losses.append(loss.item())
        codes.append(code)
    return [floats(losses), arrays(codes)]


@training
def variational_autoencoder(block, steps):
    """Reparametrized draws, the weight of the divergence grows; pictures are drawn in between."""
    encoder, decoder = nn.Linear(6, 4), nn.Linear(2, 6)
    optimizer = ad.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=0.02)
    x, log, drawn = ad.rand(8, 6), [], []
    for step in range(steps):
        with block():
            mean, deviation = encoder(x).chunk(2, dim=1)
            z = mean + ad.randn_like(mean) * (0.5 * deviation).exp()
            error = F.binary_cross_entropy_with_logits(decoder(z), x, reduction="sum")
            divergence = -0.5 * (1 + deviation - mean.square() - deviation.exp()).sum()
            loss = error + step / steps * divergence
        update(optimizer, loss)
        log += [loss, divergence]
        if step % 3 == 0:
            with ad.no_grad(), block():
                drawn.append(decoder(ad.randn(1, 2)).sigmoid())
    return [floats(log), arrays(drawn)]


@training
def variational_autoencoder_with_distributions(block, steps):
    """Draws and divergence by `ad.distributions`."""
    encoder, decoder = nn.Linear(6, 4), nn.Linear(2, 6)
    optimizer = ad.optim.SGD([*encoder.parameters(), *decoder.parameters()], lr=0.05)
    losses = []
    for _ in range(steps):
        x = ad.rand(4, 6)
        with block():
            mean, spread = encoder(x).chunk(2, dim=1)
            posterior = ad.distributions.Normal(mean, F.softplus(spread))
            prior = ad.distributions.Normal(ad.zeros(2), ad.ones(2))
            error = (decoder(posterior.rsample()) - x).square().sum(1).mean()
            distance = ad.distributions.kl_divergence(posterior, prior).sum(1).mean()
            loss = error + 0.1 * distance
        update(optimizer, loss)
        losses.append(loss)
    return [floats(losses), weights(decoder)]


@training
def vector_quantization(block, steps):
    """The nearest code by argmin; a straight-through sum; codes follow by an average in place."""
    encoder, decoder = nn.Linear(4, 2), nn.Linear(2, 4)
    codes = ad.randn(5, 2)
    optimizer = ad.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=0.02)
    losses, used = [], []
    for _ in range(steps):
        x = ad.randn(6, 4)
        with block():
            z = encoder(x)
            nearest = ad.cdist(z.detach(), codes).argmin(1)
            quantized = z + (codes[nearest] - z).detach()
            loss = F.mse_loss(decoder(quantized), x) + 0.25 * F.mse_loss(z, codes[nearest])
        update(optimizer, loss)
        for row, code in zip(z.detach(), nearest.tolist(), strict=True):
            codes[code] = 0.9 * codes[code] + 0.1 * row
        losses.append(loss.detach())
        used.append(nearest)
    return [floats(losses), arrays(used), arrays([codes])]


@training
def words_with_negative_samples(block, steps):
    """Two embeddings, negatives drawn inside the block."""
    words, contexts = nn.Embedding(8, 4), nn.Embedding(8, 4)
    optimizer = ad.optim.Adagrad([*words.parameters(), *contexts.parameters()], lr=0.3)
    losses = []
    for step in range(steps):
        center, near = ad.arange(4) + step % 4, ad.arange(1, 5) % 8
        with block():
            negatives = ad.randint(0, 8, (4, 3))
            right = (words(center) * contexts(near)).sum(1)
            wrong = (contexts(negatives) @ words(center)[:, :, None]).squeeze(2)
            loss = -(F.logsigmoid(right) + F.logsigmoid(-wrong).sum(1)).mean()
        update(optimizer, loss)
        losses.append(loss.item())
    return [floats(losses), weights(words)]


@training
def matrix_factorization(block, steps):
    """Alternating: users in even steps, films in odd ones."""
    ratings, seen = ad.rand(5, 6) * 5, ad.rand(5, 6) < 0.6
    users, films = nn.Parameter(ad.rand(5, 2)), nn.Parameter(ad.rand(6, 2))
    optimizers = [ad.optim.SGD([users], lr=0.02), ad.optim.SGD([films], lr=0.02)]
    losses = []
    for step in range(steps):
        with block():
            error = (users @ films.T - ratings)[seen]
            loss = error.square().sum() + 0.1 * (users.norm() + films.norm())
        users.grad = films.grad = None
        loss.backward()
        optimizers[step % 2].step()
        losses.append(loss)
    return [floats(losses), arrays([users, films])]


@training
def k_means(block, steps):
    """Centers are replaced under no_grad; empty clusters keep theirs."""
    points = ad.randn(12, 2)
    centers = points[:3].clone()
    spreads, history = [], []
    for _ in range(steps):
        points += 0.1 * ad.randn(12, 2)
        with ad.no_grad(), block():
            distances = ad.cdist(points, centers)
            nearest = distances.argmin(1)
            for number in range(3):
                mine = nearest == number
                if mine.any():
                    centers[number] = points[mine].mean(0)
            spreads.append(distances.amin(1).mean())
        history.append(centers.clone())
    return [floats(spreads), arrays(history)]


@training
def expectation_maximization(block, steps):
    """A mixture of two normal distributions; all tensors are new in each step."""
    x = ad.cat([ad.randn(6) - 2, ad.randn(6) * 0.5 + 1])
    means, deviations, shares = ad.tensor([-0.5, 0.5]), ad.ones(2), ad.full((2,), 0.5)
    likelihoods, history = [], []
    for _ in range(steps):
        with block():
            logs = -0.5 * ((x[:, None] - means) / deviations).square() - deviations.log()
            logs = logs + shares.log()
            likelihoods.append(logs.logsumexp(1).mean())
            belongs = logs.softmax(1)
            weight = belongs.sum(0)
            means = (belongs * x[:, None]).sum(0) / weight
            spread = (belongs * (x[:, None] - means).square()).sum(0) / weight
            deviations, shares = (spread + 1e-3).sqrt(), weight / weight.sum()
        history.append(means)
    return [floats(likelihoods), arrays(history)]


@training
def gaussian_process(block, steps):
    """The likelihood by a Cholesky factor; length, scale and noise by Adam."""
    x = ad.linspace(0, 3, 6)
    y = x.sin() + 0.1 * ad.randn(6)
    logs = nn.Parameter(ad.tensor([0.0, 0.0, -1.0]))
    optimizer = ad.optim.Adam([logs], lr=0.05)
    losses, predictions = [], []
    for _ in range(steps):
        with block():
            length, scale, noise = logs.exp()
            kernel = scale * (-0.5 * ((x[:, None] - x) / length).square()).exp()
            factor = ad.linalg.cholesky(kernel + (noise + 1e-3) * ad.eye(6))
            solved = ad.cholesky_solve(y[:, None], factor)
            loss = 0.5 * y @ solved[:, 0] + factor.diagonal().log().sum()
            predictions.append((kernel @ solved).detach())
        update(optimizer, loss)
        losses.append(loss.detach())
    return [floats(losses), arrays(predictions), arrays([logs])]


@training
def evolution_strategy(block, steps):
    """Weights are perturbed in place under no_grad, and moved by the scores."""
    model = mlp(3, 4, 1)
    x, y = regression_data(inputs=3, outputs=1)
    scores_of_all, best = [], []
    for _ in range(steps):
        with ad.no_grad():
            center = nn.utils.parameters_to_vector(model.parameters())
            noise = ad.randn(6, center.numel())
            scores = []
            for direction in noise:
                nn.utils.vector_to_parameters(center + 0.1 * direction, model.parameters())
                with block():
                    scores.append(-F.mse_loss(model(x), y))
            scores = ad.stack(scores)
            step = ((scores - scores.mean()) / scores.std()) @ noise
            nn.utils.vector_to_parameters(center + 0.02 * step, model.parameters())
        scores_of_all.append(scores.mean())
        best.append(scores.max())
    return [floats(scores_of_all), floats(best), weights(model)]


@training
def genetic_algorithm(block, steps):
    """Models are copied and mutated; the best one survives."""
    champion = mlp(3, 4, 1)
    x, y = regression_data(inputs=3, outputs=1)
    scores = []
    for _ in range(steps):
        children = [champion, *(copy.deepcopy(champion) for _ in range(3))]
        for child in children[1:]:
            for p in child.parameters():
                p.data += 0.1 * ad.randn_like(p)
        with block(), ad.no_grad():
            errors = [F.mse_loss(child(x), y) for child in children]
        champion = children[min(range(4), key=lambda number: errors[number].item())]
        scores += errors
    return [floats(scores), weights(champion)]


@training
def normalizing_flow(block, steps):
    """Coupling layers with a log-determinant; sampling runs the flow backwards."""
    nets = nn.ModuleList(mlp(1, 6, 2) for _ in range(2))
    optimizer = ad.optim.Adam(nets.parameters(), lr=0.02)
    losses, samples = [], []
    for _ in range(steps):
        x = ad.randn(6, 2).tanh() + 1
        with block():
            determinant = 0.0
            for net in nets:
                kept, moved = x.chunk(2, dim=1)
                scale, shift = net(kept).tanh().chunk(2, dim=1)
                x = ad.cat([moved * scale.exp() + shift, kept], dim=1)
                determinant = determinant + scale.sum(1)
            loss = (0.5 * x.square().sum(1) - determinant).mean()
        update(optimizer, loss)
        losses.append(loss.item())
        with ad.no_grad(), block():
            z = ad.randn(2, 2)
            for net in reversed(nets):
                moved, kept = z.chunk(2, dim=1)
                scale, shift = net(kept).tanh().chunk(2, dim=1)
                z = ad.cat([kept, (moved - shift) * (-scale).exp()], dim=1)
            samples.append(z)
    return [floats(losses), arrays(samples)]


@training
def diffusion(block, steps):
    """Noise of random strength is predicted; an average of the weights is sampled from."""
    model = mlp(3, 8, 2)
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = ad.optim.Adam(model.parameters(), lr=0.02)
    kept = ad.linspace(0.99, 0.5, 4).cumprod(0)
    x, losses, samples = ad.randn(6, 2) + 2, [], []
    for _ in range(steps):
        times, noise = ad.randint(0, 4, (6,)), ad.randn(6, 2)
        with block():
            share = kept[times][:, None]
            noisy = share.sqrt() * x + (1 - share).sqrt() * noise
            loss = F.mse_loss(model(ad.cat([noisy, times[:, None] / 4], dim=1)), noise)
        update(optimizer, loss)
        losses.append(loss)
        with ad.no_grad(), block():
            for slow, fast in zip(average.parameters(), model.parameters(), strict=True):
                slow.lerp_(fast, 0.1)
            z = ad.randn(1, 2)
            for time in (3, 2, 1, 0):
                z = z - 0.3 * average(ad.cat([z, ad.full((1, 1), time / 4)], dim=1))
            samples.append(z)
    return [floats(losses), arrays(samples)]


@training
def langevin_sampling(block, steps):
    """Samples of an energy, kept between the steps, move along its gradient in an inner loop."""
    energy = mlp(2, 8, 1)
    optimizer = ad.optim.Adam(energy.parameters(), lr=0.02)
    samples, losses, history = ad.randn(4, 2), [], []
    for _ in range(steps):
        for _ in range(3):
            samples = samples.detach().requires_grad_()
            with block():
                (slope,) = ad.autograd.grad(energy(samples).sum(), samples)
                samples = samples - 0.1 * slope + 0.05 * ad.randn(4, 2)
        with block():
            real = ad.randn(4, 2) * 0.3 + 1
            loss = energy(real).mean() - energy(samples.detach()).mean()
        update(optimizer, loss)
        losses.append(loss.detach())
        history.append(samples)
    return [floats(losses), arrays(history)]


@training
def style_transfer(block, steps):
    """A picture is optimized; the activations it should have are kept from one call."""
    network = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Conv2d(3, 4, 2)).eval()
    network.requires_grad_(False)
    content, style = ad.rand(1, 1, 5, 5), ad.rand(1, 1, 5, 5)

    def gram(features):
        rows = features.flatten(2)[0]
        return rows @ rows.T / rows.shape[1]

    with block():
        wanted = network(content)
        wanted_gram = gram(network(style))
    picture = content.clone().requires_grad_()
    optimizer = ad.optim.Adam([picture], lr=0.05)
    losses = []
    for _ in range(steps):
        with block():
            features = network(picture)
            loss = F.mse_loss(features, wanted) + 10 * F.mse_loss(gram(features), wanted_gram)
        update(optimizer, loss)
        picture.data.clamp_(0, 1)
        losses.append(loss.item())
    return [floats(losses), arrays([picture, wanted_gram])]
