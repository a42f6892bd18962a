// node open_page.mjs SITE ADDRESS: opens a search page of milco export web without a browser, and writes what it shows.
// Elements accept every property and method; only texts, children and listeners have an effect.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [site, address] = process.argv.slice(2), elements = new Map(), PATIENCE = 20_000;

function element() {
  const own = { children: [], value: "", maxLength: 2000, classList: { toggle() {}, add() {} }, dataset: {} };
  own.append = (...children) => own.children.push(...children);
  own.replaceChildren = (...children) => (own.children = children);
  const content = { get: () => own.children.map(text).join(""), set: (given) => (own.children = [given]) };
  Object.defineProperty(own, "textContent", content);
  own.style = { setProperty() {} };
  const missing = (name) => (String(name).endsWith("ElementChild") ? (own[name] = element()) : () => undefined);
  return new Proxy(own, { has: () => true, get: (_, name) => (name in own ? own[name] : missing(name)) });
}

function text(node) {
  return typeof node === "object" ? node.textContent : String(node);
}

function named(name) {
  if (!elements.has(name)) elements.set(name, element());
  return elements.get(name);
}

async function open(name) {
  try {
    const content = readFileSync(`${site}/${String(name).split("?")[0]}`);
    return new Response(content, { status: 200 });
  } catch {
    return new Response("", { status: 404 });
  }
}

// Searches without an answer: meanwhile the page shows that it searches, or how many files are loaded.
let searches = 0;

class Worker {
  constructor(name) {
    globalThis.onmessage = null;
    globalThis.postMessage = (data) => {
      this.onmessage?.({ data: structuredClone(data) });
      if ("number" in data) searches--;
    };
    this.loaded = import(pathToFileURL(`${site}/${name}`));
  }

  postMessage(data) {
    searches++;
    this.loaded.then(() => globalThis.onmessage({ data: structuredClone(data) })).catch((error) => {
      this.onerror?.(error);
      searches--;
    });
  }
}

const page = {
  document: { title: "", activeElement: null, addEventListener() {}, documentElement: element(), createElement: element,
    getElementById: named, querySelector: named, querySelectorAll: () => [] },
  location: { search: `?${new URLSearchParams(JSON.parse(address))}` },
  history: { pushState() {} },
  navigator: { languages: ["en"] },
  localStorage: { getItem: () => null, setItem() {} },
  addEventListener() {},
  fetch: open,
  Worker,
};
for (const [name, value] of Object.entries(page)) Object.defineProperty(globalThis, name, { value, configurable: true, writable: true });
globalThis.window = globalThis;
await import(pathToFileURL(`${site}/page.js`));
const about = named("about");
for (const started = Date.now(); (!about.textContent || searches) && Date.now() < started + PATIENCE; ) {
  await new Promise((resolve) => setTimeout(resolve, 10));
}
const shown = { about: about.textContent.replace(/ · [\d,.]+ ms(?= ·|$)/, ""), hits: named("hits").children.map(text) };
process.stdout.write(JSON.stringify(shown), () => process.exit(0));
