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
  function show(text) {
    const next = new DOMParser().parseFromString(text, "text/html");
    const [main, newMain] = [$("main"), next.getElementById("main")];
    if (!newMain) return;
    const wallet = $("wallet") ? $("wallet").textContent : "";
    const clock = newMain.querySelector("#clock");
    if (clock) skew = clock.dataset.now * 1000 - Date.now();
    const clean = (node) => {
      const copy = node.cloneNode(true);
      copy.querySelectorAll("#clock").forEach((of) => of.replaceWith(of.dataset.until));
      copy.querySelectorAll("#wallet").forEach((of) => (of.textContent = ""));
      copy.querySelectorAll("[id=browser], .copy").forEach((of) => of.remove());
      return copy.innerHTML;
    };
    if (clean(main) !== clean(newMain)) {
      const focused = document.activeElement && main.contains(document.activeElement);
      main.innerHTML = newMain.innerHTML;
      enhance();
      if ($("wallet") && !$("wallet").textContent) $("wallet").textContent = wallet;
      if (focused) { main.tabIndex = -1; main.focus(); }
    }
    const news = next.getElementById("news").textContent;
    if ($("news").textContent !== news) $("news").textContent = news;
    document.title = next.title;
    // It may have the status in it.
    const home = next.getElementById("home");
    if ($("home") && home) $("home").href = home.href;
    if (document.querySelector(".ended") && live) live.close();
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
    try {
      const answer = await fetch(here, { cache: "no-store", redirect: "error" });
      // What is no page: a failure, or the limit of the customer's address.
      if (answer.status >= 500 || answer.status === 429) throw new Error(answer.statusText);
      // The link has ended. What is known of the payment by then stays.
      if (!answer.ok && document.querySelector(".seen, .ended")) finish();
      else show(await answer.text());
      connected();
    } catch {
      $("offline").hidden = false;
    }
    busy = false;
    if (again) { again = false; refresh(); }
  }

  function follow() {
    clearTimeout(retry);
    if (live) live.close();
    if (over || document.querySelector(".ended")) return;
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
    if (document.hidden || document.querySelector(".paid, .broken")) return;
    if (document.querySelector(".ended") && !endedAt) endedAt = Date.now();
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
    if (left === 0 && !clock.dataset.over) { clock.dataset.over = 1; setTimeout(refresh, 1500); }
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
      document.execCommand("copy");
      field.remove();
    }
    const before = button.textContent;
    if (button.classList.contains("done")) return;
    button.textContent = button.dataset.done;
    button.classList.add("done");
    $("news").textContent = button.dataset.done;
    setTimeout(() => { button.textContent = before; button.classList.remove("done"); }, 2000);
  }

  const paidKey = () => "sent " + $("pay").dataset.deposit;
  const wallet = (method, params) => window.ethereum.request({ method, params });

  // Pays by EIP-1193: the wallet's own window shows what it will send, and asks.
  async function payByBrowser(button) {
    const { chain, to, data, from } = button.dataset;
    const say = (text) => { $("wallet").textContent = text; };
    const id = "0x" + Number(chain).toString(16);
    let failure = button.dataset.refused;
    button.disabled = true;
    say(button.dataset.confirm);
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
      await wallet("eth_sendTransaction", [{ from: account, to, data, value: "0x0" }]);
      sessionStorage.setItem(paidKey(), "1");
      say(button.dataset.sent);
    } catch {
      say(failure);
      button.disabled = false;
    }
  }

  function enhance() {
    const button = $("browser");
    if (button && button.dataset.to && window.ethereum) {
      button.hidden = false;
      // A payment that was sent once is not offered again, not even after a reload.
      if (sessionStorage.getItem(paidKey())) {
        button.disabled = true;
        $("wallet").textContent = button.dataset.sent;
      }
    }
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
