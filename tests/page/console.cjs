// The operator of `console.rs`: a real Chromium on the console of a running Tidemark, through each page and action, on a phone
// and on a desk. The buyers pay past the pages.
"use strict";
const assert = require("node:assert/strict");
const { BUYER, create, heading, inspect, main, mine, query, send, until, visit } = require("./checkout.cjs");

const { ADMIN, BASE, CONSOLE, DEAD, READER } = process.env;
const HOSTILE = "</td><script>document.title='hacked'</script><b onclick=alert(1)>A-2&amp;";

async function signIn(browser, secret) {
  const page = await visit(browser, { baseURL: CONSOLE });
  await page.goto(`${CONSOLE}/console/sign-in`);
  await page.getByLabel("Admin secret").fill(secret);
  await page.keyboard.press("Enter");
  await page.getByRole("button", { name: "Sign out" }).waitFor();
  return page;
}

const section = (page, name) => page.getByRole("navigation").getByRole("link", { name, exact: true }).click();
const search = async (page, text) => {
  await page.getByRole("searchbox").fill(text);
  await page.getByRole("button", { name: "Search" }).click();
};

// What the customer of an order has to pay.
async function choose(id) {
  const answer = await fetch(`${BASE}/api/v1/user/orders/${id}/payment?${query(id)}`, {
    method: "POST", body: JSON.stringify({ blockchain: "eth", stablecoin: "USDT" }),
    headers: { "content-type": "application/json" },
  });
  assert.equal(answer.status, 201, await answer.clone().text());
  return (await answer.json()).value;
}

const orders = {};

main({
  async "who has no secret gets a form"(browser) {
    const page = await visit(browser, { baseURL: CONSOLE });
    page.expected.push(/status of 401/);
    await page.goto(`${CONSOLE}/console/orders`);
    await heading(page, "Tidemark console");
    await inspect(page, "sign-in");
    await page.getByLabel("Admin secret").fill("guessed-7uJ3nB5vC8xZ1aS6");
    await page.keyboard.press("Enter");
    await page.getByRole("alert").waitFor();
    await inspect(page, "sign-in-wrong");
    assert.ok(!(await page.content()).includes("guessed"));
    await page.getByLabel("Admin secret").fill(ADMIN);
    await page.keyboard.press("Enter");
    await heading(page, "Orders");
    assert.equal(page.url(), `${CONSOLE}/console/orders`);
  },

  async "orders are paid, awaited and missed"(browser) {
    orders.paid = await create({ order_id: "A-1001" });
    await send(await choose(orders.paid));
    orders.pending = await create({ order_id: HOSTILE, amount: "12.00" });
    await choose(orders.pending);
    orders.short = await create({ order_id: "A-1003", amount: "30.00" });
    await choose(orders.short);
    orders.marked = await create({ order_id: "A-1004", amount: "8.00" });
    await mine(6);
    // An amount that nobody asked for: a fee was taken off.
    orders.hash = await send("29.00");
    await mine(60);
    const page = await signIn(browser, ADMIN);
    await page.goto(`${CONSOLE}/console/unknown`);
    await until(page, "29.00 USDT");
    await page.getByText("difference -1.00").waitFor();
    await inspect(page, "unknown");
  },

  async "the overview says how it is"(browser) {
    const page = await signIn(browser, ADMIN);
    await page.getByRole("status").waitFor();
    await page.getByText("orders pending").waitFor();
    await inspect(page, "overview");
    assert.equal((await page.context().cookies()).find((of) => of.name === "tidemark_console").httpOnly, true);
  },

  async "an overview that is old says so"(browser) {
    const page = await signIn(browser, ADMIN);
    page.expected.push(/status of 500/);
    await page.clock.install();
    await page.goto(`${CONSOLE}/console`);
    const old = page.getByText("what it shows is old");
    await page.getByText("orders pending").waitFor();
    assert.ok(await old.isHidden());
    const failure = { status: 500, contentType: "text/plain", body: "internal server error" };
    await page.route(`${CONSOLE}/console`, (route) => route.fulfill(failure));
    await page.clock.fastForward(10_000);
    await old.waitFor();
    await page.getByText("orders pending").waitFor();
    await page.unrouteAll();
    await page.clock.fastForward(10_000);
    await old.waitFor({ state: "hidden" });
  },

  async "everything is found"(browser) {
    const page = await signIn(browser, ADMIN);
    for (const text of [orders.paid, "A-1001"]) {
      await search(page, text);
      await heading(page, "Order A-1001");
    }
    await inspect(page, "order-paid");
    await search(page, orders.hash);
    await heading(page, /^Transfer \d+/);
    await inspect(page, "transfer");
    await search(page, BUYER);
    await page.getByText(/of \d+ hits/).waitFor();
    await inspect(page, "search");
    await search(page, "0x0000000000000000000000000000000000000009");
    await page.getByText("Nothing is known of it").waitFor();
    await inspect(page, "search-none");
  },

  async "texts of a shop stay texts"(browser) {
    const page = await signIn(browser, ADMIN);
    await page.goto(`${CONSOLE}/console/orders/${orders.pending}`);
    await page.getByText("document.title='hacked'").first().waitFor();
    assert.ok(!(await page.title()).startsWith("hacked"));
    assert.equal(await page.locator("b[onclick]").count(), 0);
    await inspect(page, "order-pending");
  },

  async "every list is shown"(browser) {
    const page = await signIn(browser, ADMIN);
    for (const [name, title] of [
      ["Orders", "Orders"], ["Transfers", "Transfers"], ["Deposits", "Open deposits"], ["Chains", "Chains"],
      ["Deliveries", "Deliveries that were given up"], ["Alerts", "Alerts"], ["Dead letters", "Dead letters"], ["Audit", "Audit"],
    ]) {
      await section(page, name);
      await heading(page, title);
      assert.equal(await page.locator("nav [aria-current=page]").innerText(), name);
      await inspect(page, `list-${name.toLowerCase().replace(" ", "-")}`);
    }
    await page.setViewportSize({ width: 1440, height: 900 });
    await section(page, "Orders");
    await page.getByLabel("Status").selectOption("paid");
    await page.getByRole("button", { name: "Filter" }).click();
    await page.getByRole("link", { name: "A-1001" }).waitFor();
    assert.equal(await page.getByRole("link", { name: "A-1003" }).count(), 0);
    const download = page.waitForEvent("download");
    await page.getByRole("link", { name: "All as CSV" }).click();
    assert.equal((await download).suggestedFilename(), "orders.csv");
  },

  async "a payment is attached by keyboard"(browser) {
    const page = await signIn(browser, ADMIN);
    await search(page, orders.hash);
    const link = page.getByRole("link", { name: "Attach to A-1003…" });
    await link.focus();
    await page.keyboard.press("Enter");
    await heading(page, "Attach the transfer to the order?");
    await inspect(page, "attach");
    await page.getByRole("checkbox").focus();
    await page.keyboard.press("Space");
    await page.keyboard.press("Enter");
    await page.getByText("The transfer pays this order.").waitFor();
    await until(page, "attach transfer by admin");
    await inspect(page, "order-attached");
  },

  async "an order is marked paid, and its webhook sent again"(browser) {
    const page = await signIn(browser, ADMIN);
    await page.goto(`${CONSOLE}/console/orders/${orders.marked}`);
    await page.getByRole("link", { name: "Mark paid…" }).click();
    await inspect(page, "mark-paid");
    await page.getByRole("button", { name: "Mark the order paid" }).click();
    await page.getByText("The order is paid.").waitFor();
    await page.getByRole("link", { name: "Resend the webhook…" }).click();
    await page.getByRole("button", { name: "Send the order's webhook again" }).click();
    await page.getByText("The webhook is on its way.").waitFor();
    await until(page, "asked for");
  },

  async "a page that is open follows what others do"(browser) {
    const page = await signIn(browser, ADMIN);
    await page.goto(`${CONSOLE}/console/orders/${orders.pending}`);
    await page.locator("h1 .badge", { hasText: "pending" }).waitFor();
    const other = await signIn(browser, ADMIN);
    await other.goto(`${CONSOLE}/console/orders/${orders.pending}/cancel`);
    await inspect(other, "cancel");
    await other.getByRole("button", { name: "Cancel the order" }).click();
    await other.getByText("The order is cancelled.").waitFor();
    await page.bringToFront();
    await page.locator("h1 .badge", { hasText: "cancelled" }).waitFor();
    other.expected.push(/status of 409/);
    await other.goto(`${CONSOLE}/console/orders/${orders.pending}/cancel`);
    await other.getByRole("button", { name: "Cancel the order" }).click();
    await heading(other, "Not possible");
    await inspect(other, "refused");
  },

  async "payments are stopped, and that ends"(browser) {
    const page = await signIn(browser, ADMIN);
    await section(page, "Chains");
    await page.getByLabel("Wallet, coin, contract or chain").fill("USDT");
    await page.getByLabel("Only on").selectOption("eth");
    await page.getByRole("button", { name: "Stop…" }).click();
    await inspect(page, "stop");
    await page.getByRole("button", { name: "Stop these payments" }).click();
    await until(page, "USDT is stopped, on this chain alone");
    await inspect(page, "chains-stopped");
    await page.goto(`${CONSOLE}/console`);
    await page.getByText("payments are stopped: eth: USDT").waitFor();
    await inspect(page, "overview-wrong");
    await section(page, "Chains");
    await page.getByRole("link", { name: "End…" }).click();
    await page.getByRole("button", { name: "End the stop" }).click();
    await until(page, "Nothing is stopped.");
  },

  async "a webhook that was given up is read and sent again"(browser) {
    const page = await signIn(browser, ADMIN);
    await section(page, "Deliveries");
    await page.getByText("not delivered").first().waitFor();
    await page.getByLabel("Receiver's host").fill("127.0.0.1");
    await page.getByRole("button", { name: "Filter" }).click();
    await inspect(page, "deliveries");
    await page.getByRole("link", { name: "order status changed" }).click();
    await heading(page, "Webhook given up");
    await page.getByText("the shop is closed").waitFor();
    await page.getByText('"status":"paid"').waitFor();
    assert.ok(!(await page.content()).includes("secret-path"));
    await inspect(page, "delivery");
    await page.goBack();
    await page.getByRole("link", { name: "Send again…" }).click();
    await heading(page, "Send these webhooks again?");
    await page.getByRole("cell", { name: DEAD }).waitFor();
    await inspect(page, "redrive");
    await page.getByRole("button", { name: "Send these webhooks again" }).click();
    await page.getByText("1 of 1 webhooks are on their way.").waitFor();
    await inspect(page, "redriven");
    await section(page, "Deliveries");
    await until(page, "since it was given up");
    await page.goto(`${CONSOLE}/console/deliveries/redrive`);
    await heading(page, "Nothing to send");
    await inspect(page, "redrive-nothing");
    const download = page.waitForEvent("download");
    await section(page, "Deliveries");
    await page.getByRole("link", { name: "All as CSV" }).click();
    assert.equal((await download).suggestedFilename(), "deliveries.csv");
  },

  async "a dead letter is put back by keyboard"(browser) {
    const page = await signIn(browser, ADMIN);
    await section(page, "Dead letters");
    await page.getByRole("link", { name: "letter 0" }).click();
    await heading(page, "Dead letter 0");
    await page.getByText('"kind": "cancel"').waitFor();
    await inspect(page, "dead-letter");
    await page.getByRole("link", { name: "Put it back…" }).focus();
    await page.keyboard.press("Enter");
    await heading(page, "Put the record back?");
    await inspect(page, "dead-letter-replay");
    await page.getByRole("button", { name: "Put the record back" }).focus();
    await page.keyboard.press("Enter");
    await page.getByText("The record was put back.").waitFor();
    await page.getByRole("cell", { name: "admin" }).waitFor();
    await inspect(page, "dead-letter-back");
  },

  async "an alert is resolved"(browser) {
    const page = await signIn(browser, ADMIN);
    await section(page, "Alerts");
    await page.getByText("a second check of block 7").first().waitFor();
    await page.getByRole("row", { name: /late find/ }).getByRole("link", { name: "Resolve…" }).click();
    await heading(page, "Resolve the alert?");
    await page.getByLabel("What was done about it").fill("rescanned");
    await inspect(page, "alert-resolve");
    await page.getByRole("button", { name: "Resolve the alert" }).click();
    await page.getByText("The alert is resolved.").waitFor();
    await page.getByText("resolved by admin: rescanned").waitFor();
    await inspect(page, "alert-resolved");
    await section(page, "Audit");
    await page.getByRole("cell", { name: "late_find/eth/7" }).waitFor();
    await page.getByRole("cell", { name: "replay dead letter" }).waitFor();
    await inspect(page, "audit");
  },

  async "who may only read has no actions"(browser) {
    const page = await signIn(browser, READER);
    await page.goto(`${CONSOLE}/console/orders/${orders.paid}`);
    await heading(page, "Order A-1001");
    assert.equal(await page.locator("main").getByRole("button").count(), 0);
    assert.equal(await page.locator(".actions a").count(), 0);
    await inspect(page, "order-reader");
    for (const name of ["Deliveries", "Dead letters", "Alerts", "Chains"]) {
      await section(page, name);
      assert.equal(await page.getByRole("link", { name: /…$/ }).count(), 0, name);
    }
    await page.goto(`${CONSOLE}/console/dead-letters/0`);
    await heading(page, "Dead letter 0");
    assert.equal(await page.locator(".actions a").count(), 0);
    await page.getByRole("button", { name: "Sign out" }).click();
    await heading(page, "Tidemark console");
    await page.goBack();
    await heading(page, "Tidemark console");
  },
});
