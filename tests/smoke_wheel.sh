#!/bin/sh
# Installs both wheels into a new environment and uses them as a stranger would, from another folder.
# usage: smoke_wheel.sh MEDTEB MAR_ZH   (VENV and FROM from the environment)
# The dependencies are those of FROM's environment: its folder of packages comes after that of the new one.
set -eu
FROM=$(realpath -s "$FROM")
wheel=$(realpath "$1")
model=$(realpath "$2")
venv=$(realpath -m "$VENV")
packages='import sysconfig; print(sysconfig.get_path("purelib"))'
"$FROM" -m venv --clear --without-pip "$venv"
"$FROM" -c "$packages" > "$("$venv/bin/python" -c "$packages")/dependencies.pth"
"$FROM" -m pip --python "$venv/bin/python" install -q --disable-pip-version-check --no-deps --force-reinstall "$wheel" "$model"
export HF_HUB_OFFLINE=1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
export MTEB_CACHE="$scratch/cache" MAR_CACHE="$scratch/models"
"$venv/bin/medteb" --version
"$venv/bin/medteb" edition show MedTEBSTS
"$venv/bin/mar" recipes
"$venv/bin/python" - <<'PY'
import mteb

assert mteb.get_task("MedTEBRetrieval").metadata.dataset["revision"] != "no-edition"
assert [t.metadata.name for t in mteb.get_benchmark("MedTEB(cmn, mini)").tasks] == [
    "MedTEBRetrieval", "MedTEBReranking", "MedTEBSTS"
]
print(mteb.get_model_meta("mar-mini").name)
PY
"$venv/bin/python" "$(dirname "$FROM")/mteb" run -t MedTEBSTS -m mar-mini > run.log 2>&1 || { cat run.log; exit 1; }
find "$scratch" -name MedTEBSTS.json | grep -q . || { echo "no result was written"; exit 1; }
"$venv/bin/python" - <<'PY'
from importlib.util import find_spec
from pathlib import Path

from sentence_transformers import SentenceTransformer

model = SentenceTransformer(str(Path(find_spec("mar_st").origin).parent / "models" / "mar-mini"))
scores = model.similarity(model.encode_query(["血压高不能吃啥"]), model.encode_document(["高血压患者饮食应低盐", "骨折后应制动"]))
print(scores)
PY
printf '{"_id": "1", "text": "高血压患者宜低盐饮食"}\n{"_id": "2", "text": "骨折后应制动"}\n' > corpus.jsonl
"$venv/bin/mar" encode mar-mini corpus.jsonl vectors
"$venv/bin/python" - <<'PY'
from importlib.resources import files

from mar_st import VectorFolder

assert VectorFolder.open("vectors").ids.to_pylist() == ["1", "2"]
for name in ("kernels/encoder.cpp", "planning/backbones.yaml", "serve/page/index.html", "serve/page/page.js"):
    assert (files("mar_st") / name).is_file(), f"{name} is not in the wheel"
PY
"$venv/bin/python" - <<'PY'
import mar_zh
from sentence_transformers import SentenceTransformer

model = SentenceTransformer(mar_zh.path())
scores = model.similarity(model.encode_query(["血压高不能吃啥"]), model.encode_document(["高血压患者饮食应低盐", "骨折后应制动"]))
assert scores[0, 0] > scores[0, 1], scores
PY
echo "the wheels work"
