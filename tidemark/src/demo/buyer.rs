//! The buyer: pays on a chain what a customer owes.

use anyhow::Context;
use schemas::{Amount, Blockchain, Stablecoin, stablecoin_contract};

use super::chain::Chain;
use super::shop::Due;

/// Sends an amount of USDT to the wallet of `due`; the next block has the transfer. Returns the
/// transaction.
///
/// # Errors
/// The node refuses, or the amount is finer than the stablecoin.
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
