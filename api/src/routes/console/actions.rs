//! Actions of the console: a confirmation page, and the command of the Admin API.

use tokio::time::{Instant, MissedTickBehavior, interval};

use super::*;
use crate::machine::survey::Subject;
use crate::stops;

/// Time after which one form starts no further resend: its whole request may take only half a minute.
const REDRIVING_MAX: Duration = Duration::from_secs(15);

impl Desk {
    /// Refuses an operator who may only read.
    fn must_operate(&self) -> Answer<()> {
        if self.visit.operator.may_operate() { Ok(()) } else { Err(Refusal::ReadOnly) }
    }

    /// Plans the redrive of the webhooks that a query or a form selects.
    async fn plan(&self, fields: &Query) -> Answer<(deliveries::Plan, Filter)> {
        let (filter, now) = (of_filter(fields)?, self.console.clock.now());
        let of = filter.clone();
        let plan = self.inspect(move |reader| deliveries::plan(reader, &of, now)).await?;
        Ok((plan, filter))
    }
}

async fn asked(desk: Desk, id: OrderId, action: Action) -> Answer {
    desk.must_operate()?;
    let row = desk.console.reads.order_row(id).await?;
    Ok(desk.shown(action::on_order(action, &row.order, &desk.visit)))
}

/// `GET /console/orders/{order_id}/…`: confirmation page of an action on an order.
pub(super) fn asks<S>(action: Action) -> MethodRouter<S>
where
    S: Clone + Send + Sync + 'static,
    Console: FromRef<S>,
{
    get(move |desk: Desk, Named(id): Named<OrderId>| asked(desk, id, action))
}

fn done(to: &str, action: Action) -> Response {
    lead(&format!("{to}?done={}", action.word()))
}

/// `POST /console/orders/{order_id}/cancel`
pub(super) async fn cancel(commands: Commands, by: Operator, Named(id): Named<OrderId>) -> Answer {
    commands.cancel_by(&by, id).await?;
    Ok(done(&format!("/console/orders/{id}"), Action::Cancel))
}

/// `POST /console/orders/{order_id}/mark-paid`
pub(super) async fn mark_paid(
    commands: Commands,
    by: Operator,
    Named(id): Named<OrderId>,
) -> Answer {
    commands.mark_paid(&by, id).await?;
    Ok(done(&format!("/console/orders/{id}"), Action::MarkPaid))
}

/// `POST /console/orders/{order_id}/resend-webhook`
pub(super) async fn resend_order(
    commands: Commands,
    by: Operator,
    Named(id): Named<OrderId>,
) -> Answer {
    commands.resend_order(&by, id).await?;
    Ok(done(&format!("/console/orders/{id}"), Action::ResendOrder))
}

/// `GET /console/transfers/{transfer_id}/resend-webhook`
pub(super) async fn ask_resend_transfer(desk: Desk, Named(id): Named<i64>) -> Answer {
    desk.must_operate()?;
    let transfer = desk.console.reads.transfer(TransferId(id)).await?;
    Ok(desk.shown(action::on_transfer(Action::ResendTransfer, &transfer, &desk.visit)))
}

/// `POST /console/transfers/{transfer_id}/resend-webhook`
pub(super) async fn resend_transfer(
    commands: Commands,
    by: Operator,
    Named(id): Named<i64>,
) -> Answer {
    commands.resend_transfer(&by, TransferId(id)).await?;
    Ok(done(&format!("/console/transfers/{id}"), Action::ResendTransfer))
}

/// `GET /console/transfers/{transfer_id}/attach?order_id=`
pub(super) async fn ask_attach(desk: Desk, Named(id): Named<i64>, query: Query) -> Answer {
    desk.must_operate()?;
    let transfer = desk.console.reads.transfer(TransferId(id)).await?;
    let order_id = query.text("order_id")?.map(str::trim).and_then(|text| text.parse().ok());
    let row = desk.console.reads.order_row(order_id.ok_or(Refusal::OrderNotFound)?).await?;
    Ok(desk.shown(action::attach(&transfer, &row.order, &desk.visit)))
}

/// `POST /console/transfers/{transfer_id}/attach`
pub(super) async fn attach(
    commands: Commands,
    by: Operator,
    Named(id): Named<i64>,
    Form(form): Form,
) -> Answer {
    let fields = Query::parse(std::str::from_utf8(&form).unwrap_or_default());
    let order_id = fields.text("order_id")?.unwrap_or_default();
    let accept_less = fields.text("accept_less")?.is_some();
    let body = json!({ "order_id": order_id, "accept_less": accept_less }).to_string();
    let row = commands.attach(&by, TransferId(id), body.as_bytes()).await?;
    Ok(done(&format!("/console/orders/{}", row.order.order_id), Action::Attach))
}

/// Subject and only chain of a query or a form; the chain is empty for every chain.
fn subject(fields: &Query) -> Answer<(&str, &str)> {
    let subject = fields.text("subject")?.unwrap_or_default().trim();
    Ok((subject, fields.text("blockchain")?.unwrap_or_default()))
}

/// `GET /console/stops?subject=&blockchain=`
pub(super) async fn ask_stop(desk: Desk, query: Query) -> Answer {
    desk.must_operate()?;
    Ok(desk.shown(action::stop(Action::Stop, subject(&query)?, &desk.visit)))
}

/// `GET /console/stops/end?subject=&blockchain=`
pub(super) async fn ask_resume(desk: Desk, query: Query) -> Answer {
    desk.must_operate()?;
    Ok(desk.shown(action::stop(Action::Resume, subject(&query)?, &desk.visit)))
}

async fn command(commands: &Commands, by: &Operator, form: &[u8], begins: bool) -> Answer<()> {
    let fields = Query::parse(std::str::from_utf8(form).unwrap_or_default());
    let (subject, _) = subject(&fields)?;
    let request = stops::request(subject, chosen(&fields, "blockchain")?, begins)?;
    commands.stop(by, &request).await
}

/// `POST /console/stops`
pub(super) async fn stop(commands: Commands, by: Operator, Form(form): Form) -> Answer {
    command(&commands, &by, &form, true).await?;
    Ok(done("/console/chains", Action::Stop))
}

/// `POST /console/stops/end`
pub(super) async fn resume(commands: Commands, by: Operator, Form(form): Form) -> Answer {
    command(&commands, &by, &form, false).await?;
    Ok(done("/console/chains", Action::Resume))
}

/// `GET /console/alerts/resolve?alert_id=`
pub(super) async fn ask_resolve(desk: Desk, query: Query) -> Answer {
    desk.must_operate()?;
    let open = desk.open_alerts().await?;
    let alert = query.text("alert_id")?.and_then(|id| open.get(id));
    let alert = alert.ok_or(Refusal::ResourceNotFound)?;
    Ok(desk.shown(alerts::resolve(alert, &desk.visit)))
}

/// `POST /console/alerts/resolve`
pub(super) async fn resolve(commands: Commands, by: Operator, Form(form): Form) -> Answer {
    let fields = Query::parse(std::str::from_utf8(&form).unwrap_or_default());
    let alert_id = fields.text("alert_id")?.unwrap_or_default();
    let reason = fields.text("reason")?.map(str::trim).filter(|reason| !reason.is_empty());
    commands.resolve_alert(&by, alert_id, reason.map(str::to_owned)).await?;
    Ok(done("/console/alerts", Action::Resolve))
}

/// `GET /console/dead-letters/{number}/replay`
pub(super) async fn ask_replay(desk: Desk, Named(number): Named<i64>) -> Answer {
    desk.must_operate()?;
    let letter = desk.letter(number).await?;
    Ok(desk.shown(letter.replay(&desk.visit)?))
}

/// `POST /console/dead-letters/{number}/replay`
pub(super) async fn replay(commands: Commands, by: Operator, Named(number): Named<i64>) -> Answer {
    commands.replay_letter(&by, number).await?;
    Ok(done(&format!("/console/dead-letters/{number}"), Action::Replay))
}

/// `GET /console/deliveries/redrive?host=&outcome=&kind=`
pub(super) async fn ask_redrive(desk: Desk, query: Query) -> Answer {
    desk.must_operate()?;
    let (plan, filter) = desk.plan(&query).await?;
    Ok(desk.shown(plan.ask(&filter, &desk.visit)))
}

/// `POST /console/deliveries/redrive`
pub(super) async fn redrive(desk: Desk, commands: Commands, Form(form): Form) -> Answer {
    let by = &desk.visit.operator;
    let fields = Query::parse(std::str::from_utf8(&form).unwrap_or_default());
    // One redrive at a time, so that each skips what an earlier one has resent.
    let _turn = desk.console.redriving.try_lock().map_err(|_| Refusal::Busy)?;
    let (plan, filter) = desk.plan(&fields).await?;
    let (mut done, begun) = (Vec::new(), Instant::now());
    let mut turns = interval(Duration::from_secs(1) / REDRIVES_A_SECOND);
    // A slow answer causes no burst afterwards.
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for (subject, _) in &plan.subjects {
        turns.tick().await;
        let result = match *subject {
            Subject::Order(id) => commands.resend_order(by, id).await,
            Subject::Transfer(id) => commands.resend_transfer(by, id).await,
        };
        let has_failed = matches!(&result, Err(refusal) if refusal.status().is_server_error());
        done.push((*subject, result));
        if has_failed || begun.elapsed() > REDRIVING_MAX {
            break;
        }
    }
    Ok(desk.shown(plan.done(&done, &filter)))
}
