"use strict";

const all = (selector, within = document) => [...within.querySelectorAll(selector)];
let language = chosenLanguage();

// -- language --

/** The language chosen here before, or else that of the browser. */
function chosenLanguage() {
  let kept = null;
  try { kept = localStorage.getItem("language"); } catch { /* storage is switched off */ }
  return kept in TEXTS ? kept : navigator.language.startsWith("zh") ? "zh" : "en";
}

function text(name, values = {}) {
  return TEXTS[language][name].replace(/\{(\w+)\}/g, (_, key) => values[key] ?? "");
}

function translate() {
  document.documentElement.lang = language === "zh" ? "zh-CN" : "en";
  for (const element of all("[data-text]")) {
    element.textContent = text(element.dataset.text, JSON.parse(element.dataset.values ?? "{}"));
  }
  for (const element of all("[data-label]")) element.setAttribute("aria-label", text(element.dataset.label));
  for (const button of all(".order")) button.setAttribute("aria-label", text("sort", { name: headingOf(button.closest("th")) }));
  const names = [document.querySelector("h1"), document.querySelector("nav a")];
  document.title = names.filter(Boolean).map((element) => element.textContent).join(" · ");
  const button = document.getElementById("language");
  button.textContent = text("other");
  button.lang = language === "zh" ? "en" : "zh-CN";
  button.hidden = false;
  filter();
  drawCharts();
}

// -- tables --

const headingOf = (header) => header.firstElementChild?.textContent ?? header.textContent;

/** The number in a cell, or its text; null for a dash. */
function valueOf(cell) {
  const content = (cell?.firstChild?.textContent ?? "").trim();
  const number = /^(?:< )?([+-]?[\d,]*\.?\d+)(?=$|[\s–])/.exec(content);
  if (number && cell.tagName === "TD") return Number(number[1].replaceAll(",", ""));
  return ["", "–"].includes(content) ? null : content;
}

function makeSortable(table) {
  for (const [column, header] of [...table.tHead.rows[0].cells].entries()) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "order";
    button.addEventListener("click", () => sort(table, column, header));
    header.append(button);
  }
}

/** Sorts by a column: numbers from the highest, texts from A; a second time the other way. */
function sort(table, column, header) {
  const rows = [...table.tBodies[0].rows];
  const values = new Map(rows.map((row) => [row, valueOf(row.cells[column])]));
  const numbers = [...values.values()].some((value) => typeof value === "number");
  const before = header.getAttribute("aria-sort");
  const down = before ? before === "ascending" : numbers;
  const compare = (one, other) => (numbers ? one - other : String(one).localeCompare(String(other)));
  rows.sort((a, b) => {
    const [one, other] = [values.get(a), values.get(b)];
    if (one === null || other === null) return (one === null) - (other === null);  // the unknown come last
    return down ? compare(other, one) : compare(one, other);
  });
  for (const other of all("[aria-sort]", table.tHead)) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", down ? "descending" : "ascending");
  table.tBodies[0].append(...rows);
}

// -- filters of the index --

function filter() {
  const form = document.getElementById("filters");
  if (!form) return;
  const wanted = Object.fromEntries(new FormData(form));
  const name = wanted.name.trim().toLowerCase();
  const shown = new Set();
  const rows = [...document.getElementById("facts").tBodies[0].rows];
  for (const row of rows) {
    const fits = ["online", "offline", "dimensions", "latency"].every((key) => {
      if (wanted[key] === "") return true;
      const most = Number(wanted[key]) * Number(form.elements[key].dataset.unit ?? 1);
      return row.dataset[key] !== "" && Number(row.dataset[key]) <= most;
    });
    const alike = ["licence", "trained"].every((key) => wanted[key] === "" || row.dataset[key] === wanted[key]);
    if (fits && alike && row.cells[0].textContent.toLowerCase().includes(name)) shown.add(row.dataset.system);
  }
  for (const row of all("tr[data-system]")) row.hidden = !shown.has(row.dataset.system);
  document.getElementById("shown").textContent = text("shown", { shown: shown.size, all: rows.length });
}

// -- rankings of a query --

/** Shows two systems: those of the address, such as `#0,3`, or the first two. */
function chooseRankings() {
  const form = document.getElementById("choice");
  if (!form || form.elements.one.length < 2) return;
  form.hidden = false;
  const [one, other] = [form.elements.one, form.elements.other];
  const given = /^#(\d+),(\d+)$/.exec(location.hash);
  const known = new Set([...one.options].map((option) => option.value));
  one.value = given && known.has(given[1]) ? given[1] : one.options[0].value;
  other.value = given && known.has(given[2]) ? given[2] : one.options[1].value;
  const show = () => {
    for (const list of all(".ranking")) list.hidden = ![one.value, other.value].includes(list.dataset.system);
  };
  form.addEventListener("change", show);
  show();
}

// -- charts: they show the numbers of the tables beside them --

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** Up to this many systems have their names in a chart. */
const MOST_NAMES = 15;

/** The shown rows of a table as records by the fields of its columns. */
function recordsOf(table) {
  const fields = [...table.tHead.rows[0].cells].map((header) => header.dataset.field);
  return [...table.tBodies[0].rows].filter((row) => !row.hidden).map((row) => Object.fromEntries(
    fields.map((field, column) => [field, field === "interval" ? row.cells[column].textContent : valueOf(row.cells[column])]),
  ));
}

const CHARTS = {
  /** Score (the average, or a task) against a cost; systems of a family are joined by a line. */
  cost(table, { x }) {
    const measure = table.tHead.querySelector("[data-field=average]").dataset.title || text("average");
    const rows = recordsOf(table).filter((row) => row.average !== null && row[x] > 0).map((row) => {
      const [low, high] = (row.interval || "NaN–NaN").split("–").map(Number);
      return { ...row, cost: row[x], low, high };
    });
    // Names stand on the side where there is room, above and below in turns.
    const costs = rows.map((row) => row.cost);
    const middle = Math.sqrt(Math.min(...costs) * Math.max(...costs));
    rows.sort((one, other) => one.cost - other.cost).forEach((row, place) => {
      row.label = (row.cost <= middle ? "left" : "right") + (place % 2 ? 12 : -12);
    });
    // A family looks the same in all charts.
    const familiesOf = (some) => [...new Set(some.map((row) => row.family).filter((family) => family !== null))];
    const [families, present] = [recordsOf(table), rows].map(familiesOf);
    const hue = families.length
      ? { field: "family", type: "nominal", title: text("family"), scale: { domain: families, range: color("hues").split(", ") }, legend: { orient: "bottom", columns: 2, values: present } }
      : { value: color("first") };
    const place = {
      x: { field: "cost", type: "quantitative", scale: { type: "log", nice: false, padding: 24 }, title: text(x), axis: { format: x === "latency" ? "~g" : "~s", labelExpr: "replace(datum.label, 'G', 'B')", tickCount: 5, grid: false } },
      y: { field: "average", type: "quantitative", scale: { zero: false }, title: measure },
    };
    const tooltip = ["system", "average", "interval", "cost"].map((field) => ({ field, title: field === "cost" ? text(x) : field === "average" ? measure : text(field) }));
    return {
      height: 300,
      data: { values: rows },
      layer: [
        { transform: [{ filter: "isValid(datum.family)" }], mark: { type: "line", strokeWidth: 2 }, encoding: { ...place, color: hue, detail: { field: "family" }, order: { field: "cost" } } },
        { mark: { type: "rule", opacity: 0.5 }, encoding: { x: place.x, y: { field: "low", type: "quantitative", title: measure }, y2: { field: "high" }, color: hue } },
        { mark: { type: "point", filled: true, size: 70, opacity: 1 }, encoding: { ...place, color: hue, tooltip, ...(families.length ? { shape: { ...hue, scale: { domain: families } } } : {}) } },
        ...(rows.length > MOST_NAMES ? [] : ["left", "right"].flatMap((align) => [-12, 12].map((dy) => ({
          transform: [{ filter: { field: "label", equal: align + dy } }],
          mark: { type: "text", align, dx: align === "left" ? -4 : 4, dy, limit: 180, color: color("text") },
          encoding: { ...place, text: { field: "system" } },
        })))),
      ],
    };
  },
  /** Both scores on each task. */
  tasks(table) {
    const rows = recordsOf(table);
    const task = { field: "task", type: "nominal", sort: null, title: null, axis: { labelLimit: 120 } };
    const point = (field, shape) => ({
      mark: { type: "point", filled: true, size: 90, opacity: 1, shape, color: color(field) },
      encoding: { y: task, x: { field, type: "quantitative" }, tooltip: ["task", "first", "second", "difference"].map((name) => ({ field: name, title: text(name) })) },
    });
    return {
      height: 26 * rows.length,
      data: { values: rows },
      layer: [
        { mark: { type: "rule", strokeWidth: 2, color: color("edge") }, encoding: { y: task, x: { field: "first", type: "quantitative", scale: { zero: false }, axis: { tickCount: 6 }, title: text("score") }, x2: { field: "second" } } },
        point("first", "circle"),
        point("second", "diamond"),
      ],
    };
  },
  /** Number of queries by both scores. */
  queries(table, { first, second }) {
    const columns = [...table.tHead.rows[0].cells].slice(1).map((header) => Number(header.textContent));
    const values = [...table.tBodies[0].rows].flatMap((row) => columns.map((other, column) => ({
      first: Number(row.cells[0].textContent), second: other, queries: valueOf(row.cells[column + 1]),
    }))).filter((one) => one.queries !== null);
    const axis = (field, title) => ({ field, type: "quantitative", title, scale: { domain: [0, 1], padding: 14 }, axis: { tickCount: 5 } });
    return {
      height: 340,
      layer: [
        { data: { values: [{ first: 0, second: 0 }, { first: 1, second: 1 }] }, mark: { type: "line", color: color("edge"), strokeDash: [4, 4] }, encoding: { x: axis("second", second), y: axis("first", first) } },
        {
          data: { values },
          mark: { type: "circle", opacity: 0.85 },
          encoding: {
            x: axis("second", second), y: axis("first", first),
            size: { field: "queries", type: "quantitative", scale: { range: [12, 700] }, legend: null },
            color: { condition: [{ test: "datum.first > datum.second", value: color("first") }, { test: "datum.first < datum.second", value: color("second") }], value: color("soft") },
            tooltip: [{ field: "first", title: first }, { field: "second", title: second }, { field: "queries", title: text("queries") }],
          },
        },
      ],
    };
  },
};

function drawCharts() {
  for (const place of all(".chart")) {
    const spec = CHARTS[place.dataset.chart](document.getElementById(place.dataset.table), place.dataset);
    const words = { labelColor: color("text"), titleColor: color("soft") };
    const config = {
      background: null, padding: 10, view: { stroke: null }, font: "system-ui, sans-serif", legend: { ...words, symbolOpacity: 1 },
      axis: { ...words, gridColor: color("line"), domainColor: color("edge"), tickColor: color("edge"), labelOverlap: true },
    };
    const full = { width: "container", autosize: { type: "fit-x", contains: "padding" }, ...spec, config };
    place.replaceChildren();
    new vega.View(vega.parse(vegaLite.compile(full).spec), { renderer: "svg", container: place, hover: true }).runAsync()
      .then(() => place.firstElementChild.setAttribute("aria-hidden", "true"));  // the element has a label
  }
}

all("table.sortable").forEach(makeSortable);
chooseRankings();
translate();
document.getElementById("language").addEventListener("click", () => {
  language = language === "zh" ? "en" : "zh";
  try { localStorage.setItem("language", language); } catch { /* storage is switched off */ }
  translate();
});
const filters = document.getElementById("filters");
if (filters) {
  filters.hidden = false;
  filters.querySelector("details").open = innerWidth > 900;
  filters.addEventListener("submit", (event) => event.preventDefault());
  filters.addEventListener("input", () => {
    filter();
    drawCharts();
  });
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawCharts);
