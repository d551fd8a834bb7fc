"""diffusers: a UNet, a VAE, schedulers, a transformer, a pipeline."""

from __future__ import annotations

import diffusers as df
import numpy as np
import torch
from common import data, fill, told, train

UNET = {
    "sample_size": 8,
    "in_channels": 3,
    "out_channels": 3,
    "layers_per_block": 1,
    "block_out_channels": (16, 32),
    "norm_num_groups": 8,
    "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
    "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
    "attention_head_dim": 8,
}


def case_unet():
    model = fill(df.UNet2DModel(**UNET)).eval()
    x, noise, t = data(2, 3, 8, 8), data(2, 3, 8, 8, seed=1), torch.tensor([3, 700])
    with torch.no_grad():
        before = told(model(x, t).sample)
    loss = lambda: torch.nn.functional.mse_loss(model(x, t).sample, noise)  # noqa: E731
    return before, train(model.train(), loss)


def case_unet_with_conditions():
    model = fill(
        df.UNet2DConditionModel(
            sample_size=8,
            layers_per_block=1,
            block_out_channels=(16, 32),
            norm_num_groups=8,
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
            cross_attention_dim=24,
            attention_head_dim=8,
        )
    )
    x, said = data(2, 4, 8, 8), data(2, 5, 24, seed=1)
    loss = lambda: model(x, torch.tensor([3, 700]), said).sample.square().mean()  # noqa: E731
    return train(model.train(), loss)


def case_vae():
    model = fill(
        df.AutoencoderKL(
            block_out_channels=(16, 32),
            norm_num_groups=8,
            latent_channels=2,
            down_block_types=("DownEncoderBlock2D",) * 2,
            up_block_types=("UpDecoderBlock2D",) * 2,
        )
    )
    x = data(2, 3, 16, 16)

    def loss():
        held = model.encode(x).latent_dist
        return (model.decode(held.mode()).sample - x).square().mean() + 1e-3 * held.kl().mean()

    return train(model, loss, lr=1e-3)


def _sampled(scheduler, steps=5, **options):
    scheduler.set_timesteps(steps, **options)
    x = data(2, 3, 4, 4) * scheduler.init_noise_sigma
    seen = []
    for t in scheduler.timesteps:
        scaled = scheduler.scale_model_input(x, t)
        x = scheduler.step(torch.tanh(scaled) * 0.5, t, x).prev_sample
        seen.append(x)
    return [scheduler.timesteps.float(), seen[0], seen[-1]]


def case_schedulers():
    times = torch.tensor([10, 500])
    found = {}
    for kind in (df.DDIMScheduler, df.DDPMScheduler):
        scheduler = kind(num_train_timesteps=1000)
        found[kind.__name__] = [
            scheduler.add_noise(data(2, 3, 4, 4), data(2, 3, 4, 4, seed=1), times),
            scheduler.get_velocity(data(2, 3, 4, 4), data(2, 3, 4, 4, seed=1), times),
        ]
    for kind in (
        df.DDIMScheduler,
        df.PNDMScheduler,
        df.EulerDiscreteScheduler,
        df.DPMSolverMultistepScheduler,
        df.LMSDiscreteScheduler,
        df.HeunDiscreteScheduler,
        df.UniPCMultistepScheduler,
        df.DEISMultistepScheduler,
        df.FlowMatchEulerDiscreteScheduler,
    ):
        if kind is df.FlowMatchEulerDiscreteScheduler:
            scheduler = kind()
            scheduler.set_timesteps(5)
            found[kind.__name__] = [scheduler.timesteps, scheduler.sigmas]
        else:
            found[f"{kind.__name__} steps"] = _sampled(kind(num_train_timesteps=1000))
    return found


def case_transformer():
    model = fill(
        df.DiTTransformer2DModel(
            num_attention_heads=2,
            attention_head_dim=8,
            in_channels=4,
            num_layers=2,
            sample_size=8,
            norm_num_groups=4,
            num_embeds_ada_norm=10,
        )
    ).eval()
    return model(data(2, 4, 8, 8), torch.tensor([3, 900]), torch.tensor([1, 2])).sample


def case_pipeline():
    unet = fill(df.UNet2DModel(**UNET)).eval()
    pipeline = df.DDIMPipeline(unet, df.DDIMScheduler(num_train_timesteps=100))
    pipeline.set_progress_bar_config(disable=True)
    # noise is drawn from the seed, which is another's here: what is the same is the kind of image
    images = pipeline(batch_size=2, num_inference_steps=3, output_type="np").images
    return [list(images.shape), bool(np.isfinite(images).all())]


def case_ema():
    model = fill(df.UNet2DModel(**UNET))
    ema = df.training_utils.EMAModel(model.parameters(), decay=0.9, use_ema_warmup=True)
    fill(model, 1)
    for _ in range(3):
        ema.step(model.parameters())
    return list(ema.shadow_params)[:3]
