//! Actions of the console: a confirmation page, and the command of the Admin API.

use tokio::time::{Instant, MissedTickBehavior, interval};

use super::*;
use crate::machine::survey::Subject;
use crate::stops;

/// Maximum time to resend webhooks for one form: a request may take half a minute.
const REDRIVING_MAX: Duration = Duration::from_secs(15);

/// Refuses an operator who may only read.
fn offered(visit: &Visit) -> Answer<()> {
    if visit.operator.may_operate() { Ok(()) } else { Err(Refusal::ReadOnly) }
}

async fn asked(console: Console, visit: Visit, id: OrderId, action: Action) -> Answer {
    offered(&visit)?;
    let row = console.reads.order_row(id).await?;
    Ok(console.shown(&visit, action::on_order(action, &row.order, &visit)))
}

/// `GET /console/orders/{order_id}/…`: confirmation page of an action on an order.
pub(super) fn asks<S>(action: Action) -> MethodRouter<S>
where
    S: Clone + Send + Sync + 'static,
    Console: FromRef<S>,
{
    get(move |console: Console, visit: Visit, Named(id): Named<OrderId>| {
        asked(console, visit, id, action)
    })
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
pub(super) async fn ask_resend_transfer(
    console: Console,
    visit: Visit,
    Named(id): Named<i64>,
) -> Answer {
    offered(&visit)?;
    let transfer = console.reads.transfer(TransferId(id)).await?;
    Ok(console.shown(&visit, action::on_transfer(Action::ResendTransfer, &transfer, &visit)))
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
pub(super) async fn ask_attach(
    console: Console,
    visit: Visit,
    Named(id): Named<i64>,
    query: Query,
) -> Answer {
    offered(&visit)?;
    let transfer = console.reads.transfer(TransferId(id)).await?;
    let order_id = query.text("order_id")?.map(str::trim).and_then(|text| text.parse().ok());
    let row = console.reads.order_row(order_id.ok_or(Refusal::OrderNotFound)?).await?;
    Ok(console.shown(&visit, action::attach(&transfer, &row.order, &visit)))
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
pub(super) async fn ask_stop(console: Console, visit: Visit, query: Query) -> Answer {
    offered(&visit)?;
    Ok(console.shown(&visit, action::stop(Action::Stop, subject(&query)?, &visit)))
}

/// `GET /console/stops/end?subject=&blockchain=`
pub(super) async fn ask_resume(console: Console, visit: Visit, query: Query) -> Answer {
    offered(&visit)?;
    Ok(console.shown(&visit, action::stop(Action::Resume, subject(&query)?, &visit)))
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
pub(super) async fn ask_resolve(console: Console, visit: Visit, query: Query) -> Answer {
    offered(&visit)?;
    let open = console.open_alerts(&visit.operator).await?;
    let alert = query.text("alert_id")?.and_then(|id| open.get(id));
    let alert = alert.ok_or(Refusal::ResourceNotFound)?;
    Ok(console.shown(&visit, alerts::resolve(alert, &visit)))
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
pub(super) async fn ask_replay(
    console: Console,
    visit: Visit,
    Named(number): Named<i64>,
) -> Answer {
    offered(&visit)?;
    let letter = console.letter(&visit, number).await?;
    Ok(console.shown(&visit, letter.replay(&visit)?))
}

/// `POST /console/dead-letters/{number}/replay`
pub(super) async fn replay(commands: Commands, by: Operator, Named(number): Named<i64>) -> Answer {
    commands.replay_letter(&by, number).await?;
    Ok(done(&format!("/console/dead-letters/{number}"), Action::Replay))
}

/// Plans the redrive of the webhooks that a query or a form selects.
async fn plan(
    console: &Console,
    by: &Operator,
    fields: &Query,
) -> Answer<(deliveries::Plan, Filter)> {
    let (filter, now) = (of_filter(fields)?, console.clock.now());
    let of = filter.clone();
    let plan = console.inspect(by, move |reader| deliveries::plan(reader, &of, now)).await?;
    Ok((plan, filter))
}

/// `GET /console/deliveries/redrive?host=&outcome=&kind=`
pub(super) async fn ask_redrive(console: Console, visit: Visit, query: Query) -> Answer {
    offered(&visit)?;
    let (plan, filter) = plan(&console, &visit.operator, &query).await?;
    Ok(console.shown(&visit, plan.ask(&filter, &visit)))
}

/// `POST /console/deliveries/redrive`
pub(super) async fn redrive(
    console: Console,
    visit: Visit,
    commands: Commands,
    Form(form): Form,
) -> Answer {
    let by = &visit.operator;
    let fields = Query::parse(std::str::from_utf8(&form).unwrap_or_default());
    // One redrive at a time, so that each skips what an earlier one has resent.
    let _turn = console.redriving.try_lock().map_err(|_| Refusal::Busy)?;
    let (plan, filter) = plan(&console, by, &fields).await?;
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
    Ok(console.shown(&visit, plan.done(&done, &filter)))
}
