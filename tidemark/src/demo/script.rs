//! The scripted story in five chapters, each about another course of a payment.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use log::{Log, Offset, TopicPartition};
use schemas::record::Transfer;
use schemas::{Blockchain, Topic};
use serde_json::{Value, json};

use super::chain::Chain;
use super::merchant::Merchant;
use super::narrator::Narrator;
use super::shop::{Due, ShopClient};

/// Maximum wait of the script for the api to show a change.
const WAIT_MAX: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Jump of chain time, in seconds: longer than the lifetime of an order and than the match window.
const JUMP_SECONDS: i64 = 31 * 60;

pub(super) struct Script<'a> {
    pub(super) narrator: &'a Narrator,
    pub(super) shop: &'a ShopClient,
    pub(super) merchant: &'a Merchant,
    pub(super) ethereum: &'a Chain,
    pub(super) polygon: &'a Chain,
    pub(super) log: Arc<dyn Log>,
    /// Lifetime of an order, awaited where the chain's time cannot be moved.
    pub(super) order_ttl: Duration,
}

impl Script<'_> {
    pub(super) async fn play(&self) -> anyhow::Result<()> {
        let (ethereum, polygon) = (self.ethereum.url(), self.polygon.url());
        self.narrator.say(&format!("two development chains make blocks: {ethereum} and {polygon}"));
        let followed = async {
            while !self.shop.offers(&[Blockchain::Eth, Blockchain::Polygon]).await? {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
            anyhow::Ok(())
        };
        tokio::time::timeout(WAIT_MAX, followed).await.context("the chains are not followed")??;
        self.simple_payment().await.context("chapter 1")?;
        self.same_amount_twice().await.context("chapter 2")?;
        self.reorganisation().await.context("chapter 3")?;
        self.underpayment_and_expiry().await.context("chapters 4 and 5")
    }

    async fn simple_payment(&self) -> anyhow::Result<()> {
        self.narrator.chapter(1, "An order is created, chosen, paid and confirmed");
        let order = self.create("A-1", "10.00").await?;
        let due = self.choose(&order, "eth").await?;
        self.pay(self.ethereum, Blockchain::Eth, &due, &due.value).await?;
        self.paid(&order).await
    }

    async fn same_amount_twice(&self) -> anyhow::Result<()> {
        self.narrator.chapter(2, "Two orders for the same amount at the same moment");
        let (first, second) =
            tokio::try_join!(self.create("B-1", "25.00"), self.create("B-2", "25.00"))?;
        let (due1, due2) =
            tokio::try_join!(self.choose(&first, "eth"), self.choose(&second, "eth"))?;
        ensure!(due1.value != due2.value, "both orders got {}", due1.value);
        self.narrator.say("each has its own payable amount, so the payments cannot be mixed up");
        self.pay(self.ethereum, Blockchain::Eth, &due2, &due2.value).await?;
        self.pay(self.ethereum, Blockchain::Eth, &due1, &due1.value).await?;
        self.paid(&first).await?;
        self.paid(&second).await
    }

    async fn reorganisation(&self) -> anyhow::Result<()> {
        self.narrator.chapter(3, "A reorganisation moves a payment to another block");
        let order = self.create("C-1", "30.00").await?;
        let due = self.choose(&order, "eth").await?;
        self.ethereum.pause_mining().await?;
        let tx = self.pay(self.ethereum, Blockchain::Eth, &due, &due.value).await?;
        self.ethereum.mine(2).await?;
        let query = "blockchain=eth&status=waiting_for_confirmation";
        let seen = self.transfer(&due, query, |t| t["txn_hash"] == tx).await?;
        self.narrator.say(&format!(
            "the payment is in block {} and waits for confirmation",
            seen["block_number"]
        ));
        self.ethereum.move_to_next_block(&tx).await?;
        self.narrator.say(&format!(
            "block {} is orphaned; the payment is now in another block",
            seen["block_number"]
        ));
        self.ethereum.keep_mining().await?;
        self.paid(&order).await?;
        let moved =
            self.transfer(&due, "blockchain=eth&status=matched", |t| t["txn_hash"] == tx).await?;
        ensure!(moved["id"] == seen["id"], "the payment changed its id");
        ensure!(moved["block_number"] != seen["block_number"], "the payment did not move");
        ensure!(self.merchant.further(&order).await == 0, "the order was announced twice");
        self.narrator.say(&format!(
            "same transfer, now in block {}: the order is paid once",
            moved["block_number"]
        ));
        Ok(())
    }

    async fn underpayment_and_expiry(&self) -> anyhow::Result<()> {
        self.narrator.chapter(4, "An underpayment");
        let order = self.create("D-1", "40.00").await?;
        let due = self.choose(&order, "polygon").await?;
        let tx = self.pay(self.polygon, Blockchain::Polygon, &due, "39.00").await?;
        let forgotten = self.create("E-1", "50.00").await?;
        self.choose(&forgotten, "polygon").await?;
        self.polygon.mine(4).await?;
        // With a short match window, the transfer may be unknown already, so any later status
        // counts.
        let is_confirmed = |t: &Value| t["status"] != "waiting_for_confirmation";
        let query = "blockchain=polygon";
        self.transfer(&due, query, |t| t["txn_hash"] == tx && is_confirmed(t)).await?;
        self.narrator
            .say(&format!("39.00 came where {} was due: it pays nothing by itself", due.value));
        if self.polygon.jump(JUMP_SECONDS).await? {
            self.narrator
                .say("half an hour passes on the polygon chain (its blocks carry the time)");
        } else {
            let seconds = self.order_ttl.as_secs();
            self.narrator.say(&format!("the orders wait for their payment, {seconds} s in all"));
        }
        let event = self.merchant.wait_for("event_type", &json!("unknown_transfer")).await?;
        let unknown = tokio::task::block_in_place(|| self.unknown_transfer(&event))?;
        let reason = unknown.reason.context("the transfer has no reason")?;
        ensure!(reason.as_str() == "amount_mismatch", "the reason is {reason}");
        ensure!(
            unknown.candidate_order_id.is_some_and(|id| id.to_string() == order),
            "the candidate is not the order"
        );
        self.narrator.say(&format!(
            "webhook unknown_transfer, signature verified: transfer {}, reason {reason}, probably meant for D-1",
            event["transfer_id"]
        ));
        self.narrator.chapter(5, "An order that nobody pays");
        for (reference, id) in [("D-1", &order), ("E-1", &forgotten)] {
            self.ended(id, "expired").await?;
            self.narrator.say(&format!("webhook: order {reference} expired, signature verified"));
        }
        Ok(())
    }

    async fn create(&self, reference: &str, amount: &str) -> anyhow::Result<String> {
        let id = self.shop.create(reference, amount).await?;
        self.narrator.say(&format!("order {reference} over {amount} created: {id}"));
        Ok(id)
    }

    async fn choose(&self, order: &str, chain: &str) -> anyhow::Result<Due> {
        let due = self.shop.choose(order, chain, "USDT").await?;
        self.narrator.say(&format!(
            "the customer chose USDT on {chain}: pay {} to {}",
            due.value, due.wallet
        ));
        Ok(due)
    }

    async fn pay(
        &self,
        chain: &Chain,
        blockchain: Blockchain,
        due: &Due,
        amount: &str,
    ) -> anyhow::Result<String> {
        let tx = chain.pay(blockchain, due, amount).await?;
        self.narrator.say(&format!("the buyer sends {amount} USDT in transaction {tx}"));
        Ok(tx)
    }

    async fn paid(&self, order: &str) -> anyhow::Result<()> {
        let event = self.ended(order, "paid").await?;
        let reference = event["merchant_order_id"].as_str().unwrap_or_default();
        let received = async {
            loop {
                // The tables may be written only after the webhook is sent.
                if let Some(value) = self.shop.received(reference).await? {
                    return anyhow::Ok(value);
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        let received = tokio::time::timeout(WAIT_MAX, received);
        let received = received.await.context("the order's row has no payment")??;
        self.narrator.say(&format!(
            "confirmed; webhook: order {reference} over {} paid, signature verified; {received} was received",
            event["amount"].as_str().unwrap_or_default()
        ));
        Ok(())
    }

    async fn ended(&self, order: &str, status: &str) -> anyhow::Result<Value> {
        let event = self.merchant.wait_for("order_id", &json!(order)).await?;
        ensure!(event["status"] == status, "order {order} is {}, not {status}", event["status"]);
        Ok(event)
    }

    /// Waits until the operator's list has a matching transfer.
    async fn transfer(
        &self,
        due: &Due,
        query: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> anyhow::Result<Value> {
        let search = async {
            loop {
                let list = self.shop.transfers(&due.wallet, query).await?;
                if let Some(found) = list.into_iter().find(&wanted) {
                    return anyhow::Ok(found);
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        tokio::time::timeout(WAIT_MAX, search)
            .await
            .with_context(|| format!("no transfer with {query}"))?
    }

    /// The record behind an unknown_transfer webhook, from the first 100 records of each partition of the topic.
    fn unknown_transfer(&self, event: &Value) -> anyhow::Result<Transfer> {
        let topic = Topic::TransfersUnknown;
        for partition in topic.all_partitions(&self.log.layout()) {
            let from = TopicPartition { topic, partition };
            for record in self.log.read(from, Offset(0), 100)? {
                let transfer: Transfer =
                    schemas::decode(record.value.as_deref().unwrap_or_default())?;
                if json!(transfer.transfer_id.0) == event["transfer_id"] {
                    return Ok(transfer);
                }
            }
        }
        anyhow::bail!("the transfer is not on {topic}")
    }
}
