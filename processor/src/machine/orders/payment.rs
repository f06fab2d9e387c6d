//! The customer's choice of chain and stablecoin, tried wallet by wallet.

use schemas::record::{
    DepositCommandBody, OpenDeposit, OrderCommand, OrderDeposit, PaymentRequest, PendingChoice,
};
use schemas::{Address, CommandId, DepositState, OrderCause, RefusalReason, UnixSeconds};

use super::deposit::to_lane_of;
use super::{ASK_AGAIN_SECONDS, Broken, Effect, OPEN_MAX, OrderRow, State, is_active, is_awaited};

/// Maximum number of choices of an order that wait for replies of lanes. A stopped lane would let them accumulate.
pub const PENDING_MAX: usize = 16;

impl State {
    /// Requests a deposit. A repeated choice gets the existing one, or the reply to the first choice.
    pub(super) fn choose(
        &mut self,
        mut row: OrderRow,
        command: &OrderCommand,
        payment: &PaymentRequest,
    ) -> Result<(), Broken> {
        if !row.is_pending() || command.issued_at.seconds() > row.order.expires_at {
            return self.reply(row, command, OrderCause::NotPending);
        }
        let same = row.order.deposits.iter().find(|d| is_for(d, payment) && is_active(d));
        match same.map(|deposit| (deposit.slot, deposit.state)) {
            Some((_, DepositState::Open)) => self.reply(row, command, OrderCause::PaymentRepeated),
            // Dropped: the sender retries.
            Some(_) if row.pending.len() >= PENDING_MAX => Ok(()),
            Some((slot, _)) => {
                // Requested already: this choice gets the same reply. It makes no request itself, so it keeps no
                // wallets to try.
                let payment = PaymentRequest { wallets: Vec::new(), ..payment.clone() };
                let asked_at = command.issued_at.seconds();
                let command_id = command.command_id;
                row.pending.push(PendingChoice { slot, command_id, asked_at, payment });
                self.orders.put(row)
            }
            None => self.ask_first_wallet(row, command, payment),
        }
    }

    fn ask_first_wallet(
        &mut self,
        mut row: OrderRow,
        command: &OrderCommand,
        payment: &PaymentRequest,
    ) -> Result<(), Broken> {
        let active = row.order.deposits.iter().filter(|deposit| is_active(deposit)).count();
        let wallets = payment.wallets.split_first().filter(|_| active < OPEN_MAX);
        let Some((first, rest)) = wallets else {
            return self.reply(row, command, OrderCause::PaymentRefused);
        };
        // A slot is never reused. A refused or closed deposit of the same chain and coin is dropped, so that repeated
        // choices do not make the order grow. A replaced one stays, as it may still be paid.
        let slot = row.order.deposits.iter().map(|deposit| deposit.slot + 1).max().unwrap_or(0);
        row.order.deposits.retain(|deposit| !is_for(deposit, payment) || is_awaited(deposit));
        row.order.deposits.push(OrderDeposit {
            slot,
            blockchain: payment.blockchain,
            stablecoin: payment.stablecoin,
            contract: payment.contract,
            decimals: payment.decimals,
            state: DepositState::Requested,
            deposit_id: None,
            wallet_address: *first,
            value: None,
            started_at: command.issued_at.seconds(),
        });
        row.late_window_seconds = row.late_window_seconds.max(payment.late_window_seconds);
        let payment = PaymentRequest { wallets: rest.to_vec(), ..payment.clone() };
        self.effects.extend(row.ask(command, slot, &payment));
        let asked_at = command.issued_at.seconds();
        let command_id = command.command_id;
        row.pending.push(PendingChoice { slot, command_id, asked_at, payment });
        self.reply(row, command, OrderCause::PaymentChosen)
    }

    /// Takes the refusal of a deposit. A pending order tries the next wallet, if there is one and the reason may
    /// concern the present wallet alone. Otherwise the choice is refused.
    pub(super) fn deposit_refused(
        &mut self,
        mut row: OrderRow,
        command: &OrderCommand,
        slot: i32,
        (wallet, reason): (Address, RefusalReason),
    ) -> Result<(), Broken> {
        use RefusalReason as Reason;
        let Some(deposit) = row.deposit_mut(slot) else { return Ok(()) };
        if deposit.state != DepositState::Requested || deposit.wallet_address != wallet {
            return Ok(()); // Already answered, or another wallet is asked by now.
        }
        let asked_at = row.pending.iter().find(|choice| choice.slot == slot).map(|c| c.asked_at);
        // A refusal has the time of its request, and counts only for the newest one: the lane also replies to a
        // repeated request, and may open the deposit then.
        if asked_at.is_some_and(|at| command.issued_at.seconds() < at) {
            return Ok(());
        }
        let is_of_wallet =
            matches!(reason, Reason::AmountsTaken | Reason::NotWatched | Reason::Stopped);
        if row.is_pending() && is_of_wallet {
            let next =
                row.pending.iter_mut().find(|choice| choice.slot == slot).and_then(|choice| {
                    let wallets = &mut choice.payment.wallets;
                    let wallet = (!wallets.is_empty()).then(|| wallets.remove(0))?;
                    choice.asked_at = command.issued_at.seconds();
                    Some((wallet, choice.payment.clone()))
                });
            if let Some((wallet, payment)) = next {
                if let Some(deposit) = row.deposit_mut(slot) {
                    deposit.wallet_address = wallet;
                }
                self.effects.extend(row.ask(command, slot, &payment));
                return self.orders.put(row);
            }
        }
        if let Some(deposit) = row.deposit_mut(slot) {
            deposit.state = DepositState::Refused;
        }
        let cause = match reason {
            Reason::AmountsTaken | Reason::Expired => OrderCause::PaymentRefused,
            Reason::NotWatched | Reason::ChainBehind | Reason::Stopped => {
                OrderCause::PaymentUnavailable
            }
        };
        self.answer_choices(row, command, slot, cause)
    }

    /// Repeats requests that got no reply in time, never two in one second: a refusal identifies its request by the
    /// second.
    pub(super) fn ask_again(
        &mut self,
        mut row: OrderRow,
        command: &OrderCommand,
    ) -> Result<(), Broken> {
        let now = command.issued_at.seconds();
        let mut asked = Vec::new();
        for choice in row.unanswered().filter(|choice| asks_again_at(choice) < now) {
            self.effects.extend(row.ask(command, choice.slot, &choice.payment));
            asked.push(choice.slot);
        }
        let again = row.pending.iter_mut().filter(|choice| asked.contains(&choice.slot));
        again.for_each(|choice| choice.asked_at = now);
        self.effects.extend(row.ask_of_open(command));
        self.orders.put(row)
    }

    /// Publishes one record for each choice that waited for this deposit, or a single one if none did.
    pub(super) fn answer_choices(
        &mut self,
        mut row: OrderRow,
        command: &OrderCommand,
        slot: i32,
        cause: OrderCause,
    ) -> Result<(), Broken> {
        let waiting: Vec<Option<CommandId>> =
            row.pending.iter().filter(|c| c.slot == slot).map(|c| c.command_id).collect();
        row.pending.retain(|choice| choice.slot != slot);
        let mut answers = waiting.into_iter();
        let first = answers.next().flatten();
        let mut row = self.publish(row, command, cause, first)?;
        for command_id in answers {
            row = self.publish(row, command, cause, command_id)?;
        }
        Ok(())
    }
}

/// Time past which a lane without a reply to a choice is asked again.
pub(super) fn asks_again_at(choice: &PendingChoice) -> UnixSeconds {
    choice.asked_at.plus(ASK_AGAIN_SECONDS)
}

fn is_for(deposit: &OrderDeposit, payment: &PaymentRequest) -> bool {
    (deposit.blockchain, deposit.stablecoin) == (payment.blockchain, payment.stablecoin)
}

impl OrderRow {
    pub(super) fn deposit_mut(&mut self, slot: i32) -> Option<&mut OrderDeposit> {
        self.order.deposits.iter_mut().find(|deposit| deposit.slot == slot)
    }

    /// Choices without a reply of their lane: the first one of each requested deposit.
    pub(super) fn unanswered(&self) -> impl Iterator<Item = &PendingChoice> {
        let requested = self.order.deposits.iter().filter(|d| d.state == DepositState::Requested);
        requested.filter_map(|d| self.pending.iter().find(|choice| choice.slot == d.slot))
    }

    /// Marks the deposit closed or replaced. A choice without a reply gets none: its sender retries.
    pub(super) fn leave_slot(&mut self, slot: i32, state: DepositState) -> Option<&OrderDeposit> {
        self.pending.retain(|choice| choice.slot != slot);
        let deposit = self.deposit_mut(slot)?;
        deposit.state = state;
        Some(deposit)
    }

    /// Command to open the deposit at its wallet.
    fn ask(&self, command: &OrderCommand, slot: i32, payment: &PaymentRequest) -> Option<Effect> {
        let deposit = self.order.deposits.iter().find(|deposit| deposit.slot == slot)?;
        let open = DepositCommandBody::Open(OpenDeposit {
            stablecoin: deposit.stablecoin,
            contract: payment.contract,
            contracts: payment.contracts.clone(),
            value: self.order.amount,
            user_address: self.order.expecting_wallet_address,
            started_at: deposit.started_at,
            expires_at: self.order.expires_at,
            amounts: payment.amounts,
            late_window_seconds: payment.late_window_seconds,
            accepts_late: payment.accepts_late,
            head_age_max_seconds: payment.head_age_max_seconds,
        });
        Some(to_lane_of(deposit, command, open))
    }
}
