//! Latency of payments on the development chain: from the block of a payment to the webhook at the receiver.

use std::time::Instant;

use alloy_primitives::U256;
use testkit::harness::{Client, Merchant, eventually, now, units, usdt};
use testkit::measure::{percent, percentile};

/// Blocks with payments, and payments in each.
const BLOCKS: usize = 30;
const IN_BLOCK: usize = 5;
/// Seconds from the block of a payment to the newest block. The payment's block is then final and over 6 s old in chain
/// time, so its logs are checked at once. A younger block waits for 6 s (decision 69), which is not the pipeline's
/// latency.
const AGE: u64 = 7;

/// An order that awaits its payment.
struct Awaiting {
    order_id: String,
    units: u128,
}

/// Source of payments: the chain, and the wallet that is paid.
pub(crate) struct Payments {
    pub(crate) chain: devnet::Chain,
    pub(crate) wallet: &'static str,
}

impl Payments {
    /// Mines the pool in a block of this second, but at least `later` seconds after the last block.
    fn mine(&self, later: u64) {
        let time = now().unsigned_abs().max(self.chain.head().timestamp + later);
        self.chain.mine_at(time).expect("a block");
    }

    async fn order(&self, client: &Client, merchant: &Merchant, number: usize) -> Awaiting {
        let amount = format!("{}.00", 10 + number);
        let order = client.create(&format!("P-{number}"), &amount, "eth", merchant.url()).await;
        let order_id = order["order_id"].as_str().expect("an id").to_owned();
        let deposit = client.deposit(&order_id).await;
        Awaiting { order_id, units: units(&deposit["value"]) }
    }

    fn pay(&self, order: &Awaiting) {
        let (token, to) = (usdt().address, self.wallet.parse().expect("an address"));
        let paid = self.chain.transfer(token, [0x22; 20].into(), to, U256::from(order.units));
        paid.expect("room in the pool");
    }

    /// Creates and pays orders, and prints the latency of their webhooks.
    pub(crate) async fn run(&self, client: &Client, merchant: &Merchant, beside: &str) {
        let (mut times, blocks) = (Vec::new(), (BLOCKS * percent() / 100).max(1));
        for block in 0..blocks {
            // A chain with an old head takes no orders.
            self.mine(1);
            client.offers(&["eth"]).await;
            let mut orders = Vec::new();
            for number in 0..IN_BLOCK {
                orders.push(self.order(client, merchant, block * IN_BLOCK + number).await);
            }
            orders.iter().for_each(|order| self.pay(order));
            self.mine(1);
            self.mine(AGE);
            let mined = Instant::now();
            for order in &orders {
                times.push(self.paid(merchant, order).await.saturating_duration_since(mined));
            }
        }
        times.sort_unstable();
        assert_eq!(times.len(), blocks * IN_BLOCK);
        let at = |part| percentile(&times, part).as_secs_f64() * 1000.0;
        println!(
            "                  a payment's block to its webhook, {IN_BLOCK} in each of {blocks} blocks, all of them paid: p50 {:.0} ms, p99 {:.0} ms   ({beside})",
            at(50),
            at(99)
        );
    }

    /// Arrival time of the webhook that reports the order as paid.
    async fn paid(&self, merchant: &Merchant, order: &Awaiting) -> Instant {
        eventually(&format!("order {} to be paid", order.order_id), || async {
            let events = merchant.with("order_id", &order.order_id.as_str().into());
            events
                .iter()
                .find(|webhook| webhook.event["status"] == "paid")
                .map(|webhook| webhook.at)
        })
        .await
    }
}
