#!/bin/sh
# Makes the model and the vectors of its sample again, without the last step of the packaged version 0.2.1: its two
# layers were also trained on the pairs with frozen documents, by code that is gone.
# usage: make.sh   in a folder with data/pairs.jsonl and data/texts.jsonl, see the model card
set -eu
here=$(cd "$(dirname "$0")" && pwd)
source=${SOURCE:-intfloat/multilingual-e5-small}
cat > documents.yaml <<YAML
extends: mar-zh
name: mar-zh-documents
query: null
document: {source: "$source"}
stages: {align: null, joint: null}
YAML
mar train documents.yaml --out run
python "$here/queries.py" data/pairs.jsonl data/texts.jsonl queries.jsonl
mar align --teacher run/model --queries queries.jsonl --out ladder --ladder lookup,2,full --default-rung full \
  --batch-size 128 --epochs 1 --temperature 0.02 --max-length 128 ${TASK:+--eval "$TASK"}
rm -rf "$here/src/mar_zh/model" "$here/src/mar_zh/sample/vectors"
python - "$here/src/mar_zh" <<'PY'
import json
import shutil
import sys
from pathlib import Path

package, ladder = Path(sys.argv[1]), Path("ladder")
sys.path.insert(0, str(package.parents[3]))  # tools are not installed
from tools.pack import pack

for record in (*ladder.glob("*.jsonl"), ladder / "ladder.json", ladder / "space.json"):  # records of training
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
PYTHONPATH="$here/src" mar encode mar-zh corpus.jsonl vectors --precision float16
rm -f vectors/.lock
