#!/bin/sh
# Makes the packed model and the vectors of its sample again.
# usage: make.sh   in a folder with data/pairs.jsonl and data/texts.jsonl, see the model card
set -eu
here=$(cd "$(dirname "$0")" && pwd)
source=${SOURCE:-intfloat/multilingual-e5-small}
mar train mar-zh --out run --stage document-hard --set document.source="$source"
python "$here/queries.py" data/pairs.jsonl data/texts.jsonl queries.jsonl
# The records of training are left out of the package.
mar align --teacher run/02-document-hard/model --queries queries.jsonl --refine data/pairs.jsonl --store store \
  --out ladder --ladder lookup,2,full --default-rung full --batch-size 128 --length-groups 16 \
  --epochs 1 --temperature 0.02 --max-length 128 --refine-epochs 2 --refine-batch-size 128 --refine-learning-rate 3e-4 \
  --refine-temperature 0.02 --refine-start-share 0.5 ${TASK:+--eval "$TASK"}
rm -rf "$here/src/mar_zh/model" "$here/src/mar_zh/sample/vectors"
python - "$here/src/mar_zh" <<'PY'
import json
import shutil
import sys
from pathlib import Path

from mar_st.model.packed import pack

package, ladder = Path(sys.argv[1]), Path("ladder")
for record in (*ladder.glob("*.png"), *ladder.glob("*.jsonl"), ladder / "ladder.json", ladder / "space.json"):
    record.unlink()
shutil.copy(package.parents[1] / "card.md", ladder / "README.md")
# Documents of up to 256 tokens are embedded better whole than cut to the 128 tokens of training.
tokenizer = ladder / "document_0_Transformer"
settings = json.loads((tokenizer / "tokenizer_config.json").read_text("utf-8"))
settings |= {"model_max_length": 256, "max_length": 256}
(tokenizer / "tokenizer_config.json").write_text(json.dumps(settings, indent=2), "utf-8")
content = json.loads((tokenizer / "tokenizer.json").read_text("utf-8"))
content["truncation"]["max_length"] = 256
(tokenizer / "tokenizer.json").write_text(json.dumps(content, indent=2, ensure_ascii=False), "utf-8")
pack(ladder, package / "model")
PY
cd "$here/src/mar_zh/sample"  # the manifest names the corpus as it is given
PYTHONPATH="$here/src" mar encode mar-zh corpus.jsonl vectors
rm -f vectors/.lock
