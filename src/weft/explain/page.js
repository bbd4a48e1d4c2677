// Pointing at a query word shows the words it aligned with, and the other way round. The page reads well without this.
for (const article of document.querySelectorAll("article")) {
  const chips = [...article.querySelectorAll(".chip")], words = [...article.querySelectorAll(".word")];
  const rows = [...article.querySelectorAll("tr.pair")];
  const pairsOf = (word) => (word.dataset.pairs || "").split(" ").filter(Boolean).map((pair) => pair.split(":"));
  const clear = () => {
    article.classList.remove("looking");
    for (const element of article.querySelectorAll(".on")) element.classList.remove("on");
    for (const word of words) { delete word.dataset.similarity; word.style.removeProperty("--hot"); }
  };
  const show = (query, document_) => {
    clear();
    article.classList.add("looking");
    for (const word of words) {
      if (document_ !== null && word.dataset.word !== document_) continue;
      for (const [number, similarity] of pairsOf(word)) {
        if (query !== null && number !== query) continue;
        word.classList.add("on");
        if (query !== null) {
          word.dataset.similarity = similarity;
          word.style.setProperty("--hot", getComputedStyle(chips[+query]).getPropertyValue("--rgb"));
        }
        chips[+number].classList.add("on");
      }
    }
    if (query !== null) chips[+query].classList.add("on");
    for (const row of rows) {
      const fits = (query === null || row.dataset.query === query) && (document_ === null || row.dataset.word === document_);
      if (fits) row.classList.add("on");
    }
  };
  const listen = (element, query, document_) => {
    element.addEventListener("pointerenter", () => show(query, document_));
    element.addEventListener("focus", () => show(query, document_));
    element.addEventListener("pointerleave", clear);
    element.addEventListener("blur", clear);
  };
  for (const chip of chips) listen(chip, chip.dataset.query, null);
  for (const word of words) listen(word, null, word.dataset.word);
  for (const row of rows) listen(row, row.dataset.query, row.dataset.word || null);
}
