"use strict";
// The server renders the page, and each event carries the parts that change. This script updates the document in place, so
// that open elements stay open and the focus stays where it is, and counts times up and down between two events.
(() => {
  const $ = id => document.getElementById(id);
  const policy = {createHTML: text => text};
  // All HTML comes from html/template on the server. A browser with trusted types refuses any other string as HTML.
  const trusted = window.trustedTypes ? trustedTypes.createPolicy("swansong", policy) : policy;
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  const link = $("link"), pause = $("pause"), said = $("said"), form = $("filter"), input = $("q");
  const colors = {serving: "0b8a5c", duck: "c77700", soft: "2f6fe0", hard: "d5362b", done: "0b8a5c"};
  let source = null, stopped = false, reconnecting = false, received = performance.now(), key = $("now").dataset.key;

  // morph changes the element a into a copy of b, and reuses the children of a where it can.
  function morph(a, b) {
    for (const {name} of [...a.attributes]) if (name !== "open" && !b.hasAttribute(name)) a.removeAttribute(name);
    for (const {name, value} of b.attributes) if (name !== "open" && a.getAttribute(name) !== value) a.setAttribute(name, value);
    const keyed = new Map();
    for (const child of a.children) if (child.dataset.key !== undefined) keyed.set(child.dataset.key, child);
    let at = a.firstChild;
    for (const next of [...b.childNodes]) {
      const name = next.dataset && next.dataset.key;
      let old = null;
      if (name !== undefined) {
        old = keyed.get(name);
        keyed.delete(name);
      } else if (at && at.nodeName === next.nodeName && !(at.dataset && at.dataset.key !== undefined)) {
        old = at;
      }
      if (!old) {
        a.insertBefore(document.importNode(next, true), at);
        continue;
      }
      if (old === at) at = at.nextSibling;
      else a.insertBefore(old, at);
      if (old.nodeType !== Node.ELEMENT_NODE) {
        if (old.data !== next.data) old.data = next.data;
      } else {
        morph(old, next);
      }
    }
    while (at) {
      const next = at.nextSibling;
      at.remove();
      at = next;
    }
  }

  function show(html) {
    const update = new DOMParser().parseFromString(trusted.createHTML(html), "text/html");
    const focus = document.activeElement;
    for (const part of update.querySelectorAll("[data-live]")) morph($(part.id), part);
    if (focus !== document.activeElement && focus.isConnected) focus.focus({preventScroll: true}); // morph moved the focused element
    received = performance.now();
    const now = $("now").dataset;
    document.title = now.title;
    document.querySelector("link[rel=icon]").href =
      "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Ccircle cx='8' cy='8' r='7' fill='%23" +
      colors[now.tone] + "'/%3E%3C/svg%3E";
    if (now.key !== key) {
      key = now.key;
      said.textContent = now.say;
    }
    tick();
  }

  // duration does the same as the function duration in view.go.
  function duration(ms) {
    const s = Math.floor(ms / 1000);
    if (ms < 10000) return still.matches ? s + " s" : s + "." + Math.floor(ms / 100) % 10 + " s";
    if (s < 60) return s + " s";
    if (s < 3600) return Math.floor(s / 60) + " min " + s % 60 + " s";
    if (s < 86400) return Math.floor(s / 3600) + " h " + Math.floor(s / 60) % 60 + " min";
    return Math.floor(s / 86400) + " d " + Math.floor(s / 3600) % 24 + " h";
  }

  function tick() {
    if (stopped) return;
    const passed = performance.now() - received;
    const set = (node, text) => { if (node.textContent !== text) node.textContent = text; };
    for (const node of document.querySelectorAll("[data-left]")) set(node, duration(Math.max(0, node.dataset.left - passed)));
    for (const node of document.querySelectorAll("[data-age]")) set(node, duration(+node.dataset.age + passed));
    const chart = document.querySelector("svg[data-moves]");
    if (!chart) return;
    const x = Math.min(100, 100 * (+chart.dataset.from + passed) / chart.dataset.span) + "%";
    chart.querySelector(".past").setAttribute("width", x);
    const line = chart.querySelector(".now");
    line.setAttribute("x1", x);
    line.setAttribute("x2", x);
  }

  function status(kind, text) {
    document.documentElement.dataset.link = link.dataset.link = kind;
    if (link.textContent !== text) link.textContent = text;
  }

  function open() {
    close();
    const url = new URL(location.href);
    url.hash = "";
    url.searchParams.set("format", "events");
    url.searchParams.set("part", "html");
    if (input.value) url.searchParams.set("q", input.value);
    else url.searchParams.delete("q");
    const mine = source = new EventSource(url);
    source.addEventListener("state", e => {
      show(e.data);
      status("live", "Live, " + $("now").dataset.clock);
    });
    source.addEventListener("end", e => {
      reconnecting = e.data !== "complete"; // after "forced" the browser connects again, until the scope is complete
      if (reconnecting) return;
      stopped = true;
      close();
      pause.disabled = true;
      status("final", "Final, " + $("now").dataset.clock);
    });
    source.onerror = () => {
      if (mine !== source) return;
      if (mine.readyState === EventSource.CLOSED) status("lost", "Refused after " + $("now").dataset.clock + ": reload");
      else if (!reconnecting) status("lost", "Lost after " + $("now").dataset.clock + ": the server has ended, see its log, or is unreachable");
      reconnecting = false;
    };
  }

  function close() {
    if (source) source.close();
    source = null;
  }

  pause.hidden = false;
  pause.addEventListener("click", () => {
    if (source) {
      close();
      stopped = true;
      status("paused", "Paused, " + $("now").dataset.clock);
      pause.textContent = "Resume";
    } else {
      stopped = false;
      open();
      pause.textContent = "Pause";
    }
  });

  let typing = 0;
  function filter() {
    clearTimeout(typing);
    const url = new URL(location.href);
    if (input.value) url.searchParams.set("q", input.value);
    else url.searchParams.delete("q");
    history.replaceState(null, "", url);
    if (stopped) location.reload(); // the stream has ended, or is paused
    else open();
  }
  form.addEventListener("submit", e => { e.preventDefault(); filter(); });
  input.addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(filter, 200); });

  setInterval(tick, still.matches ? 1000 : 100);
  open();
})();
