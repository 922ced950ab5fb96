"use strict";

const find = (id) => document.getElementById(id);
const state = { facts: null, ready: null, turn: 0, shown: null, searched: null, language: chosenLanguage() };

// -- language --

/** The language chosen here before, or else that of the browser. */
function chosenLanguage() {
  let kept = null;
  try { kept = localStorage.getItem("language"); } catch { /* storage is switched off */ }
  return kept in TEXTS ? kept : navigator.language.startsWith("zh") ? "zh" : "en";
}

function text(name, values = {}) {
  const template = TEXTS[state.language][name] ?? TEXTS[state.language].failed;
  return template.replace(/\{(\w+)\}/g, (_, key) => values[key] ?? "");
}

/** Writes all fixed texts; the texts of results are written by `showResponse`. */
function translate() {
  document.documentElement.lang = text("locale");
  document.title = text("title");
  for (const element of document.querySelectorAll("[data-text]")) element.textContent = text(element.dataset.text);
  for (const element of document.querySelectorAll("[data-placeholder]")) element.placeholder = text(element.dataset.placeholder);
  for (const element of document.querySelectorAll("[data-label]")) element.setAttribute("aria-label", text(element.dataset.label));
  const own = document.documentElement.dataset.title;
  if (own) {
    document.title = own;
    document.querySelector("h1").textContent = own;
  }
  find("language").textContent = text("other");
  find("language").lang = state.language === "zh" ? "en" : "zh-CN";
  showFacts();
}

/** Puts a text of the corpus into an element and says which language it is in. */
function write(element, content) {
  element.textContent = content;
  speak(element, content);
}

/** Says in which language a text of the corpus is, as far as its script tells. */
function speak(element, content) {
  element.lang = /\p{Script=Han}/u.test(content) ? "zh-CN" : "";
}

// -- the server --

/** An unsuccessful answer: a text for the user, and what the server said. */
class Refusal extends Error {
  constructor(answer, content) {
    super(text(answer.status in TEXTS.en ? answer.status : "failed",
      { status: answer.status, wait: answer.headers.get("Retry-After") }));
    this.status = answer.status;
    this.detail = content?.error?.message ?? "";
  }
}

function headers() {
  const fields = { "Content-Type": "application/json" };
  const key = find("key").value.trim();
  if (key) fields.Authorization = `Bearer ${key}`;
  return fields;
}

async function ask(path, options = {}) {
  let answer;
  try {
    answer = await fetch(path, { ...options, headers: headers() });
  } catch {
    throw new Error(text("unreachable"));
  }
  const content = await answer.json().catch(() => null);  // a proxy may answer in HTML
  if (!answer.ok || content === null) throw new Refusal(answer, content);
  return content;
}

function say(content, bad = false, detail = "") {
  find("status").textContent = content;
  find("status").classList.toggle("bad", bad);
  if (!detail) return;
  const own = document.createElement("span");
  own.lang = "en";
  own.textContent = ` ${detail}`;
  find("status").append(own);
}

/** Removes the results of the last search. */
function clear() {
  find("hits").replaceChildren();
  state.shown = null;
  say("");
  showExamples();
}

/** Shows an error instead of the results of the last search. */
function fail(error) {
  clear();
  say(error.message, true, error.detail);
  if (error.status !== 401) return;
  find("key-line").hidden = false;
  find("more").open = true;
  find("key").focus();
}

/** What the server holds decides which options there are. */
async function loadFacts() {
  state.facts = await ask("info");
  showFacts();
}

function begin() {
  state.ready = loadFacts();
  state.ready.catch((error) => {
    if (error.status === 401) find("key-line").hidden = false;
    else fail(error);
  });
}

function showFacts() {
  const { facts } = state;
  if (facts === null) return;
  const encoder = facts.query_encoder ? text("encoder", { name: facts.query_encoder }) : "";
  find("facts").textContent = text("facts", { ...facts, encoder, documents: facts.documents.toLocaleString(text("locale")) });
  find("hybrid-line").hidden = !facts.hybrid;
  find("rerank-line").hidden = !facts.rerank;
  const names = Object.keys(facts.fields);
  find("where-line").hidden = names.length === 0;
  find("where-help").textContent = names.length ? text("fields", { names: names.join(text("separator")) }) : "";
  showExamples();
}

/** Questions to begin with, as long as nothing was asked. */
function showExamples() {
  const examples = state.facts?.examples ?? [];
  find("examples").hidden = state.searched !== null || examples.length === 0;
  for (const button of find("examples").querySelectorAll("button")) button.remove();
  for (const example of examples) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "plain";
    write(button, example);
    button.addEventListener("click", () => {
      find("query").value = example;
      find("form").requestSubmit();
    });
    find("examples").append(button);
  }
}

// -- filters --

function typed(field, value) {
  const fields = state.facts?.fields ?? {};
  const kind = fields[field];
  if (kind === undefined) throw new Error(text("no-field", { field, names: Object.keys(fields).join(text("separator")) }));
  if (kind === "boolean") return ["true", TEXTS.zh.true].includes(value);
  if (kind === "string") return value;
  const number = Number(value);
  if (value === "" || Number.isNaN(number)) throw new Error(text("no-number", { field }));
  return number;
}

/** A filter line such as `科室=心内科|神经内科,日期>=2024` as the mapping that the server takes. */
function readFilter(line) {
  const names = { ">=": "gte", "<=": "lte", ">": "gt", "<": "lt" };
  const filter = {};
  for (const part of line.split(/[,，]/)) {
    if (!part.trim()) continue;
    const match = /^([^=<>|]+)(>=|<=|=|>|<)(.+)$/.exec(part);
    const [field, value] = [match?.[1].trim(), match?.[3].trim()];
    if (!field || !value) throw new Error(text("no-condition", { part: part.trim() }));
    const sign = match[2];
    if (sign === "=") filter[field] = value.split("|").map((one) => typed(field, one.trim()));
    else filter[field] = { ...filter[field], [names[sign]]: typed(field, value) };
  }
  return Object.keys(filter).length ? filter : null;
}

// -- results --

/** Pairs of neighbouring Chinese characters, and whole words of other scripts, of a query. */
function termsOf(query) {
  const terms = new Set();
  for (const run of query.toLowerCase().replace(STOP_PHRASES, " ").match(/\p{Script=Han}+|[\p{L}\p{N}]+/gu) || []) {
    if (/\p{Script=Han}/u.test(run)) {
      const characters = [...run];
      if (characters.length === 1) terms.add(run);
      for (let i = 0; i + 1 < characters.length; i += 1) terms.add(characters[i] + characters[i + 1]);
    } else terms.add(run);
  }
  return [...terms].filter((term) => !STOP_WORDS.has(term));
}

/** Puts a text into an element, what it shares with the query marked. */
function highlight(element, content, terms) {
  const lower = content.toLowerCase();
  const marked = new Uint8Array(content.length);
  if (lower.length === content.length) {
    for (const term of terms) {
      for (let at = lower.indexOf(term); at >= 0; at = lower.indexOf(term, at + 1)) {
        marked.fill(1, at, at + term.length);
      }
    }
  }
  element.textContent = "";
  speak(element, content);
  for (let start = 0; start < content.length;) {
    let end = start + 1;
    while (end < content.length && marked[end] === marked[start]) end += 1;
    const part = content.slice(start, end);
    if (marked[start]) {
      const mark = document.createElement("mark");
      mark.textContent = part;
      element.append(mark);
    } else element.append(part);
    start = end;
  }
}

const LEGS = { dense: "dense", bm25: "bm25", rerank: "reranked" };

function metadataOf(document_) {
  return Object.entries(document_.metadata)
    .map(([name, value]) => text("pair", { name, value: typeof value === "boolean" ? text(String(value)) : value }))
    .join(" · ");
}

/** The beginning of a text, to stand for a title. */
function beginning(text_) {
  const sentence = /^.{1,40}?[。！？；!?;]|^.{1,40}/u.exec(text_)?.[0] ?? "";
  return sentence.length < text_.length ? `${sentence}…` : sentence;
}

/** Hits with equal texts become one, with the number of the others. */
function collapsed(hits) {
  const firsts = new Map();
  for (const hit of hits) {
    const key = JSON.stringify([hit.title, hit.snippet || hit.id]);
    if (firsts.has(key)) firsts.get(key).others += 1;
    else firsts.set(key, { hit, others: 0 });
  }
  return [...firsts.values()];
}

function show({ hit, others }, terms) {
  const item = find("hit").content.cloneNode(true);
  const put = (name, content) => { item.querySelector(name).textContent = content; };
  const title = document.createElement(state.facts?.texts === false ? "span" : "a");
  highlight(title, hit.title || beginning(hit.snippet) || hit.id, terms);
  if (title instanceof HTMLAnchorElement) {
    title.href = addressOf({ document: hit.id });
    title.dataset.document = hit.id;
  }
  item.querySelector("h2").append(title);
  highlight(item.querySelector(".snippet"), hit.snippet, terms);
  put(".metadata", metadataOf(hit));
  put(".same", others ? text("same", { count: others }) : "");
  put("summary", text("details"));
  put(".score", text("score", { score: hit.score.toFixed(4) }));
  put(".legs", Object.entries(hit.legs)
    .map(([name, leg]) => text("leg", { name: text(LEGS[name]), rank: leg.rank, score: leg.score.toFixed(3) })).join(" · "));
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
  say(text("searching"));
  find("hits").setAttribute("aria-busy", "true");
  try {
    state.ready = state.ready.catch(loadFacts);  // with a key that was given meanwhile, or as a second try
    await state.ready;
    const body = JSON.stringify(request(query));
    const started = performance.now();
    const response = await ask("search", { method: "POST", body });
    if (turn !== state.turn) return;  // a later search is on its way
    state.shown = { query, response, trip: performance.now() - started };
    showResponse();
  } catch (error) {
    if (turn === state.turn) fail(error);
  } finally {
    if (turn === state.turn) find("hits").removeAttribute("aria-busy");
  }
}

function showResponse() {
  showExamples();
  const { query, response, trip } = state.shown;
  const terms = termsOf(query);
  find("hits").replaceChildren(...collapsed(response.hits).map((entry) => show(entry, terms)));
  const cut = response.truncated ? text("cut") : "";
  const { encode_ms: encode, search_ms: look, total_ms: total } = response.timing;
  if (!response.hits.length) say(text("nothing"));
  else {
    say(text("found", { count: response.hits.length, cut, total: total.toFixed(1), encode: encode.toFixed(1),
      search: look.toFixed(1), trip: trip.toFixed(0) }));
  }
}

// -- one document --

async function openDocument(id) {
  const dialog = find("document");
  if (dialog.open && dialog.dataset.document === id) return;
  find("document-title").textContent = text("opening");
  find("document-text").textContent = "";
  for (const part of dialog.querySelectorAll(".facts span")) part.textContent = "";
  dialog.dataset.document = id;
  if (!dialog.open) dialog.showModal();
  try {
    const content = await ask(`document?id=${encodeURIComponent(id)}`);
    if (dialog.dataset.document !== id) return;
    write(find("document-title"), content.title || beginning(content.text) || content.id);
    highlight(find("document-text"), content.text, termsOf(find("query").value));
    dialog.querySelector(".metadata").textContent = metadataOf(content);
    dialog.querySelector(".id").textContent = content.id;
  } catch (error) {
    if (dialog.dataset.document !== id) return;
    dialog.close();
    fail(error);
  }
}

// -- the address: all of a search stands after the #, which a browser never sends --

/** The address of the search that the form holds, maybe with an open document. */
function addressOf({ document: id } = {}) {
  const parts = new URLSearchParams({ q: find("query").value.trim() });
  if (find("k").value !== "10") parts.set("k", find("k").value);
  if (find("hybrid").checked) parts.set("hybrid", "1");
  if (find("rerank").checked) parts.set("rerank", "1");
  if (find("where").value.trim()) parts.set("where", find("where").value.trim());
  if (id !== undefined) parts.set("document", id);
  return `#${parts}`;
}

/** Makes the page what its address says. */
function restore() {
  const parts = new URLSearchParams(location.hash.slice(1));
  const id = parts.get("document");
  if (id === null) find("document").close();
  parts.delete("document");
  const wanted = parts.has("q") ? `#${parts}` : null;
  if (wanted === null && state.searched !== null) {  // back to where nothing was asked
    state.searched = null;
    state.turn += 1;
    clear();
  }
  if (wanted !== null && wanted !== state.searched) {
    find("query").value = parts.get("q") ?? "";
    find("k").value = parts.get("k") ?? "10";
    if (!find("k").value) find("k").value = "10";
    find("hybrid").checked = parts.get("hybrid") === "1";
    find("rerank").checked = parts.get("rerank") === "1";
    find("where").value = parts.get("where") ?? "";
    state.searched = addressOf();
    if (["k", "hybrid", "rerank", "where"].some((name) => parts.has(name))) find("more").open = true;
    search();
  }
  if (id !== null) openDocument(id);
}

find("form").addEventListener("submit", (event) => {
  event.preventDefault();
  state.searched = addressOf();
  if (state.searched !== location.hash) history.pushState(null, "", state.searched);
  search();
});
find("hits").addEventListener("click", (event) => {
  const link = event.target.closest("a");
  if (link === null || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  history.pushState({ opened: true }, "", link.href);
  openDocument(link.dataset.document);
});
find("close").addEventListener("click", () => find("document").close());
find("document").addEventListener("close", () => {
  delete find("document").dataset.document;
  if (!new URLSearchParams(location.hash.slice(1)).has("document")) return;
  if (history.state?.opened) history.back();
  else history.replaceState(null, "", addressOf());
});
find("language").addEventListener("click", () => {
  state.language = state.language === "zh" ? "en" : "zh";
  try { localStorage.setItem("language", state.language); } catch { /* storage is switched off */ }
  translate();
  if (state.shown) showResponse();
  else say("");
});
find("key").addEventListener("change", begin);
window.addEventListener("popstate", restore);

translate();
begin();
restore();
