// The windows of the page: a document, adding documents, and the key.

import { api, key } from "./api.js";
import { by, h, plural } from "./dom.js";
import { marked } from "./marks.js";

function show(dialog, ...children) {
  const close = h("button", { type: "button", class: "close", "aria-label": "Close", onclick: () => dialog.close() }, "✕");
  dialog.replaceChildren(close, ...children);
  if (!dialog.open) dialog.showModal();
}

export async function openDocument(index, hit, words, onerror) {
  const dialog = by("reader");
  const name = typeof hit.metadata.parent === "string" ? hit.metadata.parent : hit.id;
  let passages;
  try {
    passages = (await api.document(index, name)).documents;
  } catch (error) {
    onerror(error);
    return;
  }
  const title = typeof hit.metadata.title === "string" && hit.metadata.title ? hit.metadata.title : name;
  let here = null;
  const parts = passages.map((passage) => {
    const mine = passage.id === hit.id;
    const made = h("p", { class: mine ? "passage here" : "passage" }, ...(mine ? marked(passage.text, hit.spans, words) : [passage.text]));
    if (mine) here = made;
    return made;
  });
  const rows = Object.entries(hit.metadata).filter(([, value]) => value !== null && value !== "");
  const facts = h("dl", {}, ...rows.flatMap(([field, value]) => [h("dt", {}, field), h("dd", {}, Array.isArray(value) ? value.join(", ") : typeof value === "object" ? JSON.stringify(value) : String(value))]));
  show(dialog, h("h2", { id: "reader-title" }, title), h("p", { class: "note" }, h("code", {}, name), passages.length > 1 ? ` · ${plural(passages.length, "passage")}` : ""),
    h("div", { class: "document", tabindex: "0", role: "region", "aria-label": "Text" }, ...parts), facts);
  here?.scrollIntoView({ block: "center" });
}

export function openAdding(index, done) {
  const dialog = by("adding");
  const text = h("textarea", { id: "new-text", rows: "10", required: true });
  const id = h("input", { id: "new-id", type: "text", autocomplete: "off", maxlength: "512" });
  const files = h("input", { id: "new-files", type: "file", multiple: true, accept: ".txt,.md,.markdown,.csv,.json,.html,text/*" });
  const said = h("p", { class: "note", role: "status" });
  const form = h("form", {
    method: "dialog",
    onsubmit: async (event) => {
      event.preventDefault();
      said.textContent = "Adding…";
      try {
        const documents = await Promise.all([...files.files].map(async (file) => ({ id: file.name, text: await file.text(), metadata: { title: file.name } })));
        if (text.value.trim()) documents.push(id.value ? { id: id.value, text: text.value } : { text: text.value });
        if (!documents.length) throw new Error("Nothing to add: paste a text or choose files.");
        const answer = await api.add(index, documents);
        said.textContent = `${answer.added} added, ${answer.updated} updated, ${answer.unchanged} unchanged.`;
        text.value = id.value = files.value = "";
        done();
      } catch (error) {
        said.textContent = error.message;
      }
    },
  }, h("label", { for: "new-text" }, "Text"), text, h("label", { for: "new-id" }, "Name (optional)"), id, h("label", { for: "new-files" }, "Or text files"), files, h("button", { type: "submit", class: "primary" }, "Add"), said);
  text.required = false;
  show(dialog, h("h2", { id: "adding-title" }, `Add to ${index}`), form);
  text.focus();
}

export function askForKey(wrong, done) {
  const dialog = by("keyhole");
  const field = h("input", { id: "key", type: "password", autocomplete: "current-password", required: true });
  const form = h("form", {
    onsubmit: (event) => {
      event.preventDefault();
      key.set(field.value.trim());
      dialog.close();
      done();
    },
  }, h("label", { for: "key" }, "Key"), field, h("button", { type: "submit", class: "primary" }, "Go on"),
  h("p", { class: "note" }, wrong ? "This key was not accepted." : "This server asks for a key. It is kept until the tab is closed."));
  show(dialog, h("h2", { id: "keyhole-title" }, "A key is needed"), form);
  field.focus();
}
