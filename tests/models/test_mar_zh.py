"""The package of mar-zh as its users get it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from mar_st import MAR
from mar_st.encode.folder import VectorFolder
from mar_st.model.family import query_encoders
from mar_st.model.packed import unpacked_folder

PACKAGE = Path(__file__).parents[2] / "models" / "mar-zh" / "src" / "mar_zh"
#: Questions and answers that the model was not trained on.
QUESTIONS = {
    "血压高的人平时饮食要注意什么": "高血压患者应低盐饮食，多吃蔬菜水果，限制饮酒。",
    "小孩发烧39度怎么退烧": "儿童高热可口服布洛芬或对乙酰氨基酚，并多饮水，必要时就医。",
    "崴脚了脚踝肿了怎么处理": "踝关节扭伤后应立即制动、冰敷，抬高患肢，排除骨折。",
    "得了糖尿病可以吃西瓜吗": "血糖控制稳定时可少量吃水果，注意含糖量，并监测血糖。",
    "晚上睡不着觉怎么办": "失眠者应规律作息，睡前少看手机，必要时在医生指导下用助眠药物。",
    "胃里反酸烧心是怎么回事": "胃食管反流可引起反酸、烧心，宜少食多餐，可用抑酸药治疗。",
    "怀孕三个月能做B超吗": "孕早期超声检查是安全的，可了解胎儿发育情况。",
    "牙龈老是出血什么原因": "牙龈出血多由牙龈炎或牙周炎引起，应洁牙并保持口腔卫生。",
}

pytestmark = pytest.mark.skipif(
    not (PACKAGE / "model").is_dir(), reason="the source distribution comes without models/"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MAR_CACHE", str(tmp_path_factory.mktemp("cache")))
        return unpacked_folder(PACKAGE / "model", "mar-zh")


def test_plain_sentence_transformers_answers_questions(folder):
    model = SentenceTransformer(str(folder), device="cpu").float()
    scores = model.similarity(
        model.encode_query(list(QUESTIONS)), model.encode_document(list(QUESTIONS.values()))
    )
    assert scores.argmax(1).tolist() == list(range(len(QUESTIONS)))


@pytest.mark.thorough
def test_every_rung_answers_most_questions(folder):
    names = query_encoders(folder)
    assert len(names) > 1
    documents = MAR.from_pretrained(folder, routes="document", device="cpu").encode_corpus(
        [{"text": answer} for answer in QUESTIONS.values()]
    )
    for name in names:
        queries = MAR.from_pretrained(folder, query=name, routes="query", device="cpu")
        scores = queries.encode_queries(list(QUESTIONS)) @ np.asarray(documents).T
        right = scores.argmax(1) == np.arange(len(QUESTIONS))
        assert right.sum() >= len(QUESTIONS) - 1, name


def test_the_vectors_of_the_sample_are_those_of_the_model(folder):
    stored = VectorFolder.open(PACKAGE / "sample" / "vectors")
    rows = [json.loads(line) for line in (PACKAGE / "sample" / "corpus.jsonl").open(encoding="utf-8")]
    assert stored.ids.to_pylist() == [row["_id"] for row in rows]
    model = MAR.from_pretrained(folder, routes="document", device="cpu")
    some = [0, 777, len(rows) - 1]
    expected = np.asarray(model.encode_corpus([rows[place] for place in some]))
    assert ((stored[some] * expected).sum(1) > 0.999).all()


def test_no_folder_of_another_machine_is_named():
    manifest = json.loads((PACKAGE / "sample" / "vectors" / "manifest.json").read_text(encoding="utf-8"))
    assert (manifest["model"]["name"], manifest["corpus"]["path"]) == ("mar-zh", "corpus.jsonl")


def test_the_package_is_small():
    assert sum(path.stat().st_size for path in PACKAGE.rglob("*") if path.is_file()) < 60e6
