"use strict";
(() => {
  const PAGE = 24, KINDS = { k: "keep", d: "drop", r: "relabel" };
  const by = id => document.getElementById(id), list = by("suspects");
  const { key, of, names, cells, careful, columns, contents, rows: packed } = JSON.parse(by("data").textContent);
  const rows = packed.map(([index, given, suggested, wrong, likely, path, besideGiven, besideLikely, nearest]) =>
    ({ index, given, suggested, wrong, likely, path, beside: [besideGiven, besideLikely], nearest }));
  const known = new Map(rows.map(row => [row.index, row])), place = "noiseproof-audit-" + key;
  const decisions = new Map(stored()), steps = []; // of decisions what was decided before, to undo them
  let order = rows, page = 0, at = 0; // which rows are shown, by page, and the place of the current one among them

  function stored() {
    let found;
    try { found = JSON.parse(localStorage.getItem(place)) || {}; } catch { return []; }
    const fits = ([index, made]) => known.has(+index) && Object.values(KINDS).includes(made?.decision) && +made.label in names;
    return Object.entries(found).filter(fits).map(([index, { decision, label }]) => [+index, { decision, label: +label }]);
  }
  function decide(changes) {
    const before = changes.map(([index]) => [index, decisions.get(index)]);
    for (const [index, made] of changes) if (made) decisions.set(index, made); else decisions.delete(index);
    try { localStorage.setItem(place, JSON.stringify(Object.fromEntries(decisions))); } catch { /* not kept over a reload */ }
    refresh();
    return before;
  }
  const put = changes => { if (changes.length) steps.push(decide(changes)); };
  const choose = (row, decision, label = row.suggested) => put([[row.index, { decision, label }]]);
  function undo() {
    const last = steps.pop();
    if (!last) return;
    decide(last);
    const where = order.indexOf(known.get(last[0][0]));
    if (last.length === 1 && where >= 0) go(where);
  }

  function make(tag, attributes, ...children) {
    const made = Object.assign(document.createElement(tag), attributes);
    made.append(...children);
    return made;
  }
  const percent = share => share > 0.999 ? "over 99.9 %" : share < 0.001 ? "under 0.1 %" : `${(100 * share).toFixed(1)} %`;
  const many = count => count.toLocaleString("en");
  const option = label => make("option", { value: label }, names[label]);
  const enlarge = ({ target }) => target.classList.toggle("small", target.naturalWidth <= 48); // pixel by pixel
  const picture = (source, alt) => make("img", { src: source, alt, onload: enlarge });

  function content({ index, given, suggested, beside, nearest }) {
    const titles = [given, suggested].map(label => `${nearest ? "nearest" : "typical"} ${names[label]}`);
    const shown = [[index, `example ${index}`], [beside[0], titles[0]], [given === suggested ? -1 : beside[1], titles[1]]]
      .filter(([one]) => contents[one]).map(([one, title]) => ({ title, source: contents[one][0], texts: contents[one].slice(1) }));
    const figures = shown.filter(one => one.source || columns.length === 1).map(({ title, source, texts }) => make("figure", {},
      make("figcaption", {}, title), source ? picture(source, title) : make("p", { title: texts[0] }, texts[0])));
    const found = figures.length ? [make("div", { className: "beside" }, ...figures)] : [];
    if (!shown.length || !columns.length || (columns.length === 1 && !shown[0].source)) return found;
    const line = (title, texts) => make("tr", {}, make("th", { scope: "row" }, title), ...texts.map(text => make("td", {}, text)));
    const head = make("tr", {}, make("td", {}), ...shown.map(one => make("th", { scope: "col" }, one.title)));
    const body = columns.map((name, k) => line(name, shown.map(one => one.texts[k])));
    return [...found, make("table", {}, make("thead", {}, head), make("tbody", {}, ...body))];
  }
  function card(row) {
    const { index, given, suggested, wrong, likely, path } = row, arrow = given === suggested ? "" : ` → ${names[suggested]}`;
    const sure = `${percent(wrong)} wrong` + (arrow && likely < 0.9 * wrong ? `, ${names[suggested]} with ${percent(likely)}` : "");
    const buttons = Object.entries(KINDS).map(([letter, value]) =>
      make("button", { type: "button", value, title: `key ${letter}` }, value === "relabel" ? "relabel as" : value));
    const item = make("li", { tabIndex: -1, ariaLabel: `example ${index}, ${names[given]}${arrow}, ${sure}` },
      make("p", { className: "labels" }, make("b", {}, names[given] + arrow), ` ${sure}`), ...content(row),
      ...(careful[given] ? [make("p", { className: "careful" }, `⚠ most labels ${names[given]} are flagged: look before you remove`)] : []),
      make("p", { className: "quiet path" }, path || (contents[index] ? "" : `example ${index}`)),
      make("div", { className: "decide" }, ...buttons, make("select", { ariaLabel: `new label of example ${index}` })));
    item.dataset.index = index;
    return item;
  }
  const rowOf = element => known.get(+element.closest("li").dataset.index);

  function render() {
    list.replaceChildren(...order.slice(page * PAGE, (page + 1) * PAGE).map(card));
    refresh();
  }
  function refresh() {
    for (const item of list.children) {
      const row = rowOf(item), made = decisions.get(row.index), box = item.querySelector("select"), label = made?.label ?? row.suggested;
      item.classList.toggle("decided", Boolean(made));
      for (const button of item.querySelectorAll("button")) button.setAttribute("aria-pressed", made?.decision === button.value);
      if (![...box.options].some(one => +one.value === label)) box.replaceChildren(option(label));
      box.value = label;
    }
    if (list.children.length) list.children[Math.max(0, at - page * PAGE)].tabIndex = 0;
    const ready = acceptable(), from = page * PAGE;
    by("count").textContent = `${many(Math.min(from + 1, order.length))}–${many(Math.min(from + PAGE, order.length))} of ${many(order.length)}, ${many(decisions.size)} decided`;
    by("level").textContent = `${by("threshold").value} %`;
    by("accept").textContent = `Relabel ${many(ready.length)} as suggested`;
    by("left").textContent = order.some(row => careful[row.given]) ? "Classes of which most labels are flagged are left to you." : "";
    by("before").disabled = !page;
    by("after").disabled = from + PAGE >= order.length;
    by("accept").disabled = !ready.length;
    by("undo").disabled = !steps.length;
    by("forget").hidden = by("export").disabled = !decisions.size;
  }
  function go(to) {
    at = Math.max(0, Math.min(to, order.length - 1));
    if (page !== Math.floor(at / PAGE)) { page = Math.floor(at / PAGE); render(); }
    for (const item of list.children) item.tabIndex = -1;
    list.children[at - page * PAGE]?.focus();
  }
  function filter() {
    const { value } = by("pair"), decided = by("state").value;
    order = rows.filter(row => (!value || value === `${row.given}-${row.suggested}`) && (!decided || (decided === "decided") === decisions.has(row.index)));
    if (by("order").value) order.sort((a, b) => a.likely - b.likely);
    page = at = 0;
    render();
  }
  const acceptable = () => order.filter(row => row.likely >= by("threshold").value / 100 && row.suggested !== row.given
    && !careful[row.given] && !decisions.has(row.index));

  function save() {
    const quoted = text => /[",;\t\r\n]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
    const lines = [["index", "path", "given", "suggested", "p_wrong", "decision", "label", "of"]];
    for (const [index, { decision, label }] of [...decisions].sort((a, b) => a[0] - b[0])) {
      const { path, given, suggested, wrong } = known.get(index);
      const to = decision === "relabel" ? cells[label] : "";
      lines.push([`${index}`, path, cells[given], cells[suggested], wrong.toFixed(6), decision, to, of]);
    }
    const text = "\ufeff" + lines.map(line => line.map(quoted).join(",") + "\n").join("");
    const link = make("a", { href: URL.createObjectURL(new Blob([text], { type: "text/csv" })), download: "decisions.csv" });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  }

  list.addEventListener("focusin", event => {
    at = page * PAGE + [...list.children].indexOf(event.target.closest("li"));
    if (event.target.options?.length === 1) { // the other labels, when somebody looks for them
      const { value, offsetWidth } = event.target;
      event.target.style.width = `${offsetWidth}px`; // longer names move nothing
      event.target.replaceChildren(...names.map((_, label) => option(label)));
      event.target.value = value;
    }
  });
  list.addEventListener("click", ({ target }) => {
    if (target.getAttribute("aria-pressed") === "true") put([[rowOf(target).index, undefined]]); else if (target.value) choose(rowOf(target), target.value);
  });
  list.addEventListener("change", event => choose(rowOf(event.target), "relabel", +event.target.value));
  document.addEventListener("click", event => {
    const link = event.target.closest("[data-pair]");
    if (link) { by("pair").value = link.dataset.pair; filter(); }
  });
  document.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("select, input")) return;
    const inside = list.contains(event.target), tops = [...list.children].map(item => item.offsetTop);
    const across = tops.filter(top => top === tops[0]).length, moves = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -across, ArrowDown: across };
    if (event.key === "u") undo();
    else if (event.key in KINDS && inside) {
      choose(order[at], KINDS[event.key]);
      go(at + 1);
    } else if (event.key in moves && inside) go(at + moves[event.key]);
    else if (event.key in KINDS || event.key === "ArrowRight") go(at); // to the current example first, so that it is seen
    else return;
    event.preventDefault();
  });
  for (const id of ["pair", "state", "order"]) by(id).addEventListener("change", filter);
  by("threshold").addEventListener("input", refresh);
  by("accept").addEventListener("click", () => put(acceptable().map(row => [row.index, { decision: "relabel", label: row.suggested }])));
  by("before").addEventListener("click", () => go((page - 1) * PAGE));
  by("after").addEventListener("click", () => go((page + 1) * PAGE));
  by("undo").addEventListener("click", undo);
  by("forget").addEventListener("click", () => put([...decisions.keys()].map(index => [index, undefined])));
  by("export").addEventListener("click", save);
  for (const part of document.querySelectorAll("#tools, #pages, .keys")) part.hidden = false;
  render();
})();
