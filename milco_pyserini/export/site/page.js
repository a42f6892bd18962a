// The search page: texts of documents and queries are only ever set as text.
import { crc32 } from "./search.js";

const PAGE = 10, SNIPPET = 400;
// More values of a field unfold.
const MOST_PILLS = 12;
// More bytes are not kept for use without a network.
const MOST_KEPT = 100e6;
// Of site.json, interface.json and the data.
const FORMAT = 3;
// Milliseconds until a search reports what it waits for.
const PATIENCE = 1000;
const FILES = ["./", "page.css", "page.js", "worker.js", "search.js", "site.json", "interface.json", "icon.svg"];
const [name, form, input, about, examples, filters, list, more, offline, languages] = [
  "name", "", "q", "about", "examples", "filters", "hits", "more", "offline", "languages",
].map((id) => (id ? document.getElementById(id) : document.querySelector("form")));

// searchedAt: when the search began that has no answer yet, 0 if there is none.
let site, words, worker, loading, k = PAGE, number = 0, searchedAt = 0;

/** Returns an element with properties and children; strings are text. */
function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) {
    if (key in made) made[key] = value; else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

/** Returns a string of the interface as nodes and strings; values may be either, and numbers have its separators. */
function parts(string, values = {}) {
  return words[string].split(/\{(\w+)\}/).map((part, place) => {
    const value = place % 2 ? values[part] : part;
    return typeof value === "number" ? format(value) : value;
  });
}

const say = (string, values) => parts(string, values).join("");

function format(value) {
  const separators = { ",": words.thousands, ".": words.decimal };
  return new Intl.NumberFormat("en").format(value).replace(/[,.]/g, (separator) => separators[separator]);
}

const percent = (share) => say("percent", { number: Math.round(100 * share) });

function address(text, value) {
  return `?${new URLSearchParams({ q: text, ...(value ? { value } : {}) })}`;
}

/** Returns the query that the address asks for, and the number of the value that filters: 0 for none, -1 for an unknown one. */
function asked() {
  const parameters = new URLSearchParams(location.search), value = parameters.get("value");
  const text = (parameters.get("q") ?? "").slice(0, input.maxLength).split(/\s+/).filter(Boolean).join(" ");
  return { text, value: value ? site.values.indexOf(value) + 1 || -1 : 0 };
}

/** Shows what the address asks for. */
function show() {
  const { text, value } = asked();
  if (document.activeElement !== input || !input.value.trim()) input.value = text;
  document.title = text ? `${text} – ${site.name}` : site.name;
  document.querySelector("header").classList.toggle("first", !text);
  examples.hidden = Boolean(text);
  number++;
  if (!text) {
    about.replaceChildren(say("about", { count: site.documents, encoder: site.encoder }), " ", say("ask"), " ", approximate());
    list.replaceChildren();
    filters.hidden = more.hidden = true;
  } else {
    offer(text, value);
    if (value < 0) {
      searchedAt = 0;
      return nothing(true);
    }
    about.textContent = say("searching");
  }
  searchedAt = text ? performance.now() : 0;
  setTimeout(waiting, PATIENCE + 1);
  worker.postMessage({ number, site, text, k, value });
}

function nothing(isFiltered) {
  list.replaceChildren();
  more.hidden = true;
  const values = site.values.length ? ` ${say("without_filter")} ${site.values.join(", ")}` : "";
  about.textContent = isFiltered ? say("none_filtered") + values : say("none");
}

const approximate = () => element("span", { className: "tag", title: say("approximate_title") }, say("approximate"));

/** Offers the values of the field as filters. value: the number of the one that is set. */
function offer(text, value) {
  const link = (place) => {
    const count = place ? [" ", element("small", {}, format(site.counts[place - 1]))] : [];
    const properties = { href: address(text, site.values[place - 1]), ...(place === value ? { "aria-current": "true" } : {}) };
    return element("li", {}, element("a", properties, element("bdi", {}, site.values[place - 1] ?? say("all")), ...count));
  };
  const pills = site.values.map((_, place) => link(place + 1));
  const field = site.field === "lang" ? say("language") : site.field;
  const folded = () => {
    const values = element("div", { className: "values" }, element("ul", { className: "filters" }, ...pills));
    return element("details", {}, element("summary", {}, element("bdi", {}, field), " ", element("small", {}, format(pills.length))), values);
  };
  const row = pills.length <= MOST_PILLS ? pills : [...(value > 0 ? [link(value)] : []), element("li", {}, folded())];
  filters.firstElementChild.replaceChildren(link(0), ...row);
  filters.hidden = !value && pills.length < 2;
}

/** Reports how many files are loaded while a search has no answer for long. */
function waiting() {
  if (loading && searchedAt && performance.now() - searchedAt >= PATIENCE) about.textContent = say("files", loading);
}

function answered({ data }) {
  if (data.loading) {
    loading = data.loading;
    return waiting();
  }
  if (data.number !== number) return;
  searchedAt = 0;
  if (data.error) {
    about.textContent = say("failed", { error: data.error });
    list.replaceChildren();
    more.hidden = true;
    return;
  }
  // After the page is shown, and what it loads for that.
  setTimeout(() => keep().catch((error) => (offline.textContent = `needs a network: ${error.message}`)), 1000);
  const { text, value } = asked();
  if (!text) return;
  if (!data.total) return nothing(value);
  const before = list.children.length;
  list.replaceChildren(...data.hits.map(article));
  more.hidden = data.hits.length >= data.total;
  about.replaceChildren(say("found", { first: 1, last: data.hits.length, total: data.total }), ` · ${say("ms", { count: Math.round(data.ms) })} · `, approximate());
  if (k > PAGE) list.children[before]?.focus();
}

function article(hit, place) {
  const start = snippet(hit.text), score = [`${format(place + 1)} · `];
  if (hit.title || start) score.push(element("bdi", {}, hit.id), " · ");
  if (hit.value) score.push(element("span", { className: "tag" }, hit.value), " · ");
  score.push(...parts("score", { score: element("strong", {}, format(hit.score)) }), " · ");
  score.push(element("span", { title: say("matches_title") }, say("matches", { share: percent(hit.share) })));
  // A document without a title begins with its text.
  const body = element("div", { className: "body" }, ...(hit.title && start ? [element("p", { className: "snippet", dir: "auto", lang: "" }, start)] : []));
  if (start !== hit.text) {
    const full = element("p", { className: "snippet rest", dir: "auto", lang: "" }, hit.text);
    body.append(element("details", { className: "full" }, element("summary", {}, say("full")), full));
  }
  const terms = element("ul", { className: "terms why" }, ...hit.reasons.map((reason) => why(reason, hit.score)));
  const rest = hit.more ? [element("p", { className: "key" }, say("weaker", { count: hit.more }))] : [];
  body.append(element("details", { className: "reasons" }, element("summary", {}, say("why")), terms, ...rest));
  const head = element("h2", { dir: "auto", lang: "", className: hit.title || !start ? "" : "untitled" }, hit.title || start || hit.id);
  return element("article", { tabIndex: -1 }, head, element("p", { className: "score" }, ...score), body);
}

/** A term of query and document, from which words of the query, and its share of the score. */
function why({ name: term, view, word, score }, total) {
  const label = term.replace(/^m_/, view === "source" ? "" : "m_").replaceAll("\u2581", "") || term;
  const mark = element("mark", { className: view, title: say(view === "pivot" ? "pivot_term" : "source_term") });
  mark.style.setProperty("--s", Math.min(1, (4 * score) / total));
  mark.append(element("bdi", {}, label));
  const from = word === label ? [] : [element("bdi", {}, word), ` ${words.arrow} `];
  return element("li", {}, ...from, mark, " ", element("small", {}, percent(score / total)));
}

function snippet(text) {
  const characters = [...text];
  return characters.length <= SNIPPET ? text : `${characters.slice(0, SNIPPET).join("")}…`;
}

let isKept = false;

/** Keeps all files for visits without a network. */
async function keep() {
  if (isKept || !("serviceWorker" in navigator) || site.bytes > MOST_KEPT || navigator.connection?.saveData) return;
  isKept = true;
  await navigator.serviceWorker.register("offline.js");
  const cache = await caches.open("milco");
  const chunks = Object.entries(site.starts).flatMap(([map, keys]) => keys.map((_, place) => `${map}-${place}`));
  const files = ["tokenizer", "values", "network", ...chunks].map((file) => `data/${file}?${site.version}`);
  for (const old of await cache.keys()) if (old.url.includes("/data/") && !old.url.endsWith(site.version)) await cache.delete(old);
  await cache.addAll(FILES);
  for (let start = 0; start < files.length; start += 8) {
    await Promise.all(files.slice(start, start + 8).map(async (file) => (await cache.match(file)) ?? cache.add(file)));
  }
  offline.textContent = say("offline");
}

function go(target) {
  k = PAGE;
  history.pushState(null, "", target);
  show();
}

function pressed(event) {
  // A slash in an empty box is the key that the page names, and not the beginning of a query.
  const isWriting = event.target === input && (event.key !== "/" || input.value);
  if (event.ctrlKey || event.metaKey || event.altKey || isWriting) return;
  const articles = [...list.children], at = articles.indexOf(document.activeElement?.closest("article"));
  const next = { j: at + 1, k: at - 1 }[event.key];
  if (event.key === "/") {
    event.preventDefault();
    input.select();
  } else if (next !== undefined) articles[Math.max(0, next)]?.focus();
  else if (event.key === "Enter" && event.target === articles[at]) {
    const reasons = articles[at].querySelector(".reasons");
    reasons.open = !reasons.open;
  }
}

/** Returns the content of a JSON file of the export. */
async function load(file) {
  const response = await fetch(file);
  if (!response.ok) throw new Error(`${file} is missing: ${response.status}. Upload all files of the export again.`);
  const [, checksum, format, rest] = /^\{"checksum":(\d+),"format":(\d+),(.*)/s.exec(await response.text()) ?? [];
  if (Number(checksum) !== crc32(new TextEncoder().encode(`${file} ${format} ${rest}`))) throw new Error(`${file} is damaged, or the host sends another file: upload all files of the export again.`);
  if (Number(format) !== FORMAT) throw new Error(`page.js and ${file} are of different exports: upload all files of the export again, or reload the page.`);
  return JSON.parse(`{${rest}`);
}

/** Sets the words of the page: in the language of the address, which is kept, else of an earlier choice, else of the browser. */
function speak(interfaces) {
  const chosen = new URLSearchParams(location.search).get("ui");
  let earlier;
  try {
    if (Object.hasOwn(interfaces, chosen)) localStorage.setItem("ui", chosen);
    earlier = localStorage.getItem("ui");
  } catch {
    // The browser stores nothing: the choice is that of the address.
  }
  const wanted = [chosen, earlier, ...navigator.languages].map((tag) => tag?.toLowerCase().split("-")[0]);
  const language = wanted.find((code) => Object.hasOwn(interfaces, code)) ?? "en";
  words = interfaces[language];
  Object.assign(document.documentElement, { lang: language, dir: words.direction });
  for (const translated of document.querySelectorAll("[data-ui]")) translated.textContent = say(translated.dataset.ui);
  input.placeholder = say("placeholder");
  examples.ariaLabel = say("examples");
  filters.ariaLabel = say("filters");
  languages.firstElementChild.textContent = `${say("language")}: ${words.name}`;
  languages.lastElementChild.replaceChildren(...Object.entries(interfaces).map(([code, { name }]) => {
    const link = element("a", { lang: code, hreflang: code, dir: "auto", href: `?ui=${code}` }, name);
    if (code === language) link.setAttribute("aria-current", "true");
    // The query may have changed since.
    link.addEventListener("click", () => {
      const parameters = new URLSearchParams(location.search);
      parameters.set("ui", code);
      link.href = `?${parameters}`;
    });
    return element("li", {}, link);
  }));
  languages.hidden = false;
}

async function start() {
  if (!("DecompressionStream" in window && "Worker" in window && "Segmenter" in Intl)) return;
  const [given, interfaces] = await Promise.all([load("site.json"), load("interface.json")]);
  site = given;
  speak(interfaces);
  worker = new Worker("worker.js", { type: "module" });
  worker.onmessage = answered;
  worker.onerror = () => (about.textContent = say("failed", { error: "worker.js or search.js is missing or damaged, or the host does not send it as text/javascript" }));
  name.textContent = site.name;
  examples.replaceChildren(...site.examples.map((text) => element("li", {}, element("a", { href: address(text), dir: "auto", lang: "" }, text))));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    // The keys of the page are those of the hits.
    input.blur();
    go(address(input.value, site.values[asked().value - 1]));
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a");
    if (!link || link.hreflang || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    input.value = "";
    go(link.getAttribute("href"));
  });
  document.addEventListener("keydown", pressed);
  more.addEventListener("click", () => {
    k += PAGE;
    show();
  });
  addEventListener("popstate", () => {
    input.value = "";
    show();
  });
  show();
  if (!asked().text) input.focus();
}

start().catch((error) => (about.textContent = words ? say("not_loaded", { error: error.message }) : `The page could not be loaded: ${error.message}`));
