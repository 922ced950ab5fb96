// Searches a small index in the browser: a lookup encoder and document vectors, nothing is sent anywhere.
// The rules for features are those of mar_st/lookup/features.py, the files those of mar_st/online/lookup.py.
"use strict";

const WORD = "\t";
const WORDS = /[0-9a-z\u00df-\u00f6\u00f8-\u024f]+/g;
const SPACE = /[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+/g;

function normalise(text) {
  return text.normalize("NFKC").toLowerCase().replace(SPACE, " ").replace(/^ | $/g, "");
}

class LookupEncoder {
  // settings: export.json; names: features.json; buffer: lookup.bin
  constructor(settings, names, buffer) {
    if (settings.format !== "mar-lookup" || settings.precision !== "int8") {
      throw new Error("export.json is not of a lookup encoder in int8; export it again.");
    }
    const count = settings.features, dim = settings.dim;
    if (names.length !== count || buffer.byteLength !== 4 * (2 * count + dim) + count * dim) {
      throw new Error("The files do not belong together; export the encoder again.");
    }
    this.settings = settings;
    this.numbers = new Map(names.map((name, number) => [name, number]));
    this.weights = new Float32Array(buffer, 0, count);
    this.bias = new Float32Array(buffer, 4 * count, dim);
    this.scales = new Float32Array(buffer, 4 * (count + dim), count);
    this.table = new Int8Array(buffer, 4 * (2 * count + dim));
  }

  // Known features of a text: a map from number to count.
  counts(text) {
    const characters = Array.from(normalise(text)).slice(0, this.settings.max_length);
    const [shortest, longest] = this.settings.lengths;
    const counts = new Map();
    const add = (name) => {
      const number = this.numbers.get(name);
      if (number !== undefined) counts.set(number, (counts.get(number) || 0) + 1);
    };
    for (let length = shortest; length <= longest; length++) {
      for (let start = 0; start + length <= characters.length; start++) {
        add(characters.slice(start, start + length).join(""));
      }
    }
    for (const word of characters.join("").match(WORDS) || []) {
      if (word.length > longest) add(WORD + word);
    }
    return counts;
  }

  // Vector of a text, Float32Array of `dim` numbers.
  encode(text) {
    const { dim, normalised } = this.settings;
    const parts = [];
    let square = 0;
    for (const [number, count] of this.counts(text)) {
      const part = this.weights[number] * Math.sqrt(count);
      parts.push([number, part]);
      square += part * part;
    }
    const length = Math.max(Math.sqrt(square), 1e-6);
    const sum = Float64Array.from(this.bias);
    for (const [number, part] of parts) {
      const factor = (part / length) * this.scales[number], start = number * dim;
      for (let i = 0; i < dim; i++) sum[i] += factor * this.table[start + i];
    }
    if (!normalised) return Float32Array.from(sum);
    const norm = Math.max(Math.hypot(...sum), 1e-12);
    return Float32Array.from(sum, (value) => value / norm);
  }
}

class Index {
  // buffer: documents.bin, scales and int8 vectors
  constructor(settings, buffer) {
    const { documents, dim } = settings;
    if (buffer.byteLength !== documents * (4 + dim)) {
      throw new Error("documents.bin does not belong to export.json; export the encoder again.");
    }
    this.count = documents;
    this.dim = dim;
    this.scales = new Float32Array(buffer, 0, documents);
    this.table = new Int8Array(buffer, 4 * documents);
  }

  // The k documents with the highest scores: [{ row, score }], equal scores in the order of the documents.
  search(vector, k) {
    const hits = [];
    for (let row = 0; row < this.count; row++) {
      let sum = 0;
      for (let i = 0, at = row * this.dim; i < this.dim; i++, at++) sum += vector[i] * this.table[at];
      hits.push({ row, score: sum * this.scales[row] });
    }
    return hits.sort((a, b) => b.score - a.score || a.row - b.row).slice(0, k);
  }
}

async function load(folder) {
  const read = async (name, how) => {
    const answer = await fetch(folder + name);
    if (!answer.ok) throw new Error(`${name}: ${answer.status}`);
    return answer[how]();
  };
  const [settings, names, weights, rows, vectors] = await Promise.all([
    read("export.json", "json"), read("features.json", "json"), read("lookup.bin", "arrayBuffer"),
    read("documents.json", "json"), read("documents.bin", "arrayBuffer"),
  ]);
  return { encoder: new LookupEncoder(settings, names, weights), index: new Index(settings, vectors), rows };
}

// Texts come from a corpus: they are written as text, never as markup.
function show(hits, rows) {
  const list = document.getElementById("hits"), template = document.getElementById("hit");
  list.replaceChildren(...hits.map(({ row, score }) => {
    const item = template.content.cloneNode(true), entry = rows[row];
    item.querySelector("h2").textContent = entry.title;
    item.querySelector("h2").hidden = !entry.title;
    item.querySelector(".text").textContent = entry.text;
    item.querySelector(".facts").textContent = `${score.toFixed(3)} · ${entry.id}`;
    return item;
  }));
}

async function start() {
  const status = document.getElementById("status");
  try {
    const { encoder, index, rows } = await load("./");
    const query = document.getElementById("query");
    document.getElementById("form").addEventListener("submit", (event) => {
      event.preventDefault();
      const before = performance.now();
      const hits = index.search(encoder.encode(query.value), 10);
      const spent = performance.now() - before;
      show(hits, rows);
      status.textContent = `${index.count} 篇文档，${spent.toFixed(1)} 毫秒`;
    });
    query.disabled = document.getElementById("button").disabled = false;
    query.focus();
    status.textContent = `${index.count} 篇文档`;
  } catch (error) {
    status.textContent = `无法加载：${error.message}`;
  }
}

if (typeof document !== "undefined") start();
if (typeof module !== "undefined") module.exports = { Index, LookupEncoder, normalise };
