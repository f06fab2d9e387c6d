//! Which payments the shop takes: chains, stablecoins and wallets, as configured.

use std::time::Duration;

use schemas::record::{Order, PaymentRequest};
use schemas::{
    Address, Amount, Blockchain, OrderId, Stablecoin, StablecoinContract, Wallet, murmur2,
};

use crate::error::{Invalid, Refusal};
use crate::{Config, Matching, Orders};

/// A chain and a stablecoin on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) blockchain: Blockchain,
    pub(crate) stablecoin: Stablecoin,
}

/// Why a choice cannot be paid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unpayable {
    /// The stablecoin does not exist on the chain, or the chain is not followed.
    NoContract,
    /// The amount has more digits after the point than the stablecoin, which has this many.
    TooPrecise(u8),
    /// No wallet takes it.
    NoWallet,
}

impl Unpayable {
    /// The answer to the merchant, who chose chain, stablecoin and amount.
    pub(crate) fn for_merchant(self, choice: Choice) -> Refusal {
        let Choice { blockchain, stablecoin } = choice;
        match self {
            Self::NoContract => {
                let problem = format!("{stablecoin} is not available on {blockchain}");
                Invalid::new("stablecoin", problem).into()
            }
            Self::TooPrecise(decimals) => {
                let problem = format!(
                    "must have at most {decimals} digits after the point for {stablecoin} on \
                     {blockchain}"
                );
                Invalid::new("amount", problem).into()
            }
            Self::NoWallet => Refusal::NoWallet,
        }
    }
}

/// The stablecoins of one chain that an order can be paid with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChainChoices {
    pub(crate) blockchain: Blockchain,
    pub(crate) stablecoins: Vec<Stablecoin>,
}

/// The configuration of payments.
#[derive(Debug)]
pub(crate) struct Catalog {
    wallets: Vec<Wallet>,
    contracts: Vec<StablecoinContract>,
    orders: Orders,
    matching: Matching,
}

fn seconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_secs()).unwrap_or(u32::MAX)
}

impl Catalog {
    pub(crate) fn new(config: &Config, contracts: Vec<StablecoinContract>) -> Self {
        let Config { wallets, orders, matching, .. } = config;
        Self { wallets: wallets.clone(), contracts, orders: *orders, matching: *matching }
    }

    pub(crate) fn ttl_seconds(&self) -> i64 {
        i64::from(seconds(self.orders.ttl))
    }

    /// The configured wallets, in the order of the file (spec 2.6).
    pub(crate) fn wallets(&self) -> &[Wallet] {
        &self.wallets
    }

    /// Whether some chain has this wallet.
    pub(crate) fn has_wallet(&self, address: &Address) -> bool {
        self.wallets.iter().any(|wallet| wallet.address == *address)
    }

    /// The contract that is the stablecoin.
    pub(crate) fn contract(&self, choice: Choice) -> Option<&StablecoinContract> {
        self.contracts.iter().find(|contract| {
            contract.blockchain == choice.blockchain && contract.stablecoin == choice.stablecoin
        })
    }

    /// The wallets that take a payment, in the order of the file.
    fn takers(&self, choice: Choice, amount: Amount) -> Result<Vec<Address>, Unpayable> {
        let decimals = self.contract(choice).ok_or(Unpayable::NoContract)?.decimals;
        if amount.to_units(decimals).is_none() {
            return Err(Unpayable::TooPrecise(decimals));
        }
        let takes = |wallet: &&Wallet| {
            wallet.blockchain == choice.blockchain
                && wallet.stablecoins.contains(&choice.stablecoin)
        };
        let wallets: Vec<_> = self.wallets.iter().filter(takes).map(|w| w.address).collect();
        if wallets.is_empty() { Err(Unpayable::NoWallet) } else { Ok(wallets) }
    }

    /// The request for a deposit. Orders begin at different wallets, so that their amounts collide
    /// less; a repeated request for the same order begins at the same one.
    pub(crate) fn payment(
        &self,
        order_id: OrderId,
        choice: Choice,
        amount: Amount,
    ) -> Result<PaymentRequest, Unpayable> {
        let mut wallets = self.takers(choice, amount)?;
        let first = murmur2(order_id.0.as_bytes()) as usize % wallets.len().max(1);
        wallets.rotate_left(first);
        Ok(PaymentRequest {
            blockchain: choice.blockchain,
            stablecoin: choice.stablecoin,
            wallets,
            nudge_step: self.matching.nudge_step,
            nudge_limit: self.matching.nudge_limit,
            late_window_seconds: seconds(self.orders.late_window),
            skew_seconds: seconds(self.matching.skew),
        })
    }

    /// The request for a deposit that a customer chose.
    pub(crate) fn chosen(&self, order: &Order, choice: Choice) -> Result<PaymentRequest, Refusal> {
        if let Some(fixed) = order.blockchain.filter(|fixed| *fixed != choice.blockchain) {
            return Err(Invalid::new("blockchain", format!("the merchant selected {fixed}")).into());
        }
        if let Some(fixed) = order.stablecoin.filter(|fixed| *fixed != choice.stablecoin) {
            return Err(Invalid::new("stablecoin", format!("the merchant selected {fixed}")).into());
        }
        if !sender_fits(order, choice.blockchain) {
            let problem = "the order takes payments from one address only, on another chain";
            return Err(Invalid::new("blockchain", problem).into());
        }
        self.payment(order.order_id, choice, order.amount).map_err(|_| Refusal::NoWallet)
    }

    /// Everything that [`Catalog::chosen`] would accept for the order.
    pub(crate) fn choices(&self, order: &Order) -> Vec<ChainChoices> {
        let stablecoins = |blockchain| {
            let payable = |stablecoin: &Stablecoin| {
                self.chosen(order, Choice { blockchain, stablecoin: *stablecoin }).is_ok()
            };
            Stablecoin::ALL.iter().copied().filter(payable).collect()
        };
        Blockchain::ALL
            .iter()
            .map(|chain| ChainChoices { blockchain: *chain, stablecoins: stablecoins(*chain) })
            .filter(|choices| !choices.stablecoins.is_empty())
            .collect()
    }
}

/// Whether the only sender that counts, if there is one, can exist on the chain.
fn sender_fits(order: &Order, blockchain: Blockchain) -> bool {
    order
        .expecting_wallet_address
        .is_none_or(|sender| sender.family() == blockchain.address_family())
}

#[cfg(test)]
mod tests {
    use super::*;
    use schemas::record::example;
    use schemas::{AddressFamily, Blockchain as B, Stablecoin as S, stablecoin_contracts};

    fn wallet(blockchain: B, byte: u8, stablecoins: &[S]) -> Wallet {
        let address = Address::new(blockchain.address_family(), [byte; 20]);
        Wallet { blockchain, address, stablecoins: stablecoins.to_vec() }
    }

    fn catalog() -> Catalog {
        Catalog {
            wallets: vec![
                wallet(B::Eth, 1, &[S::Usdt, S::Dai]),
                wallet(B::Eth, 2, &[S::Usdt]),
                wallet(B::Eth, 3, &[S::Usdt]),
                wallet(B::Tron, 4, &[S::Usdt, S::Dai]),
            ],
            contracts: [B::Eth, B::Tron]
                .into_iter()
                .flat_map(stablecoin_contracts)
                .copied()
                .collect(),
            orders: Orders {
                ttl: Duration::from_secs(60),
                late_window: Duration::from_secs(86_400),
            },
            matching: Matching {
                nudge_step: Amount::parse("0.01").unwrap(),
                nudge_limit: Amount::parse("1").unwrap(),
                match_window: Duration::from_secs(3600),
                skew: Duration::from_secs(120),
            },
        }
    }

    fn order() -> Order {
        Order {
            blockchain: None,
            stablecoin: None,
            expecting_wallet_address: None,
            ..example::order()
        }
    }

    fn id(n: u128) -> OrderId {
        OrderId(uuid::Uuid::from_u128(n))
    }

    #[test]
    fn what_cannot_be_paid_and_why() {
        let catalog = catalog();
        for (blockchain, stablecoin, amount, why) in [
            (B::Tron, S::Dai, "1", Unpayable::NoContract),
            (B::Base, S::Usdc, "1", Unpayable::NoContract),
            (B::Eth, S::Usdt, "0.0000001", Unpayable::TooPrecise(6)),
            (B::Eth, S::Usdc, "1", Unpayable::NoWallet),
        ] {
            let choice = Choice { blockchain, stablecoin };
            let amount = Amount::parse(amount).unwrap();
            assert_eq!(catalog.payment(id(1), choice, amount), Err(why), "{choice:?}");
        }
        let dai = Choice { blockchain: B::Eth, stablecoin: S::Dai };
        assert!(catalog.payment(id(1), dai, Amount::parse("0.0000001").unwrap()).is_ok());
    }

    #[test]
    fn orders_spread_over_all_wallets_and_each_tries_all_of_them() {
        let catalog = catalog();
        let choice = Choice { blockchain: B::Eth, stablecoin: S::Usdt };
        let amount = Amount::parse("1").unwrap();
        let mut firsts = std::collections::HashSet::new();
        for n in 0..50 {
            let payment = catalog.payment(id(n), choice, amount).unwrap();
            assert_eq!(payment, catalog.payment(id(n), choice, amount).unwrap());
            firsts.insert(payment.wallets[0]);
            let mut sorted = payment.wallets.clone();
            sorted.sort();
            assert_eq!(sorted, [1, 2, 3].map(|b| Address::new(AddressFamily::Evm, [b; 20])));
            assert_eq!(payment.late_window_seconds, 86_400);
            assert_eq!(payment.skew_seconds, 120);
        }
        assert_eq!(firsts.len(), 3);
    }

    #[test]
    fn choices_honour_preselection_sender_and_decimals() {
        let catalog = catalog();
        let chains = |order: &Order| {
            catalog
                .choices(order)
                .into_iter()
                .map(|c| (c.blockchain, c.stablecoins))
                .collect::<Vec<_>>()
        };
        let all = [(B::Eth, vec![S::Usdt, S::Dai]), (B::Tron, vec![S::Usdt])];
        assert_eq!(chains(&order()), all);
        assert_eq!(chains(&Order { blockchain: Some(B::Tron), ..order() }), all[1..]);
        let dai = Order { stablecoin: Some(S::Dai), ..order() };
        assert_eq!(chains(&dai), [(B::Eth, vec![S::Dai])]);
        let sender = Some(Address::new(AddressFamily::Tron, [9; 20]));
        assert_eq!(chains(&Order { expecting_wallet_address: sender, ..order() }), all[1..]);
        let fine = Order { amount: Amount::parse("0.0000001").unwrap(), ..order() };
        assert_eq!(chains(&fine), [(B::Eth, vec![S::Dai])]);
    }

    #[test]
    fn a_choice_against_the_merchants_names_the_field() {
        let catalog = catalog();
        let order = Order { blockchain: Some(B::Eth), stablecoin: Some(S::Usdt), ..order() };
        for (blockchain, stablecoin, text) in [
            (B::Tron, S::Usdt, "blockchain: the merchant selected eth"),
            (B::Eth, S::Dai, "stablecoin: the merchant selected USDT"),
        ] {
            let refusal = catalog.chosen(&order, Choice { blockchain, stablecoin }).unwrap_err();
            assert_eq!(refusal.to_string(), text);
        }
    }
}
