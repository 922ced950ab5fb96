#!/bin/sh
# Makes the packed model and the vectors of its sample again.
# usage: SOURCE=FOLDER [SEED=42] make.sh   in a folder with data/pairs.jsonl and data/texts.jsonl, see the model card
set -eu
here=$(cd "$(dirname "$0")" && pwd)
seed=${SEED:-42}
steps="python $here/documents.py"
precision=fp32 dtype=float32
if grep -qsE 'avx512_bf16|amx_bf16' /proc/cpuinfo; then  # about three times as fast
  precision=bf16 dtype=bfloat16
fi
$steps start "${SOURCE:?the folder of BAAI/bge-small-zh-v1.5}" base
mar train mar-zh --set document.source=base --set seed=$seed --set precision=$precision --out run
mar trim run/model trimmed --keep 12000 --texts data/texts.jsonl --texts data/pairs.jsonl
$steps finish trimmed documents
python "$here/queries.py" data/pairs.jsonl data/texts.jsonl queries.jsonl
# Without the prompt: the small query encoders learn the vectors of prompted queries from the bare ones.
mar align --teacher documents --queries queries.jsonl --pairs data/pairs.jsonl --prompt "" --out ladder \
  --ladder lookup,2,full --default-rung full --epochs 1 --temperature 0.02 --dtype $dtype --seed $seed
rm -rf "$here/src/mar_zh/model" "$here/src/mar_zh/sample/vectors"
$steps package ladder "$here"
cd "$here/src/mar_zh/sample"  # the manifest names the corpus as it is given
PYTHONPATH="$here/src" mar encode mar-zh corpus.jsonl vectors --precision float16
rm -f vectors/.lock
