"use strict";
// Tables choose, filter and sort themselves; without this script every row is still on the page.
(() => {
  const root = document.documentElement;
  const store = { get: () => { try { return localStorage.getItem("theme"); } catch { return null; } },
                  set: (v) => { try { localStorage.setItem("theme", v); } catch { /* file:// without storage */ } } };
  const toggle = document.querySelector(".theme");
  if (store.get()) root.dataset.theme = store.get();
  toggle.hidden = false;
  toggle.addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    store.set(root.dataset.theme);
  });

  if (navigator.clipboard) {
    for (const block of document.querySelectorAll(".command")) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = "Copy";
      button.addEventListener("click", async () => {
        await navigator.clipboard.writeText(block.querySelector("code").textContent.trim());
        button.textContent = "Copied";
        setTimeout(() => { button.textContent = "Copy"; }, 1500);
      });
      block.append(button);
    }
  }

  // ---- a hint above every table that is wider than its place, as most are on a phone ----
  for (const place of document.querySelectorAll(".scroll")) {
    const hint = document.createElement("p");
    hint.className = "wide";
    hint.textContent = "Scroll the table sideways for more columns →";
    hint.hidden = true;
    place.before(hint);
    const watch = new ResizeObserver(() => { hint.hidden = place.scrollWidth <= place.clientWidth; });
    for (const one of [place, place.firstElementChild]) watch.observe(one);
  }

  // ---- sorting: within each group by rank, across all groups by another column ----
  const text = (row, index) => row.cells[index].childNodes.length ? row.cells[index].firstChild.textContent.trim() : "";
  const key = (row, index) => {
    const value = text(row, index), number = Number.parseFloat(row.cells[index].dataset.v ?? value);
    return Number.isNaN(number) ? value.toLowerCase() : number;
  };
  const compare = (a, b) => {
    if (typeof a === typeof b) return typeof a === "number" ? a - b : a.localeCompare(b);
    return typeof a === "number" ? -1 : 1;
  };
  const homes = new Map(); // row of a board to its group
  const sort = (table, column, direction) => {
    const heads = [...table.tHead.rows[1].cells], index = heads.findIndex((head) => head.dataset.sort === column);
    if (index < 0) return;
    for (const head of heads) head.removeAttribute("aria-sort");
    heads[index].setAttribute("aria-sort", direction < 0 ? "descending" : "ascending");
    const flat = table.querySelector("tbody.flat"), across = flat && column !== "rank";
    table.classList.toggle("across", Boolean(across));
    if (flat) for (const row of table.querySelectorAll("tr[data-status]")) (across ? flat : homes.get(row)).append(row);
    for (const body of table.tBodies) {
      const rows = [...body.rows].filter((row) => !row.classList.contains("category"));
      const known = (row) => !["", "–"].includes(text(row, index)), low = (row) => "preliminary" in row.dataset;
      rows.sort((a, b) => low(a) - low(b) || known(b) - known(a) || direction * compare(key(a, index), key(b, index)));
      body.append(...rows);
    }
  };
  const descending = (column) => /^(i2t|t2i|r_sum)/.test(column);
  for (const table of document.querySelectorAll("table.board")) {
    for (const head of table.tHead.rows[1].cells) {
      if (!head.dataset.sort || !head.textContent) continue;
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const now = head.getAttribute("aria-sort"), column = head.dataset.sort;
        const direction = now ? (now === "descending" ? 1 : -1) : (descending(column) ? -1 : 1);
        if (form) { state.sort = `${column}:${direction < 0 ? "desc" : "asc"}`; write(); }
        sort(table, column, direction);
        if (form) filter();
      });
    }
  }

  // ---- measured tables: the column of a noise chooses whose ranks are shown, and sorts every group by it ----
  for (const table of document.querySelectorAll("table.measured")) {
    const heads = [...table.querySelectorAll("th[data-noise]")], all = [...table.tHead.rows[0].cells];
    for (const head of heads) {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        for (const one of heads) one.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", "descending");
        for (const rank of table.querySelectorAll("span[data-noise]")) rank.hidden = rank.dataset.noise !== head.dataset.noise;
        const cell = (row) => row.cells[all.indexOf(head)].dataset, value = (row) => Number(cell(row).v ?? -1);
        const low = (row) => ("v" in cell(row) ? "preliminary" in cell(row) : 2);
        for (const body of table.tBodies) {
          const lines = [...body.rows].filter((row) => !row.classList.contains("category"));
          body.append(...lines.sort((a, b) => low(a) - low(b) || value(b) - value(a)));
        }
      });
    }
  }

  // ---- the front page: one table at a time, filters, and a link for every view ----
  const form = document.querySelector(".pickers"), boards = [...document.querySelectorAll("section.board")];
  const state = { board: "", sort: "" };
  if (!form || !boards.length) return;
  const FIELDS = ["q", "features", "networks", "status"];
  const lists = [...form.querySelectorAll(".noise")];
  const found = document.querySelector(".found"), missing = document.querySelector(".missing");

  for (const table of document.querySelectorAll("table.board")) {
    for (const row of table.querySelectorAll("tr[data-status]")) homes.set(row, row.parentElement);
    table.createTBody().className = "flat";
  }
  // A row says its group where rows of all groups stand in one list.
  const name = (row) => {
    if (row.querySelector(".group")) return;
    const group = document.createElement("small");
    group.className = "group";
    group.textContent = homes.get(row).querySelector(".category").textContent;
    row.querySelector("th").append(group);
  };

  const write = () => {
    const parameters = new URLSearchParams();
    for (const name of FIELDS) if (form[name].value) parameters.set(name, form[name].value);
    if (form.trusted.checked) parameters.set("trusted", "1");
    if (state.sort) parameters.set("sort", state.sort);
    const rest = parameters.toString();
    history.replaceState(null, "", `#${state.board}${rest ? `&${rest}` : ""}`);
  };

  const METHOD = "th > a, th > .soft", SOURCE = "td.source > a";
  const told = (row, cells) => [...row.querySelectorAll(cells)].map((one) => one.textContent).join(" ");
  const searched = (row) => told(row, `${METHOD}, ${SOURCE}`).toLowerCase();
  const words = () => form.q.value.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (row, asked) => ["features", "networks", "status"].every((name) => !form[name].value || row.dataset[name] === form[name].value)
    && !(form.trusted.checked && "doubtful" in row.dataset)
    && (!asked.length || asked.every((word) => searched(row).includes(word)));

  // A search reads all tables: rows of the others are links to their places.
  const elsewhere = document.querySelector(".elsewhere"), MOST = 40;
  const rows = [...homes.keys()].map((row, number) => {
    row.id ||= `row-${number}`; // a printed row
    return [row, row.closest("section.board")];
  });
  const search = () => {
    const asked = words();
    const others = asked.length ? rows.filter(([row, board]) => board.id !== state.board && fits(row, asked)) : [];
    elsewhere.hidden = !others.length;
    elsewhere.querySelector("summary").textContent = `${others.length} row${others.length === 1 ? "" : "s"} of other tables match${others.length === 1 ? "es" : ""}`
      + (others.length > MOST ? `; the first ${MOST}:` : ":");
    elsewhere.querySelector("ul").replaceChildren(...others.slice(0, MOST).map(([row, board]) => {
      const item = document.createElement("li"), link = document.createElement("a"), place = document.createElement("small");
      link.href = `#${row.id}`;
      link.textContent = `${told(row, METHOD)}, ${text(row, 2)}`;
      place.textContent = `${board.querySelector("h2").textContent}; ${told(row, SOURCE)}`;
      item.append(link, " ", place);
      return item;
    }));
  };

  const filter = () => {
    const asked = words();
    let shown = 0, all = 0;
    for (const body of document.getElementById(state.board).querySelectorAll("tbody")) {
      let here = 0;
      for (const row of body.rows) {
        if (row.classList.contains("category")) continue;
        const fit = fits(row, asked);
        row.hidden = !fit;
        here += fit;
        all += 1;
        if (body.className === "flat") name(row);
      }
      body.hidden = !here;
      shown += here;
    }
    found.hidden = shown === all;
    found.querySelector("output").textContent = shown ? `${shown} of ${all} rows match.` : "No row of this table matches.";
    search();
  };

  const show = () => {
    for (const board of boards) board.hidden = board.id !== state.board;
    for (const list of lists) {
      const here = [...list.options].some((option) => option.value === state.board);
      list.hidden = !here;
      if (here) { list.value = state.board; form.line.value = list.dataset.line; }
    }
    const [column, order] = (state.sort || "rank:asc").split(":");
    sort(document.getElementById(state.board).querySelector("table"), column, order === "desc" ? -1 : 1);
    filter();
  };

  const read = () => {
    const [place, ...rest] = location.hash.slice(1).split("&");
    const row = homes.has(document.getElementById(place)) ? document.getElementById(place) : null;
    const board = row ? row.closest("section.board").id : place;
    const known = boards.some((section) => section.id === board);
    if (!known && board && document.getElementById(board)) return; // such as the link that skips to the content
    const parameters = new URLSearchParams(rest.join("&"));
    state.board = known ? board : form.dataset.first;
    missing.hidden = known || !board;
    missing.textContent = `There is no table “${board}”. Choose a dataset and a noise above; the first table is shown.`;
    state.sort = /^[a-z0-9_]+:(asc|desc)$/.test(parameters.get("sort") ?? "") ? parameters.get("sort") : "";
    for (const name of FIELDS) form[name].value = parameters.get(name) ?? "";
    form.trusted.checked = parameters.get("trusted") === "1";
    show();
    row?.scrollIntoView({ block: "center" });
  };

  const go = (board) => {
    state.board = board;
    missing.hidden = true;
    history.pushState(null, "", `#${board}`);
    write();
    show();
  };

  form.hidden = false;
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", (event) => {
    if (event.target.name === "line") {
      // The same noise of the other dataset, or its first table.
      const options = [...lists.find((one) => one.dataset.line === form.line.value).options];
      const now = lists.find((one) => !one.hidden).selectedOptions[0].text;
      go((options.find((option) => option.text === now) ?? options[0]).value);
    } else if (event.target.className === "noise") {
      go(event.target.value);
    } else {
      write();
      filter();
    }
  });
  found.querySelector("button").addEventListener("click", () => {
    for (const name of FIELDS) form[name].value = "";
    form.trusted.checked = false;
    write();
    filter();
  });
  addEventListener("hashchange", read);
  addEventListener("popstate", read);
  state.board = form.dataset.first;
  read();
})();
