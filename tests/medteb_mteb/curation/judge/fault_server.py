"""An OpenAI-compatible endpoint on loopback with seeded faults, which counts what it charges for.

It grades like the rule-based judges of `examples/rule_judges.py`, whose server it builds on, or returns what
a given function returns for the messages. Faults:

    of the connection, each with probability `rate` per request that arrives
        429         with Retry-After-Ms (or Retry-After); nothing is charged
        500         nothing is charged
        timeout     the answer is made and charged, but not sent while the client waits
        cut         the connection ends in the middle of the answer, which is charged
        slow        the answer trickles, longer than the client waits; it is charged
    of the answer, each with probability `rate` per answer that is made and charged
        invalid     no JSON
        missing     a passage is left out
        extra       a passage that nobody asked for
        letter      a letter off the scale
        swapped     two numbers change places, their tags do not
        refusal     the judge refuses
        duplicate   a passage twice, with different letters
    of an answer of the given function, with the same probability
        invalid     it ends in the middle
        refusal     the LLM refuses
        empty       the answer has no text

The account, by (model, query, passage): `sold` counts the grades that were made, charged and usable. Of the
given function's answers it is by (model, system message, user message). With `idempotent` a request that
comes again under its `Idempotency-Key` gets the answer that was made for it, and is not charged again.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter

import rule_judges as rules

LINE = ("429", "500", "timeout", "cut", "slow")
ANSWER = ("invalid", "missing", "extra", "letter", "swapped", "refusal", "duplicate")
WRITTEN = ("invalid", "refusal", "empty")
REFUSALS = ("抱歉，我无法提供医疗建议。", "I'm sorry, but I can't help with that.")


class FaultEndpoint(rules.Endpoint):
    """Endpoint with injected faults; see the module's docstring.

    Args:
        rate: Probability of each fault.
        line: Faults of the connection that happen.
        answers: Faults of the answer that happen; default: all.
        answer: Messages to the text of the answer; default: grades.
        seed: Decides what happens when.
        idempotent: Honour `Idempotency-Key`.
        hang: Seconds of silence or trickling; longer than the client waits.
        latency: Seconds that an answer takes.
        capacity: Answers made at once; others wait.
        controls: Passages that are not judgements; `{query}` in them stands for the query.
        on_arrival: Called with the number of requests that have arrived.
    """

    def __init__(
        self, *, rate=0.0, line=LINE, answers=None, answer=None, seed=0, idempotent=True, hang=1.0,
        latency=0.0, capacity=1 << 20, controls=(), on_arrival=None,
    ) -> None:  # fmt: skip
        super().__init__(latency)
        self.rate, self.line, self.seed = rate, line, seed
        self.written = answer
        self.faulty = (WRITTEN if answer else ANSWER) if answers is None else answers
        self.idempotent, self.hang = idempotent, hang
        self.controls, self.on_arrival = set(controls), on_arrival
        self._slots = asyncio.Semaphore(capacity)
        self.arrived = 0
        self.faults: Counter[str] = Counter()
        self.made = self.replayed = 0
        self.sold: Counter[tuple[str, str, str]] = Counter()
        self.spoiled: Counter[tuple[str, str, str]] = Counter()
        self.prompts: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.bodies: list[dict] = []
        self.busy = self.busiest = 0
        self._seen: Counter[str] = Counter()
        self._kept: dict[str, dict] = {}
        #: Answers given instead of any other: callables of the call, first that gives one.
        self.instead: list = []

    async def respond(self, call, writer) -> bool:
        self.arrived += 1
        self.headers.append(call.headers)
        self.bodies.append(call.body)
        if self.on_arrival:
            self.on_arrival(self.arrived)
        for special in self.instead:
            if (answer := special(call)) is not None:
                writer.write(answer.encoded())
                await writer.drain()
                return True
        name = call.headers.get("idempotency-key", str(self.arrived))
        self._seen[name] += 1
        draw = random.Random(f"{self.seed} {name} {self._seen[name]}")
        fault = self._draw(draw, self.line)
        self.faults[fault] += bool(fault)
        if fault in ("429", "500"):
            after = {"Retry-After-Ms": "20"} if draw.random() < 0.9 else {"Retry-After": "0"}
            answer = rules.Answer(
                int(fault), {"error": {"message": "not now"}}, after if fault == "429" else {}
            )
            writer.write(answer.encoded())
            await writer.drain()
            return True
        try:
            data = rules.Answer(200, await self._content(call, name, draw)).encoded()
        except Exception as error:  # the test's own function, more often than not
            writer.write(rules.Answer(400, {"error": {"message": repr(error)}}).encoded())
            await writer.drain()
            return True
        if fault == "timeout":
            await asyncio.sleep(self.hang)
            return False
        if fault == "cut":
            writer.write(data[: len(data) // 2])
            await writer.drain()
            return False
        if fault == "slow":
            for byte in data[: max(1, int(self.hang / 0.05))]:
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0.05)
            return False
        writer.write(data)
        await writer.drain()
        return True

    def _draw(self, draw: random.Random, kinds: tuple[str, ...]) -> str:
        """One of the faults, each with probability `rate`, or none."""
        number = int(draw.random() / self.rate) if self.rate else len(kinds)
        return kinds[number] if number < len(kinds) else ""

    async def _content(self, call, name: str, draw: random.Random) -> dict:
        if self.idempotent and name in self._kept:
            self.replayed += 1
            return self._kept[name]
        async with self._slots:
            self.busy += 1
            self.busiest = max(self.busiest, self.busy)
            await asyncio.sleep(self.latency)
            self.busy -= 1
        self.made += 1
        model, prompt = call.body["model"], call.body["messages"][-1]["content"]
        self.prompts.append(prompt)
        fault = self._draw(draw, self.faulty)
        self.faults[fault] += bool(fault)
        text = (self._write if self.written else self._grade)(model, call.body["messages"], fault, draw)
        self._kept[name] = rules.completion(model, text, (len(prompt), len(text) // 3))
        return self._kept[name]

    def _grade(self, model: str, messages: list[dict], fault: str, draw: random.Random) -> str:
        question = rules.read_prompt(messages)
        good = self.grades(model, question)
        text, usable = spoil(fault, good, draw)
        controls = {text.replace("{query}", question.query) for text in self.controls}
        if any(question.passages[key] in controls for key in set(good) - usable):
            usable = set()  # without its control passage an answer is worth nothing
        for key in good:
            if question.passages[key] not in controls:
                account = self.sold if key in usable else self.spoiled
                account[model, question.query, question.passages[key]] += 1
        return text

    def _write(self, model: str, messages: list[dict], fault: str, draw: random.Random) -> str:
        good = self.written(messages)
        account = self.spoiled if fault else self.sold
        account[model, messages[0]["content"], messages[-1]["content"]] += 1
        if fault == "invalid":
            return good[: len(good) // 2]
        return {"refusal": draw.choice(REFUSALS), "empty": ""}.get(fault, good)


def spoil(fault: str, good: dict[str, str], draw: random.Random) -> tuple[str, set[str]]:
    """The text of an answer with a fault, and the keys whose grades are still to be used."""
    keys = list(good)
    one = draw.choice(keys)
    others = set(keys) - {one}
    if fault == "invalid":
        return json.dumps(good)[:-2], set()
    if fault == "missing":
        return json.dumps({key: good[key] for key in keys if key in others}), others
    if fault == "extra":
        return json.dumps({**good, f"Passage-{len(keys)}-zzz": "S"}), set()
    if fault == "letter":
        return json.dumps({**good, one: draw.choice(["E", "", "很好", 5, None, ["S", "A"]])}), others
    if fault == "swapped":
        return json.dumps(swapped(good, draw)), set()
    if fault == "refusal":
        return draw.choice(REFUSALS), set()
    if fault == "duplicate":
        letter = "D" if good[one] == "S" else "S"
        return json.dumps(good)[:-1] + f', "{one}": "{letter}"}}', set()
    return json.dumps(good), set(keys)


def swapped(good: dict[str, str], draw: random.Random) -> dict[str, str]:
    """Numbers of two keys change places; a single one becomes another."""
    keys = list(good)
    if len(keys) == 1:
        _, number, *tag = keys[0].split("-")
        return {"-".join(["Passage", str(int(number) + 1), *tag]): good[keys[0]]}
    first, second = draw.sample(keys, 2)
    a, b = first.split("-"), second.split("-")
    a[1], b[1] = b[1], a[1]
    names = {first: "-".join(a), second: "-".join(b)}
    return {names.get(key, key): letter for key, letter in good.items()}
