"""Sampled estimators against gradients from all segmentations of a short text: python benchmarks/exact_gradient.py.

A small random model to which boundaries matter, a text of ten bytes, 1,024 segmentations, float64. For every estimator
and discount: how far the mean of many samples is from what the estimator aims at (the true gradient where gamma is 1),
the bias by design, and the error of one estimate. The batch-relative rows all hold the one text, which flatters it.
"""

from dataclasses import replace

import torch

from byteseam.config import ModelConfig
from byteseam.estimator_check import enumerate_segmentations, exact_gradient, sampled_estimates
from byteseam.language_model import LanguageModel
from byteseam.strategies import ScoreFunction
from byteseam.types import DOCUMENT_MARK, Batch

TEXT = b"not to be "
DRAWS = 20_000
ESTIMATORS = {
    "likelihood, no baseline": ScoreFunction(bytes_per_token=2.0, baseline="none", early_exit=False),
    "early exit, no baseline": ScoreFunction(bytes_per_token=2.0, baseline="none"),
    "early exit, batch-relative, 4 rows (paper)": ScoreFunction(bytes_per_token=2.0, baseline="batch"),
    "early exit, learned value (untrained)": ScoreFunction(bytes_per_token=2.0, baseline="value"),
    "early exit, leave-one-out of 2": ScoreFunction(bytes_per_token=2.0, samples=2),
    "early exit, leave-one-out of 4": ScoreFunction(bytes_per_token=2.0, samples=4),
}


def text_row(text: bytes) -> Batch:
    """One document, whole."""
    byte_ids = torch.tensor([[DOCUMENT_MARK, *text]])
    targets = torch.tensor([[*text, DOCUMENT_MARK]])
    return Batch(byte_ids, targets, torch.ones_like(byte_ids, dtype=torch.bool), torch.zeros_like(byte_ids))


def lively_model(strategy: ScoreFunction) -> LanguageModel:
    """Random weights, larger where a fresh model has none: one to which boundaries matter."""
    torch.manual_seed(3)
    widths = {"width": 16, "byte_mlp_width": 16, "token_mlp_width": 16}
    layers = {"encoder_layers": 1, "token_layers": 1, "decoder_layers": 1}
    model = LanguageModel(ModelConfig(heads=2, window=4, **widths, **layers), strategy)
    with torch.no_grad():
        for head in (model.unet.head, model.unet.early_head):
            head.linear.weight.mul_(10)
        model.unet.token_norm.weight.mul_(3)
        torch.manual_seed(4)  # the same policy whatever else was drawn before
        policy = model.policy.policy
        policy.linear.weight.normal_(std=0.4 * policy.divisor)
        policy.linear.bias.normal_(std=0.4 * policy.divisor)
    return model


def main() -> None:
    """Print the table."""
    print(
        f"| estimator | gamma | largest z against its aim, {len(TEXT)} bytes | bias by design / gradient | "
        "squared error of one estimate / squared gradient |\n|---|---|---|---|---|"
    )
    for name, estimator in ESTIMATORS.items():
        for gamma in (1.0, 0.9, 0.5):
            strategy = replace(estimator, gamma=gamma)
            model = lively_model(strategy)
            table = enumerate_segmentations(model, strategy, text_row(TEXT))
            rows = 4 if strategy.baseline == "batch" else 1
            draws = DRAWS // 20 if strategy.baseline == "batch" else DRAWS
            generator = torch.Generator().manual_seed(5)
            samples = sampled_estimates(model.policy, strategy, [table] * rows, draws, generator)
            samples = samples.flatten(0, 1)
            true, aim = (exact_gradient(model.policy, table, each) for each in (1.0, gamma))
            spread = samples.std(0) / len(samples) ** 0.5
            varying = spread > 1e-9
            z = ((samples.mean(0) - aim)[varying].abs() / spread[varying]).max()
            bias = (aim - true).norm() / true.norm()
            error = (samples - true).square().sum((1, 2)).mean() / true.square().sum()
            print(f"| {name} | {gamma:g} | {z:.1f} | {bias:.2f} | {error:.1f} |")


if __name__ == "__main__":
    main()
