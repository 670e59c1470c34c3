"use strict";
(() => {
  const list = document.getElementById("suspects");
  if (!list) return;
  const cards = [...list.children], key = "noiseproof-audit-" + list.dataset.key;
  const classes = document.getElementById("classes"), pair = document.getElementById("pair");
  const state = document.getElementById("state"), count = document.getElementById("count");
  const kinds = ["keep", "relabel", "drop"], decisions = new Map();

  const stored = () => {
    try { return Object.entries(JSON.parse(localStorage.getItem(key)) || {}); } catch { return []; }
  };
  const store = () => {
    try { localStorage.setItem(key, JSON.stringify(Object.fromEntries(decisions))); } catch { /* not kept over a reload */ }
  };
  const quoted = text => /[",;\t\r\n]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
  const named = number => classes.options[number].dataset.cell; // as a spreadsheet may have it

  function show() {
    let seen = 0;
    for (const card of cards) {
      const decided = decisions.has(card.dataset.index);
      card.hidden = (pair.value && card.dataset.pair !== pair.value) || (state.value && (state.value === "decided") !== decided);
      card.classList.toggle("decided", decided);
      seen += !card.hidden;
    }
    count.textContent = `${seen} shown, ${decisions.size} decided`;
  }

  function put(card, decision, label) {
    const box = card.querySelector("select");
    if (label !== card.dataset.suggested) fill(box);
    box.value = label;
    card.querySelectorAll("input").forEach(input => { input.checked = input.value === decision; });
    if (decision) decisions.set(card.dataset.index, { decision, label }); else decisions.delete(card.dataset.index);
  }

  function fill(box) {
    if (box.options.length > 1) return;
    const chosen = box.value;
    box.replaceChildren(...[...classes.options].map(option => option.cloneNode(true)));
    box.value = chosen;
  }

  for (const card of cards) {
    const box = card.querySelector("select"), form = card.querySelector("fieldset");
    form.hidden = false;
    box.addEventListener("focus", () => fill(box));
    form.addEventListener("change", event => {
      const chosen = event.target === box ? "relabel" : event.target.value;
      put(card, chosen, box.value);
      store();
      show();
    });
  }
  const known = new Map(cards.map(card => [card.dataset.index, card])), labels = [...classes.options].map(option => option.value);
  for (const [index, found] of stored()) {
    const card = known.get(index);
    if (card && found && kinds.includes(found.decision) && labels.includes(found.label)) put(card, found.decision, found.label);
  }

  document.getElementById("export").addEventListener("click", () => {
    const lines = [["index", "path", "given", "suggested", "p_wrong", "decision", "label"]];
    for (const [index, { decision, label }] of [...decisions].sort((a, b) => a[0] - b[0])) {
      const { path, given, suggested, wrong } = known.get(index).dataset;
      lines.push([index, path, named(given), named(suggested), wrong, decision, decision === "relabel" ? named(label) : ""]);
    }
    const text = "\ufeff" + lines.map(line => line.map(quoted).join(",") + "\n").join("");
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
    link.download = "decisions.csv";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  });
  document.getElementById("forget").addEventListener("click", () => {
    if (!decisions.size || !confirm(`Forget ${decisions.size} decisions?`)) return;
    for (const index of [...decisions.keys()]) put(known.get(index), "", known.get(index).dataset.suggested);
    store();
    show();
  });
  pair.addEventListener("change", show);
  state.addEventListener("change", show);
  document.getElementById("tools").hidden = false;
  show();
})();
