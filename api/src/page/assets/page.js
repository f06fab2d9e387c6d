// What the checkout page adds where scripts run: live updates, copying, a countdown, a browser's wallet.
// The server renders every state; this only replaces <main> by a newer one.
"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const here = location.pathname + location.search;
  let skew = 0; // Milliseconds that this clock is behind the server's.
  // An answer that was on its way does not hide that the connection is gone.
  const connected = () => { if (!over) $("offline").hidden = navigator.onLine; };
  // Over: the link has ended, and nothing is asked for any more.
  let busy = false, again = false, live = null, retry = 0, over = false;
  let asked = Date.now(), endedAt = 0;

  // Replaces what differs between this page and a newer one.
  function show(next) {
    const [main, newMain] = [$("main"), next.getElementById("main")];
    const clock = newMain.querySelector("#clock");
    if (clock) skew = clock.dataset.now * 1000 - Date.now();
    const clean = (node) => {
      const copy = node.cloneNode(true);
      copy.querySelectorAll("#clock").forEach((of) => of.replaceWith(of.dataset.until));
      copy.querySelectorAll("time[data-at]").forEach((of) => of.replaceWith(of.dataset.at));
      copy.querySelectorAll("details").forEach((of) => of.removeAttribute("open"));
      copy.querySelectorAll("#wallet").forEach((of) => (of.textContent = ""));
      copy.querySelectorAll("#back").forEach((of) => of.removeAttribute("href"));
      copy.querySelectorAll("[id=browser], .copy").forEach((of) => of.remove());
      return copy.innerHTML;
    };
    if (clean(main) !== clean(newMain)) {
      const focused = main.contains(document.activeElement) && document.activeElement;
      // What the customer opened and typed stays, and so does the focus: who presses keys presses the same.
      const within = (details) => (details ? [...details.querySelectorAll("summary, input, button, a")] : []);
      const details = focused && focused.closest("details[id]");
      const place = within(details).indexOf(focused);
      const key = (of) => of.dataset.copy || of.value || of.getAttribute("href");
      const opened = [...main.querySelectorAll("details[open]")].map((of) => of.id);
      const typed = $("tx") && $("tx").value;
      main.innerHTML = newMain.innerHTML;
      opened.forEach((id) => { if ($(id)) $(id).open = true; });
      if ($("tx") && typed) $("tx").value = typed;
      enhance();
      const isSame = (of) => key(of) && key(of) === key(focused);
      const controls = details ? within($(details.id)) : [...main.querySelectorAll("a, button")];
      const same = details ? controls[place] : focused && controls.find(isSame);
      if (same) same.focus();
      else if (focused) { main.tabIndex = -1; main.focus(); }
    }
    const news = next.getElementById("news").textContent;
    if ($("news").textContent !== news) $("news").textContent = news;
    document.title = next.title;
    // They may have the status and the time in them.
    for (const id of ["home", "back"]) {
      const newer = next.getElementById(id);
      if ($(id) && newer) $(id).href = newer.href;
    }
    if (isOver() && live) live.close();
  }

  // Nothing more comes, but within an hour after an end without a payment.
  function isOver() {
    if (document.querySelector(".ended") && !endedAt) endedAt = Date.now();
    return Boolean(document.querySelector(".ended.paid, .broken, .busy")) || (endedAt && Date.now() - endedAt > 3600_000);
  }

  function finish() {
    over = true;
    clearTimeout(retry);
    if (live) live.close();
    if (!document.querySelector(".seen")) return;
    $("offline").textContent = $("offline").dataset.over;
    $("offline").hidden = false;
  }

  async function refresh() {
    if (over) return;
    if (busy) { again = true; return; }
    busy = true;
    asked = Date.now();
    // A phone that changed its network may wait for minutes on the old one.
    const late = new AbortController();
    const timer = setTimeout(() => late.abort(), 20_000);
    try {
      const answer = await fetch(here, { cache: "no-store", redirect: "error", signal: late.signal });
      // What is no page: a failure, the limit of the customer's address, the answer of a proxy.
      if (answer.status >= 500 || answer.status === 429) throw new Error(answer.statusText);
      const next = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (!next.getElementById("main")) throw new Error("no page");
      // The link has ended. What is known of the payment by then stays.
      if (next.querySelector(".broken") && document.querySelector(".seen, .ended")) finish();
      else show(next);
      connected();
    } catch {
      $("offline").hidden = false;
    }
    clearTimeout(timer);
    busy = false;
    if (again) { again = false; refresh(); }
  }

  function follow() {
    clearTimeout(retry);
    if (live) live.close();
    if (over || isOver()) return;
    live = new EventSource(location.pathname + "/events");
    live.addEventListener("status", refresh);
    live.onopen = connected;
    live.onerror = () => {
      // The stream ended or was refused: the page is asked for until there is one again.
      live.close();
      refresh();
      clearTimeout(retry);
      retry = setTimeout(follow, 5000);
    };
  }

  // Asks beside the stream: a proxy may hold it back, and it has nothing of what can be paid again, nor of what comes
  // within an hour after an end.
  function poll() {
    if (document.hidden || document.querySelector(".broken")) return;
    if (isOver() && live) live.close();
    if (endedAt && Date.now() - endedAt > 3600_000) return;
    if (Date.now() - asked >= 30_000) refresh();
  }

  function tick() {
    const clock = $("clock");
    if (!clock) return;
    const left = Math.max(0, Math.floor((clock.dataset.until * 1000 - Date.now() - skew) / 1000));
    const text = Math.floor(left / 60) + ":" + String(left % 60).padStart(2, "0");
    if (clock.textContent !== text) clock.textContent = text;
    clock.classList.toggle("soon", left < 120);
    if (left === 0 && !clock.dataset.over) { clock.dataset.over = 1; setTimeout(refresh, 2500); }
  }

  async function copy(button) {
    const text = button.dataset.copy;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // Without HTTPS there is no clipboard: select it in a field and copy that.
      const field = document.createElement("textarea");
      field.value = text;
      button.after(field);
      field.select();
      const isCopied = document.execCommand("copy");
      field.remove();
      if (!isCopied) {
        // The customer can copy what is selected, and must not believe that it is copied.
        const shown = button.parentElement.querySelector("bdi") || button.parentElement.previousElementSibling;
        getSelection().selectAllChildren(shown);
        return;
      }
    }
    const before = button.textContent;
    if (button.classList.contains("done")) return;
    button.textContent = button.dataset.done;
    button.classList.add("done");
    $("news").textContent = button.dataset.done;
    setTimeout(() => { button.textContent = before; button.classList.remove("done"); }, 2000);
  }

  const sentKey = (deposit) => "sent " + deposit;
  const wallet = (method, params) => window.ethereum.request({ method, params });
  // By deposit, what is known of the payment that the browser's wallet was asked for, and whether it is closed to a
  // further question. The page may be replaced meanwhile.
  const payments = new Map();

  // Pays by EIP-1193: the wallet's own window shows what it will send, and asks.
  async function payByBrowser(button) {
    const { chain, to, data, from } = button.dataset;
    const { deposit } = $("pay").dataset;
    const say = (text, isClosed) => { payments.set(deposit, { text, isClosed }); enhance(); };
    const id = "0x" + Number(chain).toString(16);
    let failure = button.dataset.refused, isAsked = false;
    say(button.dataset.confirm, true);
    try {
      const [account] = await wallet("eth_requestAccounts", []);
      if (from && account.toLowerCase() !== from.toLowerCase()) {
        failure = button.dataset.account;
        throw new Error("another account");
      }
      if ((await wallet("eth_chainId", [])) !== id) {
        failure = button.dataset.network;
        await wallet("wallet_switchEthereumChain", [{ chainId: id }]);
        if ((await wallet("eth_chainId", [])) !== id) throw new Error("another network");
        failure = button.dataset.refused;
      }
      // A wallet is unlocked in minutes: the order may have ended, or have another deposit.
      if (!$("pay") || $("pay").dataset.deposit !== deposit) throw new Error("not to be paid any more");
      isAsked = true;
      await wallet("eth_sendTransaction", [{ from: account, to, data, value: "0x0" }]);
      sessionStorage.setItem(sentKey(deposit), "1");
      say(button.dataset.sent, true);
    } catch (error) {
      // EIP-1193: only 4001 says that the customer refused. After anything else it may be sent.
      if (isAsked && error.code !== 4001) say(button.dataset.unsure, true);
      else say(failure, false);
    }
  }

  function enhance() {
    const button = $("browser");
    if (button && button.dataset.to && window.ethereum) {
      button.hidden = false;
      const { deposit } = $("pay").dataset;
      const { text, isClosed } = payments.get(deposit) || { text: "", isClosed: false };
      // A payment that was sent once is not offered again, not even after a reload.
      const isSent = sessionStorage.getItem(sentKey(deposit));
      button.disabled = Boolean(isSent) || isClosed;
      $("wallet").textContent = isSent ? button.dataset.sent : text;
    }
    const zone = { hour: "2-digit", minute: "2-digit" };
    document.querySelectorAll("time[data-at]").forEach((of) => {
      of.textContent = new Date(of.dataset.at * 1000).toLocaleTimeString(document.documentElement.lang + "-u-nu-latn", zone);
    });
    tick();
  }

  document.documentElement.classList.add("js");
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.dataset.copy) copy(button);
    if (button.id === "browser") payByBrowser(button);
  });
  if ($("clock")) skew = $("clock").dataset.now * 1000 - Date.now();
  enhance();
  setInterval(tick, 500);
  addEventListener("ethereum#initialized", enhance, { once: true });
  // Not all at once.
  if (document.querySelector(".busy")) setTimeout(() => location.reload(), 15_000 + Math.random() * 15_000);
  if (document.body.dataset.order) {
    connected();
    follow();
    setInterval(poll, 5000);
    addEventListener("online", () => { refresh(); follow(); });
    addEventListener("offline", connected);
    // Phones end streams of pages that are not shown.
    addEventListener("pageshow", (event) => { if (event.persisted) follow(); });
    document.addEventListener("visibilitychange", () => { if (!document.hidden) { refresh(); follow(); } });
  }
})();
