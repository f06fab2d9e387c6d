// Customers of `main.rs` without a mouse, and what a screen reader says to them.
"use strict";
const assert = require("node:assert/strict");
const { WALLET, create, heading, link, main, mine, open, send, value, visit } = require("./checkout.cjs");

const MOST_TABS = 40;

// Presses Tab until the control with this name has the focus, and shows that it has.
async function tab(page, name) {
  for (let presses = 0; presses < MOST_TABS; presses++) {
    await page.keyboard.press("Tab");
    const focus = await page.evaluate(() => {
      const of = document.activeElement;
      return { name: of.getAttribute("aria-label") ?? of.textContent.trim(), outline: getComputedStyle(of).outlineStyle };
    });
    if (focus.name !== name) continue;
    assert.notEqual(focus.outline, "none", `${name} has the focus, and nobody sees it`);
    return;
  }
  assert.fail(`Tab does not reach ${name}`);
}

async function press(page, name) {
  await tab(page, name);
  await page.keyboard.press("Enter");
}

// Keeps what a screen reader says: each change of the live region.
const listen = (page) => page.addInitScript(() => addEventListener("DOMContentLoaded", () => {
  window.said = [];
  const news = document.querySelector("#news[role=status]");
  new MutationObserver(() => window.said.push(news.textContent)).observe(news, { childList: true, subtree: true, characterData: true });
}));

// A change that came by itself: it was said, and the focus is where the news is.
async function assertSaid(page, text) {
  assert.equal(await page.evaluate("said.at(-1)"), text);
  assert.equal(await page.evaluate("document.activeElement.closest('main') !== null"), true, "the focus is lost");
}

main({
  async "with Tab and Enter an order is chosen, changed, copied and paid"(browser) {
    const page = await visit(browser);
    await listen(page);
    await page.goto(link(await create()));
    await heading(page, "Choose how to pay");
    await press(page, "USDT on Polygon");
    await heading(page, "Waiting for your payment");
    assert.match(await page.title(), /^Waiting for your payment/, "what a screen reader says of a new page");
    await press(page, "Pay in another way");
    await heading(page, "Choose how to pay");
    await press(page, "USDT on Ethereum");
    await page.getByText("Send only USDT on Ethereum").waitFor();
    const amount = await value(page);
    for (const [name, text] of [["Copy the amount", amount], ["Copy the address", WALLET]]) {
      await press(page, name);
      await page.waitForFunction((text) => navigator.clipboard.readText().then((of) => of === text), text);
    }
    assert.ok(await page.evaluate("said.includes('Copied')"), "nobody says that it was copied");
    await send(amount);
    await mine();
    await heading(page, "Payment seen");
    await assertSaid(page, "Payment seen, being confirmed");
    await press(page, "Copy the transaction number");
    await page.waitForFunction(() => navigator.clipboard.readText().then((text) => /^0x[0-9a-f]{64}$/.test(text)));
    await mine();
    await page.getByText("2 of 4 confirmations").waitFor();
    assert.ok(await page.evaluate("'copy' in document.activeElement.dataset"), "each block takes the focus away");
    await mine(4);
    await heading(page, "Paid");
    await assertSaid(page, "Paid");
  },

  async "with Tab and Enter an order is cancelled, and its other page says so"(browser) {
    const page = await visit(browser);
    const id = await create({ blockchain: "eth", stablecoin: "USDT" });
    await page.goto(link(id));
    await heading(page, "Waiting for your payment");
    const other = await open(page.context());
    await listen(other);
    await other.goto(page.url());
    await tab(other, "Copy the amount");
    await press(page, "Cancel the order");
    await press(page, "I have sent nothing: cancel the order");
    await heading(page, "The order was cancelled");
    assert.match(await page.title(), /^The order was cancelled/);
    // The way back may have the time in it, which is another in each newer page.
    const back = page.locator("#back");
    await back.focus();
    await back.evaluate((of) => {
      of.href += "&older";
      dispatchEvent(new Event("online"));
    });
    await page.waitForFunction(() => !document.getElementById("back").href.includes("older"));
    assert.equal(await page.evaluate("document.activeElement.id"), "back", "the focus is lost");
    await heading(other, "The order was cancelled");
    await assertSaid(other, "The order was cancelled");
  },

  // Last: it moves the chain's time.
  async "an order that expires says so"(browser) {
    const page = await visit(browser);
    await listen(page);
    await page.goto(link(await create({ blockchain: "eth", stablecoin: "USDT" })));
    await tab(page, "Copy the amount");
    await mine(6, 1300);
    await heading(page, "The order has expired");
    await assertSaid(page, "The order has expired");
  },
});
