//! The buyer: pays a customer's due on a chain.

use anyhow::Context;
use api::{TestBuyer, TestPayment};
use async_trait::async_trait;
use schemas::{Amount, Blockchain, Stablecoin, stablecoin_contract};

use super::chain::{self, Chain};
use super::shop::Due;

/// Sends an amount of USDT to the wallet of `due`; the next block has the transfer. Returns the
/// transaction.
///
/// # Errors
/// The node refuses, or the amount has more decimals than the stablecoin.
pub(super) async fn pay(
    chain: &Chain,
    blockchain: Blockchain,
    due: &Due,
    amount: &str,
) -> anyhow::Result<String> {
    let contract =
        stablecoin_contract(blockchain, Stablecoin::Usdt).context("the chain has USDT")?;
    let units =
        Amount::parse(amount)?.to_units(contract.decimals).context("finer than the stablecoin")?;
    chain.pay(contract, &due.wallet, units).await
}

/// The button of the checkout page that pays on the demo's own chains. Only the demo has it.
pub(super) struct Button(pub(super) Vec<(Blockchain, devnet::Chain)>);

#[async_trait]
impl TestBuyer for Button {
    async fn pay(&self, payment: TestPayment) -> Result<(), String> {
        let TestPayment { blockchain, contract, to, units } = payment;
        let found = self.0.iter().find(|(of, _)| *of == blockchain);
        let (_, chain) = found.ok_or_else(|| format!("the demo has no chain {blockchain}"))?;
        let paid = chain::pay_built_in(chain, &contract, &to.to_string(), units);
        paid.map(drop).map_err(|error| format!("{error:#}"))
    }
}
