// The page's state is its address: index, query, alignment and filters; everything else follows from it.

import { api, key } from "./api.js";
import { by, h, plural, shades } from "./dom.js";
import { filterOf } from "./filters.js";
import { queryWords } from "./marks.js";
import "./result.js";
import { askForKey, openAdding, openDocument } from "./windows.js";

const PAUSE = 40; // milliseconds without a key press after which to search
const ALIGNMENTS = [ // the index's own is not listed twice
  ["", "Best match", "The index's own alignment"],
  ["sum-of-max", "MaxSim", "The best document word for each query word, summed"],
  ["top-k:4", "Top-k", "The four best document words for each query word"],
  ["top-p:0.02", "Top-p", "The best 2 % of the document's words for each query word"],
  ["xtr", "XTR", "Only words that were retrieved, the others imputed"],
  ["hybrid", "Hybrid", "Meaning and spelling together: blended with BM25 over the texts"],
];

const state = { index: "", query: "", alignment: "", chosen: new Map() };
let indexes = [];
let running = null;
let timer = 0;
let last = null; // the search that is shown: what it asked, and the order it gave

const info = () => indexes.find((one) => one.name === state.index);
const offered = () => ALIGNMENTS.filter(([name]) => name !== info()?.alignment);

// -- the address ---------------------------------------------------------------------------------

function read() {
  const given = new URLSearchParams(location.search);
  state.index = indexes.some((one) => one.name === given.get("index")) ? given.get("index") : indexes[0]?.name ?? "";
  state.query = given.get("q") ?? "";
  state.alignment = offered().some(([name]) => name === given.get("a")) ? given.get("a") : "";
  state.chosen = new Map();
  for (const part of given.getAll("f")) {
    try {
      const [name, many, ...values] = JSON.parse(part);
      state.chosen.set(String(name), { many: Boolean(many), values: new Set(values.map((value) => JSON.stringify(value))) });
    } catch { /* an address that somebody changed by hand: this filter is not one */ }
  }
}

function write() {
  const made = new URLSearchParams();
  if (indexes.length > 1) made.set("index", state.index);
  if (state.query) made.set("q", state.query);
  if (state.alignment) made.set("a", state.alignment);
  for (const [name, { many, values }] of state.chosen) {
    if (values.size) made.append("f", JSON.stringify([name, many, ...[...values].map((value) => JSON.parse(value))]));
  }
  const address = `${location.pathname}${made.size ? `?${made}` : ""}`;
  if (address !== location.pathname + location.search) history.replaceState(null, "", address);
  document.title = state.query ? `${state.query} – weft` : "weft";
}

// -- searching -----------------------------------------------------------------------------------

async function search() {
  clearTimeout(timer);
  running?.abort();
  write();
  if (!state.query.trim()) {
    empty();
    return;
  }
  const mine = (running = new AbortController());
  const filter = filterOf(state.chosen);
  const body = { query: state.query, k: 10 };
  if (filter) body.filter = filter;
  if (state.alignment === "hybrid") body.hybrid = "blend";
  else if (state.alignment) body.alignment = state.alignment;
  const asked = `${state.index}\n${state.query}\n${filter}`;
  try {
    const answer = await api.search(state.index, body, mine.signal);
    if (mine !== running) return;
    const { hits, tokens, missing = 0 } = answer.results[0];
    const sameQuestion = last?.asked === asked && last.alignment !== state.alignment;
    const context = {
      index: state.index, query: state.query, filter, words: queryWords(state.query, tokens ?? []),
      alignment: body.alignment, before: sameQuestion ? last.order : null, open: (hit) => openDocument(state.index, hit, context.words, problem),
    };
    last = { asked, alignment: state.alignment, order: hits.map((hit) => hit.id) };
    problem(null);
    results(hits, context);
    by("status").textContent = `${plural(hits.length, "result")} of ${plural(info().documents, "passage")} in ${Math.max(1, Math.round(answer.seconds * 1000))} ms${missing ? `; ${plural(missing, "passage")} could not be looked at: the index is damaged` : ""}`;
  } catch (error) {
    if (error.name !== "AbortError" && mine === running) problem(error);
  }
}

function results(hits, context) {
  by("empty").hidden = hits.length > 0;
  if (!hits.length) {
    by("empty").replaceChildren(h("h2", {}, "Nothing found"), h("p", {}, context.filter ? "No document passes the filters. Clear some of them." : "Try other words."));
  }
  by("results").replaceChildren(...hits.map((hit, place) => {
    const result = h("weft-result");
    result.show(hit, place + 1, context);
    return h("li", {}, result);
  }));
  const shade = shades(context.words.map((word) => word.salience));
  by("words").replaceChildren(...context.words.map((word, number) => {
    const look = () => point(number);
    const made = h("button", { type: "button", class: "word", "--s": shade(word.salience), title: word.salience ? `salience ${word.salience.toFixed(2)}` : "", onpointerenter: look, onfocus: look, onpointerleave: () => point(null), onblur: () => point(null) }, word.text);
    return made;
  }));
}

// Show in every result what a word of the query aligned with.
function point(number) {
  by("results").classList.toggle("looking", number !== null);
  for (const mark of by("results").querySelectorAll("mark")) {
    mark.classList.toggle("on", number !== null && mark.dataset.words.split(" ").includes(String(number)));
  }
}

function empty() {
  last = null;
  by("results").replaceChildren();
  by("words").replaceChildren();
  by("status").textContent = "";
  problem(null);
  const one = info();
  if (!one) return;
  by("empty").hidden = false;
  by("empty").replaceChildren(
    h("h2", {}, one.documents ? `Search ${plural(one.documents, "passage")}` : "This index is empty"),
    h("p", {}, one.documents
      ? "Ask a question or name a thing in your own words: meaning counts, not spelling. Words that counted are shaded; point at a word of the query to see what it met."
      : one.writable ? "Add a text with the button above, or index files with weft index." : "Index files with weft index."),
    h("p", { class: "note keys" }, h("kbd", {}, "/"), " search  ", h("kbd", {}, "↓"), " ", h("kbd", {}, "↑"), " results  ", h("kbd", {}, "Enter"), " open  ", h("kbd", {}, "Esc"), " close"),
    h("p", { class: "note" }, `${one.model} · ${one.tokens.toLocaleString("en")} token vectors · ${one.dim} dimensions`),
  );
}

function problem(error) {
  by("problem").hidden = error === null;
  if (error === null) return;
  if (error.status === 401) {
    const wrong = Boolean(key.get());
    key.forget();
    askForKey(wrong, begin);
    return;
  }
  const wait = error.retry ? ` Try again in ${error.retry} s.` : "";
  by("problem").textContent = error.message + wait;
}

// -- what surrounds it ---------------------------------------------------------------------------

async function filters() {
  const box = document.querySelector("weft-filters");
  try {
    const { fields } = await api.fields(state.index, filterOf(state.chosen));
    box.show(fields, state.chosen, () => { search(); filters(); });
  } catch (error) {
    problem(error);
  }
}

function controls() {
  by("query").value = state.query;
  by("index").replaceChildren(...indexes.map((one) => h("option", { value: one.name, selected: one.name === state.index }, one.name)));
  by("index").hidden = indexes.length < 2;
  by("add").hidden = !info()?.writable;
  const [legend] = by("alignments").children;
  by("alignments").replaceChildren(legend, ...offered().map(([name, label, said]) => h("label", { title: name ? said : `${said}: ${info()?.alignment ?? ""}` },
    h("input", { type: "radio", name: "alignment", value: name, checked: name === state.alignment, onchange: () => { state.alignment = name; search(); } }), h("span", {}, label))));
}

async function begin() {
  try {
    indexes = (await api.indexes()).indexes;
  } catch (error) {
    problem(error);
    return;
  }
  read();
  controls();
  search();
  filters();
}

function theme(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  by("theme").setAttribute("aria-pressed", String(dark));
}

const wished = localStorage.getItem("weft-theme");
theme(wished ? wished === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
by("theme").addEventListener("click", () => {
  const dark = document.documentElement.dataset.theme !== "dark";
  localStorage.setItem("weft-theme", dark ? "dark" : "light");
  theme(dark);
});
by("filters").open = matchMedia("(min-width: 56rem)").matches;
by("query").addEventListener("input", () => {
  state.query = by("query").value;
  clearTimeout(timer);
  timer = setTimeout(search, PAUSE);
});
by("form").addEventListener("submit", (event) => {
  event.preventDefault();
  state.query = by("query").value;
  search();
});
by("index").addEventListener("change", () => {
  state.index = by("index").value;
  state.chosen = new Map();
  controls();
  search();
  filters();
});
by("add").addEventListener("click", () => openAdding(state.index, async () => {
  indexes = (await api.indexes()).indexes;
  search();
  filters();
}));
addEventListener("popstate", begin);
addEventListener("keydown", (event) => {
  const typing = event.target.matches("input, textarea, select");
  if (event.key === "/" && !typing && !document.querySelector("dialog[open]")) {
    event.preventDefault();
    by("query").focus();
    by("query").select();
  }
  if (event.key === "Escape" && event.target === by("query")) by("query").blur();
  if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
  const titles = [...by("results").querySelectorAll(".title")];
  const at = titles.indexOf(document.activeElement);
  if (!titles.length || (at < 0 && event.target !== by("query"))) return;
  event.preventDefault();
  const next = at + (event.key === "ArrowDown" ? 1 : -1);
  if (next < 0) by("query").focus();
  else titles[Math.min(next, titles.length - 1)].focus();
});
begin();
