// Elements are only ever made from names and texts: nothing that a document says is read as HTML.

export function h(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key.startsWith("--")) made.style.setProperty(key, value);
    else if (key in made && key !== "list" && typeof value !== "string") made[key] = value;
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

export const by = (id) => document.getElementById(id);

export const plural = (number, word) => `${number.toLocaleString("en")} ${word}${number === 1 ? "" : "s"}`;

// The server counts characters, JavaScript counts UTF-16 units: they differ beyond the basic plane.
export function slicer(text) {
  if (!/[\ud800-\udfff]/.test(text)) return (start, stop) => text.slice(start, stop);
  const characters = Array.from(text);
  return (start, stop) => characters.slice(start, stop).join("");
}

// Where a value lies between the lowest and the highest, from 0.25 to 1: differences are to be seen.
export function shades(values) {
  const low = Math.min(...values);
  const high = Math.max(...values);
  return (value) => (high > low ? 0.25 + (0.75 * (value - low)) / (high - low) : high > 0 ? 1 : 0).toFixed(3);
}

export const lengthOf = (text) => Array.from(text).length;
