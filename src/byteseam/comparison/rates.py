"""The rates of rules whose rate is what the text makes of it: a budget in FLOPs must know them before anything runs."""

from byteseam.comparison.measure import agreement_texts
from byteseam.comparison.plan import Plan
from byteseam.data.cache import resolve
from byteseam.data.corpus import Corpus
from byteseam.evaluation.segment import boundaries_by_rule
from byteseam.strategies import Strategy

SAMPLE_BYTES = 200_000
"""Training text that they are measured on."""


def rates_of_rules(plan: Plan) -> dict[str, float]:
    """Tokens a byte by label, of the entries that decide by rule and steer to no rate; of the others nothing."""
    corpus = Corpus.open(resolve(plan.base().data), "train")
    texts = list(agreement_texts(corpus, SAMPLE_BYTES))
    strategies = {entry.label: plan.run_config(entry, 0).strategy for entry in plan.entries}
    return {
        label: rate_of_rule(strategy, texts)
        for label, strategy in strategies.items()
        if strategy.by_rule and not strategy.steered and not strategy.whole_bytes
    }


def rate_of_rule(strategy: Strategy, texts: list[bytes]) -> float:
    """Boundaries over bytes."""
    policy = strategy.build(1)
    # The document's mark is the first position, and no byte.
    boundaries = sum(int(boundaries_by_rule(strategy, policy, text)[0, 1:].sum()) for text in texts)
    return boundaries / max(1, sum(map(len, texts)))
