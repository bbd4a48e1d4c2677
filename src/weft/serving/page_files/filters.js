// Filters from the metadata that is there, with counts.

import { h } from "./dom.js";

const MOST_VALUES = 8;
const plain = /^[A-Za-z_][A-Za-z0-9_]*$/;
const words = new Set(["and", "or", "not", "in", "contains", "startswith", "exists", "missing", "true", "false", "null"]);

const field = (name) => (plain.test(name) && !words.has(name) ? name : `\`${name.replace(/[\\`]/g, "\\$&")}\``);

// chosen: Map of field name to {many, values: Set of JSON}
export function filterOf(chosen) {
  const parts = [];
  for (const [name, { many, values }] of chosen) {
    if (!values.size) continue;
    const listed = [...values];
    parts.push(many ? `(${listed.map((value) => `${field(name)} contains ${value}`).join(" or ")})` : `${field(name)} in [${listed.join(", ")}]`);
  }
  return parts.join(" and ");
}

export class WeftFilters extends HTMLElement {
  show(fields, chosen, changed) {
    const useful = fields.filter((one) => one.values.some((value) => value.count > 1) || chosen.has(one.name));
    const groups = useful.map((one) => this.#group(one, chosen, changed)).filter(Boolean);
    this.replaceChildren(...groups);
    if (!groups.length) this.append(h("p", { class: "note" }, "No metadata to filter by."));
    if ([...chosen.values()].some(({ values }) => values.size)) {
      this.prepend(h("button", { type: "button", class: "quiet", onclick: () => { chosen.clear(); changed(); } }, "Clear filters"));
    }
  }

  #group(one, chosen, changed) {
    const active = chosen.get(one.name)?.values ?? new Set();
    const counted = new Map(one.values.filter((value) => value.value !== null && value.value !== "").map((value) => [JSON.stringify(value.value), value.count]));
    for (const json of active) if (!counted.has(json)) counted.set(json, 0);
    if (!counted.size) return null;
    const rows = [...counted].slice(0, MOST_VALUES).map(([json, count]) => {
      const box = h("input", {
        type: "checkbox", name: one.name, value: json, checked: active.has(json),
        onchange: () => {
          const entry = chosen.get(one.name) ?? { many: one.many, values: new Set() };
          if (box.checked) entry.values.add(json); else entry.values.delete(json);
          chosen.set(one.name, entry);
          changed();
        },
      });
      return h("label", {}, box, h("span", { class: "value" }, String(JSON.parse(json))), h("span", { class: "count" }, count.toLocaleString("en")));
    });
    return h("fieldset", {}, h("legend", {}, one.name), ...rows);
  }
}
customElements.define("weft-filters", WeftFilters);
