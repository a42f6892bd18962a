// A hit is explained when it is unfolded: the server sends what belongs into the fold.
document.addEventListener("toggle", async (event) => {
  const fold = event.target;
  const address = fold.dataset.from;
  if (!fold.open || !address) return;
  delete fold.dataset.from;
  fold.setAttribute("aria-busy", "true");
  let failure = document.body.dataset.unreachable;
  try {
    const response = await fetch(address);
    const html = await response.text();
    if (response.ok) {
      fold.replaceChildren(fold.querySelector("summary"));
      fold.insertAdjacentHTML("beforeend", html);
      return;
    }
    failure = new DOMParser().parseFromString(html, "text/html").body.textContent;
  } catch {
  } finally {
    fold.removeAttribute("aria-busy");
  }
  fold.dataset.from = address;
  const note = fold.querySelector(".error") ?? fold.appendChild(document.createElement("p"));
  note.className = "error";
  note.setAttribute("role", "alert");
  note.textContent = failure;
}, true);

// A query that the server does not answer leaves the page as it is, and not the browser's own page of an error.
document.addEventListener("submit", async (event) => {
  const form = event.target;
  event.preventDefault();
  try {
    await fetch("/healthz");
    form.submit();
  } catch {
    const main = document.querySelector("main");
    const note = main.querySelector(":scope > .error") ?? document.createElement("p");
    note.className = "error";
    note.setAttribute("role", "alert");
    note.textContent = document.body.dataset.unreachable;
    main.prepend(note);
  }
});

// A pressed term shows where it comes from: its highlights in both texts of its article are outlined.
const show = (article, part) => {
  for (const mark of article.querySelectorAll(".text mark")) {
    mark.classList.toggle("on", part !== null && mark.dataset.parts.split(" ").includes(part));
  }
  for (const button of article.querySelectorAll("button.term")) {
    const on = button.dataset.part === part;
    button.setAttribute("aria-pressed", String(on));
    button.closest("tr").classList.toggle("on", on);
  }
};
document.addEventListener("click", (event) => {
  const button = event.target.closest("button.term");
  if (button) show(button.closest("article"), button.getAttribute("aria-pressed") === "true" ? null : button.dataset.part);
});

// Keys: / to the query, j and k or arrows from hit to hit, Enter folds a hit's explanation.
document.addEventListener("keydown", (event) => {
  const article = event.target.closest("article");
  if (article && event.key === "Escape") show(article, null);
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const query = document.querySelector("input[type=search]");
  const isWriting = event.target === query;
  if (event.key === "/" && query && !isWriting) {
    event.preventDefault();
    query.select();
    return;
  }
  const step = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 }[event.key];
  const hits = [...document.querySelectorAll("article[tabindex]")];
  if (step && hits.length && !(isWriting && (event.key.length === 1 || step < 0))) {
    // The arrows scroll a page until a hit is chosen.
    if (event.key.length > 1 && !isWriting && !article) return;
    const next = hits[hits.indexOf(article) + step];
    event.preventDefault();
    if (next) next.focus();
    else if (step < 0 && query) query.select();
  } else if (event.key === "Enter" && event.target === article) {
    const fold = article.querySelector("details");
    fold.open = !fold.open;
  }
});
