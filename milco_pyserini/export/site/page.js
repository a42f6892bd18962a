// The search page: texts of documents and queries are only ever set as text.
const PAGE = 10, SNIPPET = 400;
// Of more values of a field, only those of the hits are offered.
const MOST_VALUES = 30;
// More bytes are not kept for use without a network.
const MOST_KEPT = 100e6;
const FILES = ["./", "page.css", "page.js", "worker.js", "search.js", "site.json", "icon.svg"];
const [name, form, input, about, examples, filters, list, more, offline] = [
  "name", "", "q", "about", "examples", "filters", "hits", "more", "offline",
].map((id) => (id ? document.getElementById(id) : document.querySelector("form")));
const format = new Intl.NumberFormat("en");

let site, worker, k = PAGE, number = 0;

/** Returns an element with properties and children; strings are text. */
function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) {
    if (key in made) made[key] = value; else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

function address(text, value) {
  return `?${new URLSearchParams({ q: text, ...(value ? { value } : {}) })}`;
}

/** Returns the query that the address asks for, and the number of the value that filters: 0 for none. */
function asked() {
  const parameters = new URLSearchParams(location.search);
  const text = (parameters.get("q") ?? "").slice(0, input.maxLength).split(/\s+/).filter(Boolean).join(" ");
  return { text, value: site.values.indexOf(parameters.get("value") ?? "") + 1 };
}

/** Shows what the address asks for. */
function show() {
  const { text, value } = asked();
  if (document.activeElement !== input || !input.value.trim()) input.value = text;
  document.title = text ? `${text} – ${site.name}` : site.name;
  document.querySelector("header").classList.toggle("first", !text);
  examples.hidden = Boolean(text);
  if (!text) {
    about.textContent = `${format.format(site.documents)} documents, encoded by ${site.encoder}. Ask in any language: documents are found in all.`;
    list.replaceChildren();
    filters.hidden = more.hidden = true;
  } else {
    about.textContent = "Searching …";
    offer(text, value, site.values.length > MOST_VALUES ? [] : site.values);
  }
  worker.postMessage({ number: ++number, site, text, k, value });
}

/** Offers values of the field as filters. value: the number of the one that is set. */
function offer(text, value, values) {
  const numbers = [...new Set([0, ...values.map((one) => site.values.indexOf(one) + 1), value])];
  filters.replaceChildren(...numbers.map((place) => {
    const count = place ? [" ", element("small", {}, format.format(site.counts[place - 1]))] : [];
    const properties = { href: address(text, site.values[place - 1]), ...(place === value ? { "aria-current": "true" } : {}) };
    return element("li", {}, element("a", properties, site.values[place - 1] ?? "all", ...count));
  }));
  filters.hidden = site.values.length < 2;
}

function answered({ data }) {
  if (data.number !== number) return;
  if (data.error) {
    about.textContent = `The search failed: ${data.error}`;
    list.replaceChildren();
    return;
  }
  // After the page is shown, and what it loads for that.
  setTimeout(() => keep().catch((error) => (offline.textContent = `needs a network: ${error.message}`)), 1000);
  const { text, value } = asked();
  if (!text) return;
  if (site.values.length > MOST_VALUES) offer(text, value, data.hits.map((hit) => hit.value).filter(Boolean).sort());
  const before = list.children.length;
  list.replaceChildren(...data.hits.map(article));
  more.hidden = data.hits.length >= data.total;
  const found = `1–${data.hits.length} of ${format.format(data.total)} documents · ${format.format(Math.round(data.ms))} ms`;
  about.textContent = data.total ? found : "No document has a term of this query.";
  if (k > PAGE) list.children[before]?.focus();
}

function article(hit, place) {
  const title = hit.title || hit.id, score = [`${place + 1} · `];
  if (title !== hit.id) score.push(element("bdi", {}, hit.id), " · ");
  if (hit.value) score.push(element("span", { className: "tag" }, hit.value), " · ");
  score.push("score ", element("strong", {}, format.format(hit.score)), ` · matches ${Math.round(100 * hit.share)}% of the query`);
  const body = element("div", { className: "body" }, element("p", { className: "snippet", dir: "auto" }, snippet(hit.text)));
  if (snippet(hit.text) !== hit.text) {
    const full = element("p", { className: "snippet rest", dir: "auto" }, hit.text);
    body.append(element("details", { className: "full" }, element("summary", {}, "Full text"), full));
  }
  const terms = element("ul", { className: "terms why" }, ...hit.reasons.map((reason) => why(reason, hit.score)));
  const rest = hit.more ? [element("p", { className: "key" }, `and ${hit.more} weaker terms`)] : [];
  body.append(element("details", { className: "reasons" }, element("summary", {}, "Why this matches"), terms, ...rest));
  const head = element("h2", { dir: "auto" }, title);
  return element("article", { tabIndex: -1 }, head, element("p", { className: "score" }, ...score), body);
}

/** A term of query and document, from which words of the query, and its share of the score. */
function why({ name: term, view, word, score }, total) {
  const label = term.replace(/^m_/, view === "source" ? "" : "m_").replaceAll("\u2581", "") || term;
  const mark = element("mark", { className: view, title: view === "pivot" ? "an English term" : "a word of the text itself" });
  mark.style.setProperty("--s", Math.min(1, (4 * score) / total));
  mark.append(element("bdi", {}, label));
  const from = word === label ? [] : [element("bdi", {}, word), " → "];
  return element("li", {}, ...from, mark, " ", element("small", {}, `${Math.round((100 * score) / total)}%`));
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
  const chunks = ["table", "postings", "texts"].flatMap((map) => site[map].map((_, place) => `${map}-${place}`));
  const files = ["tokenizer", "values", ...chunks].map((file) => `data/${file}?${site.version}`);
  for (const old of await cache.keys()) if (old.url.includes("/data/") && !old.url.endsWith(site.version)) await cache.delete(old);
  await cache.addAll(FILES);
  for (let start = 0; start < files.length; start += 8) {
    await Promise.all(files.slice(start, start + 8).map(async (file) => (await cache.match(file)) ?? cache.add(file)));
  }
  offline.textContent = "works without a network";
}

function go(target) {
  k = PAGE;
  history.pushState(null, "", target);
  show();
}

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target === input) return;
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

async function start() {
  if (!("DecompressionStream" in window && "Worker" in window && "Segmenter" in Intl)) return;
  const response = await fetch("site.json");
  site = await response.json();
  worker = new Worker("worker.js", { type: "module" });
  worker.onmessage = answered;
  worker.onerror = () => (about.textContent = "This browser cannot run the search: one of 2024 or later can.");
  name.textContent = site.name;
  examples.replaceChildren(...site.examples.map((text) => element("li", {}, element("a", { href: address(text), dir: "auto" }, text))));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    go(address(input.value, site.values[asked().value - 1]));
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
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
  if (!location.search) input.focus();
}

start().catch((error) => (about.textContent = `The page could not be loaded: ${error.message}`));
