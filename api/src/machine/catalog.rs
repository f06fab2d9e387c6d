//! Payments that the merchant takes: chains, stablecoins and wallets, as configured.

use std::time::Duration;

use schemas::record::{AmountRule, CreateOrder, Order, PaymentRequest};
use schemas::{
    Address, Amount, Blockchain, OrderId, ReceiverPolicy, Secret, Stablecoin, StablecoinContract,
    UnixSeconds, Wallet, draw_digits, murmur2,
};
use uuid::Uuid;

use crate::error::{Answer, Invalid, Refusal};
use crate::machine::arrival::ONE_CENT;
use crate::machine::followed::Followed;
use crate::terms::ChainTerms;
use crate::view::ChainView;
use crate::{Amounts, Config, LatePayments, Matching, Orders, Percent};

/// A chain and a stablecoin on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) blockchain: Blockchain,
    pub(crate) stablecoin: Stablecoin,
}

/// The configuration of payments.
#[derive(Debug)]
pub(crate) struct Catalog {
    wallets: Vec<Wallet>,
    contracts: Vec<StablecoinContract>,
    chains: Vec<ChainTerms>,
    orders: Orders,
    matching: Matching,
    /// Key from which the digits that distinguish amounts are drawn.
    secret: Secret,
    receivers: ReceiverPolicy,
}

/// A duration in whole seconds; one of more than 136 years counts as 136.
fn seconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_secs()).unwrap_or(u32::MAX)
}

impl Catalog {
    pub(crate) fn new(
        config: &Config,
        contracts: Vec<StablecoinContract>,
        chains: Vec<ChainTerms>,
    ) -> Self {
        let Config { wallets, orders, matching, merchant, .. } = config;
        let (wallets, secret) = (wallets.clone(), merchant.link_key().clone());
        let receivers = config.receivers.clone();
        let (orders, matching) = (*orders, *matching);
        Self { wallets, contracts, chains, orders, matching, secret, receivers }
    }

    pub(crate) fn ttl_seconds(&self) -> i64 {
        i64::from(seconds(self.orders.ttl))
    }

    /// The configured wallets, in the order of the file (spec 2.6).
    pub(crate) fn wallets(&self) -> &[Wallet] {
        &self.wallets
    }

    /// Maximum wait of a transfer for a deposit, in seconds.
    pub(crate) fn match_window_seconds(&self) -> i64 {
        i64::from(seconds(self.matching.match_window))
    }

    /// Terms of a chain, if it is followed.
    pub(crate) fn terms(&self, blockchain: Blockchain) -> Option<&ChainTerms> {
        self.chains.iter().find(|of| of.blockchain == blockchain)
    }

    /// Contracts accepted for a new choice, the displayed one first.
    fn contracts(&self, choice: Choice) -> impl Iterator<Item = &StablecoinContract> {
        self.contracts.iter().filter(move |contract| {
            contract.blockchain == choice.blockchain && contract.stablecoin == choice.stablecoin
        })
    }

    /// Refuses a new order from a wallet of the merchant, as its transfers pay no order (decision 30), or with a
    /// webhook URL that would never be called. What a name resolves to is checked at each delivery, because that
    /// changes.
    pub(crate) fn check_ends(&self, create: &CreateOrder) -> Result<(), Invalid> {
        let sender = create.expecting_wallet_address;
        if self.wallets.iter().any(|wallet| Some(wallet.address) == sender) {
            return Err(Invalid::new("expecting_wallet_address", "is a wallet of the merchant"));
        }
        let checked = self.receivers.check(&create.webhook_url);
        checked.map(drop).map_err(|refusal| Invalid::new("webhook_url", refusal.to_string()))
    }

    /// The request for a deposit. Orders start at different wallets, so that their amounts collide
    /// less; repeated requests for one order start at the same wallet.
    ///
    /// # Errors
    /// Reason why the choice cannot be paid, worded for a merchant who chose chain, stablecoin and
    /// amount.
    pub(crate) fn payment(
        &self,
        order_id: OrderId,
        choice: Choice,
        amount: Amount,
        followed: &Followed,
    ) -> Answer<PaymentRequest> {
        let Choice { blockchain, stablecoin } = choice;
        let Some(shown) = self.contracts(choice).next() else {
            let problem = format!("{stablecoin} is not available on {blockchain}");
            return Err(Invalid::new("stablecoin", problem).into());
        };
        let StablecoinContract { decimals, address: contract, .. } = *shown;
        let contracts: Vec<_> = self.contracts(choice).map(|of| of.address).collect();
        if amount.to_units(decimals).is_none() {
            let most = format!("must have at most {decimals} digits after the point");
            let problem = format!("{most} for {stablecoin} on {blockchain}");
            return Err(Invalid::new("amount", problem).into());
        }
        let takes = |of: &&Wallet| {
            of.blockchain == blockchain && of.stablecoins.contains(&stablecoin) && !of.retired
        };
        let mut wallets: Vec<_> = self.wallets.iter().filter(takes).map(|of| of.address).collect();
        if wallets.is_empty() {
            return Err(Refusal::NoWallet);
        }
        let head_age_max_seconds = seconds(self.matching.head_age_max);
        let is_seen = |wallet: &_| followed.sees(*wallet, shown, &contracts, head_age_max_seconds);
        wallets.retain(is_seen);
        let first = murmur2(order_id.0.as_bytes()) as usize;
        let first = first.checked_rem(wallets.len()).ok_or(Refusal::NotFollowed)?;
        wallets.rotate_left(first);
        Ok(PaymentRequest {
            blockchain,
            stablecoin,
            contract,
            decimals,
            contracts,
            wallets,
            amounts: self.amounts(order_id, choice, amount),
            late_window_seconds: seconds(self.orders.late_window),
            accepts_late: self.orders.late_payments == LatePayments::Accept,
            head_age_max_seconds,
        })
    }

    /// `true` if a payment that comes now can still pay an order that expired at `end`.
    pub(crate) fn takes_late(&self, end: UnixSeconds, now: UnixSeconds) -> bool {
        let Orders { late_payments, late_window, .. } = self.orders;
        late_payments == LatePayments::Accept && now <= end.plus(seconds(late_window).into())
    }

    /// Rule for the amounts of a deposit.
    fn amounts(&self, order_id: OrderId, choice: Choice, amount: Amount) -> AmountRule {
        let Matching { digits, limit, .. } = self.matching;
        if limit == Percent::default() {
            return AmountRule::EXACT;
        }
        let least = if digits > 2 { ONE_CENT } else { 10 * ONE_CENT };
        let limit = limit.of(amount).max(Amount::from_parts(least).unwrap_or_default());
        let draws = draw_digits(&self.secret, order_id, choice.blockchain, choice.stablecoin);
        AmountRule { exact_first: true, digits: i32::from(digits), limit, draws }
    }

    /// The request for a deposit that a customer chose.
    pub(crate) fn chosen(
        &self,
        order: &Order,
        choice: Choice,
        followed: &Followed,
    ) -> Answer<PaymentRequest> {
        if let Some(fixed) = order.blockchain.filter(|fixed| *fixed != choice.blockchain) {
            return Err(Invalid::new("blockchain", format!("the merchant selected {fixed}")).into());
        }
        if let Some(fixed) = order.stablecoin.filter(|fixed| *fixed != choice.stablecoin) {
            return Err(Invalid::new("stablecoin", format!("the merchant selected {fixed}")).into());
        }
        if !sender_fits(order.expecting_wallet_address, choice.blockchain) {
            let problem = "the order takes payments from one address only, on another chain";
            return Err(Invalid::new("blockchain", problem).into());
        }
        let payment = self.payment(order.order_id, choice, order.amount, followed);
        let mut payment = payment.map_err(|refusal| {
            if refusal == Refusal::NotFollowed { refusal } else { Refusal::NoWallet }
        })?;
        payment.amounts.exact_first = self.matching.amounts == Amounts::ExactFirst;
        Ok(payment)
    }

    /// Everything that [`Catalog::chosen`] would accept for the order.
    pub(crate) fn choices(&self, order: &Order, followed: &Followed) -> Vec<ChainView> {
        chains(|choice| self.chosen(order, choice, followed).is_ok())
    }

    /// Everything that some order can be paid with.
    pub(crate) fn offer(&self, followed: &Followed) -> Vec<ChainView> {
        let order_id = OrderId(Uuid::nil());
        chains(|choice| self.payment(order_id, choice, Amount::ZERO, followed).is_ok())
    }

    /// [`Self::check_ends`], and refuses an order that no configured wallet can ever take. Without any wallet all are
    /// accepted, for a first trial of the API; the process warns of it at start.
    ///
    /// # Errors
    /// The unsupported property: chain and coin, the sender, the webhook URL, or the digits of the amount.
    pub(crate) fn check_new(&self, create: &CreateOrder) -> Answer<()> {
        self.check_ends(create)?;
        if self.wallets().is_empty() {
            return Ok(());
        }
        let sender = create.expecting_wallet_address;
        self.check(create.amount, sender, (create.blockchain, create.stablecoin))
    }

    /// `true` if a configured wallet can ever take the order's payment. The configuration may have
    /// changed since the order was created.
    pub(crate) fn has_way(&self, order: &Order) -> bool {
        let sender = order.expecting_wallet_address;
        self.check(order.amount, sender, (order.blockchain, order.stablecoin)).is_ok()
    }

    fn check(
        &self,
        amount: Amount,
        sender: Option<Address>,
        (blockchain, stablecoin): (Option<Blockchain>, Option<Stablecoin>),
    ) -> Answer<()> {
        let is_admitted = |choice: Choice| {
            blockchain.is_none_or(|fixed| fixed == choice.blockchain)
                && stablecoin.is_none_or(|fixed| fixed == choice.stablecoin)
        };
        let ways: Vec<_> = self.ways().filter(|(choice, _)| is_admitted(*choice)).collect();
        if ways.is_empty() {
            return Err(Refusal::NoWallet);
        }
        let of_sender = ways.iter().filter(|(choice, _)| sender_fits(sender, choice.blockchain));
        let Some(most) = of_sender.map(|(_, decimals)| *decimals).max() else {
            let problem = "is not an address of a chain that the order can be paid on";
            return Err(Invalid::new("expecting_wallet_address", problem).into());
        };
        if amount.to_units(most).is_none() {
            let problem = format!("must have at most {most} digits after the point");
            return Err(Invalid::new("amount", problem).into());
        }
        Ok(())
    }

    /// Each chain and coin that some wallet takes, and the digits of the coin there.
    fn ways(&self) -> impl Iterator<Item = (Choice, u8)> {
        let wallets = self.wallets().iter().filter(|wallet| !wallet.retired);
        let choices = wallets.flat_map(|wallet| {
            let blockchain = wallet.blockchain;
            wallet.stablecoins.iter().map(move |coin| Choice { blockchain, stablecoin: *coin })
        });
        choices.filter_map(|choice| Some((choice, self.contracts(choice).next()?.decimals)))
    }
}

/// The chains and stablecoins that a choice may name.
fn chains(may_name: impl Fn(Choice) -> bool) -> Vec<ChainView> {
    let chain = |blockchain: &Blockchain| {
        let payable = |stablecoin: &Stablecoin| {
            may_name(Choice { blockchain: *blockchain, stablecoin: *stablecoin })
        };
        let coins: Vec<_> = Stablecoin::ALL.iter().copied().filter(payable).collect();
        (!coins.is_empty()).then(|| ChainView::new(*blockchain, coins))
    };
    Blockchain::ALL.iter().filter_map(chain).collect()
}

/// `true` if an order's only accepted sender, if it has one, can exist on the chain.
fn sender_fits(sender: Option<Address>, blockchain: Blockchain) -> bool {
    sender.is_none_or(|sender| sender.family() == blockchain.address_family())
}
