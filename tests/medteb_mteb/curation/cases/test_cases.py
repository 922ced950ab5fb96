"""Threads become cases: drops are counted, two agents and people decide, nothing is paid twice."""

from __future__ import annotations

import csv
import json
import re

import pytest
import yaml
from fault_server import FaultEndpoint
from llm_server import llm_at, running

from mar_st.encode.folder import VectorFolder, write_vectors
from mar_st.errors import MarError
from mar_st.index.build import build_index
from mar_st.model.mar import open_model
from mar_st.model.names import packaged_folder
from mar_st.text.texts import text_digest
from medteb_mteb.curation.build import BuildSettings, build
from medteb_mteb.curation.cases.screen import SCREEN, ScreenSettings
from medteb_mteb.curation.cases.settle import SETTLE
from medteb_mteb.curation.cases.verify import VERIFY, VerifySettings
from medteb_mteb.curation.llm.journal import Journal
from medteb_mteb.curation.step import Estimate, perform

GUIDELINES = [
    {"_id": "g1", "text": "尿路结石患者建议多喝水，每日尿量保持在两升以上。"},
    {"_id": "g2", "text": "普通感冒由病毒引起，不建议服用抗生素。"},
    {"_id": "g3", "text": "儿童发热不应服用阿司匹林，以免发生瑞氏综合征。"},
    {"_id": "g4", "text": "Adults with gout should drink plenty of water and avoid beer."},
]
POSTS = {
    "good": ("体检发现右肾结石4毫米，没有腰痛。需要怎么处理？", "建议多喝水。考虑复查B超。祝好！"),
    "disputed": ("感冒三天，流黄鼻涕，不发烧。要不要吃消炎药？", "建议服用抗生素。建议多喝水。"),
    "contradicted": ("孩子发热三十九度，有些咳嗽。能吃什么退烧？", "建议服用阿司匹林。"),
    "chit-chat": ("医生的班上得真辛苦，羡慕。当医生累不累？", "建议多喝水。"),
    "vague": ("最近总是不舒服。怎么办？", "建议多喝水。"),
    "neutral": ("左膝扭伤两天，轻度肿胀。能不能热敷？", "建议热敷左膝。"),
    "english": (
        "I had my second attack of gout. My toe is red. What should I drink?",
        "Drink plenty of water.",
    ),
    "no-passage": ("玻璃碴扎手了，已经拔出来。疼不疼正常？", "考虑缝针。"),
    "advertisement": ("广告：祖传秘方包治百病，加盟热线。谁要买？", "建议多喝水。"),
    "unfounded-narrative": ("编造：睡不好觉很久了，服药2.5毫克。怎么调理？", "建议多喝水。"),
    "no-advice": ("牙龈出血一周，刷牙时明显。要紧吗？", "您好，请来面诊。"),
    "no-json": ("坏：夜里腿抽筋。是缺钙吗？", "建议多喝水。"),
}
RULES = {
    "no-date": {"date": ""},
    "too-old": {"date": "2022-12-31"},
    "no-verified-reply": {"replies": [{"text": "同问", "verified": False}]},
    "picture": {"text": "右肾结石，报告如下 [图片] 怎么办？"},
    "few-words": {"text": "痛……！！？？？————————（）（）（）~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~"},
    "other-language": {"text": "Что делать?", "replies": [{"text": "Пейте воду.", "verified": True}]},
    "too-long": {"text": "右肾结石。" * 5000},
    "near-duplicate": {"text": POSTS["good"][0] + "！"},
}


def threads():
    usual = {"date": "2024-05-03", "replies": [{"text": "建议多喝水。", "verified": True}]}
    rows = [
        {**usual, "_id": name, "text": post, "replies": [{"text": reply, "verified": True}]}
        for name, (post, reply) in POSTS.items()
    ]
    return rows + [{**usual, "_id": name, "text": "右肾结石。", **fields} for name, fields in RULES.items()]


def shown(name, text):
    return re.search(rf"<{name}-(\w+)>\n(.*?)\n</{name}-\1>", text, re.DOTALL)[2]


def sentences(text):
    return re.findall(r"[^。？?.]+[。？?.]", text)


def answer(messages):
    """The answers of all agents, by rules."""
    text = messages[-1]["content"]
    if "<post-" in text:
        return extracted(shown("post", text), shown("replies", text))
    case = shown("case", text)
    if "<advice-" not in text:
        numbers = re.findall(r"^(\d+)\. ", case, re.MULTILINE)
        required = [{"item": "x", "narrative": number} for number in numbers]
        required += [{"item": "y", "narrative": 0}] * (3 if "不舒服" in case else 0)
        return json.dumps({"category": "none" if "辛苦" in case else "Treatment", "required": required})
    advice, passages = shown("advice", text), shown("passages", text)
    wrong = "阿司匹林" in advice
    place = re.findall(r"^\[(\d+)\]", passages[: passages.find(advice[:4].lower()) + 1], re.MULTILINE)
    if "stands" in text:
        refuted = wrong or "抗生素" in advice
        return json.dumps({"verdict": "refuted" if refuted else "stands", "passage": 1 if refuted else 0})
    if wrong:
        return json.dumps({"verdict": "contradicted", "passage": "1"})
    held = any(word in advice for word in ("多喝水", "抗生素", "plenty"))
    verdict = {"verdict": "supported" if held else "neutral", "passage": place[-1] if place else 1}
    return f"```json\n{json.dumps(verdict)}```"


def extracted(post, replies):
    if post.startswith("坏"):
        return "无法处理"
    facts = [one for one in sentences(post) if one[-1] not in "？?"]
    found = {"narrative": facts, "question": sentences(post)[-1]}
    found["advice"] = [*re.findall("(?:建议|考虑|Drink)[^。.]+[。.]", replies), "建议手术。"]
    if "牙龈" in post:
        found["advice"] = []
    if post.startswith("编造"):
        found["narrative"] = ["患者有糖尿病。", "服药25毫克。"]
    reason = "advertisement" if post.startswith("广告") else ""
    return json.dumps({"reason": reason, **found}, ensure_ascii=False)


@pytest.fixture
def paths(tmp_path, write):
    return write(tmp_path / "threads.jsonl", threads()), write(tmp_path / "guidelines.jsonl", GUIDELINES)


def chain(folder, paths, url, **options):
    """Run screen and verify; returns their counts."""
    llm, refuter = llm_at(url), llm_at(url, name="refuter", model="refuter")
    settings = {"threads": paths[0], "out": folder / "screen", "llm": llm, "already_anonymous": True}
    screened, _ = perform(SCREEN, ScreenSettings(**settings))
    settings = {"cases": folder / "screen", "guidelines": paths[1], "out": folder / "verify", "llm": llm}
    verified, _ = perform(VERIFY, VerifySettings(**settings, refuter=refuter, **options))
    return screened["counts"], verified["counts"]


@pytest.fixture
def verified(tmp_path, paths):
    server = FaultEndpoint(answer=answer)
    with running(server) as url:
        chain(tmp_path, paths, url)
    return server


def test_every_thread_is_a_case_or_dropped_for_a_counted_reason(tmp_path, paths, rows_of, run_step):
    server = FaultEndpoint(answer=answer)
    with running(server) as url:
        screened, verified = chain(tmp_path, paths, url)
    asked = {"advertisement", "unfounded-narrative", "no-advice", "no-json"}
    expected = {**dict.fromkeys({*RULES, *asked} - {"no-json"}, 1), "failed-no-json": 1}
    assert screened["details"]["dropped"] == expected
    cases = rows_of(tmp_path / "screen/cases.jsonl")
    assert [case["_id"] for case in cases] == [name for name in POSTS if name not in asked]
    assert cases[0]["narrative"] == ["体检发现右肾结石4毫米，没有腰痛。"]
    assert cases[0]["advice"] == ["建议多喝水。", "考虑复查B超。"]  # "建议手术。" is in no reply
    assert (cases[0]["question"], cases[0]["language"]) == ("需要怎么处理？", "zh")
    assert screened["rows"] + sum(expected.values()) == screened["details"]["read"] == len(threads())
    assert verified["rows"] == len(cases)
    run_step(SETTLE, cases=tmp_path / "verify")
    kept = rows_of(tmp_path / "out/cases.jsonl")
    reasons = {row["_id"]: row["reason"] for row in rows_of(tmp_path / "out/dropped.jsonl")}
    assert [case["_id"] for case in kept] == ["good", "english"]
    assert reasons == {
        "disputed": "disputed", "contradicted": "contradicted", "chit-chat": "not-clinical",
        "vague": "too-little-information", "neutral": "not-supported", "no-passage": "not-supported",
    }  # fmt: skip
    assert (kept[0]["alignment"], kept[0]["date"]) == (0.75, "2024-05-03")
    assert [one["_id"] for case in kept for one in case["reference"]] == ["g1", "g4"]
    english = [body["messages"] for body in server.bodies if "My toe is red" in str(body)]
    assert len(english) == 4
    assert not any(
        re.search("[一-龥]", one["content"].split("# Passages")[0]) for each in english for one in each
    )
    with Journal(tmp_path / "answers.sqlite") as journal:  # `medteb forget` finds all answers about a case
        select, question = "SELECT count(*) FROM shown WHERE text = ?", text_digest("What should I drink?")
        assert journal.db.execute(select, (question,)).fetchone() == (3,)
    # Nothing is asked about the advice of cases that failed the assessment, nor without passages.
    assert not any("<advice-" in prompt and "辛苦" in prompt for prompt in server.prompts)
    assert {body["model"] for body in server.bodies if "stands" in str(body["messages"])} == {"refuter"}


def test_people_decide_where_the_agents_disagree(tmp_path, verified, run_step, rows_of, write):
    before = run_step(SETTLE, cases=tmp_path / "verify")
    with (tmp_path / "out/sheet.csv").open(encoding="utf-8-sig", newline="") as file:
        (row,) = csv.DictReader(file)
    assert "建议服用抗生素。" in row["document"]
    assert "感冒三天" in row["query"]
    assert (before["details"]["sheet"], before["details"]["decided"]) == (1, 0)

    def decided(*answers):
        sheets = [
            write(tmp_path / f"{number}.jsonl", [{**row, "answer": one}])
            for number, one in enumerate(answers)
        ]
        counts = run_step(SETTLE, cases=tmp_path / "verify", answers=tuple(sheets))
        return counts["rows"], counts["details"]["dropped"].get("contradicted")

    assert decided("是") == (before["rows"] + 1, 1)
    assert decided("0", "0", "1") == (before["rows"], 2)
    assert decided("0", "1") == decided("") == (before["rows"], 1)
    with pytest.raises(MarError, match="row"):  # an answer about other advice
        run_step(
            SETTLE, cases=tmp_path / "verify", answers=(write(tmp_path / "a.jsonl", [{**row, "row": "7"}]),)
        )
    with pytest.raises(MarError, match="medteb verify"):
        run_step(SETTLE, "other", cases=tmp_path / "screen")


def test_only_anonymised_threads_are_sent_without_the_names_in_their_replies(tmp_path, paths, write):
    post = {"_id": "t1", "date": "2024-05-03", "text": "患者王秀兰，右肾结石4毫米。需要怎么处理？"}
    reply = {"text": "王秀兰女士，建议多喝水。有事打13812345678。", "verified": True}
    write(tmp_path / "threads.jsonl", [{**post, "replies": [reply]}])
    server = FaultEndpoint(answer=answer)
    with running(server) as url:
        llm = llm_at(url)
        with pytest.raises(MarError, match="anonymize"):
            perform(SCREEN, ScreenSettings(threads=paths[0], out=tmp_path / "raw", llm=llm))
        steps = [
            {"step": "anonymize", "in": "threads.jsonl"},
            {"step": "screen", "threads": "anonymize"},
            {"step": "verify", "cases": "screen", "guidelines": "guidelines.jsonl"},
            {"step": "settle", "cases": "verify"},
        ]
        file = tmp_path / "build.yaml"
        content = {"llm": llm.model_dump(mode="json") | {"base_url": url}, "steps": steps}
        file.write_text(yaml.safe_dump({**content, "steps": [{**steps[1], "threads": "threads.jsonl"}]}))
        with pytest.raises(MarError, match="anonymize"):
            build(BuildSettings(file=file))
        assert server.arrived == 0
        file.write_text(yaml.safe_dump(content))
        forecast = build(BuildSettings(file=file, dry_run=True))["steps"]
        report = build(BuildSettings(file=file))
    assert [one["rows"] for one in report["steps"]] == [1, 1, 1, 1]
    sent = json.dumps(server.bodies, ensure_ascii=False)
    assert "建议多喝水" in sent
    assert not any(secret in sent for secret in ("王秀兰", "13812345678"))
    assert server.made == 4 <= sum(one["requests"] for one in forecast)
    written = "".join(path.read_text(encoding="utf-8") for path in (tmp_path / "build").rglob("*.jsonl"))
    assert "王秀兰" not in written


def test_the_estimate_counts_every_request(tmp_path):
    llm = llm_at("http://127.0.0.1:9/v1", price_in=1.0)
    settings = ScreenSettings(threads=tmp_path, out=tmp_path / "x", llm=llm)
    screened = SCREEN.estimate(settings, {"threads": Estimate(3, 300)})
    assert (screened.rows, screened.requests) == (3, 3)
    settings = VerifySettings(cases=tmp_path, guidelines=tmp_path, out=tmp_path / "y", llm=llm)
    verified = VERIFY.estimate(settings, {"cases": screened, "guidelines": Estimate(0)})
    assert verified.requests == 3 + 2 * screened.queries
    assert verified.cost == pytest.approx(verified.prompt_tokens / 1e6)


def test_guidelines_are_searched_in_an_index(tmp_path, paths, rows_of):
    if not (packaged_folder() / "modules.json").is_file():
        pytest.skip("this installation comes without the packaged model")
    model, texts = open_model("mar-mini"), [one["text"] for one in GUIDELINES]
    write_vectors(tmp_path / "vectors", [one["_id"] for one in GUIDELINES], model.encode_document(texts),
                  texts=texts, model="mar-mini")  # fmt: skip
    build_index(VectorFolder.open(tmp_path / "vectors"), tmp_path / "index", corpus=paths[1], kind="exact",
                progress=False)  # fmt: skip
    with running(FaultEndpoint(answer=answer)) as url:
        chain(tmp_path, (paths[0], tmp_path / "index"), url, passages=2)
    claims = {row["_id"]: row["claims"] for row in rows_of(tmp_path / "verify/cases.jsonl")}
    assert claims["good"][0]["passage"]["_id"] == "g1"
