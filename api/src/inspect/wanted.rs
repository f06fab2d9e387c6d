//! Search text, parsed as everything that it may name.

use schemas::record::{Order, Transfer};
use schemas::{Address, Amount, OrderId, TxHash};

/// Search text and its interpretations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Always a possible reference of an order.
    pub text: String,
    pub order: Option<OrderId>,
    /// The id of a transfer or a deposit.
    pub number: Option<i64>,
    pub hash: Option<TxHash>,
    pub address: Option<Address>,
    pub amount: Option<Amount>,
}

impl Wanted {
    /// Parses a text as each kind of value.
    pub fn new(text: &str) -> Self {
        let text = text.trim();
        // Tron's explorers write hashes without a prefix.
        let digits = text.strip_prefix("0x").unwrap_or(text);
        Self {
            text: text.to_owned(),
            order: text.parse().ok(),
            number: text.parse().ok(),
            hash: Some(digits)
                .filter(|digits| digits.len() == 64)
                .and_then(|text| text.parse().ok()),
            address: text.parse().ok(),
            amount: Amount::parse(text).ok().filter(|amount| *amount > Amount::ZERO),
        }
    }

    /// Possible kinds of the text, in words.
    pub fn kinds(&self) -> Vec<&'static str> {
        let kinds = [
            ("an order's id", self.order.is_some()),
            ("the id of a transfer or a deposit", self.number.is_some()),
            ("a transaction's hash", self.hash.is_some()),
            ("an address", self.address.is_some()),
            ("an amount", self.amount.is_some()),
            ("an order's reference", true),
        ];
        kinds.into_iter().filter(|(_, is_so)| *is_so).map(|(kind, _)| kind).collect()
    }

    /// `true` if the text may be a value without an index in the tables.
    pub fn needs_topics(&self) -> bool {
        self.hash.is_some() || self.address.is_some() || self.amount.is_some()
    }

    /// `true` if the text names this order.
    pub fn fits_order(&self, order: &Order) -> bool {
        let at = |wallet| self.address == Some(wallet);
        self.order == Some(order.order_id)
            || self.text == order.merchant_order_id
            || self.amount == Some(order.amount)
            || order.expecting_wallet_address.is_some_and(at)
            || order.deposits.iter().any(|deposit| {
                deposit.deposit_id.is_some_and(|id| self.number == Some(id.0))
                    || (self.amount.is_some() && self.amount == deposit.value)
                    || at(deposit.wallet_address)
            })
    }

    /// `true` if the text names this transfer.
    pub fn fits_transfer(&self, transfer: &Transfer) -> bool {
        let seen = &transfer.observation;
        self.number == Some(transfer.transfer_id.0)
            || self.hash == Some(seen.tx_hash)
            || self.amount == Some(seen.value)
            || [seen.from_address, seen.to_address].map(Some).contains(&self.address)
    }
}

#[cfg(test)]
mod tests {
    use schemas::record::example;

    use super::*;

    #[test]
    fn a_text_may_be_several_things() {
        let kinds = |text: &str| Wanted::new(text).kinds().len();
        let hash = format!("0x{}", "ab".repeat(32));
        for (text, expected) in [
            ("A-1001", 1),
            (" 10.50 ", 2),
            ("0", 2),
            ("77", 3),
            (&hash, 2),
            (&hash[2..], 2),
            ("0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed", 2),
            ("01996d3c-5b00-7abc-8def-0123456789ab", 2),
        ] {
            assert_eq!(kinds(text), expected, "{text}: {:?}", Wanted::new(text).kinds());
        }
        assert_eq!(Wanted::new(&hash), Wanted { text: hash.clone(), ..Wanted::new(&hash[2..]) });
    }

    #[test]
    fn records_fit_by_each_of_their_names() {
        let (order, transfer) = (example::order(), example::transfer());
        let deposit = order.deposits[0].deposit_id.unwrap().to_string();
        let sender = order.expecting_wallet_address.unwrap().to_string();
        let wallet = order.deposits[0].wallet_address.to_string();
        let id = order.order_id.to_string();
        for text in [&id, "A-1001", "10.5", &deposit, &sender, &wallet] {
            assert!(Wanted::new(text).fits_order(&order), "{text}");
        }
        let seen = transfer.observation;
        let (id, hash) = (transfer.transfer_id.to_string(), seen.tx_hash.to_string());
        let value = seen.value.to_string();
        for text in [&id, &hash, &value, &sender, &wallet] {
            assert!(Wanted::new(text).fits_transfer(&transfer), "{text}");
        }
        for text in ["A-1002", "10.51", "0x0000000000000000000000000000000000000001"] {
            let wanted = Wanted::new(text);
            assert!(!wanted.fits_order(&order) && !wanted.fits_transfer(&transfer), "{text}");
        }
    }
}
