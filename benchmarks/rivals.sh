#!/bin/sh
# The comparisons of docs/results.md, section 4: every rival on three corpora, the paper's ablation, and the flat model
# with more text. About five hours of one core; every part can be interrupted and called again.
#
#   benchmarks/rivals.sh OUT [JOBS]
set -eu
out=$1
jobs=${2:-1}
# The figures were made with these two settings, which were the shipped ones then.
compare() { byteseam compare configs/laptop.toml --jobs "$jobs" --training.threads 1 \
    --strategy.pool last --training.policy_learning_rate 3e-2 "$@"; }

rivals='score_function,mean:score_function[pool=mean],uniform,gumbel,bpe,whitespace,hnet'
# One seed of the others, beside the reference.
others='score_function,bpe-mean:bpe[pool=mean],uniform-mean:uniform[pool=mean],hnet-w1:hnet[rate_weight=1],flat,entropy,stride,regex,every_byte'

compare --strategies "$rivals" --seeds 2 --budget bytes=1.5M --out "$out/gutenberg"
compare --strategies "$others" --budget bytes=1.5M --out "$out/gutenberg-others"
for source in python-stdlib chinese-gold; do
    compare --strategies "$rivals" --seeds 2 --budget bytes=1M --data.source $source --max-bytes 300e3 --out "$out/$source"
    compare --strategies "$others" --budget bytes=1M --data.source $source --max-bytes 300e3 --out "$out/$source-others"
done

# The paper's ablation: its estimator with a history of 8, one thing changed at a time.
paper='baseline=batch;history=8'
compare --budget bytes=1M --out "$out/ablation" --strategies "paper:score_function[$paper],\
gamma1:score_function[$paper;gamma=1.0],nobatch:score_function[baseline=none;history=8],\
noearly:score_function[$paper;early_exit=false],w1:score_function[baseline=batch],norate:score_function[$paper;rate_weight=0.0]"

compare --strategies 'flat,mean:score_function[pool=mean]' --budget bytes=3M --out "$out/longer"
