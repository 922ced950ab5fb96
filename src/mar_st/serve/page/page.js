"use strict";

const find = (id) => document.getElementById(id);
const state = { fields: {}, turn: 0 };

function headers() {
  const found = { "Content-Type": "application/json" };
  const key = find("key").value.trim();
  if (key) found.Authorization = `Bearer ${key}`;
  return found;
}

function say(text, bad = false) {
  find("status").textContent = text;
  find("status").classList.toggle("bad", bad);
}

function askForKey() {
  find("key-line").hidden = false;
  find("more").open = true;
  find("key").focus();
}

/** What the server holds decides which options there are. */
async function loadFacts() {
  const answer = await fetch("info", { headers: headers() });
  if (answer.status === 401) {
    find("key-line").hidden = false;
    return;
  }
  if (!answer.ok) return;
  const facts = await answer.json();
  state.fields = facts.fields;
  const encoder = facts.query_encoder ? ` · 查询编码器 ${facts.query_encoder}` : "";
  find("facts").textContent = `${facts.documents.toLocaleString("zh-CN")} 篇 · ${facts.model}${encoder} · ${facts.dim} 维`;
  find("hybrid-line").hidden = !facts.hybrid;
  find("rerank-line").hidden = !facts.rerank;
  const names = Object.keys(facts.fields);
  find("where-line").hidden = names.length === 0;
  find("where-help").textContent = names.length
    ? `字段：${names.join("、")}。写法：字段=值|值，字段>=值，用逗号分开。` : "";
}

function typed(field, text) {
  const kind = state.fields[field];
  if (kind === undefined) throw new Error(`没有字段“${field}”。可用：${Object.keys(state.fields).join("、")}`);
  if (kind === "boolean") return text === "true" || text === "是";
  if (kind === "string") return text;
  const number = Number(text);
  if (text === "" || Number.isNaN(number)) throw new Error(`“${field}”要与数字比较。`);
  return number;
}

/** A filter line such as `科室=心内科|神经内科,日期>=2024` as the mapping that the server takes. */
function readFilter(line) {
  const names = { ">=": "gte", "<=": "lte", ">": "gt", "<": "lt" };
  const found = {};
  for (const part of line.split(/[,，]/)) {
    if (!part.trim()) continue;
    const match = /^\s*([^=<>|]+?)\s*(>=|<=|=|>|<)\s*(.+?)\s*$/.exec(part);
    if (!match) throw new Error(`看不懂筛选条件“${part.trim()}”。`);
    const [, field, sign, value] = match;
    if (sign === "=") found[field] = value.split("|").map((one) => typed(field, one.trim()));
    else found[field] = { ...found[field], [names[sign]]: typed(field, value) };
  }
  return Object.keys(found).length ? found : null;
}

/** Pairs of neighbouring Chinese characters, and whole words of other scripts, of a query. */
function termsOf(query) {
  const terms = new Set();
  for (const run of query.toLowerCase().match(/\p{Script=Han}+|[\p{L}\p{N}]+/gu) || []) {
    if (/\p{Script=Han}/u.test(run)) {
      const characters = [...run];
      if (characters.length === 1) terms.add(run);
      for (let i = 0; i + 1 < characters.length; i += 1) terms.add(characters[i] + characters[i + 1]);
    } else terms.add(run);
  }
  return [...terms];
}

/** Puts a text into an element, what it shares with the query marked. */
function highlight(element, text, terms) {
  const lower = text.toLowerCase();
  const marked = new Uint8Array(text.length);
  if (lower.length === text.length) {
    for (const term of terms) {
      for (let at = lower.indexOf(term); at >= 0; at = lower.indexOf(term, at + 1)) {
        marked.fill(1, at, at + term.length);
      }
    }
  }
  element.textContent = "";
  for (let start = 0; start < text.length;) {
    let end = start + 1;
    while (end < text.length && marked[end] === marked[start]) end += 1;
    const part = text.slice(start, end);
    if (marked[start]) {
      const mark = document.createElement("mark");
      mark.textContent = part;
      element.append(mark);
    } else element.append(part);
    start = end;
  }
}

const LEGS = { dense: "向量", bm25: "关键词", rerank: "精排" };

function show(hit, terms) {
  const item = find("hit").content.cloneNode(true);
  const put = (name, text) => { item.querySelector(name).textContent = text; };
  highlight(item.querySelector("h2"), `${hit.rank}. ${hit.title || hit.id}`, terms);
  highlight(item.querySelector(".snippet"), hit.snippet, terms);
  put(".score", `得分 ${hit.score.toFixed(4)}`);
  put(".legs", Object.entries(hit.legs)
    .map(([name, leg]) => `${LEGS[name] || name} 第 ${leg.rank}（${leg.score.toFixed(3)}）`).join(" · "));
  put(".metadata", Object.entries(hit.metadata).map(([name, value]) => `${name}：${value}`).join(" · "));
  put(".id", hit.id);
  return item;
}

function request(query) {
  const content = { query, k: Number(find("k").value), truncate: true };
  if (!find("hybrid-line").hidden) content.hybrid = find("hybrid").checked;
  if (!find("rerank-line").hidden && find("rerank").checked) content.rerank = content.k;
  const where = readFilter(find("where").value);
  if (where) content.where = where;
  return content;
}

async function search() {
  const query = find("query").value.trim();
  if (!query) return;
  const turn = state.turn += 1;
  const started = performance.now();
  say("正在检索…");
  try {
    const answer = await fetch("search", { method: "POST", headers: headers(), body: JSON.stringify(request(query)) });
    const found = await answer.json();
    if (turn !== state.turn) return;  // a later search is on its way
    if (!answer.ok) {
      find("hits").replaceChildren();
      if (answer.status === 401) askForKey();
      const wait = answer.headers.get("Retry-After");
      say(answer.status === 429 ? `请求太多，请 ${wait} 秒后再试。` : `出错了（${answer.status}）：${found.error.message}`, true);
      return;
    }
    const terms = termsOf(query);
    find("hits").replaceChildren(...found.hits.map((hit) => show(hit, terms)));
    const { encode_ms: encode, search_ms: look, total_ms: total } = found.timing;
    const cut = found.truncated ? "（查询过长，已截断）" : "";
    say(`${found.hits.length} 条结果${cut} · 服务器 ${total.toFixed(1)} 毫秒（编码 ${encode.toFixed(1)}，检索 ${look.toFixed(1)}）`
      + ` · 往返 ${(performance.now() - started).toFixed(0)} 毫秒`);
  } catch (error) {
    if (turn === state.turn) say(`出错了：${error.message}`, true);
  }
}

find("form").addEventListener("submit", (event) => {
  event.preventDefault();
  search();
});
find("key").addEventListener("change", loadFacts);
loadFacts().catch(() => say("连不上服务器。", true));
