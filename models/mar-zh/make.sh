#!/bin/sh
# Makes the packed model and the vectors of its sample again.
# usage: make.sh   in a folder with data/pairs.jsonl and data/texts.jsonl (see the model card) and queries.jsonl: the
# questions of the pairs and 9,000 other texts of at most 100 characters
set -eu
here=$(cd "$(dirname "$0")" && pwd)
source=${SOURCE:-intfloat/multilingual-e5-small}
mar train mar-e5 --out run --stage document-init --set document.source="$source"
teacher=run/01-document-init/model
common="--teacher $teacher --queries queries.jsonl --store store --max-length 128 --temperature 0.02 --batch-size 128"
mar align $common --out first --ladder 1,2,4 --learning-rate 4e-4 --epochs 2.5
python - "$teacher" <<'PY'
import sys

from mar_st.spaces import Options, align_space

options = Options(
    epochs=2.5, batch_size=128, learning_rate=1e-3, temperature=0.02, max_length=128, held_out=100,
    refine_epochs=4, refine_batch_size=128, refine_learning_rate=3e-4, refine_temperature=0.02,
    refine_negatives=0, query_only=True,
)  # fmt: skip
align_space(
    sys.argv[1], "second", queries="queries.jsonl", student="first", refine="data/pairs.jsonl", store="store",
    options=options,
)  # fmt: skip
PY
mar align --teacher "$teacher" --queries queries.jsonl --store store --max-length 128 --out ladder \
  --ladder lookup,full --default-rung full
rm -rf "$here/src/mar_zh/model" "$here/src/mar_zh/sample/vectors"
python - "$here/src/mar_zh" <<'PY'
import sys
from pathlib import Path

from mar_st.encode import encode_corpus
from mar_st.family import add_query_encoder
from mar_st.packed import pack, unpacked_folder

package = Path(sys.argv[1])
add_query_encoder("ladder", "second", "query-2")
pack("ladder", package / "model")
sample = package / "sample"
encode_corpus(unpacked_folder(package / "model", "mar-zh"), sample / "corpus.jsonl", sample / "vectors")
PY
