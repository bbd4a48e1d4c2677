// Texts with their matched words shaded, and the words of the query.

import { h, lengthOf, shades, slicer } from "./dom.js";

// Tokens that touch are pieces of one word.
export function queryWords(query, tokens) {
  const slice = slicer(query);
  const words = [];
  tokens.forEach((token, number) => {
    if (!token.span) return;
    const [start, stop] = token.span;
    const last = words[words.length - 1];
    const inner = (text) => /[\p{L}\p{N}]/u.test(text);
    if (last && last.stop === start && inner(slice(start - 1, start)) && inner(slice(start, start + 1))) {
      last.stop = stop;
      last.tokens.push(number);
      last.salience = Math.max(last.salience, token.salience ?? 0);
    } else {
      words.push({ start, stop, tokens: [number], salience: token.salience ?? 0 });
    }
  });
  for (const word of words) word.text = slice(word.start, word.stop);
  return words.filter((word) => /[\p{L}\p{N}]/u.test(word.text));
}

export function marked(text, spans, words, from = 0, to = lengthOf(text)) {
  const slice = slicer(text);
  const shade = shades(spans.map((span) => span.contribution));
  const wordOf = (token) => words.findIndex((word) => word.tokens.includes(token));
  const parts = [];
  let at = from;
  for (const span of spans) {
    if (span.start < at || span.stop > to) continue;
    const answered = [...new Set(span.query.map(wordOf))].filter((number) => number >= 0);
    parts.push(slice(at, span.start));
    const named = answered.map((number) => words[number].text).join(", ");
    parts.push(h("mark", {
      "--a": shade(span.contribution),
      "data-words": answered.join(" "),
      title: `${named ? `${named}: ` : ""}adds ${span.contribution.toFixed(3)}`,
    }, slice(span.start, span.stop)));
    at = span.stop;
  }
  parts.push(slice(at, to));
  return parts;
}

// About `width` characters with the largest sum of contributions, from the beginning of a word.
export function bestWindow(text, spans, width = 320) {
  const characters = Array.from(text);
  if (characters.length <= width) return [0, characters.length];
  let best = 0;
  let sum = -1;
  for (const first of spans) {
    const inside = spans.filter((span) => span.start >= first.start && span.stop <= first.start + width);
    const total = inside.reduce((all, span) => all + span.contribution, 0);
    if (total > sum) {
      sum = total;
      const last = inside.length ? Math.max(...inside.map((span) => span.stop)) : first.stop;
      best = Math.max(0, Math.round((first.start + last - width) / 2));
    }
  }
  let stop = Math.min(best + width, characters.length);
  let start = Math.max(0, stop - width);
  while (start > 0 && start < stop && !/\s/.test(characters[start - 1])) start += 1;
  while (stop < characters.length && stop > start && !/\s/.test(characters[stop])) stop -= 1;
  return [start, stop];
}
