//! Closed sets of words, each declared once: what the interface calls a state, why something
//! happened, what a record is.

/// Declares an enum whose variants are words on the wire: text in JSON, Avro, SQL and metrics.
macro_rules! vocabulary {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$vdoc])* $variant,)+ }

        impl $name {
            /// Every value, in the order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The word on the wire.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = crate::chain::UnknownName;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $($word => Ok(Self::$variant),)+
                    _ => Err(crate::chain::UnknownName::new(text, Self::ALL.iter().map(|v| v.as_str()))),
                }
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                crate::text::from_text(deserializer, str::parse)
            }
        }
    };
}
pub(crate) use vocabulary;

vocabulary! {
    /// Order status (spec 3.1).
    OrderStatus {
        /// Waits for a payment.
        Pending = "pending",
        /// One transfer, or an operator, paid it.
        Paid = "paid",
        /// Its time ran out unpaid.
        Expired = "expired",
        /// The customer gave up before paying.
        Cancelled = "cancelled",
    }
}

vocabulary! {
    /// Transfer status (spec 3.2).
    TransferStatus {
        /// Detected on-chain; not yet confirmed.
        WaitingForConfirmation = "waiting_for_confirmation",
        /// Its block was orphaned and the transfer did not come back by finality.
        FailedToConfirm = "failed_to_confirm",
        /// Confirmed; not yet matched to a deposit.
        WaitingForMatch = "waiting_for_match",
        /// Confirmed; no deposit wants it.
        NoMatchedDeposit = "no_matched_deposit",
        /// Confirmed and paid an order.
        Matched = "matched",
    }
}

vocabulary! {
    /// Why a confirmed transfer pays no order.
    UnknownReason {
        /// Nothing at this wallet waits for this stablecoin, nor did recently.
        NoDeposit = "no_deposit",
        /// A deposit waits at this wallet for this stablecoin, but for another amount.
        AmountMismatch = "amount_mismatch",
        /// The amount fits a deposit that only takes payments from another sender.
        SenderMismatch = "sender_mismatch",
        /// The transfer's block is older than the deposit it would fit.
        BeforeDeposit = "before_deposit",
        /// The amount fits a deposit whose time had run out.
        Late = "late",
        /// The order was paid before.
        AlreadyPaid = "already_paid",
        /// The order was cancelled before.
        OrderCancelled = "order_cancelled",
    }
}

vocabulary! {
    /// What changed an order, as the `orders` topic tells it.
    OrderCause {
        /// The merchant created it.
        Created = "created",
        /// A chain and stablecoin were chosen; a deposit was asked for.
        PaymentChosen = "payment_chosen",
        /// The same choice again: the answer is the deposit that stands.
        PaymentRepeated = "payment_repeated",
        /// No wallet had a free amount for the choice.
        PaymentRefused = "payment_refused",
        /// A choice or cancel came after the order had ended.
        NotPending = "not_pending",
        /// A deposit waits for the customer's transfer.
        DepositOpened = "deposit_opened",
        /// A deposit stopped waiting.
        DepositClosed = "deposit_closed",
        /// A transfer that fits was seen, not yet confirmed.
        CandidateSeen = "candidate_seen",
        /// That transfer did not confirm, or paid nothing.
        CandidateGone = "candidate_gone",
        /// Cancel came after a candidate transfer was seen.
        CancelRefused = "cancel_refused",
        /// A transfer paid it.
        Paid = "paid",
        /// An operator marked it paid.
        MarkedPaid = "marked_paid",
        /// An operator marked a paid order paid: nothing changed.
        MarkPaidRepeated = "mark_paid_repeated",
        /// Its time ran out.
        Expired = "expired",
        /// The customer cancelled it.
        Cancelled = "cancelled",
    }
}

vocabulary! {
    /// Why a deposit stopped waiting.
    CloseReason {
        /// Its transfer paid the order.
        Settled = "settled",
        /// The chain's time passed its deadline.
        Expired = "expired",
        /// Its order was paid in another way.
        OrderPaid = "order_paid",
        /// Its order was cancelled.
        OrderCancelled = "order_cancelled",
        /// Its order had expired.
        OrderExpired = "order_expired",
    }
}

vocabulary! {
    /// Why a deposit was not opened.
    RefusalReason {
        /// Every amount within the nudge limit is reserved at this wallet.
        AmountsTaken = "amounts_taken",
        /// The chain's time has passed the order's deadline.
        Expired = "expired",
    }
}

vocabulary! {
    /// Where a deposit of an order stands.
    DepositState {
        /// Asked for, not yet answered.
        Requested = "requested",
        /// Waits for a transfer.
        Open = "open",
        /// Stopped waiting.
        Closed = "closed",
        /// No wallet took it.
        Refused = "refused",
    }
}

vocabulary! {
    /// The kinds of record on `transfers.raw`.
    ChainRecordKind {
        /// A Transfer event to a configured wallet.
        Transfer = "transfer",
        /// A full copy of a transfer whose block was orphaned.
        Retract = "retract",
        /// The chain is scanned without a gap up to here.
        Head = "head",
    }
}

vocabulary! {
    /// The kinds of command on `orders.commands`.
    OrderCommandKind {
        /// api: a merchant's new order.
        Create = "create",
        /// api: the customer's choice of chain and stablecoin.
        ChoosePayment = "choose_payment",
        /// api: the customer gives up.
        Cancel = "cancel",
        /// api: an operator forces paid.
        MarkPaid = "mark_paid",
        /// matching: a deposit is reserved.
        DepositOpened = "deposit_opened",
        /// matching: no amount is free.
        DepositRefused = "deposit_refused",
        /// matching: a deposit stopped waiting.
        DepositClosed = "deposit_closed",
        /// matching: a fitting transfer was seen.
        CandidateSeen = "candidate_seen",
        /// matching: it will not pay.
        CandidateGone = "candidate_gone",
        /// matching: a confirmed transfer asks to pay the order.
        Settle = "settle",
        /// orders' own runner: a timer is due.
        Tick = "tick",
    }
}

vocabulary! {
    /// The kinds of command on `deposits.commands`.
    DepositCommandKind {
        /// Reserve an amount at a wallet.
        Open = "open",
        /// Stop waiting.
        Close = "close",
        /// The transfer paid the order.
        Settled = "settled",
        /// The transfer may not pay the order.
        Refused = "refused",
    }
}

vocabulary! {
    /// What a webhook tells (spec 6).
    DeliveryKind {
        /// spec 6.1.
        OrderStatusChanged = "order_status_changed",
        /// spec 6.2.
        UnknownTransfer = "unknown_transfer",
    }
}

vocabulary! {
    /// How one webhook attempt ended. Only `delivered` is success (spec 6.3.1).
    AttemptOutcome {
        /// HTTP 200.
        Delivered = "delivered",
        /// Any other status.
        Status = "status",
        /// No status in time.
        Timeout = "timeout",
        /// No connection: name, TCP or TLS.
        Connect = "connect",
        /// The address is not one this service may call.
        Forbidden = "forbidden",
        /// The connection broke, or what came back is not HTTP.
        Protocol = "protocol",
    }
}

vocabulary! {
    /// What an operator must look at.
    AlertKind {
        /// A transfer that already counted as confirmed was orphaned by a deep reorganisation.
        ConfirmedTransferRetracted = "confirmed_transfer_retracted",
        /// A transfer surfaced after the chain's history before it had been closed.
        StaleTransfer = "stale_transfer",
    }
}

vocabulary! {
    /// What an entry of the matching changelog holds.
    EntryKind {
        /// The lane's head and counters.
        Lane = "lane",
        /// One deposit.
        Deposit = "deposit",
        /// One transfer.
        Transfer = "transfer",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_read_back_and_others_do_not() {
        for status in OrderStatus::ALL {
            assert_eq!(status.as_str().parse::<OrderStatus>().unwrap(), *status);
        }
        let error = "payed".parse::<OrderStatus>().unwrap_err();
        assert_eq!(error.to_string(), "\"payed\" is not one of pending, paid, expired, cancelled");
    }
}
