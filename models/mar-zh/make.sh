#!/bin/sh
# Makes the packed model and its sample's vectors again: about an hour on two cores.
# usage: make.sh   in a folder with data/pairs.jsonl, data/texts.jsonl (see the model card) and queries.jsonl, the
# questions of the pairs and other short texts; the evaluation sets are folders in the Hub layout.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
source=${SOURCE:-intfloat/multilingual-e5-small}
mar train mar-e5 --out run --stage document-init --set document.source="$source"
mar align --teacher run/01-document-init/model --out ladder --ladder 1,2,4 --queries queries.jsonl \
  --temperature 0.02 --learning-rate 4e-4 --epochs 2.5 --batch-size 128 --max-length 128 "$@"
rm -rf "$here/src/mar_zh/model" "$here/src/mar_zh/sample/vectors"
python - "$here" <<'PY'
import sys
from pathlib import Path

from mar_st.encode import encode_corpus
from mar_st.packed import pack, unpacked_folder

package = Path(sys.argv[1]) / "src" / "mar_zh"
pack("ladder", package / "model")
model = unpacked_folder(package / "model", "mar-zh")
encode_corpus(model, package / "sample" / "corpus.jsonl", package / "sample" / "vectors")
PY
