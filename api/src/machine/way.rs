//! Check that an order can ever be paid as configured, whatever is scanned or reserved at present.

use schemas::record::{CreateOrder, Order};
use schemas::{Address, Amount, Blockchain, Stablecoin};

use super::catalog::{Catalog, Choice, sender_fits};
use crate::error::{Answer, Invalid, Refusal};

impl Catalog {
    /// Refuses an order that no configured wallet can ever take. Without any wallet all are accepted, for a first trial
    /// of the API; the process warns of it at start.
    ///
    /// # Errors
    /// The unsupported property: chain and coin, the sender, or the digits of the amount.
    pub(crate) fn check_ways(&self, create: &CreateOrder) -> Answer<()> {
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
