//! A processor by script: answers commands on `orders` as the contract between the two stages says.
//! What it decides about money is not the point here; the real one has its own tests.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use log::Envelope;
use log::{Committed, Event, Log, Record, Step, WorkerSpec};
use schemas::record::{Order, OrderCommand, OrderCommandBody, OrderDeposit, PaymentRequest};
use schemas::{
    CommandId, DepositId, DepositState, OrderCause, OrderId, OrderStatus, Topic, TransferId,
    UnixMicros,
};
use tokio_util::sync::CancellationToken;

/// What the processor does next.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Script {
    /// No wallet has a free amount.
    pub(crate) refuse_payments: bool,
    /// A transfer was seen before each cancel.
    pub(crate) candidate_seen: bool,
    /// Orders end before the command that comes next.
    pub(crate) ended: bool,
}

#[derive(Default)]
struct Machine {
    orders: HashMap<OrderId, Order>,
    deposits: i64,
    out: Vec<Order>,
}

/// Answers commands until `stop`.
pub(crate) fn run(log: &Arc<dyn Log>, script: &Arc<Mutex<Script>>, stop: &CancellationToken) {
    let spec = WorkerSpec {
        group: "test.processor",
        member: "one".into(),
        topics: vec![Topic::OrdersCommands],
        batch_max: 100,
    };
    let mut worker = log.worker(spec).unwrap();
    let mut machine = Machine::default();
    while !stop.is_cancelled() {
        let Event::Records(records) = worker.poll(Duration::from_millis(20)).unwrap() else {
            continue;
        };
        let mut step = Step::default();
        for record in &records {
            let command = schemas::decode(record.value.as_deref().unwrap()).unwrap();
            machine.decide(&command, *script.lock().unwrap());
            publish(log, record, &mut machine.out, &mut step);
            let committed = Committed { offset: record.offset.next(), metadata: String::new() };
            step.offsets.retain(|(from, _)| *from != record.from);
            step.offsets.push((record.from, committed));
        }
        worker.commit(step).unwrap();
    }
}

fn publish(log: &Arc<dyn Log>, input: &Record, orders: &mut Vec<Order>, step: &mut Step) {
    let mut envelope = Envelope::of(input);
    for order in orders.drain(..) {
        let key = order.order_id.to_string();
        let partition = log.layout().order(&key);
        step.records.push(envelope.wrap(Topic::Orders, partition, key, &order).unwrap());
    }
}

impl Machine {
    fn decide(&mut self, command: &OrderCommand, script: Script) {
        let known = self.orders.get(&command.order_id).cloned();
        match (&command.body, known) {
            (OrderCommandBody::Create(_), None) => self.create(command),
            (OrderCommandBody::Create(_), Some(_)) | (_, None) => {}
            (OrderCommandBody::ChoosePayment(payment), Some(mut order)) => {
                if script.ended {
                    order.status = OrderStatus::Expired;
                }
                self.choose(command, order, payment, script);
            }
            (OrderCommandBody::Cancel, Some(mut order)) => {
                if script.ended {
                    order.status = OrderStatus::Expired;
                }
                if script.candidate_seen {
                    order.candidates = vec![TransferId(7)];
                    self.put(&mut order, command, OrderCause::CandidateSeen, None);
                }
                let cause = match (order.status, order.candidates.is_empty()) {
                    (OrderStatus::Pending, true) => OrderCause::Cancelled,
                    (OrderStatus::Pending, false) => OrderCause::CancelRefused,
                    _ => OrderCause::NotPending,
                };
                if cause == OrderCause::Cancelled {
                    order.status = OrderStatus::Cancelled;
                }
                self.put(&mut order, command, cause, command.command_id);
            }
            (OrderCommandBody::MarkPaid, Some(mut order)) => {
                let cause = match order.status {
                    OrderStatus::Paid => OrderCause::MarkPaidRepeated,
                    _ => OrderCause::MarkedPaid,
                };
                order.status = OrderStatus::Paid;
                self.put(&mut order, command, cause, command.command_id);
            }
            (body, _) => panic!("the api does not send {body:?}"),
        }
    }

    fn create(&mut self, command: &OrderCommand) {
        let OrderCommandBody::Create(create) = &command.body else { return };
        let create = create.clone();
        let mut order = Order {
            order_id: command.order_id,
            version: 0,
            updated_at: UnixMicros(0),
            cause: OrderCause::Created,
            command_id: None,
            status: OrderStatus::Pending,
            status_changed: false,
            merchant_order_id: create.merchant_order_id,
            amount: create.amount,
            amount_text: create.amount_text,
            webhook_url: create.webhook_url,
            expecting_wallet_address: create.expecting_wallet_address,
            blockchain: create.blockchain,
            stablecoin: create.stablecoin,
            created_at: command.issued_at.seconds(),
            expires_at: create.expires_at,
            paid_by: None,
            candidates: Vec::new(),
            deposits: Vec::new(),
        };
        self.put(&mut order, command, OrderCause::Created, command.command_id);
        if let Some(payment) = &create.payment {
            self.choose(command, order, payment, Script::default());
        }
    }

    fn choose(
        &mut self,
        command: &OrderCommand,
        mut order: Order,
        payment: &PaymentRequest,
        script: Script,
    ) {
        let asker = command.command_id;
        if order.status != OrderStatus::Pending {
            return self.put(&mut order, command, OrderCause::NotPending, asker);
        }
        let open = |d: &OrderDeposit| {
            (d.blockchain, d.stablecoin, d.state)
                == (payment.blockchain, payment.stablecoin, DepositState::Open)
        };
        if order.deposits.iter().any(open) {
            return self.put(&mut order, command, OrderCause::PaymentRepeated, asker);
        }
        order.deposits.push(OrderDeposit {
            slot: i32::try_from(order.deposits.len()).unwrap(),
            blockchain: payment.blockchain,
            stablecoin: payment.stablecoin,
            state: DepositState::Requested,
            deposit_id: None,
            wallet_address: payment.wallets[0],
            value: None,
            started_at: command.issued_at.seconds(),
        });
        self.put(&mut order, command, OrderCause::PaymentChosen, asker);
        self.deposits += 1;
        let (id, amount) = (DepositId(self.deposits), order.amount);
        let cause = if script.refuse_payments {
            OrderCause::PaymentRefused
        } else {
            OrderCause::DepositOpened
        };
        let deposit = order.deposits.last_mut().unwrap();
        if script.refuse_payments {
            deposit.state = DepositState::Refused;
        } else {
            deposit.state = DepositState::Open;
            deposit.deposit_id = Some(id);
            // Nudged, so that it can be told from the order's amount.
            deposit.value = amount.checked_add(payment.nudge_step);
        }
        self.put(&mut order, command, cause, asker);
    }

    fn put(
        &mut self,
        order: &mut Order,
        command: &OrderCommand,
        cause: OrderCause,
        asker: Option<CommandId>,
    ) {
        let before = self.orders.get(&order.order_id).map(|order| order.status);
        order.version += 1;
        order.updated_at = order.updated_at.next(command.issued_at);
        order.cause = cause;
        order.command_id = asker;
        order.status_changed = before.is_some_and(|status| status != order.status);
        self.orders.insert(order.order_id, order.clone());
        self.out.push(order.clone());
    }
}
