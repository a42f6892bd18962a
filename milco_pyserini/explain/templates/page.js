// A hit is explained when it is unfolded: the server sends the body of its article.
document.addEventListener("toggle", async (event) => {
  const fold = event.target;
  const address = fold.dataset.from;
  if (!fold.open || !address) return;
  delete fold.dataset.from;
  const body = fold.closest(".body");
  body.setAttribute("aria-busy", "true");
  let failure = "The server does not answer.";
  try {
    const response = await fetch(address);
    const html = await response.text();
    if (response.ok) {
      const hadFocus = body.contains(document.activeElement);
      const article = body.parentElement;
      body.outerHTML = html;
      if (hadFocus) article.querySelector("summary").focus();
      return;
    }
    failure = new DOMParser().parseFromString(html, "text/html").body.textContent;
  } catch {}
  body.removeAttribute("aria-busy");
  fold.dataset.from = address;
  const note = fold.querySelector(".error") ?? fold.appendChild(document.createElement("p"));
  note.className = "error";
  note.setAttribute("role", "alert");
  note.textContent = failure;
}, true);

// A pressed term shows where it comes from: its highlights in both texts of its article are outlined.
const show = (article, part) => {
  for (const mark of article.querySelectorAll("mark")) {
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
document.addEventListener("keydown", (event) => {
  const article = event.target.closest("article");
  if (article && event.key === "Escape") show(article, null);
});
