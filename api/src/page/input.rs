//! Data of a checkout page.

use schemas::UnixSeconds;
use schemas::record::Order;

use super::html::{Html, Template, phrase};
use super::language::Language;
use crate::links::Links;
use crate::machine::catalog::Catalog;
use crate::machine::return_url::ReturnUrl;
use crate::machine::seen_transfer::SeenTransfer;
use crate::view::ChainView;

/// Reason why a customer's request was not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Problem {
    /// Payments on the chain are not seen at present.
    Unseen,
    /// No amount is free, or no wallet takes the chosen chain and coin.
    Full,
    Ended,
    Seen,
    Busy,
    Other,
}

impl Problem {
    const ALL: [Self; 6] =
        [Self::Unseen, Self::Full, Self::Ended, Self::Seen, Self::Busy, Self::Other];

    /// Word for the problem in the page's URL.
    pub(crate) fn word(self) -> &'static str {
        self.key().trim_start_matches("problem.")
    }

    pub(crate) fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|of| of.word() == word)
    }

    pub(super) fn key(self) -> &'static str {
        match self {
            Self::Unseen => "problem.unseen",
            Self::Full => "problem.full",
            Self::Ended => "problem.ended",
            Self::Seen => "problem.seen",
            Self::Busy => "problem.busy",
            Self::Other => "problem.other",
        }
    }
}

/// The answer to a customer who asked about a transaction.
#[derive(Debug)]
pub(crate) enum LookUp {
    /// Not a transaction hash.
    Malformed,
    /// The link is over its limit.
    Later,
    Found(Vec<SeenTransfer>),
}

/// Data shared by every page of a shop.
#[derive(Debug, Clone)]
pub(crate) struct Shop {
    pub(crate) name: String,
    pub(crate) return_url: Option<ReturnUrl>,
    pub(crate) links: Links,
    /// Version of the files that the page loads.
    pub(crate) version: &'static str,
    /// `true` if a test buyer pays at the push of a button.
    pub(crate) has_test_buyer: bool,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct PageInput<'a> {
    pub(crate) shop: &'a Shop,
    pub(crate) catalog: &'a Catalog,
    pub(crate) order: &'a Order,
    pub(crate) transfers: &'a [SeenTransfer],
    /// Transfers that may be another customer's.
    pub(crate) possible: &'a [SeenTransfer],
    /// Answer about the transaction that the customer asked about.
    pub(crate) look_up: Option<&'a LookUp>,
    /// Chains and coins that the order can be paid with.
    pub(crate) choices: &'a [ChainView],
    /// `true` if an operator has stopped the payment that the order awaits.
    pub(crate) is_stopped: bool,
    pub(crate) now: UnixSeconds,
    pub(crate) language: Language,
    /// `true` if the customer chooses another way to pay.
    pub(crate) is_changing: bool,
    /// `true` if the customer asks for the payment data although a transfer arrived.
    pub(crate) is_again: bool,
    pub(crate) problem: Option<Problem>,
}

impl PageInput<'_> {
    /// `true` if the order's last deposit is on a test network. Without a deposit, or while the customer chooses
    /// another way, `true` if any of the choices is.
    pub(super) fn is_test(&self) -> bool {
        let is_test = |blockchain| self.catalog.terms(blockchain).is_some_and(|of| of.is_test());
        let mut deposits = self.order.deposits.iter().rev();
        match deposits.next() {
            Some(deposit) if !self.is_changing => is_test(deposit.blockchain),
            _ => self.choices.iter().any(|chain| is_test(chain.blockchain)),
        }
    }

    /// Relative URL to which a form of the page is sent.
    pub(super) fn action(&self, what: &'static str) -> Html {
        let (id, language) = (self.order.order_id, self.language.tag());
        format!("{id}/{what}?lang={language}").into()
    }

    /// The button of the demo's test buyer.
    pub(super) fn test_payment(&self) -> Html {
        if !self.shop.has_test_buyer {
            return Html::default();
        }
        let values = [("action", self.action("test-payment"))];
        Template(include_str!("templates/demo.html")).fill(self.language, &values)
    }

    /// The name of the shop, linked to its return URL if one is configured.
    pub(super) fn home(&self) -> Html {
        let name = Html::within("bdi", &*self.shop.name);
        let Some(url) = &self.shop.return_url else { return name };
        let label = self.language.text("return").replace("{0}", &self.shop.name);
        let values = [
            ("url", url.of(self.order, &self.proof()).into()),
            ("label", label.into()),
            ("name", name),
        ];
        Template(include_str!("templates/home.html")).fill(self.language, &values)
    }

    fn proof(&self) -> String {
        self.shop.links.proof(self.order, self.now)
    }

    /// The link back to the shop, for an ended order.
    pub(super) fn back(&self) -> Html {
        let Some(url) = &self.shop.return_url else { return Html::default() };
        let values = [
            ("url", url.of(self.order, &self.proof()).into()),
            ("text", phrase(self.language, "return", &[&self.shop.name])),
        ];
        Template(include_str!("templates/back.html")).fill(self.language, &values)
    }
}
