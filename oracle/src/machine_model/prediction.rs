//! The processor's specification, as a slow, synchronous function of all outside events. It has no queues, no replies
//! in flight, and no state to restore. It shares only types with the machines.

use std::collections::{BTreeMap, BTreeSet};

use schemas::record::{Block, Head, PaymentRequest, StopScope};
use schemas::{
    Address, Amount, Blockchain, CloseReason, OrderId, OrderStatus, PaymentKey, Stablecoin,
    TransferStatus, UnixSeconds, UnknownReason,
};

use super::fact::Fact;
use super::shop::{ModelDeposit, ModelOrder, ModelTransfer, Shop};

/// Required outcome of every order and transfer.
#[derive(Debug, Default)]
pub struct Prediction {
    pub orders: BTreeMap<OrderId, OrderOutcome>,
    pub transfers: BTreeMap<PaymentKey, TransferOutcome>,
}

/// Required outcome of an order.
#[derive(Debug, PartialEq, Eq)]
pub struct OrderOutcome {
    pub status: OrderStatus,
    /// The transfer that paid it.
    pub payer: Option<PaymentKey>,
    /// Reservations made for it: chain, stablecoin, wallet, amount.
    pub reserved: Vec<(Blockchain, Stablecoin, Address, Amount)>,
}

/// Required outcome of a transfer.
#[derive(Debug, PartialEq, Eq)]
pub struct TransferOutcome {
    pub status: TransferStatus,
    /// The order it paid.
    pub order: Option<OrderId>,
    /// Reasons that were true at any time at which it may have been rejected.
    pub reasons: BTreeSet<UnknownReason>,
}

/// Derives the outcome that `history` requires.
pub fn predict(history: &[Fact]) -> Prediction {
    let mut shop = Shop::default();
    for fact in history {
        shop.take(fact);
        shop.pay_what_fits();
        if let Fact::Scanned { blockchain, head, .. } = fact {
            shop.let_time_pass(*blockchain, head);
        }
    }
    shop.prediction()
}

impl Shop {
    fn take(&mut self, fact: &Fact) {
        match fact {
            Fact::Created { order, amount, sender, expires_at } => self.orders.push(ModelOrder {
                id: *order,
                amount: *amount,
                sender: *sender,
                expires_at: *expires_at,
                status: OrderStatus::Pending,
                payer: None,
                on_its_way: Vec::new(),
            }),
            Fact::Chosen { order, request, at } => self.open_deposit(*order, request, *at),
            Fact::Cancelled { order } => {
                if !self.has_candidate(*order) {
                    self.end_pending(*order, OrderStatus::Cancelled, CloseReason::OrderCancelled);
                }
            }
            Fact::MarkedPaid { order } => {
                let on_its_way = self.on_its_way(*order);
                self.close_deposits(*order, CloseReason::OrderPaid);
                for marked in self.orders.iter_mut().filter(|o| o.id == *order) {
                    if marked.status != OrderStatus::Paid {
                        marked.on_its_way.clone_from(&on_its_way);
                    }
                    marked.status = OrderStatus::Paid;
                }
            }
            Fact::Attached { order, payment } => {
                let unknown = |t: &ModelTransfer| {
                    t.payment == *payment
                        && t.status == TransferStatus::NoMatchedDeposit
                        && t.on_chain
                        && !t.is_sweep()
                };
                let unpaid = |o: &ModelOrder| o.id == *order && o.payer.is_none();
                if self.transfers.iter().any(unknown) && self.orders.iter().any(unpaid) {
                    self.pay(*order, *payment);
                }
            }
            Fact::TimersDue { now } => {
                let due = |o: &&ModelOrder| o.expires_at < *now && !self.may_be_paid(o.id);
                let due: Vec<_> = self.orders.iter().filter(due).map(|o| o.id).collect();
                for order in due {
                    self.end_pending(order, OrderStatus::Expired, CloseReason::OrderExpired);
                }
            }
            Fact::Included { blockchain, payment, block, log_index, confirmed } => {
                self.include(*blockchain, *payment, (*block, *log_index), *confirmed);
            }
            Fact::Orphaned { payment } => {
                let orphaned = self.transfers.iter_mut().filter(|t| t.payment == *payment);
                orphaned.for_each(|t| t.on_chain = false);
            }
            Fact::Watched { blockchain, wallet } => {
                self.lanes.entry(*blockchain).or_default().watched.insert(*wallet);
            }
            Fact::Stopped { blockchain, scope, begins } => {
                let stopped = &mut self.lanes.entry(*blockchain).or_default().stopped;
                if *begins {
                    stopped.insert(*scope)
                } else {
                    stopped.remove(scope)
                };
            }
            Fact::Scanned { blockchain, block, head } => self.scan(*blockchain, *block, head),
        }
    }

    /// Opens a deposit at the first watched and not stopped wallet with an amount for it, if the order is pending, in
    /// time and has fewer than three open ones, none for this choice, and the head is fresh and without a gap. Each
    /// other open deposit of the order is replaced, unless a payment for it is seen.
    fn open_deposit(&mut self, order: OrderId, request: &PaymentRequest, at: UnixSeconds) {
        let Some(order) = self.orders.iter().find(|o| o.id == order) else { return };
        let open = |d: &&ModelDeposit| d.order == order.id && d.is_open();
        let mut opened = self.deposits.iter().filter(open);
        let count = opened.clone().count();
        let wanted = (request.blockchain, request.stablecoin);
        let chosen_before = opened.any(|d| (d.blockchain, d.stablecoin) == wanted);
        let Some(lane) = self.lanes.get(&request.blockchain) else { return };
        let Some(time) = lane.time else { return };
        let in_time = time <= order.expires_at && at <= order.expires_at;
        if order.status != OrderStatus::Pending || chosen_before || !in_time || count >= 3 {
            return;
        }
        if lane.has_gap || time.plus(i64::from(request.head_age_max_seconds)) < at {
            return;
        }
        let is_stopped = |wallet: Address| {
            let covers = |s: &StopScope| s.covers(wallet, request.stablecoin, request.contract);
            lane.stopped.iter().any(covers)
        };
        let mut watched = request
            .wallets
            .iter()
            .filter(|wallet| lane.watched.contains(wallet) && !is_stopped(**wallet));
        let given = watched.find_map(|wallet| self.amount_at(order, request, *wallet));
        let Some((wallet, value, had)) = given else { return };
        let mut deposit = ModelDeposit {
            order: order.id,
            blockchain: request.blockchain,
            stablecoin: request.stablecoin,
            contracts: request.contracts.clone(),
            wallet,
            value,
            sender: order.sender,
            above: lane.height,
            listed: self.transfers.len(),
            until: order.expires_at,
            late_window_seconds: i64::from(request.late_window_seconds),
            accepts_late: request.accepts_late,
            closed: None,
            released: false,
        };
        let id = order.id;
        if let Some(had) = had {
            self.deposits[had].released = true;
            if self.deposits[had].order == id {
                deposit.above = deposit.above.min(self.deposits[had].above);
                deposit.listed = deposit.listed.min(self.deposits[had].listed);
            }
        }
        let replaced = |d: &ModelDeposit| d.order == id && d.is_open() && !self.has_payment_for(d);
        let replaced: Vec<bool> = self.deposits.iter().map(replaced).collect();
        for (i, _) in replaced.into_iter().enumerate().filter(|(_, replaced)| *replaced) {
            self.close(i, CloseReason::Replaced);
        }
        self.deposits.push(deposit);
    }

    /// Adds a transfer, or moves a known one to its new block. A new one that its record confirms need not wait for the
    /// head, if a deposit waits for it and for no other transfer, and no stop covers it.
    fn include(
        &mut self,
        blockchain: Blockchain,
        payment: PaymentKey,
        (block, log_index): (Block, i32),
        confirmed: bool,
    ) {
        if !self.transfers.iter().any(|t| t.payment == payment) {
            let mut transfer = ModelTransfer {
                blockchain,
                payment,
                number: self.transfers.len(),
                awaited_by: None,
                block,
                log_index,
                on_chain: true,
                confirmed_by: self.heads,
                status: TransferStatus::WaitingForConfirmation,
                deadline: UnixSeconds(i64::MAX),
                order: None,
                reasons: BTreeSet::new(),
            };
            let its_own =
                |d: &ModelDeposit| d.takes() && d.fits(&transfer) && !self.has_payment_for(d);
            let is_stopped = self.is_stopped(&transfer);
            if confirmed && !is_stopped && self.deposits.iter().any(its_own) {
                transfer.status = TransferStatus::WaitingForMatch;
            }
            self.transfers.push(transfer);
        }
        for transfer in self.transfers.iter_mut().filter(|t| t.payment == payment) {
            (transfer.block, transfer.log_index, transfer.on_chain) = (block, log_index, true);
            // A candidate of an order that was marked paid is still awaited.
            let is_marked = |d: &ModelDeposit| {
                self.orders.iter().any(|o| o.id == d.order && o.on_its_way.contains(&payment))
            };
            let awaits = |d: &ModelDeposit| (d.takes() || is_marked(d)) && d.fits(transfer);
            transfer.awaited_by = self.deposits.iter().position(awaits);
            // If it does not fit in its new block, a marked order drops it for good.
            let awaiting = transfer.awaited_by.map(|at| self.deposits[at].order);
            for order in self.orders.iter_mut().filter(|o| Some(o.id) != awaiting) {
                order.on_its_way.retain(|other| *other != payment);
            }
            if transfer.status == TransferStatus::FailedToConfirm {
                transfer.status = TransferStatus::WaitingForConfirmation;
            }
        }
    }

    fn scan(&mut self, blockchain: Blockchain, block: Block, head: &Head) {
        let lane = self.lanes.entry(blockchain).or_default();
        (lane.time, lane.has_gap) = (Some(block.timestamp), head.has_gap);
        lane.height = block.number;
        // After a rewind, the blocks above its head count as younger than the deposit.
        for deposit in self.deposits.iter_mut().filter(|d| d.blockchain == blockchain) {
            deposit.above = deposit.above.min(block.number);
        }
        let stopped = lane.stopped.clone();
        self.heads += 1;
        let unconfirmed = |t: &&mut ModelTransfer| {
            t.blockchain == blockchain && t.status == TransferStatus::WaitingForConfirmation
        };
        for transfer in self.transfers.iter_mut().filter(unconfirmed) {
            let tier = head
                .confirmed
                .iter()
                .find(|tier| tier.below.is_none_or(|below| transfer.payment.value < below));
            let confirmed = tier.is_some_and(|tier| transfer.block.number <= tier.number);
            let is_held = head.held.iter().any(|held| {
                held.block == transfer.block && held.transfer.payment() == transfer.payment
            });
            if transfer.on_chain && is_held {
                continue;
            }
            if transfer.on_chain && confirmed {
                transfer.status = TransferStatus::WaitingForMatch;
                transfer.confirmed_by = self.heads;
                transfer.deadline = transfer.block.timestamp.plus(head.match_window_seconds);
                if transfer.is_covered(&stopped) {
                    transfer.end_stopped();
                }
            } else if !transfer.on_chain && transfer.block.number <= head.finalized {
                transfer.status = TransferStatus::FailedToConfirm;
                let orders = self.orders.iter_mut();
                orders.for_each(|o| o.on_its_way.retain(|other| *other != transfer.payment));
            }
        }
        // A stopped transfer that would have paid nothing in any case may have that other reason.
        let is_stopped = |t: &ModelTransfer| t.reasons.contains(&UnknownReason::Stopped);
        for i in 0..self.transfers.len() {
            if self.transfers[i].confirmed_by == self.heads && is_stopped(&self.transfers[i]) {
                self.note_reasons(i);
            }
        }
    }

    /// Lets confirmed transfers pay the deposits that they fit, in this order: the head that confirmed them, their
    /// block, their place in the block.
    fn pay_what_fits(&mut self) {
        let mut waiting: Vec<usize> = (0..self.transfers.len())
            .filter(|i| self.transfers[*i].status == TransferStatus::WaitingForMatch)
            .collect();
        waiting.sort_by_key(|i| {
            let transfer = &self.transfers[*i];
            (transfer.confirmed_by, transfer.block.number, transfer.log_index)
        });
        for i in waiting {
            let transfer = &self.transfers[i];
            let payment = transfer.payment;
            let may_be_paid = |d: &ModelDeposit| match self.status_of(d.order) {
                Some(OrderStatus::Pending) => true,
                Some(OrderStatus::Expired | OrderStatus::Cancelled) => d.accepts_late,
                Some(OrderStatus::Paid) | None => false,
            };
            let fits = |d: &&ModelDeposit| d.takes() && d.fits(transfer) && may_be_paid(d);
            // An order that was marked paid accepts its candidate.
            let is_awaited = |o: &ModelOrder| o.payer.is_none() && o.on_its_way.contains(&payment);
            let marked = self.orders.iter().find(|o| is_awaited(o)).map(|o| o.id);
            let is_marked =
                |d: &ModelDeposit| marked == Some(d.order) && !d.released && d.fits(transfer);
            let fitting = self.deposits.iter().position(|d| is_marked(d) || fits(&d));
            // A stopped transfer that waited for a deposit ends when one opens.
            if fitting.is_some() && self.is_stopped(transfer) {
                self.transfers[i].end_stopped();
                continue;
            }
            if let Some(deposit) = fitting {
                let order = self.deposits[deposit].order;
                self.close(deposit, CloseReason::Settled);
                self.pay(order, payment);
            } else if transfer.is_sweep()
                || self.deposits.iter().any(|d| d.takes() && d.fits(transfer))
            {
                // Its sender is a wallet of the shop, or its order refused it.
                self.transfers[i].status = TransferStatus::NoMatchedDeposit;
                self.note_reasons(i);
            }
        }
        for i in 0..self.transfers.len() {
            if self.transfers[i].status == TransferStatus::WaitingForMatch {
                self.note_reasons(i);
                // A deposit reserves this amount, so no other can open for it: waiting is of no use.
                if self.transfers[i].confirmed_by == self.heads && self.is_kept(i) {
                    self.transfers[i].status = TransferStatus::NoMatchedDeposit;
                }
            }
        }
    }

    fn is_kept(&self, transfer: usize) -> bool {
        let transfer = &self.transfers[transfer];
        let keeps = |d: &ModelDeposit| !d.released && d.is_for_sender(transfer.payment.from);
        self.deposits.iter().any(|d| keeps(d) && d.has_amount_of(transfer))
    }

    /// Applies the deadlines that a head passes. If one head passes two deadlines, their order is not defined, so
    /// reasons are noted before and after.
    fn let_time_pass(&mut self, blockchain: Blockchain, head: &Head) {
        let now = self.time_of(blockchain);
        let overdue: Vec<usize> = (0..self.transfers.len())
            .filter(|i| self.transfers[*i].status == TransferStatus::WaitingForMatch)
            .filter(|i| self.transfers[*i].blockchain == blockchain)
            .filter(|i| self.transfers[*i].deadline < now)
            .collect();
        for i in &overdue {
            self.transfers[*i].status = TransferStatus::NoMatchedDeposit;
        }
        self.expire_deposits(blockchain, head);
        // A waiting payment keeps the amount for its deposit. So does one that this head confirmed: its order replies
        // after the head.
        let is_asked = |t: &&ModelTransfer| t.is_waiting() || t.confirmed_by == self.heads;
        let waiting = self.transfers.iter().filter(is_asked);
        let kept: BTreeSet<usize> = waiting.filter_map(|t| t.awaited_by).collect();
        let is_over = |(i, d): (usize, &ModelDeposit)| {
            let late = |(_, at): (CloseReason, UnixSeconds)| at.plus(d.late_window_seconds) < now;
            let is_over = !d.is_awaited() && d.closed.is_some_and(late);
            d.blockchain == blockchain && is_over && !kept.contains(&i)
        };
        let over: Vec<bool> = self.deposits.iter().enumerate().map(is_over).collect();
        self.deposits.iter_mut().zip(over).for_each(|(d, over)| d.released |= over);
        overdue.into_iter().for_each(|i| self.note_reasons(i));
    }

    /// Expires each deposit without a waiting payment whose deadline is before the newest block in which its amount is
    /// confirmed. Until then the chain may still include a transfer in time.
    fn expire_deposits(&mut self, blockchain: Blockchain, head: &Head) {
        let confirmed = |d: &ModelDeposit| {
            let tier = head.confirmed.iter().find(|t| t.below.is_none_or(|below| d.value < below));
            tier.and_then(|tier| tier.timestamp)
        };
        let passed = |d: &ModelDeposit| confirmed(d).is_some_and(|time| d.until < time);
        let here = |d: &ModelDeposit| d.blockchain == blockchain && d.is_awaited();
        let expired = |d: &ModelDeposit| here(d) && passed(d) && !self.has_payment_for(d);
        let expired: Vec<bool> = self.deposits.iter().map(expired).collect();
        for (i, _) in expired.into_iter().enumerate().filter(|(_, expired)| *expired) {
            self.close(i, CloseReason::Expired);
            let order = self.deposits[i].order;
            if !self.may_be_paid(order) {
                self.end_pending(order, OrderStatus::Expired, CloseReason::OrderExpired);
            }
        }
    }

    /// Notes the reasons why a transfer pays nothing now.
    fn note_reasons(&mut self, transfer: usize) {
        let reasons = self.reasons(&self.transfers[transfer]);
        self.transfers[transfer].reasons.extend(reasons);
    }

    fn reasons(&self, transfer: &ModelTransfer) -> BTreeSet<UnknownReason> {
        if transfer.is_sweep() {
            return BTreeSet::from([UnknownReason::OwnWallet]);
        }
        let payment = transfer.payment;
        let place = (transfer.blockchain, payment.to, payment.stablecoin);
        let kept =
            |d: &&ModelDeposit| !d.released && (d.blockchain, d.wallet, d.stablecoin) == place;
        let mut reasons = BTreeSet::new();
        let mut equal = self.deposits.iter().filter(kept).filter(|d| d.has_amount_of(transfer));
        let Some(deposit) = equal.clone().find(|d| d.is_for_sender(payment.from)) else {
            let other_amount = self.deposits.iter().any(|d| kept(&d));
            reasons.insert(if equal.next().is_some() {
                UnknownReason::SenderMismatch
            } else if other_amount {
                UnknownReason::AmountMismatch
            } else {
                UnknownReason::NoDeposit
            });
            // The likeliest of these deposits may have been offered without this contract.
            let is_other = |d: &ModelDeposit| !d.contracts.contains(&payment.contract);
            if self.deposits.iter().filter(kept).any(is_other) {
                reasons.insert(UnknownReason::OtherContract);
            }
            return reasons;
        };
        let time = transfer.block.timestamp;
        if deposit.is_after(transfer) {
            reasons.insert(UnknownReason::BeforeDeposit);
        }
        if time > deposit.until && !deposit.accepts_late {
            reasons.insert(UnknownReason::Late);
        }
        if reasons.is_empty() && !deposit.contracts.contains(&payment.contract) {
            reasons.insert(UnknownReason::OtherContract);
            return reasons;
        }
        let Some((reason, at)) = deposit.closed else { return reasons };
        // If the head that passes the deadline also closes the deposit, it may as well have expired.
        if deposit.fits(transfer) && at > deposit.until && !deposit.accepts_late {
            reasons.insert(UnknownReason::Late);
        }
        match reason {
            CloseReason::Settled | CloseReason::OrderPaid => {
                reasons.insert(UnknownReason::AlreadyPaid);
            }
            CloseReason::OrderCancelled if !deposit.accepts_late => {
                reasons.insert(UnknownReason::OrderCancelled);
            }
            CloseReason::Expired | CloseReason::OrderExpired if !deposit.accepts_late => {}
            // The order's status gives the reason.
            CloseReason::Expired
            | CloseReason::OrderExpired
            | CloseReason::OrderCancelled
            | CloseReason::Replaced => {
                reasons.extend(match self.status_of(deposit.order) {
                    Some(OrderStatus::Paid) => Some(UnknownReason::AlreadyPaid),
                    Some(OrderStatus::Expired) => Some(UnknownReason::Late),
                    Some(OrderStatus::Cancelled) => Some(UnknownReason::OrderCancelled),
                    Some(OrderStatus::Pending) | None => None,
                });
            }
        }
        reasons
    }

    /// `true` if a deposit of the order waits, or a payment for one of them.
    fn may_be_paid(&self, order: OrderId) -> bool {
        let waits = self.deposits.iter().any(|d| d.order == order && d.is_awaited());
        waits || self.has_candidate(order)
    }

    /// The payments that wait for a deposit of the order.
    fn on_its_way(&self, order: OrderId) -> Vec<PaymentKey> {
        let of_order = |d: &&ModelDeposit| d.order == order && d.takes();
        let waits = |t: &&ModelTransfer| {
            self.deposits.iter().filter(of_order).any(|d| self.is_under_way(t, d))
        };
        self.transfers.iter().filter(waits).map(|t| t.payment).collect()
    }

    fn has_candidate(&self, order: OrderId) -> bool {
        let of_order = |d: &&ModelDeposit| d.order == order && d.takes();
        self.deposits.iter().filter(of_order).any(|d| self.has_payment_for(d))
    }

    fn pay(&mut self, order: OrderId, payment: PaymentKey) {
        self.close_deposits(order, CloseReason::OrderPaid);
        for order in self.orders.iter_mut().filter(|o| o.id == order) {
            (order.status, order.payer) = (OrderStatus::Paid, Some(payment));
        }
        for transfer in self.transfers.iter_mut().filter(|t| t.payment == payment) {
            (transfer.status, transfer.order) = (TransferStatus::Matched, Some(order));
        }
    }

    fn end_pending(&mut self, order: OrderId, status: OrderStatus, reason: CloseReason) {
        let pending = |o: &&mut ModelOrder| o.id == order && o.status == OrderStatus::Pending;
        if let Some(order) = self.orders.iter_mut().find(pending) {
            order.status = status;
        }
        self.close_deposits(order, reason);
    }

    fn close_deposits(&mut self, order: OrderId, reason: CloseReason) {
        for i in 0..self.deposits.len() {
            if self.deposits[i].order == order && self.deposits[i].is_awaited() {
                self.close(i, reason);
            }
        }
    }

    /// Closes the deposit at the time of its own chain.
    fn close(&mut self, deposit: usize, reason: CloseReason) {
        let time = self.time_of(self.deposits[deposit].blockchain);
        self.deposits[deposit].closed = Some((reason, time));
    }

    fn prediction(self) -> Prediction {
        let reserved = |order: OrderId| {
            let deposits = self.deposits.iter().filter(|d| d.order == order);
            deposits.map(|d| (d.blockchain, d.stablecoin, d.wallet, d.value)).collect()
        };
        let orders = self.orders.iter().map(|order| {
            let (status, payer) = (order.status, order.payer);
            (order.id, OrderOutcome { status, payer, reserved: reserved(order.id) })
        });
        let transfers = self.transfers.iter().map(|transfer| {
            let (status, order) = (transfer.status, transfer.order);
            let unknown = status == TransferStatus::NoMatchedDeposit;
            let reasons = if unknown { transfer.reasons.clone() } else { BTreeSet::new() };
            (transfer.payment, TransferOutcome { status, order, reasons })
        });
        Prediction { orders: orders.collect(), transfers: transfers.collect() }
    }
}
