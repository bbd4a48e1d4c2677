// One result: title, score, how it moved, the passage with its matched words, and on request why it was found.

import { api } from "./api.js";
import { h, shades, slicer } from "./dom.js";
import { bestWindow, marked, queryWords } from "./marks.js";

const COLUMNS = 18;
const SHOWN = ["title", "path", "source", "weft"];

export class WeftResult extends HTMLElement {
  show(hit, rank, context) {
    const title = typeof hit.metadata.title === "string" && hit.metadata.title ? hit.metadata.title : hit.id;
    const [from, to] = bestWindow(hit.text, hit.spans);
    const open = h("button", { type: "button", class: "title", onclick: () => context.open(hit) }, title);
    const why = h("button", { type: "button", class: "quiet", "aria-expanded": "false", onclick: () => this.#why(why, hit, context) }, "Why?");
    const text = h("p", { class: "text" },
      from > 0 ? "…\u00a0" : null, ...marked(hit.text, hit.spans, context.words, from, to),
      to < Array.from(hit.text).length ? "\u00a0…" : null); // no ellipsis stands alone on a line
    this.replaceChildren(
      h("div", { class: "head" },
        h("span", { class: "rank" }, `${rank}`),
        h("h2", {}, open),
        moved(hit.id, rank, context.before),
        h("span", { class: "score", title: "score" }, hit.score.toFixed(hit.score < 0.1 ? 4 : 2)), why),
      text,
      h("p", { class: "meta" }, h("code", {}, hit.id), ...chips(hit.metadata)),
    );
  }

  async #why(button, hit, context) {
    const old = this.querySelector(".why");
    if (old) {
      old.remove();
      button.setAttribute("aria-expanded", "false");
      return;
    }
    const place = h("div", { class: "why" }, "…");
    this.append(place);
    button.setAttribute("aria-expanded", "true");
    try {
      const body = { query: context.query, id: hit.id };
      if (context.alignment) body.alignment = context.alignment;
      if (context.filter) body.filter = context.filter;
      const { explanations } = await api.explain(context.index, body);
      place.replaceChildren(...explained(explanations[0]));
    } catch (error) {
      place.replaceChildren(h("p", { class: "problem" }, error.message));
    }
  }
}
customElements.define("weft-result", WeftResult);

function moved(id, rank, before) {
  if (!before) return null;
  const old = before.indexOf(id) + 1;
  if (old === rank) return h("span", { class: "moved same", title: "the same place as before" }, "=");
  if (!old) return h("span", { class: "moved new" }, "new");
  const up = old > rank;
  return h("span", { class: `moved ${up ? "up" : "down"}`, title: `was ${old}` },
    h("span", { class: "hidden" }, up ? "up by " : "down by "), `${up ? "▲" : "▼"}${Math.abs(old - rank)}`);
}

function chips(metadata) {
  const made = [];
  for (const [name, value] of Object.entries(metadata)) {
    if (SHOWN.includes(name) || value === null || (typeof value === "object" && !Array.isArray(value))) continue;
    const all = (Array.isArray(value) ? value : [value]).slice(0, 4).map(String).filter((text) => text && text.length <= 40);
    if (all.length) made.push(h("span", { class: "chip" }, h("span", { class: "name" }, `${name} `), all.join(", ")));
  }
  return made.slice(0, 8);
}

// Words of one side of an explanation, with what belongs to them.
function sideWords(side) {
  const tokens = side.tokens.map((token) => ({ span: token.span, salience: token.salience }));
  const placed = queryWords(side.text, tokens);
  const contribution = (word) => word.tokens.reduce((sum, number) => sum + side.tokens[number].contribution, 0);
  return placed.map((word) => ({ ...word, contribution: contribution(word) }));
}

function explained(explanation) {
  const query = sideWords(explanation.query);
  const documentWords = sideWords(explanation.document);
  const owner = (words, token) => words.findIndex((word) => word.tokens.includes(token));
  const cells = new Map();
  let elsewhere = 0;
  let imputed = 0;
  for (const pair of explanation.pairs) {
    const i = owner(query, pair.query);
    const j = pair.document === null ? -1 : owner(documentWords, pair.document);
    if (pair.imputed) imputed += pair.contribution;
    if (i < 0 || j < 0) {
      if (!pair.imputed) elsewhere += pair.contribution;
      continue;
    }
    const name = `${i} ${j}`;
    const cell = cells.get(name) ?? { similarity: -1, contribution: 0 };
    cells.set(name, { similarity: Math.max(cell.similarity, pair.similarity), contribution: cell.contribution + pair.contribution });
  }
  const aligned = [...new Set([...cells.keys()].map((name) => Number(name.split(" ")[1])))];
  const columns = aligned.sort((a, b) => documentWords[b].contribution - documentWords[a].contribution).slice(0, COLUMNS).sort((a, b) => a - b);
  const shade = shades(query.map((word) => word.salience));
  const heat = shades([...cells.values()].map((cell) => cell.contribution));
  const slice = slicer(explanation.document.text);
  const head = h("tr", {}, h("td"), ...columns.map((j) => h("th", { scope: "col" }, slice(documentWords[j].start, documentWords[j].stop))), h("th", { scope: "col" }, "sum"));
  const rows = query.map((word, i) => h("tr", {},
    h("th", { scope: "row", "--s": shade(word.salience), title: word.salience ? `salience ${word.salience.toFixed(2)}` : "" }, word.text),
    ...columns.map((j) => {
      const cell = cells.get(`${i} ${j}`);
      if (!cell) return h("td");
      return h("td", { class: "hot", "--a": heat(cell.contribution), title: `similarity ${cell.similarity.toFixed(3)}, adds ${cell.contribution.toFixed(3)}` }, cell.contribution.toFixed(2));
    }),
    h("td", { class: "sum" }, word.contribution.toFixed(2)),
  ));
  const notes = [`${explanation.alignment}, score ${explanation.score.toFixed(4)}`];
  if (aligned.length > columns.length) notes.push(`${aligned.length - columns.length} words that add less are left out`);
  if (Math.abs(elsewhere) > 0.0005) notes.push(`${elsewhere.toFixed(2)} from the texts as a whole and punctuation`);
  if (Math.abs(imputed) > 0.0005) notes.push(`${imputed.toFixed(2)} imputed`);
  return [
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Alignment" },
      h("table", { class: "heat" }, h("caption", {}, "What each pair of words adds to the score"), h("thead", {}, head), h("tbody", {}, ...rows))),
    h("p", { class: "note" }, `${notes.join("; ")}.`),
  ];
}
