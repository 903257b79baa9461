// Does what a server cannot: detects that it has stopped, displays ages, handles the keyboard, highlights related items.
// Everything else is HTML from the server, which htmx inserts.
"use strict";

const HEARTBEAT = 600;
const SILENT = 1500; // milliseconds without a response after which the page shows a banner at its next check: within two seconds
const CHECK = 250;
let answered = Date.now();
let away = false;

const text = (unix) => {
  const seconds = Math.max(0, Math.round(Date.now() / 1000 - unix));
  if (seconds < 2) return "now";
  if (seconds < 120) return `${seconds} s ago`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min ago`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h ago`;
  return `${Math.round(seconds / 86400)} days ago`;
};

const showAges = () => {
  for (const each of document.querySelectorAll("time[data-unix]")) {
    const age = text(Number(each.dataset.unix));
    if (each.textContent !== age) each.textContent = age;
    if (!each.title) each.title = new Date(Number(each.dataset.unix) * 1000).toLocaleString();
  }
};

// --- whether Lasthop still responds ---------------------------------------------------------------------------------------
const heard = () => {
  answered = Date.now();
  if (!away) return;
  away = false;
  document.getElementById("gone").hidden = true;
  document.body.classList.remove("stale");
};

const missed = () => {
  const banner = document.getElementById("gone");
  if (!away) {
    away = true;
    banner.hidden = false;
    document.body.classList.add("stale");
  }
  const since = new Date(answered).toLocaleTimeString();
  const message = `Lasthop does not respond. This page shows the state at ${since}; it updates automatically when Lasthop is back.`;
  if (banner.textContent !== message) banner.textContent = message;
};

let asked = 0;
const beat = () => {
  if (document.hidden || asked > 1) return; // a browser has few connections, and the picture needs one
  asked += 1;
  fetch("healthz", { cache: "no-store", signal: AbortSignal.timeout(5000) })
    .then(
      (answer) => (answer.ok ? heard() : missed()),
      () => { if (Date.now() - answered > HEARTBEAT) missed(); }, // a single lost request means little
    )
    .finally(() => { asked -= 1; });
};

document.addEventListener("visibilitychange", () => {
  if (document.hidden) return;
  answered = Date.now(); // no requests are sent while the page is hidden
  beat();
});
setInterval(beat, HEARTBEAT);
setInterval(() => {
  showAges();
  if (!document.hidden && Date.now() - answered > SILENT) missed();
}, CHECK);

// --- one line -------------------------------------------------------------------------------------------------------------
const detail = () => document.getElementById("detail");
const shut = () => {
  const panel = detail().querySelector(".panel");
  if (!panel) return;
  const from = document.getElementById(`h-${panel.dataset.hop}`);
  detail().replaceChildren();
  const address = new URL(location.href);
  address.searchParams.delete("hop");
  history.pushState({ htmx: true }, "", address); // so that htmx answers the back button
  if (from) from.focus();
};

document.addEventListener("click", (event) => {
  if (event.target.closest(".close")) {
    event.preventDefault();
    shut();
  }
  const line = event.target.closest("[data-open]");
  const row = line && (document.getElementById(`h-${line.dataset.open}`) ?? document.getElementById(`b-${line.dataset.open}`));
  if (row) row.click();
});
document.addEventListener("htmx:afterSwap", (event) => {
  showAges();
  if (event.detail.target.id === "detail") {
    detail().scrollTop = 0;
    document.getElementById("detail-title")?.focus({ preventScroll: true });
  }
  relight();
});
// Shows error texts, which htmx would drop.
document.addEventListener("htmx:beforeSwap", (event) => {
  if (event.detail.target.id === "probed" && event.detail.xhr.status >= 400) {
    event.detail.shouldSwap = true;
    event.detail.isError = false;
  }
});

// --- the keyboard ---------------------------------------------------------------------------------------------------------
document.addEventListener("keydown", (event) => {
  const typing = event.target.matches?.("input, select, textarea");
  if (event.key === "Escape") {
    if (detail().querySelector(".panel")) shut();
    else if (typing) event.target.blur();
  } else if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    document.querySelector("#filter input[name=q]").focus();
  } else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && (event.target.matches?.(".row, #filter input") || event.target === document.body)) {
    const rows = [...document.querySelectorAll("a.row")];
    const at = rows.indexOf(document.activeElement);
    const next = rows[at + (event.key === "ArrowDown" ? 1 : -1)];
    if (next) {
      event.preventDefault();
      next.focus();
    }
  }
});

// --- highlighting of related items ------------------------------------------------------------------------------------------------
let lit = "";
const relight = () => {
  const wanted = new Set(lit.split(" ").filter(Boolean));
  for (const picture of document.querySelectorAll(".picture")) {
    let any = false;
    for (const each of picture.querySelectorAll("[data-hops]")) {
      const on = wanted.size > 0 && each.dataset.hops.split(" ").some((hop) => wanted.has(hop));
      each.classList.toggle("lit", on);
      any = any || on;
    }
    picture.classList.toggle("lighting", any);
  }
};
const light = (event) => {
  const hops = event.target.closest?.("[data-hops]")?.dataset.hops ?? "";
  if (hops === lit) return;
  lit = hops;
  relight();
};
document.addEventListener("mouseover", light);
document.addEventListener("focusin", (event) => {
  if (event.target.matches(":focus-visible")) light(event);
});
