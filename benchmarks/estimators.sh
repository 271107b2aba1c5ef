#!/usr/bin/env bash
# Leave-one-out rollouts against the paper's estimator, random and given boundaries: the runs behind docs/results.md.
#
#   benchmarks/estimators.sh OUT          two runs side by side, one thread each; about an hour on two cores
#   python benchmarks/estimator_table.py OUT
#
# A finished run is not done again and one that was interrupted is resumed, so the series goes on where it stopped.
set -euo pipefail
out=${1:?usage: benchmarks/estimators.sh OUT}
mkdir -p "$out"

one() { # NAME [overrides]
  local name=$1; shift
  if grep -qs '"finished": true' "$out/$name.json"; then return; fi
  if [ -d "$out/$name" ]; then
    byteseam train --resume "$out/$name" --quiet --json > "$out/$name.json"
  else
    byteseam train configs/laptop.toml --out "$out/$name" --quiet --json \
      --training.threads 1 --training.total_bytes 1.5e6 --training.evaluate_every_bytes 0.25e6 \
      --evaluation.max_bytes 60e3 --strategy.pool last --training.policy_learning_rate 3e-2 "$@" > "$out/$name.json"
  fi
}

for corpus in gutenberg python-stdlib; do
  seeds="0 1 2"; if [ "$corpus" = gutenberg ]; then seeds="0 1 2 3 4"; fi
  for seed in $seeds; do
    data=(--data.source "$corpus" --seed "$seed")
    one "$corpus-leave_one_out-$seed" "${data[@]}" &
    one "$corpus-paper-$seed" "${data[@]}" --strategy.baseline batch &
    wait
    if [ "$seed" -le 2 ]; then
      one "$corpus-uniform-$seed" "${data[@]}" --strategy.name uniform &
      one "$corpus-whitespace-$seed" "${data[@]}" --strategy.name whitespace &
      wait
    fi
  done
done
one gutenberg-paper_weights-0 --seed 0 --strategy.baseline batch --strategy.gamma 0.99 --strategy.policy_weight 0.01 \
  --strategy.rate_weight 0.01 --strategy.reach 1.0 --training.policy_learning_rate 5e-3
