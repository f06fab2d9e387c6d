// The customer of `main.rs`: a real Chromium on the checkout page of a running Tidemark. Every scenario is a function; in
// none of them may a page fail, break its policy or ask anybody else. The other scripts of this folder use its parts.
"use strict";
const assert = require("node:assert/strict");
const crypto = require("node:crypto");
const fs = require("node:fs");
const path = require("node:path");
const { chromium } = require("playwright-core");

const { BASE, BUSY, CHAIN, SECRET, WEBHOOK, PICTURES } = process.env;
const TOKEN = "0xdAC17F958D2ee523a2206206994597C13D831ec7";
const WALLET = "0x00000000000000000000000000000000DeaDBeef";
const BUYER = "0x2222222222222222222222222222222222222222";
const WIDTHS = { phone: [390, 844], desk: [1440, 900] };
// Rules of axe about colours: no other depends on the scheme, and none of these on the language.
const COLOURS = ["color-contrast", "link-in-text-block"];
// The short form: each state parses it anew.
const AXE = fs.readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const NOT_COLOURS = { rules: Object.fromEntries(COLOURS.map((rule) => [rule, { enabled: false }])) };

const hmac = (text) => crypto.createHmac("sha256", SECRET).update(text);

async function create(more = {}) {
  const body = JSON.stringify({ order_id: "A-1001", amount: "49.90", webhook_url: WEBHOOK, ...more });
  const time = Math.floor(Date.now() / 1000);
  const signature = `${time}.${hmac(`${time}.${body}`).digest("base64")}`;
  const answer = await fetch(`${BASE}/api/v1/service/orders`, {
    method: "POST", body, headers: { "content-type": "application/json", "service-signature": signature },
  });
  assert.equal(answer.status, 201, await answer.clone().text());
  return (await answer.json()).order_id;
}

function query(id, seconds = 3600) {
  const exp = Math.floor(Date.now() / 1000) + seconds;
  return `exp=${exp}&sig=${hmac(`checkout.v1.${id}.${exp}`).digest("base64url")}`;
}

const link = (id, seconds) => `${BASE}/checkout/${id}?${query(id, seconds)}`;

async function chain(method, ...params) {
  const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method, params });
  const answer = await (await fetch(CHAIN, { method: "POST", body, headers: { "content-type": "application/json" } })).json();
  assert.equal(answer.error, undefined, JSON.stringify(answer));
  return answer.result;
}

// The chain's clock does not run by itself: before a block that is not of the future already, it is set to the present,
// or to this many seconds later.
async function mine(count = 1, later = 0) {
  const head = Number((await chain("eth_getBlockByNumber", "latest", false)).timestamp);
  const now = Math.max(head + 1, Math.floor(Date.now() / 1000));
  await chain("evm_setNextBlockTimestamp", now + later);
  return chain("devnet_mine", count);
}

const units = (value) => String(BigInt(Math.round(Number(value) * 1e6)));
const send = (value) => chain("devnet_transfer", { token: TOKEN, from: BUYER, to: WALLET, value: units(value) });

// The pages of the present scenario.
const opened = [];

async function visit(browser, options = {}) {
  const context = await browser.newContext({ permissions: ["clipboard-read", "clipboard-write"], ...options });
  return open(context, options.baseURL);
}

// A page that is watched: errors and what breaks its policy (Chromium reports both on the console), and requests to others.
// `expected` has the patterns of what a scenario causes itself.
async function open(context, base = BASE) {
  const { origin } = new URL(base);
  const page = await context.newPage();
  page.setDefaultTimeout(120_000);
  Object.assign(page, { problems: [], foreign: [], expected: [], checks: [] });
  page.on("pageerror", (error) => page.problems.push(String(error)));
  page.on("console", (message) => message.type() === "error" && page.problems.push(message.text()));
  page.on("request", (request) => new URL(request.url()).origin === origin || page.foreign.push(request.url()));
  // Only what was sent has all headers.
  page.on("response", (response) => page.checks.push(response.request().allHeaders().then((headers) => {
    if (headers.referer?.includes("sig=")) page.problems.push("a signature in a Referer");
  }).catch((error) => page.isClosed() || page.problems.push(String(error)))));
  opened.push(page);
  return page;
}

// Ends a scenario: what its pages did that no page may.
async function settle() {
  for (const page of opened.splice(0)) {
    await Promise.all(page.checks);
    const problems = page.problems.filter((text) => !page.expected.some((pattern) => pattern.test(text)));
    assert.deepEqual([problems, page.foreign], [[], []], "problems, and requests to others");
    await page.context().close();
  }
}

const heading = (page, text) => page.locator("h1", { hasText: text }).waitFor();
const value = (page) => page.locator("[data-copy]").first().getAttribute("data-copy");

async function choose(page) {
  await page.getByRole("button", { name: "USDT on Ethereum" }).click();
  await heading(page, "Waiting for your payment");
}

// Asked once more, because the payment may be on its way.
async function cancel(page) {
  await page.locator("#cancel summary").click();
  await page.getByText("Have you already sent the payment?").waitFor();
  await page.getByRole("button", { name: "I have sent nothing" }).click();
}

async function lookUp(page, hash) {
  if (!(await page.locator("#tx").isVisible())) await page.locator("#lookup summary").click();
  await page.locator("#tx").fill(hash);
  await page.getByRole("button", { name: "Look it up" }).click();
}

const show = (page, colorScheme) => page.emulateMedia({ colorScheme, reducedMotion: "reduce" });

// Each width, in the end the desk's; checks that the page is no wider.
async function fit(page, name) {
  for (const [width, [w, h]] of Object.entries(WIDTHS)) {
    await page.setViewportSize({ width: w, height: h });
    const overflow = await page.evaluate("document.documentElement.scrollWidth - innerWidth");
    assert.ok(overflow <= 0, `${name} is ${overflow} px wider than a ${width}`);
  }
}

// Checks that axe finds nothing. Only violations leave the page: the rest of a result is many times as large.
async function audit(page, name, options) {
  const found = await page.evaluate(async (options) => {
    const { violations } = await window.axe.run({ ...options, resultTypes: ["violations"] });
    return violations.map((of) => [of.id, of.nodes.map((node) => node.html)]);
  }, options);
  assert.deepEqual(found, [], name);
}

// The picture of a page in one width and scheme, if pictures are asked for.
async function picture(page, name) {
  if (PICTURES) await page.screenshot({ path: path.join(PICTURES, `${name}.png`), fullPage: true });
}

async function pictures(page, name) {
  for (const colorScheme of ["light", "dark"]) {
    await show(page, colorScheme);
    for (const [width, [w, h]] of Object.entries(WIDTHS)) {
      await page.setViewportSize({ width: w, height: h });
      await picture(page, `${name}-${width}-${colorScheme}`);
    }
  }
}

// Checks a state in each width and scheme; one in another language for what its texts can change. `states.cjs` has the
// states that rows alone make.
async function inspect(page, name, isTranslated = false) {
  await show(page, "light");
  await fit(page, name);
  await page.evaluate(AXE);
  await audit(page, `${name}, light`, isTranslated ? NOT_COLOURS : {});
  if (!isTranslated) {
    await show(page, "dark");
    await audit(page, `${name}, dark`, { runOnly: COLOURS });
  }
  if (PICTURES) await pictures(page, name);
}

// Loads a page until it has the text: the tables follow the log.
async function until(page, text) {
  for (let tries = 0; tries < 100; tries += 1) {
    if (await page.getByText(text).first().isVisible()) return;
    await page.waitForTimeout(200);
    await page.reload();
  }
  assert.fail(`${text} is not on ${page.url()}`);
}

async function reload(page, title) {
  await page.reload();
  await heading(page, title);
}

const scenarios = {
  async "what no page may do is noticed"(browser) {
    const page = await visit(browser);
    await page.goto(link(await create()));
    await heading(page, "Choose how to pay");
    const failure = page.waitForEvent("pageerror");
    const breach = page.waitForEvent("console", (message) => message.text().includes("img-src"));
    await page.evaluate((src) => {
      document.body.append(Object.assign(new Image(), { src }));
      setTimeout(() => { throw new Error("on purpose"); });
    }, CHAIN);
    await Promise.all([failure, breach]);
    // Without a policy nothing keeps a page from it.
    await page.goto("about:blank");
    page.foreign.splice(0);
    await Promise.all([page.waitForEvent("request"), page.evaluate((url) => { fetch(url, { mode: "no-cors" }); }, CHAIN)]);
    const problems = page.problems.splice(0);
    for (const text of ["on purpose", "img-src"]) assert.ok(problems.some((of) => of.includes(text)), `${text}: ${problems}`);
    assert.deepEqual(page.foreign.splice(0).map((url) => new URL(url).origin), [new URL(CHAIN).origin]);
  },

  async "an order is chosen, copied, paid and confirmed, live"(browser) {
    const id = await create();
    const page = await visit(browser);
    await page.goto(link(id));
    assert.equal(page.url(), `${BASE}/checkout/${id}`, "the signature is gone");
    await heading(page, "Choose how to pay");
    await page.getByText("Test network").waitFor();
    await reload(page, "Choose how to pay");
    await choose(page);
    await reload(page, "Waiting for your payment");
    const amount = await value(page);
    assert.match(amount, /^49\.90\d{4}$/);
    for (const [name, text] of [["Copy the amount", amount], ["Copy the address", WALLET]]) {
      await page.getByRole("button", { name }).click();
      await page.getByText("Copied", { exact: true }).first().waitFor();
      assert.equal(await page.evaluate("navigator.clipboard.readText()"), text);
    }
    assert.match(await page.locator("#clock").textContent(), /^(20:00|1\d:\d\d)$/);
    const uri = await page.getByRole("link", { name: "Open in a wallet app" }).getAttribute("href");
    assert.equal(uri, `ethereum:${TOKEN}@31337/transfer?address=${WALLET}&uint256=${units(amount)}`);
    await send(amount);
    await mine();
    await heading(page, "Payment seen");
    const counts = [];
    for (let count = 1; count < 4; count++) {
      await page.locator("#confirmations", { hasText: `${count} of 4` }).waitFor();
      counts.push(count);
      if (count === 2) await reload(page, "Payment seen");
      if (count < 3) await mine();
    }
    assert.deepEqual(counts, [1, 2, 3], "no reload was needed");
    await mine(2);
    await heading(page, "Paid");
    assert.equal(await page.locator("#news").textContent(), "Paid", "a screen reader says so");
    await inspect(page, "paid");
    await reload(page, "Paid");
  },

  async "too little is explained, and the order can still be paid"(browser) {
    // Of all that wait at this wallet, it is the nearest to what comes.
    const id = await create({ amount: "19.90" });
    const page = await visit(browser);
    await page.goto(link(id));
    await choose(page);
    const amount = await value(page);
    // An exchange took its fee of 4 USDT.
    await send((Number(amount) - 4).toFixed(6));
    await mine();
    await page.getByText("has arrived. The order awaits").waitFor();
    await heading(page, "Do not send again yet");
    assert.equal(await page.locator("#pay, svg").count(), 0);
    await mine(60);
    await page.getByText("less than asked for").waitFor();
    await page.getByText("Do not send the difference").waitFor();
    await heading(page, "Waiting for your payment");
    await send(amount);
    await mine(6);
    await heading(page, "Paid");
  },

  async "who sent the price is not asked to pay again"(browser) {
    const id = await create({ amount: "31.70" });
    const page = await visit(browser);
    await page.goto(link(id));
    await choose(page);
    await page.locator("#lookup summary").click();
    await page.locator("#tx").fill("half a hash");
    const hash = await send("31.70");
    await mine();
    await heading(page, "Do not send again yet");
    await page.getByText("A payment has arrived that may be yours").waitFor();
    assert.equal(await page.getByText(hash).count(), 0, "it may be another's");
    assert.equal(await page.locator("#pay, svg").count(), 0);
    assert.equal(await page.locator("#tx").inputValue(), "half a hash", "what was typed stays");
    await lookUp(page, "nonsense");
    await page.getByText("This is no transaction number").waitFor();
    await lookUp(page, hash);
    await page.getByText("31.70 USDT has arrived").waitFor();
    await page.getByText("give the shop this transaction number").waitFor();
    await inspect(page, "looked-up");
    await page.getByRole("button", { name: "Copy the transaction number" }).click();
    await page.getByText("Copied", { exact: true }).first().waitFor();
    assert.equal(await page.evaluate("navigator.clipboard.readText()"), hash);
    await page.getByRole("link", { name: "Pay again anyway" }).click();
    await heading(page, "Waiting for your payment");
    await mine(60);
    await page.goto(`${BASE}/checkout/${id}`);
    await heading(page, "Do not pay again");
    await inspect(page, "covered");
  },

  async "a cancelled order asks for nothing more"(browser) {
    const id = await create();
    const page = await visit(browser);
    await page.goto(link(id));
    await choose(page);
    assert.match(await page.locator("#home").getAttribute("href"), /\?pending$/);
    await page.keyboard.press("Tab");
    await page.locator("#cancel summary").focus();
    await page.keyboard.press("Enter");
    await page.getByText("Have you already sent the payment?").waitFor();
    await page.keyboard.press("Tab");
    // A newer page comes meanwhile.
    await page.evaluate(() => {
      document.getElementById("main").insertAdjacentHTML("beforeend", "<p id=older></p>");
      dispatchEvent(new Event("online"));
    });
    await page.locator("#older").waitFor({ state: "detached" });
    await page.keyboard.press("Enter");
    await heading(page, "The order was cancelled");
    assert.equal(await page.getByText(WALLET).count(), 0);
    await reload(page, "The order was cancelled");
    for (const name of ["header", "main"]) {
      const home = page.locator(name).getByRole("link", { name: "Return to" });
      assert.equal(await home.getAttribute("href"), `${WEBHOOK}/A-1001?cancelled`);
    }
    await page.route(`${WEBHOOK}/**`, (route) => route.fulfill({ body: "the shop" }));
    await page.locator("header").getByRole("link", { name: "Return to" }).click();
    await page.getByText("the shop").waitFor();
    assert.deepEqual(page.foreign.splice(0), [`${WEBHOOK}/A-1001?cancelled`], "and nowhere else");
  },

  async "a browser's wallet pays the exact amount once"(browser) {
    const id = await create({ blockchain: "eth", stablecoin: "USDT" });
    const page = await visit(browser);
    const calls = [];
    await page.exposeFunction("wallet", async (method, params) => {
      calls.push([method, params]);
      if (method === "eth_requestAccounts") return [BUYER];
      if (method === "eth_chainId") return calls.some(([of]) => of === "wallet_switchEthereumChain") ? "0x7a69" : "0x1";
      if (method !== "eth_sendTransaction") return null;
      const [{ to, data }] = params;
      assert.equal(to, TOKEN);
      return chain("devnet_transfer", { token: to, from: BUYER, to: "0x" + data.slice(34, 74), value: "0x" + BigInt("0x" + data.slice(74)).toString(16) });
    });
    await page.addInitScript("window.ethereum = { request: ({ method, params }) => window.wallet(method, params) }");
    await page.goto(link(id));
    const button = page.getByRole("button", { name: "Pay with browser wallet" });
    await inspect(page, "wallet");
    await button.click();
    await page.getByText("Sent by your wallet").waitFor();
    assert.deepEqual(calls[2], ["wallet_switchEthereumChain", [{ chainId: "0x7a69" }]]);
    await page.reload();
    await page.getByText("Sent by your wallet").waitFor();
    assert.ok(await button.isDisabled(), "nobody pays twice");
    await mine(6);
    await heading(page, "Paid");
    assert.equal(calls.filter(([method]) => method === "eth_sendTransaction").length, 1);
  },

  async "a browser's wallet is not asked to pay what changed or what may be sent"(browser) {
    const id = await create({ blockchain: "eth", stablecoin: "USDT" });
    const page = await visit(browser);
    const asked = [];
    let answers = [];
    await page.exposeFunction("wallet", async (method) => {
      asked.push(method);
      if (method === "eth_requestAccounts") return [BUYER];
      if (method === "eth_chainId") return "0x7a69";
      return { code: answers.shift() };
    });
    await page.addInitScript(`window.ethereum = { request: async ({ method, params }) => {
      const answer = await window.wallet(method, params);
      if (answer.code) throw answer;
      return answer;
    } }`);
    await page.goto(link(id));
    const button = page.getByRole("button", { name: "Pay with browser wallet" });
    answers = [4001, -32603];
    await button.click();
    await page.getByText("Your wallet did not send the payment").waitFor();
    assert.ok(await button.isEnabled());
    await button.click();
    await page.getByText("Look in your wallet whether the payment was sent").waitFor();
    assert.ok(await button.isDisabled(), "it may have been sent");
    await page.reload();
    assert.ok(await button.isEnabled());
    // The wallet is unlocked when the order has ended.
    let unlock = null;
    const unlocked = new Promise((resolve) => { unlock = resolve; });
    await page.exposeFunction("unlocked", () => unlocked);
    await page.evaluate(`window.unlocks = 0; window.ethereum.request = async ({ method }) => {
      await window.unlocked();
      const answer = await window.wallet(method);
      window.unlocks++;
      return answer;
    }`);
    const sends = () => asked.filter((method) => method === "eth_sendTransaction").length;
    const before = sends();
    await button.click();
    await page.getByText("Confirm the payment in your wallet").waitFor();
    const other = await visit(browser);
    await other.goto(link(id));
    await cancel(other);
    await heading(page, "The order was cancelled");
    unlock();
    while ((await page.evaluate("window.unlocks")) < 2);
    await reload(page, "The order was cancelled");
    assert.equal(sends(), before, "not what has ended");
  },

  async "a proxy's answer does not end the page of a payment"(browser) {
    const id = await create({ blockchain: "eth", stablecoin: "USDT" });
    const page = await visit(browser);
    page.expected.push(/status of 404/);
    await page.goto(link(id));
    await send(await value(page));
    await mine();
    await heading(page, "Payment seen");
    const body = "404 page not found";
    await page.route(`**/checkout/${id}**`, (route) => route.fulfill({ status: 404, contentType: "text/plain", body }));
    await mine();
    await page.getByText("No connection").waitFor();
    await page.unrouteAll();
    await mine(6);
    await heading(page, "Paid");
  },

  async "a page that was offline catches up"(browser) {
    const id = await create({ blockchain: "eth", stablecoin: "USDT" });
    const page = await visit(browser);
    page.expected.push(/ERR_INTERNET_DISCONNECTED/);
    await page.goto(link(id));
    await heading(page, "Waiting for your payment");
    await page.context().setOffline(true);
    await page.getByText("No connection").waitFor();
    await inspect(page, "offline");
    await send(await value(page));
    await mine(6);
    await page.context().setOffline(false);
    await heading(page, "Paid");
    assert.ok(await page.getByText("No connection").isHidden());
  },

  async "a page that is refused for a while says so"(browser) {
    const id = await create({ blockchain: "eth", stablecoin: "USDT" });
    const page = await visit(browser);
    page.expected.push(/status of 429/);
    const body = "too many requests from this address, try again later";
    await page.route(`**/checkout/${id}**`, (route) =>
      route.request().isNavigationRequest()
        ? route.continue()
        : route.fulfill({ status: 429, contentType: "text/plain", body }));
    await page.route(`**/checkout/${id}/events`, (route) =>
      route.fulfill({ status: 429, contentType: "text/plain", body }));
    await page.goto(link(id));
    await page.getByText("No connection").waitFor();
    await heading(page, "Waiting for your payment");
    await page.unrouteAll();
    await page.getByText("No connection").waitFor({ state: "hidden" });
  },

  async "a page whose stream is held back by a proxy catches up"(browser) {
    const id = await create({ blockchain: "eth", stablecoin: "USDT" });
    const page = await visit(browser);
    await page.clock.install();
    let streams = 0;
    await page.route(`**/checkout/${id}/events`, () => { streams++; });
    await page.goto(link(id));
    await heading(page, "Waiting for your payment");
    await send(await value(page));
    await mine(6);
    await page.waitForFunction(async () => {
      const newer = await fetch(location.href, { cache: "no-store" });
      return (await newer.text()).includes("Thank you");
    }, null, { polling: 500 });
    await heading(page, "Waiting for your payment");
    // It asks by itself each half minute.
    await page.clock.fastForward(31_000);
    await heading(page, "Paid");
    assert.equal(streams, 1, "it neither failed nor was asked for again");
    assert.ok(await page.getByText("No connection").isHidden());
  },

  async "a service that is busy has a page of its own"(browser) {
    const id = await create();
    // More at once than an address may ask for in that time, however slow the answers are.
    const ask = () => fetch(`${BUSY}/checkout/${id}`, { headers: { accept: "text/html" } });
    const answers = await Promise.all(Array.from({ length: 100 }, ask));
    const answer = answers.find((answer) => answer.status === 429);
    const [headers, body] = [Object.fromEntries(answer.headers), await answer.text()];
    const page = await visit(browser);
    page.expected.push(/status of 429/);
    await page.route(`**/checkout/${id}?**`, (route) => route.fulfill({ status: 429, headers, body }));
    await page.goto(link(id));
    await heading(page, "The service is busy");
    await inspect(page, "busy");
    await page.unrouteAll();
    await page.getByRole("link", { name: "Try again" }).click();
    await heading(page, "Choose how to pay");
  },

  async "links that do not hold show nothing"(browser) {
    const [id, other] = [await create(), await create()];
    const page = await visit(browser);
    page.expected.push(/status of 401/);
    for (const url of [
      `${link(id)}A`, link(id, -10), `${BASE}/checkout/${id}`, `${BASE}/checkout/${other}?${query(id)}`,
    ]) {
      await page.goto(url);
      await heading(page, "This link does not work");
      assert.equal(await page.getByText("A-1001").count(), 0);
    }
    await page.goto(link(id));
    await heading(page, "Choose how to pay");
    await page.goto(`${BASE}/checkout/${other}`);
    await heading(page, "This link does not work");
  },

  async "what was seen of a payment outlives the link"(browser) {
    const id = await create({ blockchain: "eth", stablecoin: "USDT" });
    const page = await visit(browser);
    // The page asks once more when its link has ended.
    page.expected.push(/status of 401/);
    await page.goto(link(id, 25));
    await heading(page, "Waiting for your payment");
    await send(await value(page));
    await mine();
    await heading(page, "Payment seen");
    await page.getByText("The link to this page has ended").waitFor();
    await heading(page, "Payment seen");
    await inspect(page, "link-ended");
    await reload(page, "This link does not work");
  },

  async "without scripts an order is chosen and paid"(browser) {
    const id = await create();
    const page = await visit(browser, { javaScriptEnabled: false });
    await page.goto(link(id));
    await choose(page);
    assert.equal(await page.locator(".copy").first().isVisible(), false);
    await picture(page, "noscript-desk-light");
    await send(await value(page));
    await mine(6);
    // The page asks for itself.
    await heading(page, "Paid");
  },

  async "without scripts a payment is looked up, and a cancel is asked about"(browser) {
    const id = await create({ amount: "27.30" });
    const page = await visit(browser, { javaScriptEnabled: false });
    await page.goto(link(id));
    await choose(page);
    const hash = await send("27.30");
    await mine();
    await until(page, "Do not send again yet");
    await lookUp(page, hash);
    await page.getByText("27.30 USDT has arrived").waitFor();
    await page.getByRole("link", { name: "Pay again anyway" }).click();
    await heading(page, "Waiting for your payment");
    await cancel(page);
    await heading(page, "The order was cancelled");
  },

  async "texts run from right to left, and hostile ones are texts"(browser) {
    const id = await create({ order_id: `<img src=x onerror="document.title='hacked'">\u202e${"x".repeat(120)}` });
    const page = await visit(browser, { locale: "ar" });
    await page.goto(link(id));
    await heading(page, "اختر طريقة الدفع");
    await page.locator(".way").first().click();
    await heading(page, "في انتظار دفعتك");
    await inspect(page, "arabic");
    assert.equal(await page.locator("img").count(), 0);
    await page.getByRole("link", { name: "Deutsch" }).click();
    await heading(page, "Wir warten auf Ihre Zahlung");
    await inspect(page, "german");
    assert.doesNotMatch(await page.title(), /hacked/);
  },

  // Last: it moves the chain's time.
  async "an order that nobody pays expires"(browser) {
    const id = await create({ blockchain: "eth", stablecoin: "USDT" });
    const page = await visit(browser);
    await page.goto(link(id));
    await heading(page, "Waiting for your payment");
    const amount = await value(page);
    await mine(6, 1300);
    await heading(page, "The order has expired");
    await send(amount);
    await mine();
    // Long before it is confirmed.
    await page.getByText("after the time to pay was over").waitFor({ timeout: 10_000 });
    await page.getByText("Do not send again yet").waitFor();
    assert.equal(await page.getByText("No matching payment arrived").count(), 0);
    await mine(60);
    await page.getByText("Do not pay again").waitFor();
  },
};

// Plays scenarios one after the other; what the pages showed at a failure is printed.
async function run(scenarios) {
  const browser = await chromium.launch({
    executablePath: "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
      "--disable-component-update", "--disable-sync"],
  });
  try {
    for (const [name, play] of Object.entries(scenarios)) {
      console.log(name);
      await play(browser).then(settle).catch(async (error) => {
        const pages = browser.contexts().flatMap((context) => context.pages());
        for (const page of pages) console.error(await page.locator("body").innerText());
        throw error;
      });
    }
  } finally {
    await browser.close();
  }
}

function main(scenarios) {
  run(scenarios).catch((error) => { console.error(error); process.exit(1); });
}

if (require.main === module) main(scenarios);

module.exports = {
  BUYER, TOKEN, WALLET, chain, choose, create, heading, inspect, link, main, mine, open, query, send, units,
  until, value, visit,
};
