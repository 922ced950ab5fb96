"""Rule-based models behind an OpenAI-compatible endpoint.

    python examples/rule_judges.py --port 8900

They let you try a whole build without an LLM, an API key or any cost. Three judges grade by the words that
query and passage share, each with its own bias:

    rule-words    share of the query's words in the passage
    rule-generous the same, half a grade better if any word is shared, and more for long passages
    rule-strict   mean of this share and that of the longest piece of the query in the passage

For the other steps that call an LLM:

    rule-rewriter inserts the synonym for `positive`, and asks something else for the two negatives
    rule-sorter   puts documents with half of the query's words into `positive_document`
    rule-questions asks about a document by its first words, and invents tasks and examples of them

To add a model, add a row to `ANSWERS`. Standard library only. The server is not for production: it handles
one request after another per connection, and only what a build needs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import threading
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import cache, partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

GRADES = "SABCD"
#: Words of a query that do not belong to its subject.
FILLERS = re.compile(
    r"怎么办|怎么样|怎么|什么|为什么|如何|哪些|哪个|多少|多久|是不是|能不能|可不可以|可以|应该|需要|请问|医生|你好|您好|谢谢|"
    r"有没有|会不会|一下|还是|吗|呢|啊|呀|吧|的|了|是|有|我|在|和|与|要|会|能|\W+"
)


@dataclass(frozen=True)
class Question:
    """Content of a grading prompt: the query, and the passages by key."""

    query: str
    passages: dict[str, str]


def read_prompt(messages: list[dict[str, str]], tag: str = "passage") -> Question:
    """Extract the query and the passages (or other elements named `tag`) of a prompt."""
    text = messages[-1]["content"]
    # The last match is the actual query; an earlier one belongs to the explanation of the delimiters.
    query = re.findall(r"^<query-(\w+)>\n(.*?)\n</query-\1>$", text, re.DOTALL | re.MULTILINE)
    if not query:
        raise ValueError("this is not a grading prompt")
    word = re.escape(query[-1][0])
    passages = re.findall(
        rf'^<{tag}-{word} id="([\w-]+)">\n(.*?)\n</{tag}-{word}>$', text, re.DOTALL | re.MULTILINE
    )
    return Question(query[-1][1], dict(passages))


def words(text: str) -> set[str]:
    """Return the character bigrams of a text without fillers."""
    return {
        part[i : i + 2] for part in FILLERS.split(text.lower()) if part for i in range(max(1, len(part) - 1))
    }


def share(query: str, passage: str) -> float:
    """Return the share of the query's words in the passage, 0 to 1."""
    asked = words(query)
    return len(asked & words(passage)) / len(asked) if asked else 0.0


def piece(query: str, passage: str) -> float:
    """Return the share of the query, without fillers, that is one piece of the passage, 0 to 1."""
    asked = FILLERS.sub("", query.lower())
    match = SequenceMatcher(None, asked, passage.lower(), autojunk=False).find_longest_match()
    return match.size / len(asked) if asked else 0.0


def letter(score: float) -> str:
    """Return the grade for a share."""
    bounds = (0.75, 0.5, 0.3, 0.12)
    return GRADES[sum(score < bound for bound in bounds)]


def grade(model: str, query: str, passage: str) -> str:
    """Return the grade that a judge gives a passage.

    Args:
        model: Name of the judge.
        query: The query.
        passage: The passage.
    """
    overlap = share(query, passage)
    if model == "rule-generous":
        return letter(overlap + (0.1 if overlap else 0.0) + (0.1 if overlap and len(passage) > 100 else 0.0))
    if model == "rule-strict":
        return letter((overlap + piece(query, passage)) / 2)
    return letter(overlap)


#: Intents of questions: words that indicate one, and other ways to ask about it.
INTENTS = (
    (("吃", "喝", "饮食", "食", "水果", "忌口"), ("{}平时饮食上要注意什么？", "{}不能吃哪些东西？")),
    (
        ("原因", "为什么", "引起", "导致", "怎么得", "病因"),
        ("{}一般是什么原因引起的？", "为什么会出现{}这种情况？"),
    ),
    (("治", "药", "怎么办", "手术", "疗法", "偏方"), ("{}现在有什么好的治疗办法？", "{}应该用什么药？")),
    (("传染", "遗传"), ("{}会不会传染给身边的人？", "{}会遗传给下一代吗？")),
    (("检查", "化验", "诊断", "确诊", "标准"), ("怀疑{}需要做哪些检查？", "{}怎么才能确诊？")),
    (("医院", "科", "挂号", "专家"), ("{}去医院应该挂哪个科？", "看{}哪个科室比较对口？")),
    (("预防", "避免"), ("平时怎样才能预防{}？", "哪些习惯可以避免{}？")),
    (("多少钱", "费用", "医保", "价格"), ("{}大概要花多少钱？", "{}的费用医保能报销吗？")),
)


def read_input(messages: list[dict[str, str]]) -> dict[str, Any]:
    """Extract the JSON object of a prompt that asks for a text."""
    inputs = re.findall(
        r"^<input-(\w+)>\n(.*?)\n</input-\1>$", messages[-1]["content"], re.DOTALL | re.MULTILINE
    )
    if not inputs:
        raise ValueError("there is no input in this prompt")
    content: dict[str, Any] = json.loads(inputs[-1][1])
    return content


def rewrites(origin: str, replace: str, asked: dict[str, str]) -> dict[str, str]:
    """Return three rewrites of a question.

    Args:
        origin: The term in the question.
        replace: Its synonym.
        asked: The question with each term, under `origin` and `replace`.
    """
    question = asked["origin"]
    # Seeded by the question: the same question gets the same answer, in any order.
    rng = random.Random(question)
    same = asked["replace"].rstrip("。．.！!？? ") + "？"
    if rng.random() < 0.5 and len(same) + 2 <= 1.3 * len(question):
        same = "请问" + same
    others = [ways for known, ways in INTENTS if not any(word in question for word in known)]
    hard, easy = rng.sample(others or [ways for _, ways in INTENTS], 2)
    return {
        "positive": same,
        "negative-1": rng.choice(hard).format(replace),
        "negative-2": rng.choice(easy).format(origin),
    }


def grades(model: str, question: Question) -> dict[str, str]:
    """Return the grade of every passage, by key."""
    return {key: grade(model, question.query, text) for key, text in question.passages.items()}


def judged(model: str, messages: list[dict[str, str]]) -> dict[str, str]:
    """Return the answer of a judge."""
    return grades(model, read_prompt(messages))


def rewritten(messages: list[dict[str, str]]) -> dict[str, str]:
    """Return the answer of the rewriter."""
    given = read_input(messages)
    return rewrites(given["origin"], given["replace"], given["query_pairs"])


def sorted_out(messages: list[dict[str, str]]) -> dict[str, list[str]]:
    """Return the ids of documents that answer the query, and of those that do not."""
    question = read_prompt(messages, "document")
    lists: dict[str, list[str]] = {"positive_document": [], "negative_document": []}
    for key, text in question.passages.items():
        answers = share(question.query, text) >= 0.5
        lists["positive_document" if answers else "negative_document"].append(key)
    return lists


@cache
def rule_questions() -> Any:
    """Load `rule_questions.py` from this folder, even if this file was loaded by its path."""
    spec = spec_from_file_location("rule_questions", Path(__file__).with_name("rule_questions.py"))
    if spec is None or spec.loader is None:
        raise ValueError("there is no rule_questions.py beside the server")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


#: The judges.
MODELS = ("rule-words", "rule-generous", "rule-strict")
#: Functions from the messages to the answer, a JSON object, by model. They raise ValueError, KeyError or
#: TypeError if the prompt is of another kind.
ANSWERS: dict[str, Callable[[list[dict[str, str]]], Any]] = {
    **{name: partial(judged, name) for name in MODELS},
    "rule-rewriter": rewritten,
    "rule-sorter": sorted_out,
    "rule-questions": lambda messages: rule_questions().written(messages),
}


@dataclass
class Call:
    """A request: method, path, headers (names in lower case), and the parsed JSON body."""

    method: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass
class Answer:
    """A response: status, JSON (or raw bytes), additional headers."""

    status: int
    content: dict[str, Any] | bytes
    headers: dict[str, str] = field(default_factory=dict)

    def encoded(self) -> bytes:
        """Return the bytes of the HTTP response."""
        body = self.content if isinstance(self.content, bytes) else json.dumps(self.content).encode()
        lines = [
            f"HTTP/1.1 {self.status} -",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
        ]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        return "\r\n".join([*lines, "", ""]).encode() + body


def completion(model: str, content: str, tokens: tuple[int, int]) -> dict[str, Any]:
    """Return an answer of the chat completions API."""
    message = {"role": "assistant", "content": content}
    return {
        "id": "chatcmpl-0",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": tokens[0],
            "completion_tokens": tokens[1],
            "total_tokens": sum(tokens),
        },
    }


class Endpoint:
    """The endpoint: `POST /v1/chat/completions` and `GET /v1/models`.

    Args:
        latency: Seconds that an answer takes.
    """

    def __init__(self, latency: float = 0.0) -> None:
        self.latency = latency

    async def respond(self, call: Call, writer: asyncio.StreamWriter) -> bool:
        """Answer a call; return True if the connection stays open."""
        writer.write((await self.answer(call)).encoded())
        await writer.drain()
        return True

    async def answer(self, call: Call) -> Answer:
        """Return the response to a call."""
        if call.method == "GET" and call.path == "/v1/models":
            return Answer(200, {"object": "list", "data": [{"id": m, "object": "model"} for m in ANSWERS]})
        if call.path != "/v1/chat/completions":
            return Answer(404, {"error": {"message": "no such path"}})
        model = call.body.get("model")
        if model not in ANSWERS:
            return Answer(404, {"error": {"message": f"there is {', '.join(ANSWERS)}"}})
        await asyncio.sleep(self.latency)
        try:
            reply = ANSWERS[model](call.body["messages"])
        except (ValueError, KeyError, TypeError) as error:
            return Answer(400, {"error": {"message": str(error)}})
        content = json.dumps(reply, ensure_ascii=False)
        tokens = (len(call.body["messages"][-1]["content"]), len(content) // 3)
        return Answer(200, completion(model, content, tokens))

    def grades(self, model: str, question: Question) -> dict[str, str]:
        """Return the grades of a judge; servers with other behaviour override this."""
        return grades(model, question)

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection until either side closes it."""
        try:
            # Cancelled when the server stops: nothing awaits this task, so it just ends.
            with suppress(ConnectionError, asyncio.IncompleteReadError, ValueError, asyncio.CancelledError):
                while await self.respond(await _read(reader), writer):
                    pass
        finally:
            writer.close()


async def _read(reader: asyncio.StreamReader) -> Call:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *rest = head.decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ", 2)
    headers = {
        name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest) if name
    }
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Call(method, path, headers, json.loads(body or b"{}"))


@asynccontextmanager
async def listening(endpoint: Endpoint, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
    """Serve while the context is active; yields the base URL."""
    server = await asyncio.start_server(endpoint.connection, host, port, limit=1 << 26, backlog=1024)
    try:
        yield f"http://{host}:{server.sockets[0].getsockname()[1]}/v1"
    finally:
        server.close()


@contextmanager
def serving(endpoint: Endpoint, port: int = 0) -> Iterator[str]:
    """Like `listening`, but in a thread, for synchronous code."""
    ready, started = threading.Event(), []

    async def main() -> None:
        stop = asyncio.Event()
        async with listening(endpoint, port=port) as url:
            started.extend([url, asyncio.get_running_loop(), stop])
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    thread.start()
    if not ready.wait(10):
        raise RuntimeError("the server did not start")
    url, loop, stop = started
    try:
        yield url
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)


async def serve(port: int, latency: float) -> None:
    """Serve until interrupted."""
    async with listening(Endpoint(latency), port=port) as url:
        print(f"{', '.join(ANSWERS)} at {url}", flush=True)
        await asyncio.Event().wait()


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line and serve."""
    parser = argparse.ArgumentParser(description="Rule-based models behind an OpenAI-compatible endpoint.")
    parser.add_argument("--port", type=int, default=8900, help="0 takes a free one")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds that an answer takes")
    options = parser.parse_args(arguments)
    with suppress(KeyboardInterrupt):
        asyncio.run(serve(options.port, options.latency))


if __name__ == "__main__":
    main()
